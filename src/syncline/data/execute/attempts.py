"""What becomes of a task that failed: another attempt, or the error that the program gets. Pure
functions.
"""

from __future__ import annotations

from syncline.data.context import DataContext
from syncline.data.execute.jobs import Job
from syncline.data.execute.pools import is_listed
from syncline.data.execute.stages import Actors, Stage
from syncline.exceptions import (
    ActorUnschedulableError,
    ObjectLostError,
    ObjectStoreFullError,
    OutOfDiskError,
    RayTaskError,
    RuntimeEnvSetupError,
    WorkerCrashedError,
)

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
    if isinstance(stage.lane, Actors):
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
