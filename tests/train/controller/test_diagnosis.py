"""The controller's side of the diagnosis, with observations that the test makes."""

from __future__ import annotations

import math
from typing import Any, cast

from syncline.diagnosis.collective_calls import CollectiveCall
from syncline.diagnosis.observation import RankObserved
from syncline.diagnosis.thread_states import ThreadTimes
from syncline.runs.verdicts import EVENT, OVER, Cause, Verdict
from syncline.train.backend import Worker
from syncline.train.controller.diagnosis import Diagnosis
from syncline.train.controller.run_recorder import RunRecorder


class Recorder:
    """Names of the events."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, event: str, **fields: Any) -> None:
        self.events.append(event)


class Subject:
    """Diagnosis of two ranks."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.told: list[Verdict | None] = []
        self.diagnosis = Diagnosis(
            cast(RunRecorder, self.recorder), self.told.append, clock=lambda: 0.0
        )
        workers = [
            Worker(
                rank=rank,
                node_id="n",
                node_ip="",
                hostname="n",
                pid=rank,
                local_rank=rank,
                local_world_size=2,
                node_rank=0,
                gpu_ids=[],
            )
            for rank in range(2)
        ]
        self.diagnosis.attempt_began(workers, lambda rank: 0.0)

    def window(self, number: int, *sizes: str) -> None:
        """Let a window end; `sizes` are those of the call of each rank."""
        for rank, each in enumerate(sizes):
            call = CollectiveCall(
                group="0", number=number, operation="all_reduce", sizes=each, arrived_s=1.0
            )
            self.diagnosis.observed(
                rank, RankObserved(window=number, times=ThreadTimes(), line="", calls=(call,))
            )


def test_a_verdict_is_recorded_and_told_and_so_is_its_end() -> None:
    subject = Subject()
    subject.window(1, "[2]", "[3]")
    assert subject.recorder.events == [EVENT]
    (verdict,) = subject.told
    assert verdict is not None
    assert verdict.cause is Cause.MISMATCHED_SHAPES
    subject.window(2, "[2]", "[2]")
    assert subject.recorder.events == [EVENT, OVER]
    assert subject.told == [verdict, None]


def test_the_rank_whose_batch_has_a_value_that_is_not_finite_is_named() -> None:
    subject = Subject()
    subject.diagnosis.bad_inputs(1, 4)
    subject.diagnosis.round(4, [{"loss": math.nan}, {"loss": math.nan}])
    subject.diagnosis.round(5, [{"loss": math.nan}, {"loss": math.nan}])
    (verdict,) = subject.told
    assert verdict is not None
    assert (verdict.cause, verdict.ranks) == (Cause.NOT_A_NUMBER, (1,))


def test_a_batch_that_was_not_looked_at_is_not_called_finite() -> None:
    subject = Subject()
    subject.diagnosis.round(4, [{"loss": 1.0}, {"loss": math.inf}])
    (verdict,) = subject.told
    assert verdict is not None
    assert verdict.ranks == (1,)
    assert "is finite" not in verdict.text
    assert "not looked at" in verdict.text
