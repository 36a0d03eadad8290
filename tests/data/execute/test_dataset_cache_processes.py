"""Caches on worker processes and beyond the program: splits, killed programs, disks."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import syncline
from syncline.core import api
from syncline.data.dataset import Dataset
from syncline.data.iterator import DataIterator
from syncline.data.read import range as numbers
from syncline.testing.faults import fault_environment
from syncline.testing.programs import Ended, run_program

pytestmark = pytest.mark.processes

BLOCKS = 6

PROGRAM = """
import sys
import syncline
from syncline import data

def noting(log):
    def note(batch):
        with open(log, "a") as file:
            print(batch["id"][0], file=file)
        return {"v": batch["id"] + 1}
    return note

if __name__ == "__main__":
    syncline.init(num_cpus=2)
    log, path, amount = sys.argv[1:]
    ds = data.range(600, override_num_blocks=6).map_batches(noting(log)).cache(path)
    if amount == "part":
        print("rows", [row["v"] for row in ds.take(150)] == list(range(1, 151)))
    else:
        print("rows", [row["v"] for row in ds.iter_rows()] == list(range(1, 601)))
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[None]:
    syncline.init(num_cpus=2, object_store_memory=8 * 1024**2)
    yield
    syncline.shutdown()


def noting(log: Path) -> Callable[[dict[str, np.ndarray]], dict[str, Any]]:
    def note(batch: dict[str, np.ndarray]) -> dict[str, Any]:
        (log / f"{batch['id'][0]}-{os.urandom(4).hex()}").touch()
        return {"v": batch["id"] + 1}

    return note


def run(place: Path, amount: str = "all", **options: Any) -> Ended:
    with run_program(
        PROGRAM, str(place / "log"), str(place / "cache"), amount, **options
    ) as program:
        return program.wait()


def calls(place: Path) -> int:
    log = place / "log"
    return len(log.read_text().split()) if log.exists() else 0


@pytest.mark.parametrize("travels", [False, True])
def test_functions_run_once_per_row_in_a_split_over_many_epochs(
    engine: None, tmp_path: Path, travels: bool
) -> None:
    @syncline.remote(num_cpus=0)
    def read(iterator: DataIterator) -> list[list[int]]:
        return [
            [int(v) for batch in iterator.iter_batches(batch_size=10) for v in batch["v"]]
            for _ in range(3)
        ]

    ds = numbers(600, override_num_blocks=BLOCKS).map_batches(noting(tmp_path)).cache()
    if travels:
        parts = api.get(
            [read.remote(each) for each in ds.random_shuffle().streaming_split(2)], timeout=120
        )
        epochs = [first + second for first, second in zip(*parts, strict=True)]
    else:
        shuffled = ds.random_shuffle()
        epochs = [[row["v"] for row in shuffled.iter_rows()] for _ in range(3)]
    assert all(sorted(each) == list(range(1, 601)) for each in epochs)
    assert len({tuple(each) for each in epochs}) == 3
    assert len(list(tmp_path.iterdir())) == BLOCKS


def test_what_memory_does_not_hold_goes_to_the_disk(engine: None, tmp_path: Path) -> None:
    def widened(batch: dict[str, np.ndarray]) -> dict[str, Any]:
        (tmp_path / f"{batch['id'][0]}-{os.urandom(4).hex()}").touch()
        return {"v": np.repeat(batch["id"], 1024).reshape(-1, 1024)}

    ds: Dataset = numbers(6000, override_num_blocks=12).map_batches(widened).cache()
    for _ in range(2):
        sums = [int(batch["v"].sum()) for batch in ds.iter_batches(batch_size=500)]
        assert sum(sums) == sum(range(6000)) * 1024
        assert len(sums) == 12
    assert ds.size_bytes() > 40_000_000
    assert len(list(tmp_path.iterdir())) == 12


@pytest.mark.long
def test_another_program_reads_what_one_has_kept(tmp_path: Path) -> None:
    assert "rows True" in run(tmp_path, "part").check().stdout
    assert not list((tmp_path / "cache").rglob("*.arrow"))
    (tmp_path / "log").unlink()
    for _ in range(2):
        assert "rows True" in run(tmp_path).check().stdout
        assert calls(tmp_path) == BLOCKS


@pytest.mark.parametrize(
    ("point", "again"),
    [("data.cache.block", True), ("data.cache.complete", True), ("data.cache.published", False)],
)
def test_a_program_that_is_killed_leaves_all_or_nothing(
    tmp_path: Path, point: str, again: bool
) -> None:
    ended = run(
        tmp_path,
        environment=fault_environment({point: "kill:3" if point == "data.cache.block" else "kill"}),
    )
    assert ended.return_code == -signal.SIGKILL, ended.stderr
    (tmp_path / "log").unlink()
    assert "rows True" in run(tmp_path).check().stdout
    assert calls(tmp_path) == (BLOCKS if again else 0)
    assert len(list((tmp_path / "cache").rglob("*.arrow"))) == BLOCKS
