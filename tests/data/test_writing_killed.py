"""A program that is killed while it writes, and started again: nothing is lost, repeated, left
behind or done twice.
"""

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
PAUSE_S = 0.1

PROGRAM = """
import sys, time
import syncline
from syncline import data

def noting(log, pause_s):
    def note(batch):
        with open(log, "a") as file:
            print(batch["id"][0], file=file)
        time.sleep(pause_s)
        return batch
    return note

if __name__ == "__main__":
    syncline.init(num_cpus=2)
    source, log, target, plan, num_blocks, pause_s = sys.argv[1:]
    source_rows = data.read_parquet(source, override_num_blocks=int(num_blocks))
    dataset = source_rows.map_batches(noting(log, float(pause_s)))
    if plan == "shuffled":
        dataset = dataset.repartition(5, shuffle=True)
    dataset.write_parquet(target, mode="create")
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        table = pa.table({"id": list(range(number * ROWS, (number + 1) * ROWS))})
        pq.write_table(table, tmp_path / "in" / f"{number}.parquet")
    return tmp_path


def arguments(place: Path, plan: str) -> list[str]:
    return [
        str(place / "in"),
        str(place / "log"),
        str(place / "out"),
        plan,
        str(FILES),
        str(PAUSE_S),
    ]


def done_in(place: Path) -> list[Path]:
    """The positions that a job has entered into its journal."""
    return list(place.glob(".staging-out-*/done/*.json"))


def taken_log(place: Path) -> list[str]:
    """The first row of every batch that the function has seen; it is forgotten."""
    log = place / "log"
    seen = log.read_text().split() if log.exists() else []
    log.unlink(missing_ok=True)
    return seen


def check(place: Path) -> None:
    """The target holds every row once, in files that are where they belong, and there is nothing
    else.
    """
    files = list((place / "out").rglob("*"))
    assert all(path.suffix == ".parquet" and not path.name.startswith(".") for path in files)
    assert sorted(
        number for path in files for number in pq.read_table(path)["id"].to_pylist()
    ) == list(range(FILES * ROWS))
    assert {path.name for path in place.iterdir()} == {"in", "out"}


@pytest.mark.parametrize(
    ("plan", "point"),
    [
        ("fused", "data.commit.begin"),
        ("fused", "data.commit.decided"),
        ("fused", "data.commit.published"),
        ("shuffled", "data.commit.begin"),
    ],
)
def test_killed_in_the_commit(place: Path, plan: str, point: str):
    with run_program(
        PROGRAM, *arguments(place, plan), environment=fault_environment({point: "kill"})
    ) as program:
        ended = program.wait()
        assert ended.return_code == -signal.SIGKILL, ended.stderr
        assert_nothing_left(program)
    assert len(taken_log(place)) == FILES
    with run_program(PROGRAM, *arguments(place, plan)) as program:
        program.wait().check()
    assert taken_log(place) == []  # everything was written, only not visible
    check(place)


@pytest.mark.promise
def test_killed_between_two_positions(place: Path):
    with run_program(PROGRAM, *arguments(place, "fused")) as program:
        eventually(lambda: len(done_in(place)) >= 3 or program.process.poll() is not None)
        assert program.process.poll() is None, program.stderr
        program.end()
    done = len(done_in(place))
    assert not (place / "out").exists()
    taken_log(place)
    with run_program(PROGRAM, *arguments(place, "fused")) as program:
        program.wait().check()
    assert len(taken_log(place)) == FILES - done
    check(place)
