"""Every sample exactly once and in the order of an uninterrupted epoch, however often and however a
job is restarted.
"""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from syncline.data.iterate.cursor import Cursor, continue_from, epoch_start
from syncline.data.iterate.sharding import Rounds, ShuffleWindows
from tests.data.iterate.iterate_simulation import (
    SimulatedPipeline,
    SimulatedRanks,
    expected_own_rows,
)

CASES = 400


@dataclass
class Job:
    """A job that is interrupted and restarted, and what it has to get."""

    rng: random.Random
    pipeline: SimulatedPipeline
    epoch: int = 0
    cursors: list[Cursor] = field(default_factory=list)
    # What the current dealing began with, and what each of its ranks got since, over all restarts
    # that only continued it.
    rows: list[int] = field(default_factory=list)
    got: list[list[int]] = field(default_factory=list)
    # Rows of the epoch that earlier dealings yielded.
    before: list[int] = field(default_factory=list)

    def run(
        self, rounds: Rounds, windows: list[ShuffleWindows | None], pulls: int | None
    ) -> SimulatedRanks:
        """One session: `pulls` batches by random ranks, or all that there are."""
        continues = bool(self.cursors) and rounds == self.cursors[0].rounds
        continues = continues and windows == [
            c.windows for c in sorted(self.cursors, key=lambda c: c.rank)
        ]
        begin = (
            continue_from(self.cursors, rounds=rounds, windows=windows)
            if self.cursors
            else epoch_start(epoch=self.epoch, seed=7, rounds=rounds)
        )
        if not continues:
            self.before += [row for own in self.got for row in own]
            consumed = set(self.before)
            self.rows = [row for row in self.pipeline.sequence(self.epoch) if row not in consumed]
            self.got = [[] for _ in rounds.chunks]
        assert begin.epoch == self.epoch
        ranks = SimulatedRanks(
            pipeline=self.pipeline, pass_start=begin, windows=windows, rng=self.rng
        )
        if pulls is None:
            ranks.finish()
        else:
            for _ in range(pulls):
                ranks.pull(self.rng.randrange(rounds.world_size))
        self.cursors = ranks.saved()
        for rank, own in enumerate(ranks.yielded):
            self.got[rank] += own
            expected = expected_own_rows(self.rows, rounds, rank, windows[rank], self.epoch)
            assert self.got[rank] == expected[: len(self.got[rank])], (
                f"rank {rank} of {rounds}, {windows}"
            )
            if ranks.cursors[rank].ended:
                assert len(self.got[rank]) == len(expected)
        return ranks

    @property
    def everything(self) -> list[int]:
        return self.before + [row for own in self.got for row in own]


def random_pipeline(rng: random.Random) -> SimulatedPipeline:
    rows = iter(range(10_000))
    fragments = [
        [next(rows) for _ in range(rng.choice([0, 1, 5, 20, 40]))] for _ in range(rng.randint(1, 6))
    ]
    return SimulatedPipeline(
        fragments=fragments,
        keep_one_in=rng.choice([1, 1, 2, 3]),
        shuffle=rng.choice([None, "fragments", "rows"]),
        seed=rng.randrange(100),
    )


def random_session(
    rng: random.Random, equal: bool | str
) -> tuple[Rounds, list[ShuffleWindows | None]]:
    world_size, batch_size = rng.randint(1, 5), rng.randint(1, 8)
    chunks = tuple(
        batch_size if rng.random() < 0.9 else rng.randint(1, 8) for _ in range(world_size)
    )
    windowed = rng.random() < 0.4
    windows = [
        ShuffleWindows(rows=chunk * rng.randint(1, 4), seed=rng.randrange(5)) if windowed else None
        for chunk in chunks
    ]
    return Rounds(chunks=chunks, equal=equal), windows


