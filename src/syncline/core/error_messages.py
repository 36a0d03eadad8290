"""Error messages that several engines share, and `death_of` for processes of the library: cause,
consequence, remedy.
"""

from __future__ import annotations

import copy
import signal
from collections.abc import Iterable, Mapping, Sequence

from syncline.exceptions import OutOfMemoryError, RayActorError, WorkerCrashedError
from syncline.suggestions import did_you_mean


class NotAReferenceError(TypeError, ValueError):
    """A value that is not a reference; also a ValueError, which is what Ray raises."""


def exit_cause(return_code: int | None) -> str:
    """Describe how a process ended; negative codes are signals, None is unknown."""
    if return_code is None:
        return "ended for an unknown reason"
    if return_code >= 0:
        return f"exited with code {return_code}"
    try:
        name = signal.Signals(-return_code).name
    except ValueError:
        name = f"signal {-return_code}"
    hint = {
        "SIGKILL": " (by a person, a job scheduler, or the system when memory ran out)",
        "SIGSEGV": " (a crash in native code)",
        "SIGBUS": " (a crash in native code, or shared memory ran out)",
        "SIGABRT": " (native code aborted; its last output is in the log)",
    }.get(name, "")
    return f"was killed by {name}{hint}"


def worker_crashed(function_name: str, pid: int | None, cause: str, *, attempts: int) -> str:
    """Return the message of WorkerCrashedError. `cause` comes from `exit_cause`."""
    lost = _task_lost(function_name, pid, cause, attempts)
    return f"{lost} If such crashes are expected, raise `max_retries`."


def _task_lost(function_name: str, pid: int | None, cause: str, attempts: int) -> str:
    tried = (
        "it was not retried (`max_retries=0`)"
        if attempts <= 1
        else f"this was attempt {attempts} of {attempts}"
    )
    return (
        f"The worker process of {function_name}() (pid={pid}) {cause} while the task ran, "
        f"so the task has no value; {tried}."
    )


def actor_name(class_name: str, name: str | None) -> str:
    """Return an actor's name for messages: `Counter`, or `Counter 'name'`."""
    return f"{class_name} {name!r}" if name else class_name


class NotInActorError(RuntimeError, TypeError):
    """`exit_actor()` outside an actor; also a TypeError, which is what Ray raises."""

    def __init__(self) -> None:
        super().__init__(NOT_IN_ACTOR)


NOT_IN_ACTOR = (
    "`exit_actor()` ends the actor whose method calls it, but this code is not part of an actor's "
    "method: call it there, or use `kill` with the actor's handle"
)


def actor_exists(name: str, namespace: str) -> str:
    """Return the message for a name that is taken."""
    return (
        f"An actor named {name!r} exists already in namespace {namespace!r}: choose another name, "
        f"get that actor with `get_actor({name!r})`, or pass `get_if_exists=True`"
    )


def object_freed(id: int) -> str:
    """Return the message of ObjectFreedError."""
    return (
        f"The value of the object {id:032x} was freed with `internal.free`, so it cannot be read: "
        f"free a value after its last use"
    )


def no_such_actor(name: str, namespace: str, known: Iterable[tuple[str, str]]) -> str:
    """Return the message for an unknown name; `known` are (namespace, name)."""
    names = sorted(other for space, other in known if space == namespace)
    return (
        f"There is no actor named {name!r} in namespace {namespace!r}.{did_you_mean(name, names)} "
        f"It has {', '.join(map(repr, names)) or 'no named actors'}; an actor that died loses its "
        "name."
    )


def actor_died(
    class_name: str, name: str | None, pid: int | None, cause: str, *, max_restarts: int
) -> str:
    """Return the message of ActorDiedError. `cause` is such as `exited with code 1`."""
    restarts = (
        "it is not restarted (`max_restarts=0`)"
        if max_restarts == 0
        else f"its {max_restarts} restarts are used up"
    )
    return (
        f"The actor {actor_name(class_name, name)} (pid={pid}) {cause}; {restarts}, "
        f"so its calls have no result."
    )


def actor_unavailable(class_name: str, name: str | None, pid: int | None, cause: str) -> str:
    """Return the message of ActorUnavailableError."""
    return (
        f"The actor {actor_name(class_name, name)} (pid={pid}) {cause} during this call and is "
        f"restarting. The call has no result, and may or may not have had an effect. Call again, "
        f"or set `max_task_retries` to retry such calls."
    )


_PREDICATES = ("was ", "exited ", "ended ")
"""Beginnings of the results of `exit_cause`."""

_LESS_MEMORY = (
    "Process less at a time (smaller batches or blocks), run fewer tasks at the same time "
    "(`num_cpus=2` or `memory=…` for each), or give the machine or its container more memory."
)


def task_out_of_memory(function_name: str, pid: int | None, cause: str, *, attempts: int) -> str:
    """Return the message of OutOfMemoryError for a task. `cause` has the used and total memory."""
    return f"{_task_lost(function_name, pid, cause, attempts)} {_LESS_MEMORY}"


def actor_out_of_memory(
    class_name: str, name: str | None, pid: int | None, cause: str, *, max_restarts: int
) -> str:
    """Return the message of ActorOutOfMemoryError. `cause` has the used and total memory."""
    return f"{actor_died(class_name, name, pid, cause, max_restarts=max_restarts)} {_LESS_MEMORY}"


def death_of(
    process: str,
    error: BaseException,
    *,
    pid: int | None = None,
    host: str = "",
    less_memory: str = "",
) -> BaseException:
    """Return an engine's error about a process of the library in the words of the program. Other
    errors are returned as they are.

    Args:
        process: The process for users, such as `Rank 1`.
        error: The error.
        pid: Its process id, if the error has none.
        host: Name of its machine.
        less_memory: Remedy if memory ran out.
    """
    if not isinstance(error, (RayActorError, WorkerCrashedError, OutOfMemoryError)):
        return error
    cause = error.exit_cause or ""
    if not cause.startswith(_PREDICATES):  # for example a text of Ray's
        cause = f"died: {error.args[0] if error.args else cause}"
    sentences = [f"{process} {cause.removesuffix('.')}."]
    number = error.pid or pid
    if number:
        sentences.append(f"It was process {number}{f' on host {host}' if host else ''}.")
    if isinstance(error, OutOfMemoryError) and less_memory:
        sentences.append(less_memory)
    described = copy.copy(error)
    described.args = (" ".join(sentences),)
    return described


def group_waits(bundles: Sequence[Mapping[str, float]], problem: str) -> str:
    """Return the warning for a placement group that is infeasible for now."""
    return f"The placement group {[dict(bundle) for bundle in bundles]} stays pending: {problem}"


def get_timeout(timeout_s: float, waiting: int, total: int) -> str:
    """Return the message of GetTimeoutError."""
    return (
        f"`get` waited for {timeout_s:g} s, and {waiting} of {total} value"
        f"{'s' if total != 1 else ''} did not exist yet. Their tasks continue to run: "
        f"call `get` again, or `cancel` them."
    )
