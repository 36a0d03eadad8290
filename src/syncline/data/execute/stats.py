"""Statistics per operator: what `ds.stats()` shows.

Covered: counting during an execution (`OperatorMeter`), and frozen results with a table. An
operator without a running task waits either for input, until the last block of its next task's
input exists, or for downstream: for memory, a free CPU, or the consumer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from syncline.data.execute.physical_plan import SkippedRows, rows_text
from syncline.data.execute.task_run import TaskReport
from syncline.records import dataclass

_SHOWN_SKIPS = 10


@dataclass(frozen=True, kw_only=True)
class SkippedInTask:
    """Rows left out because a function failed, and their task."""

    task: int
    """Number of the task in its operator."""
    rows: SkippedRows


@dataclass(frozen=True, kw_only=True)
class OperatorStats:
    """Statistics of one operator.

    Seconds of concurrent tasks add up, except the two waiting times, which are wall-clock times of
    the operator.
    """

    name: str
    tasks: int = 0
    """Ended tasks."""
    attempts: int = 0
    """Started tasks, counting retries."""
    blocks: int = 0
    rows: int = 0
    size_bytes: int = 0
    wall_s: float = 0.0
    """Seconds that tasks ran."""
    cpu_s: float = 0.0
    """CPU seconds of tasks; on threads without the time of Arrow's own threads."""
    read_s: float = 0.0
    """Part of `wall_s` spent reading or assembling input."""
    function_s: float = 0.0
    """Part of `wall_s` spent in user functions."""
    waiting_input_s: float = 0.0
    """Seconds without a running task for lack of input."""
    waiting_downstream_s: float = 0.0
    """Seconds without a running task for lack of memory, a free CPU, or demand."""
    busy_s: float = 0.0
    """Seconds with at least one running task."""
    skipped: tuple[SkippedInTask, ...] = ()

    @property
    def rows_per_s(self) -> float:
        """Rows per second of busy time."""
        return self.rows / self.busy_s if self.busy_s else 0.0

    @property
    def skipped_rows(self) -> int:
        """Number of skipped rows."""
        return sum(each.rows.rows for each in self.skipped)


@dataclass(frozen=True, kw_only=True)
class ExecutionStats:
    """Statistics of an execution, running or ended."""

    operators: tuple[OperatorStats, ...] = ()
    wall_s: float = 0.0
    """Seconds since the start, up to the end."""
    blocks: int = 0
    """Delivered blocks."""
    rows: int = 0
    size_bytes: int = 0
    first_block_s: float | None = None
    """Seconds until the first block was delivered."""
    program_waited_s: float = 0.0
    """Seconds that the consumer waited for blocks."""

    @property
    def skipped(self) -> tuple[SkippedInTask, ...]:
        """All skipped rows."""
        return tuple(each for operator in self.operators for each in operator.skipped)

    def to_string(self) -> str:
        """Return a table with a line per operator, a summary, and the skipped rows."""
        lines = [[text(each) for _, text in _COLUMNS] for each in self.operators]
        first = (
            ""
            if self.first_block_s is None
            else f", the first after {_seconds(self.first_block_s)}"
        )
        whole = (
            f"{self.rows:,} rows in {self.blocks} blocks, {size_text(self.size_bytes)}, "
            f"in {_seconds(self.wall_s)}{first}; "
            f"the program waited {_seconds(self.program_waited_s)} for them"
        )
        return "\n".join(
            [*_aligned([[title for title, _ in _COLUMNS], *lines]), whole, *self._skip_lines()]
        )

    def _skip_lines(self) -> list[str]:
        skipped = self.skipped
        if not skipped:
            return []
        count = sum(operator.skipped_rows for operator in self.operators)
        lines = [
            f"{count:,} {'row was' if count == 1 else 'rows were'} left out because a function "
            "failed (on_error='skip'):"
        ]
        for each in skipped[:_SHOWN_SKIPS]:
            rows = each.rows
            lines.append(
                f"  {rows.operator}, task {each.task}, {rows_text(rows.first_row, rows.rows)}: "
                f"{rows.error}"
            )
        if len(skipped) > _SHOWN_SKIPS:
            lines.append(f"  and {len(skipped) - _SHOWN_SKIPS} more places, in `skipped`")
        return lines

    def __str__(self) -> str:
        return self.to_string()


