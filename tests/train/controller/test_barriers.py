"""Where ranks meet: rounds of reports, and `collective`."""

from __future__ import annotations

import pytest

from syncline.train.controller.barriers import CollectiveBarrier, ReportGathering
from syncline.train.workers.messages import CheckpointPart, Reported, Uploaded


def part(name: str = "c") -> CheckpointPart:
    return CheckpointPart(dir_name=name, staged=f".tmp-{name}")


def report(
    index: int, *, part: CheckpointPart | None = None, uploading: bool = False, loss: float = 0.0
) -> Reported:
    return Reported(index=index, metrics={"loss": loss}, time=0.0, part=part, uploading=uploading)


def test_a_round_is_complete_when_the_last_rank_has_reported() -> None:
    gathering = ReportGathering(world_size=2, first_index=5)
    assert gathering.reported(1, report(5, part=part("b"), loss=1.0)) == []
    (complete,) = gathering.reported(0, report(5, part=part("a"), loss=2.0))
    assert complete.index == 5
    assert complete.metrics == ({"loss": 2.0}, {"loss": 1.0})
    assert [p.dir_name for p in complete.parts] == ["a", "b"]


def test_a_checkpoint_of_one_rank_waits_for_the_reports_of_the_others() -> None:
    gathering = ReportGathering(world_size=3, first_index=0)
    gathering.reported(0, report(0, part=part()))
    assert (gathering.waits_for(), gathering.missing(0)) == (0, (1, 2))
    gathering.reported(2, report(0))
    assert (gathering.waits_for(), gathering.missing(0)) == (0, (1,))
    assert len(gathering.reported(1, report(0))) == 1
    assert gathering.waits_for() is None


def test_metrics_alone_are_waited_for_by_nobody() -> None:
    gathering = ReportGathering(world_size=2, first_index=0)
    gathering.reported(0, report(0))
    assert gathering.waits_for() is None
    assert [r.metrics for r in gathering.rest()] == [({"loss": 0.0}, None)]


def test_an_upload_under_way_holds_back_its_round_and_those_after_it() -> None:
    gathering = ReportGathering(world_size=1, first_index=0)
    assert gathering.reported(0, report(0, uploading=True)) == []
    assert gathering.reported(0, report(1)) == []
    assert gathering.waits_for() is None  # the rank is not missing: it uploads
    assert [r.index for r in gathering.uploaded(0, Uploaded(index=0, part=part()))] == [0, 1]


def test_a_rank_that_runs_ahead_with_metrics_does_not_fill_the_memory() -> None:
    gathering = ReportGathering(world_size=2, first_index=0, max_open=10)
    given_out = [r for index in range(100) for r in gathering.reported(0, report(index))]
    assert [r.index for r in given_out] == list(range(90))
    assert all(r.metrics[1] is None for r in given_out)
    late = [r for index in range(100) for r in gathering.reported(1, report(index))]
    assert [r.index for r in late] == list(range(90, 100))


def test_a_late_checkpoint_is_complete_though_its_round_was_given_up_as_metrics() -> None:
    gathering = ReportGathering(world_size=2, first_index=0, max_open=2)
    for index in range(5):
        gathering.reported(0, report(index))
    complete = gathering.reported(1, report(0, part=part()))
    assert [(r.index, len(r.parts)) for r in complete] == [(0, 1)]


def test_a_rank_that_is_excused_is_not_waited_for() -> None:
    gathering = ReportGathering(world_size=3, first_index=0)
    gathering.reported(0, report(0, part=part("a")))
    gathering.reported(1, report(0))
    assert gathering.missing(0) == (2,)
    (complete,) = gathering.excuse(2)
    assert (complete.metrics[2], len(complete.parts)) == (None, 1)
    gathering.reported(0, report(1, part=part("b")))
    assert (gathering.waits_for(), gathering.missing(1), gathering.past(1)) == (1, (1,), (0,))
    assert [each.index for each in gathering.reported(1, report(1))] == [1]


def test_a_rank_that_is_excused_after_its_report_counts_once() -> None:
    gathering = ReportGathering(world_size=3, first_index=0)
    gathering.reported(0, report(0, part=part()))
    assert gathering.excuse(0) == []
    assert gathering.missing(0) == (1, 2)


def test_those_at_a_meeting_go_on_when_the_last_that_is_missing_is_excused() -> None:
    barrier = CollectiveBarrier(world_size=3)
    assert not barrier.excuse(2)
    barrier.reached(0, 0, b"data")
    assert barrier.missing == (1,)
    assert barrier.excuse(1)
    assert barrier.take() == (0, b"data")
    assert barrier.reached(0, 1, b"more")


def test_all_ranks_get_what_rank_zero_brought_to_a_meeting() -> None:
    barrier = CollectiveBarrier(world_size=3)
    assert not barrier.reached(2, 0, None)
    assert barrier.missing == (0, 1)
    assert not barrier.reached(0, 0, b"data")
    assert barrier.reached(1, 0, None)
    assert barrier.take() == (0, b"data")
    assert barrier.missing == ()
    assert not barrier.reached(1, 1, None)


def test_a_rank_at_another_meeting_is_a_defect() -> None:
    barrier = CollectiveBarrier(world_size=2)
    with pytest.raises(AssertionError, match="rank 1 is at meeting 3"):
        barrier.reached(1, 3, None)
