"""Where the time of an execution went, operator by operator: what `ds.stats()` shows.

Covered: counting while an execution runs (`Meter`), and what was counted as frozen values with a
text for people. An operator without a running task either waits for input (until the last block
that its next task needs was made), or for downstream: for room in the budget, a free CPU, or the
consumer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from syncline.data.execute.program import SkippedRows, rows_text
from syncline.data.execute.task_run import Turn

_SHOWN_SKIPS = 10


@dataclass(frozen=True, kw_only=True)
class SkippedInTask:
    """Rows that were left out because a function failed on them, and the task they were in."""

    task: int
    """Number of the task in its operator."""
    rows: SkippedRows


@dataclass(frozen=True, kw_only=True)
class OperatorStats:
    """One operator. Seconds of several tasks at once add up; the two waiting times are the
    operator's as a whole.
    """

    name: str
    tasks: int = 0
    """Tasks that have ended."""
    attempts: int = 0
    """Tasks that were begun; more than there are where some were tried again."""
    blocks: int = 0
    rows: int = 0
    size_bytes: int = 0
    wall_s: float = 0.0
    """Time that tasks ran."""
    cpu_s: float = 0.0
    """CPU time of it (on threads: of the thread alone, without Arrow's own threads)."""
    read_s: float = 0.0
    """Part of `wall_s`: reading, and putting input together."""
    function_s: float = 0.0
    """Part of `wall_s`: in the program's functions."""
    waiting_input_s: float = 0.0
    """Time without a running task, because input was missing."""
    waiting_downstream_s: float = 0.0
    """Time without a running task, because there was no room for what it would make, or no CPU."""
    busy_s: float = 0.0
    """Time with at least one running task."""
    skipped: tuple[SkippedInTask, ...] = ()

    @property
    def rows_per_s(self) -> float:
        """Rows per second of busy time."""
        return self.rows / self.busy_s if self.busy_s else 0.0

    @property
    def skipped_rows(self) -> int:
        """How many rows were left out."""
        return sum(each.rows.rows for each in self.skipped)


@dataclass(frozen=True, kw_only=True)
class ExecutionStats:
    """An execution, so far or as a whole."""

    operators: tuple[OperatorStats, ...] = ()
    wall_s: float = 0.0
    """Since its beginning, up to its end."""
    blocks: int = 0
    """Delivered to the program."""
    rows: int = 0
    size_bytes: int = 0
    first_block_s: float | None = None
    """Until the first block could be taken."""
    program_waited_s: float = 0.0
    """Time that the program waited for blocks."""

    @property
    def skipped(self) -> tuple[SkippedInTask, ...]:
        """All rows that were left out."""
        return tuple(each for operator in self.operators for each in operator.skipped)

    def to_string(self) -> str:
        """A table for people: one line per operator, then the whole, then rows that were left
        out.
        """
        titles = (
            "operator",
            "tasks",
            "blocks",
            "rows",
            "size",
            "rows/s",
            "wall",
            "cpu",
            "reading",
            "function",
            "no input",
            "no room",
        )
        lines = [
            (
                each.name,
                str(each.tasks),
                str(each.blocks),
                f"{each.rows:,}",
                size_text(each.size_bytes),
                f"{each.rows_per_s:,.0f}",
                *map(
                    _seconds,
                    (
                        each.wall_s,
                        each.cpu_s,
                        each.read_s,
                        each.function_s,
                        each.waiting_input_s,
                        each.waiting_downstream_s,
                    ),
                ),
            )
            for each in self.operators
        ]
        first = (
            ""
            if self.first_block_s is None
            else f", the first after {_seconds(self.first_block_s)}"
        )
        whole = (
            f"{self.rows:,} rows in {self.blocks} blocks, {size_text(self.size_bytes)}, in {_seconds(self.wall_s)}{first}; "
            f"the program waited {_seconds(self.program_waited_s)} for them"
        )
        return "\n".join([*_aligned([titles, *lines]), whole, *self._skip_lines()])

    def _skip_lines(self) -> list[str]:
        skipped = self.skipped
        if not skipped:
            return []
        count = sum(operator.skipped_rows for operator in self.operators)
        lines = [
            f"{count:,} {'row was' if count == 1 else 'rows were'} left out because a function failed (on_error='skip'):"
        ]
        for each in skipped[:_SHOWN_SKIPS]:
            rows = each.rows
            lines.append(
                f"  {rows.operator}, task {each.task}, {rows_text(rows.first_row, rows.rows)}: {rows.error}"
            )
        if len(skipped) > _SHOWN_SKIPS:
            lines.append(f"  and {len(skipped) - _SHOWN_SKIPS} more places, in `skipped`")
        return lines

    def __str__(self) -> str:
        return self.to_string()


@dataclass(kw_only=True)
class Meter:
    """Counts for one operator while it runs. For the driver's thread; `read` may be called from
    any.
    """

    name: str
    clock: Callable[[], float] = time.monotonic
    tasks: int = 0
    attempts: int = 0
    blocks: int = 0
    rows: int = 0
    size_bytes: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    read_s: float = 0.0
    function_s: float = 0.0
    waiting_input_s: float = 0.0
    waiting_downstream_s: float = 0.0
    busy_s: float = 0.0
    skipped: list[SkippedInTask] = field(default_factory=list)
    running: int = 0
    changed_at: float = 0.0
    """When the operator became busy, or idle."""

    def __post_init__(self) -> None:
        self.changed_at = self.clock()

    def turn_begins(self, inputs_made_at: float | None) -> None:
        """A task runs. `inputs_made_at`: when the last block of its input was there; None for a
        task that needs none, or goes on.
        """
        if self.running == 0:
            now = self.clock()
            ready_at = (
                self.changed_at
                if inputs_made_at is None
                else min(max(inputs_made_at, self.changed_at), now)
            )
            self.waiting_input_s += ready_at - self.changed_at
            self.waiting_downstream_s += now - ready_at
            self.changed_at = now
        self.running += 1

    def turn_ends(self) -> None:
        """A task rests, or has ended."""
        self.running -= 1
        if self.running == 0:
            now = self.clock()
            self.busy_s += now - self.changed_at
            self.changed_at = now

    def count(self, turn: Turn, *, counts_block: bool) -> None:
        """What a turn took and made. `counts_block`: what it made is output of the operator."""
        self.wall_s += turn.wall_s
        self.cpu_s += turn.cpu_s
        self.read_s += turn.read_s
        self.function_s += turn.function_s
        if turn.rows is not None and counts_block:
            self.blocks += 1
            self.rows += turn.rows
            self.size_bytes += turn.size_bytes

    def ended(self, number: int, skipped: Sequence[SkippedRows]) -> None:
        """A task has ended."""
        self.tasks += 1
        self.skipped += [SkippedInTask(task=number, rows=rows) for rows in skipped]

    def read(self) -> OperatorStats:
        """What was counted so far."""
        busy_s = self.busy_s + (self.clock() - self.changed_at if self.running else 0.0)
        return OperatorStats(
            name=self.name,
            tasks=self.tasks,
            attempts=self.attempts,
            blocks=self.blocks,
            rows=self.rows,
            size_bytes=self.size_bytes,
            wall_s=self.wall_s,
            cpu_s=self.cpu_s,
            read_s=self.read_s,
            function_s=self.function_s,
            waiting_input_s=self.waiting_input_s,
            waiting_downstream_s=self.waiting_downstream_s,
            busy_s=busy_s,
            skipped=tuple(self.skipped),
        )

    def read_passed(self, blocks: int, rows: int, size_bytes: int) -> OperatorStats:
        """The same for an operator that has no tasks, but passes blocks on."""
        return replace(self.read(), blocks=blocks, rows=rows, size_bytes=size_bytes)


def size_text(size_bytes: float) -> str:
    """A number of bytes for people."""
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
