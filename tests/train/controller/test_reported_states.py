"""Ranks that give no files to a checkpoint of others: where their readers were is kept for it, and
goes into it.
"""

from __future__ import annotations

from syncline.train.controller.barriers import CompleteReport, ReportGathering
from syncline.train.workers.messages import CheckpointPart, Reported

PART = CheckpointPart(dir_name="checkpoint_000000", staged=None)


def reported(
    index: int, *, part: CheckpointPart | None = None, states: bytes | None = None
) -> Reported:
    return Reported(index=index, metrics={}, time=0.0, part=part, states=states)


def test_states_of_ranks_without_files_come_with_the_checkpoint_of_the_others() -> None:
    gathering = ReportGathering(world_size=3, first_index=0)
    assert gathering.reported(1, reported(0, states=b"one")) == []
    assert gathering.reported(0, reported(0, part=PART)) == []
    assert gathering.reported(2, reported(0, states=b"two")) == [
        CompleteReport(index=0, metrics=({}, {}, {}), parts=(PART,), states={1: b"one", 2: b"two"})
    ]


def test_states_that_no_checkpoint_needs_are_dropped() -> None:
    gathering = ReportGathering(world_size=2, first_index=0)
    gathering.reported(0, reported(0))
    assert gathering.reported(1, reported(0, states=b"one")) == [
        CompleteReport(index=0, metrics=({}, {}), parts=())
    ]
