"""What one task does: a head that makes blocks of the task's input, steps that change them one
after the other, and a shaper of blocks.

A chain is pickled once per execution and runs in a thread or in a worker process; it knows nothing
of stages, engines or schedulers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from syncline.data.context import DataContext

Ports = Sequence[Sequence[pa.Table]]
"""The tables of a task, port by port, each in order; pieces are cut out already."""


@dataclass(frozen=True, kw_only=True)
class SkippedRows:
    """Rows that a user function failed on, left out because of `on_error="skip"`."""

    operator: str
    first_row: int
    """Number of the first one among the rows that the step got in this task."""
    rows: int
    error: str
    """One line: type and text."""


@dataclass(kw_only=True)
class TaskState:
    """What is known of the running task, and what its steps leave for statistics. One per run of a
    task; not for several threads.
    """

    stage: str = ""
    task: int = 0
    """Number of the task in its stage: the same when it runs again, or in a later execution that
    starts in the middle.
    """
    seed: int = 0
    """Of this execution and epoch."""
    epoch: int = 0
    skipped: list[SkippedRows] = field(default_factory=list)
    read_s: float = 0.0
    """Seconds in the head: reading, or putting pieces together."""
    function_s: float = 0.0
    """Seconds in user functions."""
    in_call: tuple[str, float, int, int] | None = None
    """(step, time.monotonic() when it began, first row, rows) of the call of a user function that
    is running, for the watchdog.
    """
    failing: frozenset[tuple[str, int]] = frozenset()
    """(step, first row) of calls that exceeded their time in an earlier run of this task: they are
    skipped.
    """


def rows_text(first_row: int, rows: int) -> str:
    """Numbers of rows for people: "row 3", or "rows 3 to 5"."""
    return f"row {first_row}" if rows == 1 else f"rows {first_row} to {first_row + rows - 1}"


class Head(Protocol):
    """Makes the first blocks of a task."""

    def __call__(self, ports: Ports, payload: Any, task: TaskState) -> Iterator[pa.Table]: ...


class Step:
    """Changes a stream of blocks. Pickled before `open`, which runs once per process; one task at a
    time.
    """

    name: str = ""

    def open(self) -> None:
        """Before the first task in this process: construct what is kept between tasks."""

    def run(self, blocks: Iterator[pa.Table], task: TaskState) -> Iterator[pa.Table]:
        """The changed blocks, made as they are asked for."""
        raise NotImplementedError

    def close(self) -> None:
        """When the process has no more tasks of this execution."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """A block that a task has made."""

    table: pa.Table
    is_last: bool
    """Whether it is known to be the task's last."""


@dataclass(frozen=True, kw_only=True)
class Chain:
    """What the tasks of a stage do."""

    head: Head
    steps: tuple[Step, ...] = ()
    context: DataContext
    """The dataset's; current while a task runs."""
    max_block_bytes: int | None = None
    """Larger blocks are cut; smaller ones of the same task are put together up to it."""
    first_block_bytes: int | None = None
    """The limit of a task's first block; it doubles from block to block up to `max_block_bytes`.
    None: that from the beginning.
    """
    max_block_rows: int | None = None
    timeout_s: float | None = None
    """The shortest time limit of its user functions."""
