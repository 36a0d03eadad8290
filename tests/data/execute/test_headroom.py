"""Headroom: the rate after the first block, the operator that limits it, and the time limit."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from syncline.data.execute.execution import Execution
from syncline.data.execute.headroom import Headroom, check_rate, measure
from syncline.data.execute.stats import ExecutionStats, OperatorStats


@dataclass
class TimedExecution:
    """Delivers a block of `rows[i]` rows `seconds[i]` after the one before, on its own clock."""

    rows: list[int]
    seconds: list[float]
    operators: tuple[OperatorStats, ...] = ()
    now: float = 100.0
    taken: int = 0
    limits: list[float | None] = field(default_factory=list)

    def next(self, timeout_s: float | None) -> Any:
        self.limits.append(timeout_s)
        if self.taken == len(self.rows):
            raise StopIteration
        if timeout_s is not None and self.seconds[self.taken] > timeout_s:
            self.now += timeout_s
            self.seconds[self.taken] -= timeout_s
            return None
        self.now += self.seconds[self.taken]
        self.taken += 1
        return SimpleNamespace(num_rows=self.rows[self.taken - 1])

    def stats(self) -> ExecutionStats:
        return ExecutionStats(operators=self.operators)


def measured(execution: TimedExecution, rate: float = 10.0, duration_s: float = 5.0) -> Headroom:
    return measure(cast("Execution", execution), rate, duration_s, clock=lambda: execution.now)


def test_the_time_before_the_first_block_does_not_count():
    found = measured(TimedExecution([10, 40, 40], [60.0, 1.0, 1.0]))
    assert (found.rows_per_s, found.ratio, found.rows) == (40.0, 4.0, 90)


def test_a_single_block_counts_with_its_start():
    assert measured(TimedExecution([30], [2.0])).rows_per_s == 15.0


def test_the_measurement_ends_after_its_duration_though_no_block_comes():
    execution = TimedExecution([10, 10, 10, 10], [9.0, 1.0, 1.0, 99.0])
    assert measured(execution, duration_s=3.0).rows == 30
    assert execution.now == 100.0 + 9.0 + 3.0
    assert execution.limits[0] is None


def test_the_operator_with_the_most_task_time_limits():
    execution = TimedExecution(
        [10, 10],
        [1.0, 1.0],
        (OperatorStats(name="Read", wall_s=1.0), OperatorStats(name="Map(decode)", wall_s=3.0)),
    )
    found = measured(execution, rate=20.0)
    assert (found.operator, found.operator_share) == ("Map(decode)", 0.75)
    assert str(found) == (
        "headroom 0.5x: the pipeline delivers 10 rows/s, the program consumes 20 rows/s; "
        "Map(decode) limits it, with 75% of the task time"
    )


def test_rows_in_memory_have_no_limiting_operator():
    found = measured(TimedExecution([10, 10], [1.0, 1.0], (OperatorStats(name="Input"),)))
    assert found.operator is None
    assert "the rows are in memory" in str(found)


def test_a_dataset_without_rows_has_no_rate():
    with pytest.raises(ValueError, match="has no rows"):
        measured(TimedExecution([0, 0], [1.0, 1.0]))


def test_the_duration_is_above_0():
    with pytest.raises(ValueError, match="duration_s=-1: pass the seconds to measure"):
        measured(TimedExecution([1], [1.0]), duration_s=-1)


def test_the_duration_is_a_number():
    with pytest.raises(TypeError, match="duration_s='5' is of type str: pass the seconds"):
        measured(TimedExecution([1], [1.0]), duration_s=cast("float", "5"))


@pytest.mark.parametrize("rate", [0, -1.0, float("nan"), float("inf")])
def test_rates_are_above_zero(rate):
    with pytest.raises(ValueError, match="consumer_rate"):
        check_rate(rate)


@pytest.mark.parametrize("rate", ["10", None, True])
def test_rates_are_numbers(rate):
    with pytest.raises(TypeError, match="consumer_rate"):
        check_rate(rate)
