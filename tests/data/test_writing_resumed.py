"""A write that was cut off goes on when the same program writes to the same target again: nothing
is lost, repeated or left behind.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import syncline
from syncline import data
from syncline.data.io import write_job
from syncline.data.io.sinks.commit import POINTS
from syncline.data.io.sinks.datasink import Datasink
from syncline.data.io.sinks.parquet import ParquetDatasink
from syncline.data.io.write_job import Progress, job_id
from syncline.data.iterate.position import Restart
from syncline.data.plan.nodes import Write
from syncline.testing.faults import faults_set

FILES, ROWS = 6, 10
IDS = list(range(FILES * ROWS))


@pytest.fixture(autouse=True, scope="module")
def local_mode() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        table = pa.table({"id": np.arange(number * ROWS, (number + 1) * ROWS)})
        pq.write_table(table, tmp_path / "in" / f"{number}.parquet")
    return tmp_path


def plan() -> Write:
    return Write(input=data.range(1)._node, sink=Datasink())


class Noted:
    """A function on batches that notes which rows it saw."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def __call__(self, batch):
        with self.log.open("a") as file:
            file.write("".join(f"{number}\n" for number in batch["id"]))
        return batch

    def seen(self) -> list[int]:
        found = [int(line) for line in self.log.read_text().split()] if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return found


def noted(place: Path) -> tuple[data.Dataset, Noted]:
    """The files, one block each, through a function that notes them in the same task."""
    note = Noted(place / "log")
    return data.read_parquet(str(place / "in"), override_num_blocks=FILES).map_batches(
        lambda batch: note(batch)
    ), note


def ids_in(target: Path) -> list[int]:
    return [row["id"] for row in data.read_parquet(str(target)).take_all()]


def leftovers(place: Path) -> list[str]:
    return [
        str(path)
        for path in place.rglob("*")
        if ".staging" in path.name or ".committed" in path.name
    ]


PLANS: dict[str, Callable[[data.Dataset], data.Dataset]] = {
    "fused": lambda dataset: dataset,
    "cut": lambda dataset: dataset.repartition(target_num_rows_per_block=7),
    "shuffled": lambda dataset: dataset.repartition(4, shuffle=True),
    "sorted": lambda dataset: dataset.sort("id", boundaries=[15, 30, 45]),
    "limited": lambda dataset: dataset.limit(45),
    "united": lambda dataset: dataset.union(data.range(8)),
}


def test_files_in_random_order_are_each_written_once(place: Path):
    def write() -> None:
        data.read_parquet(
            str(place / "in"), override_num_blocks=FILES, shuffle="files"
        ).write_parquet(str(place / "out"))

    with (
        faults_set({"data.sink.done": "raise:3"}),
        pytest.raises(Exception, match="SYNCLINE_FAULTS"),
    ):
        write()
    write()
    assert sorted(ids_in(place / "out")) == IDS
    assert leftovers(place) == []


@pytest.mark.parametrize("point", [point for point in POINTS if point != "data.commit.moved"])
@pytest.mark.parametrize("plan", PLANS)
def test_cut_off_anywhere_and_started_again(place: Path, plan: str, point: str):
    target = place / "out"

    def write() -> None:
        PLANS[plan](noted(place)[0]).write_parquet(str(target), mode="create")

    time = 3 if point.startswith("data.sink") else 1
    with faults_set({point: f"raise:{time}"}), pytest.raises(Exception, match="SYNCLINE_FAULTS"):
        write()
    decided = POINTS.index(point) >= POINTS.index("data.commit.decided")
    if not decided:
        assert not target.exists() or list(target.iterdir()) == [] or leftovers(place)
    write()
    expected = {"limited": IDS[:45], "united": sorted([*IDS, *range(8)])}.get(plan, IDS)
    assert sorted(ids_in(target)) == expected
    assert leftovers(place) == []


def test_pieces_that_are_done_are_not_read_again(place: Path):
    dataset, note = noted(place)
    with (
        faults_set({"data.sink.done": "raise:4"}),
        pytest.raises(Exception, match="SYNCLINE_FAULTS"),
    ):
        dataset.write_parquet(str(place / "out"))
    first = note.seen()
    noted(place)[0].write_parquet(str(place / "out"))
    assert sorted(note.seen()) == IDS[4 * ROWS :]
    assert set(first) >= set(IDS[: 4 * ROWS])
    assert sorted(ids_in(place / "out")) == IDS


def test_what_comes_before_the_last_point_is_not_read_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
):
    """A write with tasks of its own: what was done in one run up to a point is no work of the
    next.
    """
    monkeypatch.setattr(write_job, "_SHARE_FOR_PROGRESS", 1e9)  # progress is kept after every task
    dataset, note = noted(place)
    with (
        faults_set({"data.sink.done": "raise:5"}),
        pytest.raises(Exception, match="SYNCLINE_FAULTS"),
    ):
        dataset.repartition(target_num_rows_per_block=ROWS, strict=True).write_parquet(
            str(place / "out")
        )
    note.seen()
    again, note = noted(place)
    again.repartition(target_num_rows_per_block=ROWS, strict=True).write_parquet(str(place / "out"))
    assert min(note.seen()) >= 2 * ROWS
    assert sorted(ids_in(place / "out")) == IDS


def test_other_data_other_plans_and_other_targets_are_other_jobs(place: Path):
    def job(dataset: data.Dataset, target: Path, **options) -> str:
        return job_id(
            Write(input=dataset._node, sink=ParquetDatasink(str(target), **options)),
            dataset.context,
        )

    dataset = noted(place)[0]
    same = job(dataset, place / "out")
    assert job(noted(place)[0], place / "out") == same
    assert job(dataset, place / "other") != same
    assert job(dataset, place / "out", mode="overwrite") != same
    assert job(dataset.limit(3), place / "out") != same
    dataset.context.target_max_block_size = 1000
    assert job(dataset, place / "out") != same
    (place / "in" / "0.parquet").write_bytes((place / "in" / "1.parquet").read_bytes())
    assert job(noted(place)[0], place / "out") != same


class Memory(Datasink):
    """A sink that keeps state."""

    def __init__(self, state: dict) -> None:
        self.state = state

    def load_state(self):
        return self.state

    def save_state(self, state):
        self.state.update(state)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_progress_keeps_the_seed_and_the_shape_of_the_first_run():
    state: dict = {}
    first = Progress(Memory(state), plan(), data.DataContext())
    assert first.restart.index == 0
    cpus, budget_bytes, point = first.restart.point
    assert cpus >= 1
    assert budget_bytes > 0
    assert point is None
    again = Progress(Memory(state), plan(), data.DataContext())
    assert (again.seed, again.restart) == (first.seed, first.restart)


def test_progress_is_kept_so_rarely_that_it_costs_little():
    state: dict = {}
    clock = Clock()
    progress = Progress(Memory(state), plan(), data.DataContext(), clock=clock)
    kept = set()
    for index in range(1, 101):  # one second each, and keeping takes one
        progress.reached(Restart(index=index, point=[1, 1, [index]]))
        kept.add(state["restart"][0])
    assert 3 <= len(kept) <= 8


def test_a_sink_without_state_starts_from_the_beginning():
    assert Progress(Datasink(), plan(), data.DataContext()).restart.index == 0
