"""A program that is killed while it writes, and started again: nothing is lost, repeated or left behind, and what is done is not read again."""

import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from syncline.testing.faults import fault_environment
from syncline.testing.programs import assert_nothing_left, run_program
from syncline.testing.waiting import eventually

pytestmark = pytest.mark.processes

FILES, ROWS = 8, 50

PROGRAM = (
    """
import sys, time
import syncline
from syncline import data

def note(batch):
    with open(sys.argv[2], "a") as file:
        file.write(f"{batch['id'][0]}\\n")
    time.sleep(float(sys.argv[4]))
    return batch

if __name__ == "__main__":
    syncline.init(num_cpus=2)
    source, log, target, _, plan = sys.argv[1:]
    dataset = data.read_parquet(source, override_num_blocks=%d).map_batches(note)
    if plan == "shuffled":
        dataset = dataset.repartition(5, shuffle=True)
    dataset.write_parquet(target, mode="create")
    print("written", flush=True)
"""
    % FILES
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        table = pa.table({"id": list(range(number * ROWS, (number + 1) * ROWS))})
        pq.write_table(table, tmp_path / "in" / f"{number}.parquet")
    return tmp_path


def arguments(place: Path, plan: str, pause_s: float = 0.0) -> list[str]:
    return [str(place / "in"), str(place / "log"), str(place / "out"), str(pause_s), plan]


def check(place: Path) -> None:
    """The target holds every row once, in files that are where they belong."""
    files = sorted((place / "out").rglob("*"))
    assert all(path.suffix == ".parquet" and not path.name.startswith(".") for path in files)
    ids = sorted(number for path in files for number in pq.read_table(path)["id"].to_pylist())
    assert ids == list(range(FILES * ROWS))
    assert {path.name for path in place.iterdir()} <= {"in", "log", "out"}


@pytest.mark.parametrize("plan", ["fused", "shuffled"])
@pytest.mark.parametrize("point", ["data.commit.begin", "data.commit.decided", "data.commit.published", "data.commit.cleaned"])
def test_killed_in_the_commit(place: Path, plan: str, point: str):
    with run_program(PROGRAM, *arguments(place, plan), environment=fault_environment({point: "kill"})) as program:
        assert program.wait().return_code == -signal.SIGKILL
        assert_nothing_left(program)
    (place / "log").unlink()
    with run_program(PROGRAM, *arguments(place, plan)) as program:
        program.wait().check()
    assert not (place / "log").exists()  # everything was written, only not visible
    check(place)


def test_killed_between_two_positions(place: Path):
    with run_program(PROGRAM, *arguments(place, "fused", 0.2)) as program:
        eventually(lambda: len(done_in(place)) >= 3)
        program.end()
        assert_nothing_left(program)
    done = len(done_in(place))
    assert done < FILES
    assert not (place / "out").exists()
    (place / "log").unlink()
    with run_program(PROGRAM, *arguments(place, "fused")) as program:
        program.wait().check()
    assert len(seen(place)) == FILES - done
    check(place)


def done_in(place: Path) -> list[Path]:
    """The positions that a job has entered into its journal."""
    return list(place.glob(".staging-out-*/done/*.json"))


def seen(place: Path) -> list[str]:
    return (place / "log").read_text().split()
