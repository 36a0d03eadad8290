"""Barriers of an attempt (reports and `collective`) and failure budgets."""

from __future__ import annotations

import pytest

from syncline.train.config import FailureConfig
from syncline.train.controller.attempt import (
    FUTILE_CONTROLLER_FAILURES,
    CollectiveBarrier,
    CompleteReport,
    FailureBudgets,
    ReportCollector,
)
from syncline.train.workers.messages import CheckpointPart, Reported, Uploaded


def part(name: str = "c") -> CheckpointPart:
    return CheckpointPart(dir_name=name, staged=f".tmp-{name}")


def report(
    index: int, *, part: CheckpointPart | None = None, uploading: bool = False, loss: float = 0.0
) -> Reported:
    return Reported(index=index, metrics={"loss": loss}, time=0.0, part=part, uploading=uploading)


def test_a_round_is_complete_when_the_last_rank_has_reported() -> None:
    collector = ReportCollector(world_size=2, first_index=5)
    assert collector.reported(1, report(5, part=part("b"), loss=1.0)) == []
    (complete,) = collector.reported(0, report(5, part=part("a"), loss=2.0))
    assert complete.index == 5
    assert complete.metrics == ({"loss": 2.0}, {"loss": 1.0})
    assert [p.dir_name for p in complete.parts] == ["a", "b"]


def test_a_checkpoint_of_one_rank_waits_for_the_reports_of_the_others() -> None:
    collector = ReportCollector(world_size=3, first_index=0)
    collector.reported(0, report(0, part=part()))
    assert (collector.oldest_incomplete(), collector.missing(0)) == (0, (1, 2))
    collector.reported(2, report(0))
    assert (collector.oldest_incomplete(), collector.missing(0)) == (0, (1,))
    assert len(collector.reported(1, report(0))) == 1
    assert collector.oldest_incomplete() is None


def test_metrics_without_a_checkpoint_have_no_missing_ranks() -> None:
    collector = ReportCollector(world_size=2, first_index=0)
    collector.reported(0, report(0))
    assert collector.oldest_incomplete() is None
    assert [r.metrics for r in collector.flush()] == [({"loss": 0.0}, None)]


def test_an_upload_under_way_holds_back_its_round_and_those_after_it() -> None:
    collector = ReportCollector(world_size=1, first_index=0)
    assert collector.reported(0, report(0, uploading=True)) == []
    assert collector.reported(0, report(1)) == []
    assert collector.oldest_incomplete() is None  # the rank is not missing: it uploads
    assert [r.index for r in collector.uploaded(0, Uploaded(index=0, part=part()))] == [0, 1]


def test_a_rank_is_behind_until_the_others_have_made_its_reports() -> None:
    collector = ReportCollector(world_size=2, first_index=0)
    assert not collector.is_behind(0, ())
    collector.reported(0, report(0))
    assert collector.is_behind(0, ())
    assert not collector.is_behind(1, ())
    assert not collector.is_behind(0, {1: None}), "rank 1 has ended"
    collector.reported(1, report(0, uploading=True))
    assert collector.is_behind(0, ())
    assert collector.is_behind(1, {0, 1})
    collector.reported(0, report(1))
    collector.uploaded(1, Uploaded(index=0, part=part()))
    assert not collector.is_behind(1, ())
    assert collector.is_behind(0, ())


def test_a_rank_that_runs_ahead_with_metrics_does_not_fill_the_memory() -> None:
    collector = ReportCollector(world_size=2, first_index=0, max_open=10)
    returned = [r for index in range(100) for r in collector.reported(0, report(index))]
    assert [r.index for r in returned] == list(range(90))
    assert all(r.metrics[1] is None for r in returned)
    late = [r for index in range(100) for r in collector.reported(1, report(index))]
    assert [r.index for r in late] == list(range(90, 100))


def test_a_late_checkpoint_becomes_complete_after_its_metrics_were_returned() -> None:
    collector = ReportCollector(world_size=2, first_index=0, max_open=2)
    for index in range(5):
        collector.reported(0, report(index))
    complete = collector.reported(1, report(0, part=part()))
    assert [(r.index, len(r.parts)) for r in complete] == [(0, 1)]


