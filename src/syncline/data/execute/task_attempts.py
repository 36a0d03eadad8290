"""A launched task through all its attempts, executor reports, and the retry rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from syncline.data.context import DataContext
from syncline.data.execute.block_store import BlockValue, TableRef
from syncline.data.execute.data_worker import TaskCodeKey
from syncline.data.execute.messages import Launch
from syncline.data.execute.physical_plan import Actors, SkippedRows, Stage
from syncline.data.execute.task_run import InputLayout, TaskReport, TaskRequest
from syncline.exceptions import (
    ActorUnschedulableError,
    ObjectLostError,
    ObjectStoreFullError,
    OutOfDiskError,
    RayTaskError,
    RuntimeEnvSetupError,
    WorkerCrashedError,
)

Post: TypeAlias = Callable[[Callable[[], None]], None]
"""Runs a call on the driver's thread. Safe from any thread and from a finalizer."""


@dataclass(kw_only=True, eq=False)
class ActiveTask:
    """A task launched by the scheduler, through all its attempts."""

    launch: Launch
    blocks: Sequence[int]
    """Numbers of the input blocks, in the order that `layout` refers to."""
    key: TaskCodeKey
    request: TaskRequest
    layout: InputLayout
    needs_store: bool
    """True if the output blocks go to the object store."""
    separate_partitions: bool = False
    """True if each partition becomes a separate object."""
    is_running: bool = True
    """True while the task produces a block; False while it waits to be resumed."""
    running_since: float = 0.0
    """Start of the current block on `time.monotonic`."""
    produced_rows: int = 0
    """Rows produced by this attempt."""
    crashes: int = 0
    """Attempts ended by the death of a process."""
    retries: int = 0
    """Attempts ended by an error that the settings retry."""
    skipped: list[SkippedRows] = field(default_factory=list)
    """Rows skipped by this attempt."""
    runner: Any = None
    """The executor's object that runs the task; None before the start and after cancellation."""
    cancelled: bool = False

    def next_attempt(self) -> None:
        """Prepare another attempt, which leaves out the rows produced so far."""
        self.request = self.request._replace(skip_rows=self.request.skip_rows + self.produced_rows)
        self.produced_rows = 0
        self.skipped = []
        self.runner = None


class ExecutorListener(Protocol):
    """Receiver of executor reports, always on the driver's thread."""

    def reported(
        self, active: ActiveTask, report: TaskReport, value: BlockValue | Sequence[TableRef] | None
    ) -> None:
        """The task produced a block or ended.

        `value` is the block; with separate partitions, one reference per partition.
        """

    def lost(self, active: ActiveTask, error: BaseException) -> None:
        """The attempt ended without a report: a process died or an object was lost."""

    def executor_failed(self, error: BaseException) -> None:
        """The executor cannot run any task."""


MAX_CRASHES = 3
"""Retries of a task whose worker process died."""
_MAX_ACTOR_RETRIES = 3
_PERMANENT_ERRORS = (
    ActorUnschedulableError,
    RuntimeEnvSetupError,
    ObjectLostError,
    ObjectStoreFullError,
    OutOfDiskError,
)
"""Errors of the machine that every attempt would meet again."""


def should_retry(
    active: ActiveTask, error: BaseException, stage: Stage, context: DataContext
) -> bool:
    """Return True if the settings ask for another attempt after an error of a user function."""
    if isinstance(stage.executor, Actors):
        return active.retries < _MAX_ACTOR_RETRIES and is_listed(
            error, context.actor_task_retry_on_errors
        )
    return active.retries < context.max_map_retries and is_listed(error, context.retried_map_errors)


def can_restart(active: ActiveTask, error: BaseException) -> bool:
    """Return True if the task is attempted again after an error of the machine.

    `active.crashes` already counts this error.
    """
    return active.crashes <= MAX_CRASHES and not isinstance(error, _PERMANENT_ERRORS)


def crash_error(active: ActiveTask, error: BaseException, stage: Stage) -> BaseException:
    """Return the user's error for a task whose last attempt was ended by the machine."""
    task = f"{stage.name}, task {active.launch.task.number}"
    if isinstance(error, ObjectLostError):
        return ObjectLostError(f"{task} needs a block that was lost. {error}")
    if isinstance(error, _PERMANENT_ERRORS):
        return type(error)(f"{task}: {error}")
    pid, cause = getattr(error, "pid", None), getattr(error, "exit_cause", None)
    last = str(error) if cause is None else f"the process (pid={pid}) {cause}"
    return WorkerCrashedError(
        f"{task}, failed {active.crashes} times because its worker process died. The last time: "
        f"{last}. Look for native code that crashes, a call of exit, or too little memory (use "
        "smaller batches, or fewer workers with `concurrency`).",
        pid=pid,
        exit_cause=cause,
    )


def user_error(error: BaseException, context: DataContext) -> BaseException:
    """Return the error of a task in the form that is raised to the user."""
    if not isinstance(error, RayTaskError):
        return error
    if context.raise_original_map_exception and error.cause is not None:
        return error.cause
    return error.as_instanceof_cause()


def is_listed(error: BaseException, listed: bool | Sequence[type[BaseException]]) -> bool:
    """Return True if a setting such as `retried_map_errors` covers an error or its cause."""
    cause = error.cause if isinstance(error, RayTaskError) and error.cause is not None else error
    return listed if isinstance(listed, bool) else isinstance(cause, tuple(listed))
