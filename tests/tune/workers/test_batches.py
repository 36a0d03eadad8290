"""Batches of short trials: their sizes, and what becomes of their trials."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.workers import messages
from syncline.tune.workers.batches import (
    BATCH_S,
    GROWTH,
    LARGEST,
    Assigned,
    BatchProcess,
    TrialBatches,
)
from syncline.tune.workers.messages import BatchRan, Failed, Stepped
from syncline.tune.workers.pool import TrialProcess

ONE_CPU = PlacementGroupFactory([{"CPU": 1}])
GROUP: Any = object()
START = messages.Start(info=None, config={})
FAILED = Failed(error=b"", text="died")


class Pool:
    """A pool that records what it is asked to do."""

    imports = ("helper",)

    def __init__(self) -> None:
        self.started = 0
        self.sent: list[tuple[int, list[int]]] = []
        self.kept: list[Any] = []
        self.ended: list[Any] = []

    def take(self, factory: Any, group: Any) -> TrialProcess:
        self.started += 1
        return TrialProcess(self.started, factory)

    def run_batch(self, process: Any, batch: messages.RunBatch, on_outcome: Any) -> None:
        assert all(start.isolated and start.imports == self.imports for start in batch.starts)
        self.sent.append((process.actor, [start.config["n"] for start in batch.starts]))

    def note(self, process: TrialProcess, outcome: BatchRan) -> None:
        process.unusable = outcome.unusable

    def keep(self, process: TrialProcess) -> None:
        self.kept.append(process.actor)

    def end(self, process: TrialProcess) -> None:
        self.ended.append(process.actor)


class Reservations:
    """Names of reservations that are held."""

    def __init__(self) -> None:
        self.held: set[str] = set()

    def rename(self, trial_id: str, name: str) -> None:
        self.held.discard(trial_id)
        self.held.add(name)

    def release(self, name: str) -> None:
        self.held.discard(name)


class Search:
    """The part of the search that assigns trials."""

    def __init__(self) -> None:
        self.pool, self.reservations = Pool(), Reservations()
        self.batches = TrialBatches(
            self.pool, self.reservations, lambda process, outcome, error: None
        )
        self.trials = 0

    def assign(self, group: Any = None) -> bool:
        number, self.trials = self.trials, self.trials + 1
        trial = Assigned(
            trial_id=f"t{number}", attempt=1, start=replace(START, config={"n": number})
        )
        return self.batches.assign(trial, ONE_CPU, group)

    def fill(self) -> None:
        while self.batches.has_room(ONE_CPU):
            assert self.assign()

    @property
    def process(self) -> BatchProcess:
        return self.batches._processes[0]


def ran(count: int, *, trial_s: float = 0.0001, **others: Any) -> BatchRan:
    stepped = Stepped(result={}, ended=True)
    return BatchRan(location="", ended=(stepped,) * count, seconds=count * trial_s, **others)


@pytest.fixture
def search() -> Search:
    made = Search()
    assert made.assign(GROUP)
    return made


def test_a_search_begins_with_one_trial_per_process(search: Search) -> None:
    assert not search.batches.has_room(ONE_CPU)
    assert not search.assign()  # it reserved nothing
    assert search.assign(GROUP)
    assert search.pool.sent == [(1, [0]), (2, [2])]


def test_batches_grow_while_trials_are_short(search: Search) -> None:
    sizes = []
    for _ in range(5):
        process = search.process
        search.batches.finish(process, ran(len(process.running)), None)
        search.fill()
        search.batches.flush()
        sizes.append(len(process.running))
    assert sizes == [GROWTH, GROWTH, GROWTH**2, LARGEST, LARGEST]  # one batch waits meanwhile


def test_long_trials_run_one_per_call(search: Search) -> None:
    search.batches.finish(search.process, ran(1, trial_s=BATCH_S), None)
    search.fill()
    assert search.pool.sent[-1] == (1, [1])
    assert not search.batches.has_room(ONE_CPU)


def test_the_next_batch_waits_while_one_runs(search: Search) -> None:
    process = search.process
    search.batches.finish(process, ran(1), None)
    search.fill()
    assert (len(process.running), len(process.waiting)) == (GROWTH, GROWTH)
    search.batches.finish(process, ran(GROWTH), None)
    assert search.pool.sent[-1] == (1, [5, 6, 7, 8])


def test_a_process_without_trials_is_given_back(search: Search) -> None:
    search.batches.finish(search.process, ran(1), None)
    search.batches.flush()
    assert search.pool.kept == [1]
    assert not search.reservations.held


def test_a_long_trial_leaves_its_batch(search: Search) -> None:
    process = search.process
    search.batches.finish(process, ran(1), None)
    search.fill()
    finished = search.batches.finish(process, ran(1, runs_on=True), None)
    assert [trial.trial_id for trial, _ in finished.ended] == ["t1"]
    assert finished.runs_on is not None
    assert finished.runs_on.trial_id == "t2"
    assert finished.process is process.process
    assert [trial.trial_id for trial in finished.returned] == ["t3", "t4", "t5", "t6", "t7", "t8"]
    assert search.reservations.held == {"t2"}
    assert not search.batches.has_room(ONE_CPU)


def test_trials_after_one_that_left_something_behind_get_another_process(search: Search) -> None:
    process = search.process
    search.batches.finish(process, ran(1), None)
    search.fill()
    finished = search.batches.finish(process, ran(2, unusable="a thread"), None)
    assert len(finished.ended) == 2
    assert len(finished.returned) == 2 * GROWTH - 2
    assert search.pool.ended == [1]
    assert not search.reservations.held


def test_a_trial_that_kills_its_process_fails_alone(search: Search) -> None:
    process = search.process
    search.batches.finish(process, ran(1), None)
    search.fill()
    finished = search.batches.finish(process, None, FAILED)
    assert not finished.ended  # the one at fault is unknown
    assert len(finished.returned) == 2 * GROWTH
    assert search.assign(GROUP)
    assert not search.batches.has_room(ONE_CPU)
    finished = search.batches.finish(search.process, None, FAILED)
    assert [outcome for _, outcome in finished.ended] == [FAILED]


def test_trials_can_be_dropped(search: Search) -> None:
    search.batches.finish(search.process, ran(1), None)
    search.fill()
    assert search.batches.drop("t8")
    assert len(search.process.waiting) == GROWTH - 1
    assert not search.pool.ended
    assert search.batches.drop("t1")  # it may run
    assert search.pool.ended == [1]
    assert not search.batches.drop("t2")
