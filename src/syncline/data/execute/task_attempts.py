"""`Job`: a task that runs, as the driver and the lanes see it, and what lanes tell the driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from syncline.core.refs import ObjectRef
from syncline.data.context import DataContext
from syncline.data.execute.data_worker import Layout, WorkKey
from syncline.data.execute.messages import Launch
from syncline.data.execute.program import Actors, SkippedRows, Stage
from syncline.data.execute.task_run import Request, Turn
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
"""Have something done by the driver's thread; from any thread, also while garbage is collected."""


@dataclass(kw_only=True, eq=False)
class Job:
    """A task that the scheduler has launched, through all its attempts."""

    launch: Launch
    blocks: Sequence[int]
    """Numbers of the blocks that it works on, in the order that `layout` counts them in."""
    key: WorkKey
    request: Request
    layout: Layout
    """Which rows of which input tables each port gets."""
    stores: bool
    """Whether its blocks have to lie in the object store."""
    apart: bool = False
    """Whether its partitions are to be objects of their own."""
    in_turn: bool = True
    """It runs; else it waits to be resumed."""
    turn_began: float = 0.0
    produced_rows: int = 0
    """By this attempt."""
    deaths: int = 0
    """Attempts that ended because a process died."""
    retries: int = 0
    """Attempts that ended with an error after which the program wants another one."""
    skipped: list[SkippedRows] = field(default_factory=list)
    """Of this attempt."""
    place: Any = None
    """What the lane runs it with; None before, and once it is cancelled."""
    cancelled: bool = False

    def again(self) -> None:
        """Another attempt, which leaves out what was produced."""
        self.request = self.request._replace(skip_rows=self.request.skip_rows + self.produced_rows)
        self.produced_rows = 0
        self.skipped = []
        self.place = None


class Listener(Protocol):
    """What lanes tell; always in the driver's thread."""

    def turned(
        self,
        job: Job,
        turn: Turn,
        value: pa.Table | ObjectRef[Any] | Sequence[ObjectRef[Any]] | None,
    ) -> None:
        """A turn has ended. `value`: the block; for partitions as objects of their own one
        reference each.
        """

    def lost(self, job: Job, error: BaseException) -> None:
        """The turn has no answer because of the machine: a process died, an object is lost."""

    def broken(self, error: BaseException) -> None:
        """The lane cannot go on."""


MOST_DEATHS = 3
"""So often a task is tried again because the process that ran it died."""
_MOST_RETRIES_OF_ACTORS = 3
_HOPELESS = (
    ActorUnschedulableError,
    RuntimeEnvSetupError,
    ObjectLostError,
    ObjectStoreFullError,
    OutOfDiskError,
)
"""Errors of the machine that another attempt would meet again."""


def is_tried_again(job: Job, error: BaseException, stage: Stage, context: DataContext) -> bool:
    """Whether the program wants another attempt after this error of a function."""
    if isinstance(stage.executor, Actors):
        return job.retries < _MOST_RETRIES_OF_ACTORS and is_listed(
            error, context.actor_task_retry_on_errors
        )
    return job.retries < context.max_map_retries and is_listed(error, context.retried_map_errors)


def survives(job: Job, error: BaseException) -> bool:
    """Whether there is another attempt after an error of the machine, which `job.deaths` counts
    already.
    """
    return job.deaths <= MOST_DEATHS and not isinstance(error, _HOPELESS)


def crash(job: Job, error: BaseException, stage: Stage) -> BaseException:
    """What the program gets after the last attempt that the machine ended."""
    task = f"{stage.name}, task {job.launch.task.number}"
    if isinstance(error, ObjectLostError):
        return ObjectLostError(f"{task} works on a block that is lost. {error}")
    if isinstance(error, _HOPELESS):
        return type(error)(f"{task}: {error}")
    pid, cause = getattr(error, "pid", None), getattr(error, "exit_cause", None)
    last = str(error) if cause is None else f"the process (pid={pid}) {cause}"
    return WorkerCrashedError(
        f"{task}, failed {job.deaths} times because its worker process died. The last time: {last}. Look for what ends it: "
        "native code that crashes, an exit, or too little memory (then take smaller batches, or fewer workers with `concurrency`)",
        pid=pid,
        exit_cause=cause,
    )


def raised(error: BaseException, context: DataContext) -> BaseException:
    """The form in which the program gets an error of a task."""
    if not isinstance(error, RayTaskError):
        return error
    if context.raise_original_map_exception and error.cause is not None:
        return error.cause
    return error.as_instanceof_cause()


def is_listed(error: BaseException, listed: bool | Sequence[type[BaseException]]) -> bool:
    """Whether a setting such as `retried_map_errors` means this error, or what it was caused by."""
    raised = error.cause if isinstance(error, RayTaskError) and error.cause is not None else error
    return listed if isinstance(listed, bool) else isinstance(raised, tuple(listed))
