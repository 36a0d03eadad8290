"""Faults of one rank: where and when they act."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from syncline.runs.verdicts import Cause
from syncline.testing.training_faults import FaultInjector, FaultPlan, TrainingFault


def injector(fault: TrainingFault | None, rank: int = 1, seconds: float = 0.02) -> FaultInjector:
    return FaultInjector(FaultPlan(fault=fault, rank=1, first_step=2, seconds=seconds), rank)


def duration_s(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def test_each_fault_is_a_cause_that_a_diagnosis_can_name() -> None:
    assert {str(fault) for fault in TrainingFault} == {str(cause) for cause in Cause}


def test_a_plan_survives_as_plain_values() -> None:
    for fault in (*TrainingFault, None):
        plan = FaultPlan(fault=fault, rank=3)
        assert FaultPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"fault": "compute"}, TypeError, "'compute'.* SLOW_COMPUTE"),
        ({"fault": None, "rank": -1}, ValueError, "rank=-1"),
        ({"fault": None, "first_step": -1}, ValueError, "first_step=-1"),
        ({"fault": None, "seconds": -0.1}, ValueError, "seconds=-0.1"),
    ],
)
def test_a_plan_that_would_inject_nothing_is_an_error(
    wrong: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        FaultPlan(**wrong)


def test_a_delay_begins_at_its_step_and_stays_on_its_rank() -> None:
    for fault, name in (
        (TrainingFault.SLOW_DATA, "load"),
        (TrainingFault.SLOW_COMPUTE, "compute"),
        (TrainingFault.SLOW_DISK, "compute"),
        (TrainingFault.GARBAGE_COLLECTION, "compute"),
    ):
        slow, other = injector(fault), injector(fault, rank=0)
        slow.begin_step(1)
        assert not slow._is_active
        slow.begin_step(2)
        other.begin_step(2)
        assert duration_s(getattr(slow, name)) >= 0.02
        assert not other._is_active
        slow.close()


def test_the_faults_of_a_collective_and_of_a_batch_happen_once() -> None:
    for fault in (
        TrainingFault.MISSING_COLLECTIVE,
        TrainingFault.MISMATCHED_COLLECTIVES,
        TrainingFault.MISMATCHED_SHAPES,
    ):
        made = injector(fault)
        seen = []
        for step in range(4):
            made.begin_step(step)
            seen.append(made.collective)
        assert seen == [None, None, fault, None]
    poisoned = injector(TrainingFault.NOT_A_NUMBER)
    values = []
    for step in range(4):
        poisoned.begin_step(step)
        values.append(math.isnan(poisoned.poison))
    assert values == [False, False, True, False]


def test_processes_that_take_the_core_end_with_the_injector() -> None:
    made = injector(None)
    made._burners.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))
    made.close()
    assert made._burners[0].returncode is not None