def test_an_excluded_rank_is_not_missing() -> None:
    collector = ReportCollector(world_size=3, first_index=0)
    collector.reported(0, report(0, part=part("a")))
    collector.reported(1, report(0))
    assert collector.missing(0) == (2,)
    (complete,) = collector.exclude(2)
    assert (complete.metrics[2], len(complete.parts)) == (None, 1)
    collector.reported(0, report(1, part=part("b")))
    assert (collector.oldest_incomplete(), collector.missing(1), collector.reporters(1)) == (
        1,
        (1,),
        (0,),
    )
    assert [each.index for each in collector.reported(1, report(1))] == [1]


def test_a_rank_excluded_after_its_report_counts_once() -> None:
    collector = ReportCollector(world_size=3, first_index=0)
    collector.reported(0, report(0, part=part()))
    assert collector.exclude(0) == []
    assert collector.missing(0) == (1, 2)


def test_a_barrier_is_released_when_the_last_missing_rank_is_excluded() -> None:
    barrier = CollectiveBarrier(world_size=3)
    assert not barrier.exclude(2)
    barrier.reached(0, 0, b"data")
    assert barrier.missing == (1,)
    assert barrier.exclude(1)
    assert barrier.release() == (0, b"data")
    assert barrier.reached(0, 1, b"more")


def test_a_barrier_carries_the_data_of_rank_zero() -> None:
    barrier = CollectiveBarrier(world_size=3)
    assert not barrier.reached(2, 0, None)
    assert barrier.missing == (0, 1)
    assert not barrier.reached(0, 0, b"data")
    assert barrier.reached(1, 0, None)
    assert barrier.release() == (0, b"data")
    assert barrier.missing == ()
    assert not barrier.reached(1, 1, None)


def test_a_rank_at_another_barrier_fails_an_assertion() -> None:
    barrier = CollectiveBarrier(world_size=2)
    with pytest.raises(AssertionError, match="rank 1 is at barrier 3"):
        barrier.reached(1, 3, None)


PART = CheckpointPart(dir_name="checkpoint_000000", staged=None)


def stated(
    index: int, *, part: CheckpointPart | None = None, states: bytes | None = None
) -> Reported:
    return Reported(index=index, metrics={}, time=0.0, part=part, states=states)


def test_states_of_ranks_without_files_come_with_the_checkpoint_of_the_others() -> None:
    collector = ReportCollector(world_size=3, first_index=0)
    assert collector.reported(1, stated(0, states=b"one")) == []
    assert collector.reported(0, stated(0, part=PART)) == []
    assert collector.reported(2, stated(0, states=b"two")) == [
        CompleteReport(index=0, metrics=({}, {}, {}), parts=(PART,), states={1: b"one", 2: b"two"})
    ]


def test_states_that_no_checkpoint_needs_are_dropped() -> None:
    collector = ReportCollector(world_size=2, first_index=0)
    collector.reported(0, stated(0))
    assert collector.reported(1, stated(0, states=b"one")) == [
        CompleteReport(index=0, metrics=({}, {}), parts=())
    ]


@pytest.mark.parametrize(("limit", "retries"), [(0, 0), (2, 2)])
def test_as_many_failures_are_retried_as_allowed(limit: int, retries: int) -> None:
    budgets = FailureBudgets(FailureConfig(max_failures=limit))
    assert [budgets.charge("worker").retry for _ in range(retries + 1)] == [True] * retries + [
        False
    ]


def test_budgets_are_separate_and_minus_one_is_no_limit() -> None:
    budgets = FailureBudgets(FailureConfig(max_failures=0, max_preemption_failures=-1))
    assert all(budgets.charge("preemption").retry for _ in range(50))
    assert not budgets.charge("worker").retry


def test_controller_failures_without_progress_end_the_run_and_progress_resets_them() -> None:
    budgets = FailureBudgets(FailureConfig())
    for _ in range(10):
        assert budgets.charge("controller").retry
        budgets.progressed()
    decisions = [budgets.charge("controller").retry for _ in range(FUTILE_CONTROLLER_FAILURES)]
    assert decisions == [True] * (FUTILE_CONTROLLER_FAILURES - 1) + [False]