class OperatorMeter:
    """Counters of one running operator. Written by the driver's thread, read by any thread."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._sums: dict[str, Any] = {
            each.name: each.default
            for each in fields(OperatorStats)
            if each.name not in ("name", "skipped")
        }
        self._skipped: list[SkippedInTask] = []
        self._clock = clock
        self._running = 0
        self._changed_at = clock()
        """When the operator last became busy or idle."""

    def begin_attempt(self, inputs_made_at: float | None) -> None:
        """Count the start of a task, and of its first block. `inputs_made_at` is the time when the
        last input block was created; None without input.
        """
        self._add(attempts=1)
        self.begin_block(inputs_made_at)

    def begin_block(self, inputs_made_at: float | None = None) -> None:
        """Count the start of a task's next block."""
        if self._running == 0:
            now = self._clock()
            ready_at = (
                self._changed_at
                if inputs_made_at is None
                else min(max(inputs_made_at, self._changed_at), now)
            )
            self._add(
                waiting_input_s=ready_at - self._changed_at, waiting_downstream_s=now - ready_at
            )
            self._changed_at = now
        self._running += 1

    def end_block(self) -> None:
        """Count the end of a block."""
        self._running -= 1
        if self._running == 0:
            now = self._clock()
            self._add(busy_s=now - self._changed_at)
            self._changed_at = now

    def count(self, report: TaskReport, *, counts_block: bool) -> None:
        """Add a task report. `counts_block` is False for samples and partitions."""
        self._add(
            wall_s=report.wall_s,
            cpu_s=report.cpu_s,
            read_s=report.read_s,
            function_s=report.function_s,
        )
        if report.rows is not None and counts_block:
            self._add(blocks=1, rows=report.rows, size_bytes=report.size_bytes)

    def ended(self, number: int, skipped: Sequence[SkippedRows]) -> None:
        """Count the end of a task."""
        self._add(tasks=1)
        self._skipped += [SkippedInTask(task=number, rows=each) for each in skipped]

    def read(self) -> OperatorStats:
        """Return the statistics so far."""
        since = self._clock() - self._changed_at if self._running else 0.0
        return self._with(busy_s=self._sums["busy_s"] + since)

    def read_passed(self, blocks: int, rows: int, size_bytes: int) -> OperatorStats:
        """Return the statistics of an operator without tasks, which passes blocks on."""
        return self._with(blocks=blocks, rows=rows, size_bytes=size_bytes)

    def _with(self, **sums: Any) -> OperatorStats:
        return OperatorStats(
            name=self._name, **{**self._sums, **sums}, skipped=tuple(self._skipped)
        )

    def _add(self, **amounts: float) -> None:
        for name, amount in amounts.items():  # in place: called several times for each block
            self._sums[name] += amount


def size_text(size_bytes: float) -> str:
    """Format a number of bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size_bytes) < 1000:
            return f"{size_bytes:.3g} {unit}" if unit != "B" else f"{size_bytes:.0f} B"
        size_bytes /= 1000
    return f"{size_bytes:.3g} TB"


def _seconds(seconds: float) -> str:
    return (
        f"{seconds * 1000:.1f} ms"
        if seconds < 1
        else f"{seconds:.2f} s"
        if seconds < 100
        else f"{seconds:.0f} s"
    )


_COLUMNS: tuple[tuple[str, Callable[[OperatorStats], str]], ...] = (
    ("operator", lambda each: each.name),
    ("tasks", lambda each: str(each.tasks)),
    ("blocks", lambda each: str(each.blocks)),
    ("rows", lambda each: f"{each.rows:,}"),
    ("size", lambda each: size_text(each.size_bytes)),
    ("rows/s", lambda each: f"{each.rows_per_s:,.0f}"),
    ("wall", lambda each: _seconds(each.wall_s)),
    ("cpu", lambda each: _seconds(each.cpu_s)),
    ("reading", lambda each: _seconds(each.read_s)),
    ("function", lambda each: _seconds(each.function_s)),
    ("no input", lambda each: _seconds(each.waiting_input_s)),
    ("no room", lambda each: _seconds(each.waiting_downstream_s)),
)
"""Titles and texts of the columns of `ExecutionStats.to_string`."""


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """Columns of equal width: the first one to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in table
    ]
