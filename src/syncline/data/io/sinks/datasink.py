"""`Datasink`: the extension point for writing rows out of a dataset.

The driver calls `set_job` and `on_write_start`, then `write` for each position of the input, on any
worker, then `on_write_complete` or `on_write_failed`. Not covered: files (`file_datasink.py`).
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
"""Type of the value that `Datasink.write` returns."""

JobState = Mapping[str, Any]
"""Values that a sink saves for a resumed run; JSON."""

WRITE_UUID = "write_uuid"
"""Key of the write job's id in `TaskContext.kwargs`."""


class SaveMode(str, Enum):
    """Behavior of a write if the target already exists."""

    APPEND = "append"
    """Add to it."""
    CREATE = "create"
    """Raise an error: the target must be new."""
    ERROR = "error"
    """The same as CREATE."""
    IGNORE = "ignore"
    """Write nothing."""
    OVERWRITE = "overwrite"
    """Replace it atomically when the write completes."""
    UPSERT = "upsert"
    """Update rows by key. Table formats only."""

    @classmethod
    def _missing_(cls, value: object) -> None:
        modes = ", ".join(repr(mode.value) for mode in cls)
        raise ValueError(f"mode={value!r}: choose one of {modes}")


@dataclass
class TaskContext:
    """The running task. Created by the executor."""

    task_idx: int = 0
    """Position: index of the task's rows in the input order. A task that runs again has the same
    position, also in a resumed job.
    """
    op_name: str = ""
    """Name of the operator."""
    target_max_block_size_override: int | None = None
    """Block size in bytes of this task, if it differs from the context."""
    kwargs: dict[str, object] = field(default_factory=dict)
    """Further values by name; `write_uuid` for writes."""

    @classmethod
    def get_current(cls) -> TaskContext | None:
        """Return the context of the task that this thread runs, or None."""
        return getattr(_local, "context", None)

    @classmethod
    def set_current(cls, context: TaskContext) -> None:
        """Set the context of this thread's task."""
        _local.context = context

    @classmethod
    def reset_current(cls) -> None:
        """Clear the context of this thread's task."""
        _local.context = None

    @classmethod
    @contextmanager
    def current(cls, context: TaskContext) -> Iterator[TaskContext]:
        """Set the context of this thread's task for the duration of a `with` block."""
        cls.set_current(context)
        try:
            yield context
        finally:
            cls.reset_current()


_local = threading.local()


@dataclass
class WriteResult(Generic[WriteReturnType]):
    """Combined result of all write tasks."""

    num_rows: int
    """Number of rows, including rows written by an interrupted earlier run."""
    size_bytes: int
    """Bytes of those rows in memory."""
    write_returns: list[WriteReturnType]
    """Return values of `write`, in input order."""

    @classmethod
    def combine(cls, *write_results: WriteResult[WriteReturnType]) -> WriteResult[WriteReturnType]:
        """Combine several results."""
        return cls(
            num_rows=sum(result.num_rows for result in write_results),
            size_bytes=sum(result.size_bytes for result in write_results),
            write_returns=[value for result in write_results for value in result.write_returns],
        )


class Datasink(Generic[WriteReturnType]):
    """Target of a write. Subclass it and implement `write`.

    A sink is pickled to the workers after `on_write_start`. If a worker dies, `write` may run twice
    for one position; the last return value counts. An error that `write` raises ends the job.
    """

    def identity(self) -> Mapping[str, object]:
        """Return the values that decide where and how the sink writes; all attributes by default.

        A job resumes an earlier one only if these are equal.
        """
        return vars(self)

    def set_job(self, job_id: str) -> None:
        """Set the id of the job. Called first; a rerun with the same input and plan has the same
        id.
        """

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Prepare the write. Called on the driver, before the first task.

        Args:
            schema: Schema of the rows, if known.
        """

    def positions_done(self) -> frozenset[int]:
        """Return the positions that an earlier run of this job has written; they are not read
        again. Called after `on_write_start`.
        """
        return frozenset()

    def earlier_result(self) -> WriteResult[WriteReturnType] | None:
        """Return the result of the positions that are already done; it becomes part of the total.
        Called after `on_write_start`.
        """
        return None

    def load_state(self) -> JobState:
        """Return the state that an earlier run of this job saved; empty if there is none. Called
        after `on_write_start`.
        """
        return {}

    def save_state(self, state: JobState) -> None:
        """Save values for a resumed run. Called on the driver from time to time; sinks that cannot
        resume ignore it.
        """

    @property
    def skips_write(self) -> bool:
        """True if there is nothing to do, not even `on_write_complete`. Read after
        `on_write_start`.
        """
        return False

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> WriteReturnType:
        """Write the rows of one position. Called on a worker.

        Args:
            blocks: The rows.
            ctx: The task; `task_idx` is the position.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement write(blocks, ctx)")

    def on_write_complete(self, write_result: WriteResult[WriteReturnType]) -> None:
        """Make the result visible. Called on the driver, after the last task. An error here counts
        as a failed write.
        """

    def on_write_failed(self, error: Exception) -> None:
        """Clean up after a failure. Called on the driver; errors in here are only logged."""

    def get_name(self) -> str:
        """Return the class name without `Datasink`, for display."""
        name = type(self).__name__.removeprefix("_")
        return name.removesuffix("Datasink") or name

    @property
    def supports_distributed_writes(self) -> bool:
        """False if only the driver's machine can write."""
        return True

    @property
    def writes_in_threads(self) -> bool:
        """True if writes may run on threads of the driver process. Default: True for the sinks of
        this package, which release the interpreter lock.
        """
        return type(self).__module__.startswith(f"{__package__}.")

    @property
    def min_rows_per_write(self) -> int | None:
        """Minimum number of rows in each call of `write` but the last; None for the rows of one
        block.
        """
        return None

    @property
    def min_bytes_per_write(self) -> int | None:
        """Minimum number of bytes in each call of `write` but the last."""
        return None
