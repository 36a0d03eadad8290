"""Message texts that several modules share, so that every engine tells the same story: cause,
consequence, remedy.
"""

from __future__ import annotations

import difflib
import signal
from collections.abc import Iterable


class NotAReferenceError(TypeError, ValueError):
    """Something that is no reference where one is needed: a wrong type, which Ray reports as a
    ValueError.
    """


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?`, or nothing where no known name is near."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def exit_cause(return_code: int | None) -> str:
    """How a process ended, in words; negative codes are signals, None means that nobody knows."""
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
        "SIGABRT": " (native code gave up; its last words are in the log)",
    }.get(name, "")
    return f"was killed by {name}{hint}"


def worker_crashed(function_name: str, pid: int | None, cause: str, *, attempts: int) -> str:
    """The message of WorkerCrashedError. `cause` comes from `exit_cause`."""
    return f"{_task_lost(function_name, pid, cause, attempts)} If such deaths are to be expected, raise `max_retries`."


def _task_lost(function_name: str, pid: int | None, cause: str, attempts: int) -> str:
    tried = (
        "it was not tried again (`max_retries=0`)"
        if attempts <= 1
        else f"this was attempt {attempts} of {attempts}"
    )
    return f"The worker process of {function_name}() (pid={pid}) {cause} while the task ran, so the task has no value; {tried}."


def actor_name(class_name: str, name: str | None) -> str:
    """An actor as messages spell it: `Counter`, or `Counter 'name'`."""
    return f"{class_name} {name!r}" if name else class_name


def actor_died(
    class_name: str, name: str | None, pid: int | None, cause: str, *, max_restarts: int
) -> str:
    """The message of ActorDiedError. `cause` is what happened to its process, such as `exited with
    code 1`.
    """
    restarts = (
        "it is not restarted (`max_restarts=0`)"
        if max_restarts == 0
        else f"its {max_restarts} restarts are used up"
    )
    return f"The actor {actor_name(class_name, name)} (pid={pid}) {cause}; {restarts}, so its calls have no answer any more."


def actor_unavailable(class_name: str, name: str | None, pid: int | None, cause: str) -> str:
    """The message of ActorUnavailableError."""
    return (
        f"The actor {actor_name(class_name, name)} (pid={pid}) {cause} during this call and is being restarted, so the call has no "
        f"answer, and whether it had an effect is unknown. Call again, or set `max_task_retries` to have that done."
    )


_LESS_MEMORY = (
    "Give it less at a time (smaller batches or blocks), run fewer at once (`num_cpus=2` or `memory=…` for each), or let the machine or "
    "its container have more memory."
)


def task_out_of_memory(function_name: str, pid: int | None, cause: str, *, attempts: int) -> str:
    """The message of OutOfMemoryError for a task. `cause` says what was used and what there is."""
    return f"{_task_lost(function_name, pid, cause, attempts)} {_LESS_MEMORY}"


def actor_out_of_memory(
    class_name: str, name: str | None, pid: int | None, cause: str, *, max_restarts: int
) -> str:
    """The message of ActorOutOfMemoryError. `cause` says what was used and what there is."""
    return f"{actor_died(class_name, name, pid, cause, max_restarts=max_restarts)} {_LESS_MEMORY}"


def get_timeout(timeout_s: float, waiting: int, total: int) -> str:
    """The message of GetTimeoutError."""
    return (
        f"`get` waited for {timeout_s:g} s, and {waiting} of {total} value{'s' if total != 1 else ''} "
        f"did not exist yet. What makes them goes on: call `get` again, or `cancel` it."
    )
