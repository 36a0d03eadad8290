"""Headroom: how many times faster a pipeline delivers rows than a program consumes them.

The pipeline runs for a few seconds with a consumer that only counts rows. Its rate is that after
the first block, so the start of workers does not count. Not covered: the time to make batches of
the rows, and the CPU time that a training will take from the pipeline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from syncline.data.execute.block_store import OutputBlock
from syncline.data.execute.execution import Execution
from syncline.data.execute.stats import ExecutionStats
from syncline.records import dataclass


@dataclass(frozen=True, kw_only=True)
class Headroom:
    """Rate of a pipeline relative to the rate of its consumer."""

    rows_per_s: float
    """Rows per second that the pipeline delivers."""
    consumer_rows_per_s: float
    """Rows per second that the program consumes."""
    operator: str | None
    """Operator whose tasks took the most time, which limits the rate; None for rows in memory."""
    operator_share: float
    """Share of that operator in the time of all tasks, 0 to 1."""
    rows: int
    """Rows that were measured."""

    @property
    def ratio(self) -> float:
        """Times that the pipeline is faster; below 1 the program waits for rows."""
        return self.rows_per_s / self.consumer_rows_per_s

    def __str__(self) -> str:
        limit = (
            "the rows are in memory"
            if self.operator is None
            else f"{self.operator} limits it, with {self.operator_share:.0%} of the task time"
        )
        return (
            f"headroom {self.ratio:.2g}x: the pipeline delivers {self.rows_per_s:,.0f} rows/s, the "
            f"program consumes {self.consumer_rows_per_s:,.0f} rows/s; {limit}"
        )


def check_rate(consumer_rate: object) -> float:
    """Return the rows per second of a consumer. Raise TypeError or ValueError for other values."""
    if isinstance(consumer_rate, bool) or not isinstance(consumer_rate, int | float):
        raise TypeError(
            f"consumer_rate={consumer_rate!r} is of type {type(consumer_rate).__name__}. Pass the "
            "rows per second that the program consumes: rows of a batch / seconds of a step."
        )
    if not 0 < consumer_rate < float("inf"):
        raise ValueError(
            f"consumer_rate={consumer_rate} is no rate. Pass the rows per second that the program "
            "consumes, above 0."
        )
    return float(consumer_rate)


def measure(
    execution: Execution,
    consumer_rate: float,
    duration_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> Headroom:
    """Take blocks for about `duration_s` seconds after the first one, and compare the rates.

    Raises:
        TypeError: `duration_s` is not a number.
        ValueError: The dataset has no rows, or `duration_s` is not above 0.
    """
    if isinstance(duration_s, bool) or not isinstance(duration_s, int | float):
        raise TypeError(
            f"duration_s={duration_s!r} is of type {type(duration_s).__name__}: pass the seconds "
            "to measure, above 0."
        )
    if not duration_s > 0:
        raise ValueError(f"duration_s={duration_s}: pass the seconds to measure, above 0.")
    began = clock()
    rows, first_rows, first_at, last_at = 0, 0, began, began
    for block in _until(execution, duration_s, clock):
        rows, last_at = rows + block.num_rows, clock()
        if not first_rows:
            first_rows, first_at = block.num_rows, last_at
    if not rows:
        raise ValueError("the dataset has no rows, so it has no rate: check its input and filters")
    # A dataset of one block has no rate but that of its whole execution.
    counted, taken_s = (
        (rows - first_rows, last_at - first_at) if rows > first_rows else (rows, last_at - began)
    )
    operator, share = _slowest(execution.stats())
    return Headroom(
        rows_per_s=counted / max(taken_s, 1e-9),
        consumer_rows_per_s=consumer_rate,
        operator=operator,
        operator_share=share,
        rows=rows,
    )


def _until(
    execution: Execution, duration_s: float, clock: Callable[[], float]
) -> Iterator[OutputBlock]:
    """Yield the blocks until the time is over. The first block may take any time."""
    ends_at: float | None = None
    while ends_at is None or clock() < ends_at:
        try:
            block = execution.next(None if ends_at is None else max(0.0, ends_at - clock()))
        except StopIteration:
            return
        if block is not None:
            ends_at = clock() + duration_s if ends_at is None else ends_at
            yield block


def _slowest(stats: ExecutionStats) -> tuple[str | None, float]:
    """Return the operator with the most task seconds, and its share of those of all operators."""
    total_s = sum(each.wall_s for each in stats.operators)
    if not total_s:
        return None, 0.0
    slowest = max(stats.operators, key=lambda each: each.wall_s)
    return slowest.name, slowest.wall_s / total_s