def interrupted_job(case: int, equal: bool | str) -> tuple[Job, SimulatedRanks]:
    """A job after its epoch, and its last session."""
    rng = random.Random(case)
    job = Job(rng=rng, pipeline=random_pipeline(rng), epoch=rng.choice([0, 0, 3]))
    session = random_session(rng, equal)
    for _ in range(rng.randint(1, 5)):
        ranks = job.run(*session, pulls=rng.choice([0, 1, 3, 10, 30]))
        if all(cursor.ended for cursor in job.cursors):
            return job, ranks
        if rng.random() < 0.6:
            session = random_session(rng, equal)
    return job, job.run(*session, pulls=None)


@pytest.mark.parametrize("case", range(0, CASES, 50))
def test_every_sample_comes_once_and_in_order_over_any_restarts(case: int) -> None:
    for each in range(case, case + 50):
        job, _ = interrupted_job(each, equal=False)
        assert sorted(job.everything) == sorted(job.pipeline.sequence(job.epoch)), f"case {each}"


@pytest.mark.parametrize("case", range(CASES, CASES + 200, 50))
def test_dropping_the_remainder_loses_what_it_counts_and_nothing_else(case: int) -> None:
    for each in range(case, case + 50):
        job, ranks = interrupted_job(each, equal="drop")
        missing = Counter(job.pipeline.sequence(job.epoch))
        missing.subtract(job.everything)
        assert min(missing.values(), default=0) >= 0, f"case {each}"
        assert sum(missing.values()) == ranks.sharder.statistics().dropped_rows, f"case {each}"


@pytest.mark.parametrize("case", range(CASES + 200, CASES + 400, 50))
def test_padding_loses_nothing_over_any_restarts(case: int) -> None:
    for each in range(case, case + 50):
        job, _ = interrupted_job(each, equal="pad")
        assert set(job.everything) == set(job.pipeline.sequence(job.epoch)), f"case {each}"


@pytest.mark.parametrize("world_size", [1, 3])
def test_a_restart_at_the_end_of_an_epoch_begins_the_next_one(world_size: int) -> None:
    pipeline = SimulatedPipeline(fragments=[list(range(20)), list(range(20, 30))], shuffle="rows")
    job = Job(rng=random.Random(0), pipeline=pipeline)
    rounds = Rounds(chunks=(4, 4))
    job.run(rounds, [None, None], pulls=None)
    assert all(cursor.ended for cursor in job.cursors)
    job.epoch, job.got = 1, []
    rounds = Rounds(chunks=(3,) * world_size)
    job.run(rounds, [None] * world_size, pulls=None)
    assert sorted(job.everything) == list(range(30))
    assert pipeline.sequence(0) != pipeline.sequence(1)


def test_a_restart_after_the_last_batch_but_before_the_end_yields_nothing_more() -> None:
    pipeline = SimulatedPipeline(fragments=[list(range(8))])
    rounds = Rounds(chunks=(4,))
    job = Job(rng=random.Random(0), pipeline=pipeline)
    job.run(rounds, [None], pulls=2)
    assert not job.cursors[0].ended
    job.run(rounds, [None], pulls=None)
    assert job.everything == list(range(8))
    assert job.cursors[0].ended


def test_a_restart_reads_again_at_most_a_round_and_the_block_it_begins_in() -> None:
    fragments = [list(range(start, start + 50)) for start in range(0, 1000, 50)]
    pipeline = SimulatedPipeline(fragments=fragments)
    job = Job(rng=random.Random(1), pipeline=pipeline)
    two, three = Rounds(chunks=(10, 10)), Rounds(chunks=(10, 10, 10))
    ranks = job.run(two, [None, None], pulls=0)
    for _ in range(40):
        ranks.pull(0)
        ranks.pull(1)
    job.cursors, job.got = ranks.saved(), ranks.yielded
    job.run(three, [None] * 3, pulls=None)
    assert pipeline.reads[-1] <= 200 + 20 + 7
    assert sorted(job.everything) == list(range(1000))
