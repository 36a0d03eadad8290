"""Every row of real files exactly once and in the order of an uninterrupted epoch, however often a
job is stopped and started again.

Random cases over files, row groups, read tasks, block sizes, filters, shuffles, local shuffles,
batch sizes, positions, kinds of `equal`, and numbers of ranks before and after. Ranks are threads;
the executor runs in this process.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import syncline
from syncline.data.columnar.expressions import col
from syncline.data.context import DataContext
from syncline.data.dataset import Dataset
from syncline.data.execute.execution import start_execution
from syncline.data.iterate.sharding import Rounds, equal_mode, shuffle_windows
from syncline.data.iterator import DataIterator
from syncline.data.plan.nodes import RandomSeedConfig
from syncline.data.read import read_parquet
from tests.data.iterate.iterate_simulation import expected_own_rows

CASES = 24


@pytest.fixture(autouse=True, scope="module")
def local_mode() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


def random_dataset(rng: random.Random, directory: Path) -> Dataset:
    first = 0
    for number in range(rng.randint(1, 4)):
        rows = rng.choice([0, 1, 17, 40, 60])
        table = pa.table(
            {
                "v": pa.array(range(first, first + rows), pa.int64()),
                "text": [f"row {row}" for row in range(rows)],
            }
        )
        pq.write_table(
            table, directory / f"{number}.parquet", row_group_size=rng.choice([4, 9, 100])
        )
        first += rows
    context = DataContext(
        target_max_block_size=rng.choice([None, 300, 3000]), enable_progress_bars=False
    )
    with DataContext.current(context):
        dataset = read_parquet(
            str(directory),
            override_num_blocks=rng.choice([None, 1, 7]),
            shuffle="files" if rng.random() < 0.2 else None,
        )
        if rng.random() < 0.4:
            dataset = dataset.filter(expr=col("v") % rng.choice([2, 3]) == 0)
        if rng.random() < 0.4:
            dataset = dataset.map_batches(
                lambda batch: {"v": batch["v"], "twice": batch["v"] * 2},
                batch_size=rng.choice([None, 6]),
            )
        return rng.choice(
            [
                lambda: dataset,
                lambda: dataset,
                lambda: dataset.random_shuffle(),
                lambda: dataset.random_shuffle().cache().random_sample(0.8),
                lambda: dataset.random_shuffle(seed=5),
                lambda: dataset.random_shuffle(seed=RandomSeedConfig(seed=5)),
                lambda: dataset.randomize_block_order(),
                lambda: dataset.sort("v", descending=True),
                lambda: dataset.random_sample(0.7, seed=3),
                lambda: dataset.limit(50),
                lambda: dataset.union(dataset.with_column("v", col("v") + 1000)),
                lambda: dataset.repartition(3),
            ]
        )()


@dataclass(frozen=True, kw_only=True)
class Session:
    """How a job reads until it is stopped."""

    world_size: int
    batch_size: int
    buffer_rows: int | None

    @staticmethod
    def random(rng: random.Random) -> "Session":
        return Session(
            world_size=rng.randint(1, 4),
            batch_size=rng.randint(1, 9),
            buffer_rows=rng.choice([None, None, 5, 20]),
        )


@dataclass(kw_only=True)
class Job:
    """A job that is stopped and started again, and what it has to get."""

    rng: random.Random
    dataset: Dataset
    equal: bool | str
    states: list[dict[str, Any]] = field(default_factory=list)
    session: Session | None = None
    # What the current dealing began with, and what each rank got of it, over all sessions that only
    # continued it.
    rows: list[int] = field(default_factory=list)
    got: list[list[int]] = field(default_factory=list)
    # What earlier dealings of the epoch gave.
    before: list[int] = field(default_factory=list)

    @property
    def everything(self) -> list[int]:
        return self.before + [row for own in self.got for row in own]

    def sequence(self) -> list[int]:
        """All rows of the epoch, in order."""
        state = self.states[0]
        with start_execution(
            self.dataset._node, self.dataset.context, seed=state["seed"], epoch=state["epoch"]
        ) as execution:
            return [row for block in execution for row in block.table()["v"].to_pylist()]

    def run(self, session: Session, *, finishes: bool = False) -> None:
        pulls = [
            None if finishes else self.rng.choice([0, 1, 2, 5, 12])
            for _ in range(session.world_size)
        ]
        iterators = self._iterators(session)
        if self.states:
            for iterator in iterators:
                iterator.load_state_dict(json.loads(json.dumps(self.states)))
        with ThreadPoolExecutor(session.world_size) as threads:
            yielded = list(
                threads.map(
                    lambda pair: _read(pair[0], session, pair[1]),
                    zip(iterators, pulls, strict=True),
                )
            )
        self.states = [dict(iterator.state_dict()) for iterator in iterators]
        if session != self.session:
            consumed = Counter(self.everything)
            self.before = self.everything
            self.rows = []
            for row in self.sequence():
                consumed[row] -= 1
                if consumed[row] < 0:
                    self.rows.append(row)
            self.got = [[] for _ in iterators]
            self.session = session
        self._check(session, yielded)

    def _iterators(self, session: Session) -> list[DataIterator]:
        if session.world_size == 1:
            return [self.dataset.iterator()]
        return self.dataset.streaming_split(session.world_size, equal=self.equal)

    def _check(self, session: Session, yielded: list[list[int]]) -> None:
        rounds = Rounds(
            chunks=(session.batch_size,) * session.world_size, equal=equal_mode(self.equal)
        )
        windows = shuffle_windows(
            buffer_rows=session.buffer_rows,
            batch_size=session.batch_size,
            seed=self.states[0]["seed"],
        )
        for rank, own in enumerate(yielded):
            self.got[rank] += own
            expected = expected_own_rows(self.rows, rounds, rank, windows, self.states[0]["epoch"])
            assert self.got[rank] == expected[: len(self.got[rank])], f"rank {rank} of {session}"
            if self.states[rank]["ended"]:
                assert len(self.got[rank]) == len(expected), f"rank {rank} of {session}"


def _read(iterator: DataIterator, session: Session, pulls: int | None) -> list[int]:
    """The rows of the next `pulls` batches, or of all that are left."""
    batches = iter(
        iterator.iter_batches(
            batch_size=session.batch_size, local_shuffle_buffer_size=session.buffer_rows
        )
    )
    rows: list[int] = []
    # A rank begins its pass though it pulls nothing, since all have to come.
    while pulls is None or pulls >= 0:
        batch = next(batches, None)
        if batch is None:
            break
        rows += batch["v"].tolist()
        if pulls is not None and pulls <= 1:
            break
        pulls = None if pulls is None else pulls - 1
    batches.close()  # type: ignore[attr-defined]
    return rows


def interrupted_job(case: int, equal: bool | str, directory: Path) -> Job:
    rng = random.Random(case)
    job = Job(rng=rng, dataset=random_dataset(rng, directory), equal=equal)
    session = Session.random(rng)
    for _ in range(rng.randint(1, 4)):
        job.run(session)
        if all(state["ended"] for state in job.states):
            return job
        if rng.random() < 0.5:
            session = Session.random(rng)
    job.run(session, finishes=True)
    return job


@pytest.mark.parametrize("case", range(CASES))
def test_every_row_comes_once_and_in_order_over_any_restarts(case: int, tmp_path: Path) -> None:
    job = interrupted_job(case, False, tmp_path)
    assert sorted(job.everything) == sorted(job.sequence())


@pytest.mark.parametrize("case", range(CASES, CASES + 8))
def test_dropping_the_remainder_repeats_nothing_over_any_restarts(
    case: int, tmp_path: Path
) -> None:
    job = interrupted_job(case, "drop", tmp_path)
    assert job.session is not None
    missing = Counter(job.sequence())
    missing.subtract(job.everything)
    assert min(missing.values(), default=0) >= 0
    assert sum(missing.values()) < job.session.world_size


@pytest.mark.parametrize("case", range(CASES + 8, CASES + 16))
def test_padding_loses_nothing_over_any_restarts(case: int, tmp_path: Path) -> None:
    job = interrupted_job(case, "pad", tmp_path)
    assert set(job.everything) == set(job.sequence())


def test_the_epoch_after_a_resumed_one_is_that_of_a_job_that_was_never_stopped(
    tmp_path: Path,
) -> None:
    pq.write_table(pa.table({"v": range(100)}), tmp_path / "a.parquet", row_group_size=10)
    dataset = read_parquet(str(tmp_path)).random_shuffle()
    whole = dataset.iterator()
    session = Session(world_size=1, batch_size=8, buffer_rows=None)
    _read(whole, session, 3)
    resumed = dataset.iterator()
    resumed.load_state_dict(whole.state_dict())
    rest, second = _read(resumed, session, None), _read(resumed, session, None)
    assert len(rest) == 100 - 24
    assert second == _read(whole, session, None)
    assert sorted(second) == list(range(100))
    assert second[:20] != sorted(second)[:20]
