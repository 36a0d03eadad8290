"""`Datasink`: the one way in which rows leave a dataset.

The driver calls `set_job`, `on_write_start`, then `write` once for each position of the input, on
any worker, then `on_write_complete` or `on_write_failed`. Not covered: files (`file_datasink.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

import pyarrow as pa

WriteReturnType = TypeVar("WriteReturnType")
"""What `Datasink.write` returns."""

WRITE_UUID = "write_uuid"
"""Key of `TaskContext.kwargs` under which the id of the write job stands."""


class SaveMode(str, Enum):
    """What a write does where there is something already."""

    APPEND = "append"
    """Add to it."""
    CREATE = "create"
    """Fail; the target must be new."""
    ERROR = "error"
    """The same as CREATE."""
    IGNORE = "ignore"
    """Write nothing."""
    OVERWRITE = "overwrite"
    """Replace it, at the end and at once."""
    UPSERT = "upsert"
    """Update rows by key: table formats only."""

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise ValueError(
            f"mode={value!r}: choose one of {', '.join(repr(mode.value) for mode in cls)}"
        )


@dataclass
class TaskContext:
    """Which task is running. Created by the executor."""

    task_idx: int = 0
    """Position in the input of the rows that the task gets; the same for a task that runs again,
    and in a job that goes on.
    """
    op_name: str = ""
    """Name of the operator."""
    target_max_block_size_override: int | None = None
    """Bytes at which this task begins a new block, where the operator differs from the context."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """More, by name; `write_uuid` for writes."""

    @classmethod
    def get_current(cls) -> TaskContext | None:
        """The context of the task that this thread runs, or None."""
        return getattr(_local, "context", None)

    @classmethod
    def set_current(cls, context: TaskContext) -> None:
        """Set the context of this thread's task."""
        _local.context = context

    @classmethod
    def reset_current(cls) -> None:
        """This thread runs no task any more."""
        _local.context = None

    @classmethod
    @contextmanager
    def current(cls, context: TaskContext) -> Iterator[TaskContext]:
        """This thread runs a task until the end of the block."""
        cls.set_current(context)
        try:
            yield context
        finally:
            cls.reset_current()


_local = threading.local()


@dataclass
class WriteResult(Generic[WriteReturnType]):
    """What all write tasks have written."""

    num_rows: int
    """Rows, including those of an earlier run that this one went on with."""
    size_bytes: int
    """Bytes of those rows in memory."""
    write_returns: list[WriteReturnType]
    """What `write` returned, in the order of the input."""

    @classmethod
    def combine(cls, *write_results: WriteResult[WriteReturnType]) -> WriteResult[WriteReturnType]:
        """One result of several."""
        return cls(
            num_rows=sum(result.num_rows for result in write_results),
            size_bytes=sum(result.size_bytes for result in write_results),
            write_returns=[value for result in write_results for value in result.write_returns],
        )


class Datasink(Generic[WriteReturnType]):
    """Where rows go. Subclass it and implement `write`.

    A sink is pickled to the workers after `on_write_start`. `write` may run twice for one position,
    if a worker dies; what it returns for the last time counts. Errors that it raises end the job.
    """

    def identity(self) -> Mapping[str, Any]:
        """What decides where and how it writes, by name: of the base all attributes. A job goes on
        only where this is the same.
        """
        return vars(self)

    def set_job(self, job_id: str) -> None:
        """Before anything else: the id of the job, the same for a job that is started again with
        the same input and plan.
        """

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """On the driver, before the first task.

        Args:
            schema: Schema of the rows, where it is known.
        """

    def positions_done(self) -> frozenset[int]:
        """After `on_write_start`: positions of the input that an earlier run of this job has
        written. They need not be read again.
        """
        return frozenset()

    def earlier_result(self) -> WriteResult[WriteReturnType] | None:
        """After `on_write_start`: what was written at these positions; it becomes part of the
        result.
        """
        return None

    def kept_state(self) -> Mapping[str, Any]:
        """After `on_write_start`: what `keep_state` kept in an earlier run of this job; empty if
        there was none.
        """
        return {}

    def keep_state(self, state: Mapping[str, Any]) -> None:
        """On the driver, now and then: keep a few values (JSON) for a run that goes on. Sinks that
        cannot go on need not.
        """

    @property
    def skips_write(self) -> bool:
        """After `on_write_start`: whether there is nothing to do at all, not even
        `on_write_complete`.
        """
        return False

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> WriteReturnType:
        """Write the rows of one position. Runs on a worker.

        Args:
            blocks: The rows.
            ctx: `task_idx` is the position.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement write(blocks, ctx)")

    def on_write_complete(self, write_result: WriteResult[WriteReturnType]) -> None:
        """On the driver, after the last task: the place to make the result visible. An error here
        counts as a failed write.
        """

    def on_write_failed(self, error: Exception) -> None:
        """On the driver, after a failure; errors in here are logged only."""

    def get_name(self) -> str:
        """A name for people: the class's without `Datasink`."""
        name = type(self).__name__.removeprefix("_")
        return name.removesuffix("Datasink") or name

    @property
    def supports_distributed_writes(self) -> bool:
        """False if only the program's own machine can write."""
        return True

    @property
    def writes_in_threads(self) -> bool:
        """Whether it may write on threads of the program, since it lets the others run: what comes
        with this package does.
        """
        return type(self).__module__.startswith(f"{__package__}.")

    @property
    def min_rows_per_write(self) -> int | None:
        """Rows that one call of `write` gets at least, except the last; None for as many as there
        are in a block.
        """
        return None

    @property
    def min_bytes_per_write(self) -> int | None:
        """The same in bytes."""
        return None
