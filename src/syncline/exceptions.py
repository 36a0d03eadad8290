"""The errors that syncline raises, under the names that Ray's users know.

Covered: every error of tasks, actors and objects. Not covered: the errors of training runs, which
live in `syncline.train`.

RayError (also called SynclineError)
├── RayTaskError                    user code raised; also an instance of the class of what it raised
│   └── UserCodeException           in an operator of a dataset
├── TaskCancelledError              the task was cancelled
├── RayActorError                   a call to an actor has no answer
│   ├── ActorDiedError              and never will: the actor is dead
│   └── ActorUnavailableError       for now: the actor is being restarted
├── ActorUnschedulableError         what the actor asks for can never be met
├── TaskUnschedulableError          what the task asks for can never be met
├── WorkerCrashedError              the process that ran the task died
├── OutOfMemoryError                the process was ended to save the machine's memory
│   └── ActorOutOfMemoryError       (ActorDiedError) it was an actor's
├── NodeDiedError                   the machine that ran the task is gone
├── LocalRayletDiedError            this machine's engine ended under a running program
├── GetTimeoutError (TimeoutError)  `get` waited as long as it was told to
├── ObjectLostError                 an object's value is gone
│   ├── ObjectFreedError            it was freed
│   └── OwnerDiedError              the process that made it died
├── ObjectStoreFullError            no room for an object, in memory or on disk
├── OutOfDiskError                  no room to move objects to disk
├── RuntimeEnvSetupError            a `runtime_env` could not be set up in a worker
├── TaskPlacementGroupRemoved       the task's placement group was removed
├── ActorPlacementGroupRemoved      the actor's placement group was removed
├── PendingCallsLimitExceeded       more calls wait than `max_pending_calls`
└── CrossLanguageError              a value or error of another language
"""

from __future__ import annotations

import re
import types
from functools import lru_cache
from typing import Any

from syncline.core import error_frames

__all__ = [
    "ActorDiedError",
    "ActorOutOfMemoryError",
    "ActorPlacementGroupRemoved",
    "ActorUnavailableError",
    "ActorUnschedulableError",
    "CrossLanguageError",
    "GetTimeoutError",
    "LocalRayletDiedError",
    "NodeDiedError",
    "ObjectFreedError",
    "ObjectLostError",
    "ObjectStoreFullError",
    "OutOfDiskError",
    "OutOfMemoryError",
    "OwnerDiedError",
    "PendingCallsLimitExceeded",
    "RayActorError",
    "RayError",
    "RayTaskError",
    "RuntimeEnvSetupError",
    "SynclineError",
    "TaskCancelledError",
    "TaskPlacementGroupRemoved",
    "TaskUnschedulableError",
    "UserCodeException",
    "WorkerCrashedError",
    "WorkerTraceback",
]


class RayError(Exception):
    """The base of everything that syncline's tasks, actors and objects raise."""


SynclineError = RayError
"""The same class under this library's own name."""


class WorkerTraceback(Exception):
    """What a worker's traceback is printed from: the `__cause__` of an error that crossed
    processes. Never raised by itself.
    """

    def __init__(self, text: str = "") -> None:
        super().__init__(text)


class RayTaskError(RayError):
    """User code raised in a task or an actor. `get` raises it as an instance of this class *and* of
    the class of its cause.

    `cause` is the exception as user code raised it (a stand-in where it cannot be built again),
    `traceback_str` its traceback with the frames of user code; `function_name`, `pid` and `ip` say
    where it happened. `str()` tells cause and frames.
    """

    def __init__(
        self,
        function_name: str = "",
        traceback_str: str = "",
        cause: BaseException | None = None,
        proctitle: str | None = None,
        pid: int | None = None,
        ip: str | None = None,
    ) -> None:
        if isinstance(
            cause, RayTaskError
        ):  # a task that failed because one that it waited for failed: the first error counts
            cause = cause.cause
        super().__init__(function_name, traceback_str, cause, proctitle, pid, ip)
        self.function_name = function_name
        self.traceback_str = traceback_str
        self.cause: BaseException | None = cause
        self.proctitle = proctitle
        self.pid = pid
        self.ip = ip

    def as_instanceof_cause(self) -> RayTaskError:
        """A new error that is also an instance of the cause's class, with the cause's `args` and
        attributes.

        The error itself comes back where no such class can be made, or where raising one would not
        be an error any more (SystemExit, StopIteration): `.cause` has the original then.
        """
        cause = self.cause
        if cause is None or isinstance(self, type(cause)):
            return self
        cls = _class_with_cause(type(self), type(cause))  # type: ignore[arg-type]  # classes are hashable
        error = _instance(cls, cause) if cls is not None else None
        if error is None:
            return self
        error.__dict__.update(cause.__dict__)
        error.__dict__.update(self.__dict__)
        _copy_slots(cause, error)
        error.args = cause.args
        return error

    def __str__(self) -> str:
        if not isinstance(self.__cause__, WorkerTraceback):
            return f"{self._where}\n{self.traceback_str}" if self.traceback_str else self._where
        # Raised by `get`: Python prints the worker's frames from `__cause__`, so this line only
        # names them.
        return f"{self._last_line}  [{self._where}{self._trail}]"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._last_line!r}, function_name={self.function_name!r}, pid={self.pid})"

    def __reduce__(self) -> tuple[Any, ...]:
        # `error_frames` finds a form for any cause, also for those that cannot be pickled or built
        # again.
        cause = None if self.cause is None else error_frames.pack_error(self.cause)
        rest = (self.proctitle, self.pid, self.ip)
        plain = UserCodeException if isinstance(self, UserCodeException) else RayTaskError
        return (
            _restore_task_error,
            (plain, self.function_name, self.traceback_str, cause, rest, type(self) is not plain),
        )

    @property
    def _where(self) -> str:
        pid = "" if self.pid is None else f", pid={self.pid}"
        return f"in {self.function_name}(){pid}"

    @property
    def _last_line(self) -> str:
        if self.cause is not None:
            return f"{type(self.cause).__name__}: {self.cause}"
        return self.traceback_str.rstrip().rpartition("\n")[2]

    @property
    def _trail(self) -> str:
        frames = re.findall(
            r'^  File "(.+)", line (\d+), in (.+)$',
            self.traceback_str.rpartition("Traceback (most")[2],
            re.MULTILINE,
        )
        return "".join(
            f", {file.rpartition('/')[2]}:{line} in {function}"
            for file, line, function in frames[-3:]
        )


class UserCodeException(RayTaskError):
    """An operator of a dataset failed in a function of the program's, or on what it read; also an
    instance of the class of its cause.

    `function_name` is the operator. `traceback_str`, which is also `str()`, begins with a line that
    says which operator failed on which rows, and goes on with the traceback, the user's frames
    last.
    """

    def __str__(self) -> str:
        return self.traceback_str or self.function_name


def _restore_task_error(
    plain: type[RayTaskError],
    function_name: str,
    traceback_str: str,
    cause: bytes | None,
    rest: tuple[Any, ...],
    with_cause_class: bool,
) -> RayTaskError:
    error = plain(
        function_name,
        traceback_str,
        None if cause is None else error_frames.unpack_error(cause),
        *rest,
    )
    return error.as_instanceof_cause() if with_cause_class else error


@lru_cache(maxsize=1024)
def _class_with_cause(
    base: type[RayTaskError], cause_class: type[BaseException]
) -> type[RayTaskError] | None:
    """The class that is `base` and the cause's; None where Python cannot make one or raising it
    would do something else than fail.
    """
    if not issubclass(cause_class, Exception) or issubclass(
        cause_class, (StopIteration, StopAsyncIteration)
    ):
        return None
    name = f"{base.__name__}({cause_class.__name__})"
    try:
        made = types.new_class(
            name, (base, cause_class), {}, lambda body: body.update(__module__=__name__)
        )
    except Exception:  # final classes, metaclasses and `__init_subclass__` that object, layouts that do not fit together
        return None
    return made


def _instance(cls: type[RayTaskError], cause: BaseException) -> RayTaskError | None:
    error = _bare_instance(cls, cause.args)
    return error if isinstance(error, RayTaskError) else None


def _bare_instance(cls: type[BaseException], args: tuple[Any, ...]) -> BaseException | None:
    """An instance made by the built-in class below, so that no `__new__` or `__init__` of the
    user's runs.
    """
    for base in cls.__mro__:
        if base.__module__ != "builtins" or not issubclass(base, BaseException):
            continue
        try:
            return base.__new__(cls, *args)
        except TypeError:  # not the base that decides the layout
            continue
    return None


def _slot_names(cls: type) -> list[str]:
    """Names of the values that built-in exceptions and `__slots__` keep outside of `__dict__`, such
    as `errno`.
    """
    kinds = (types.MemberDescriptorType, types.GetSetDescriptorType)
    bases = (base for base in cls.__mro__ if base not in (BaseException, object))
    names = (name for base in bases for name, kind in vars(base).items() if isinstance(kind, kinds))
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _copy_slots(source: BaseException, target: BaseException) -> None:
    for name in _slot_names(type(source)):
        value = getattr(source, name, None)
        if value is None:
            continue
        try:
            setattr(target, name, value)
        except (AttributeError, TypeError):  # read-only: `__new__` set it from `args`
            continue


class TaskCancelledError(RayError):
    """The task was cancelled, before it began or while it ran."""

    def __init__(
        self,
        message: str = "The task was cancelled, so it has no value.",
        *,
        task_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.task_id = task_id


class _ProcessError(RayError):
    """An error about a process: its id, how it ended and the tail of its log."""

    def __init__(
        self,
        message: str = "",
        *,
        pid: int | None = None,
        exit_cause: str | None = None,
        log_tail: str | None = None,
    ) -> None:
        super().__init__(message)
        self.pid = pid
        self.exit_cause = exit_cause
        self.log_tail = log_tail

    def __str__(self) -> str:
        message = str(self.args[0]) if self.args else type(self).__doc__ or ""
        if self.log_tail:
            return f"{message}\nThe last lines of its log:\n{self.log_tail.rstrip()}"
        return message


class RayActorError(_ProcessError):
    """A call to an actor has no answer because of the actor's state."""

    def __init__(
        self,
        message: str = "",
        *,
        actor_id: str | None = None,
        actor_name: str | None = None,
        class_name: str | None = None,
        pid: int | None = None,
        exit_cause: str | None = None,
        log_tail: str | None = None,
    ) -> None:
        super().__init__(message, pid=pid, exit_cause=exit_cause, log_tail=log_tail)
        self.actor_id = actor_id
        self.actor_name = actor_name
        self.class_name = class_name

    @property
    def error_msg(self) -> str:
        """The whole text."""
        return str(self)


class ActorDiedError(RayActorError):
    """The actor is dead and will not come back; its calls have no answer."""


class ActorUnavailableError(RayActorError):
    """The actor's process died and is being started again; whether the call had an effect is
    unknown.
    """


class ActorUnschedulableError(RayError):
    """The actor asks for what the machine, or its placement group, can never give."""


class TaskUnschedulableError(RayError):
    """The task asks for what the machine, or its placement group, can never give."""


class WorkerCrashedError(_ProcessError):
    """The process that ran the task died, and no retry was left."""


class OutOfMemoryError(_ProcessError):
    """The process was ended because the machine ran out of memory."""


class ActorOutOfMemoryError(ActorDiedError, OutOfMemoryError):
    """The actor's process was ended because the machine ran out of memory; the actor will not come
    back.
    """


class NodeDiedError(RayError):
    """The machine that ran the task is gone."""


class LocalRayletDiedError(RayError):
    """This machine's engine ended while the program used it."""


class GetTimeoutError(RayError, TimeoutError):
    """The values were not there within the timeout; what makes them goes on."""


class ObjectLostError(RayError):
    """The value of an object is gone and cannot be made again."""

    def __init__(self, message: str = "", *, object_id: str | None = None) -> None:
        super().__init__(message)
        self.object_id = object_id


class ObjectFreedError(ObjectLostError):
    """The object was freed, yet somebody asked for its value."""


class OwnerDiedError(ObjectLostError):
    """The process that made the object died before its value was kept elsewhere."""


class ObjectStoreFullError(RayError):
    """There is no room for the object, neither in shared memory nor on disk."""


class OutOfDiskError(RayError):
    """There is no room on disk to move objects to."""


class RuntimeEnvSetupError(RayError):
    """A worker could not set up the `runtime_env` that its task asks for."""

    def __init__(self, error_message: str = "") -> None:
        super().__init__(error_message)
        self.error_message = error_message


class TaskPlacementGroupRemoved(RayError):
    """The placement group of the task was removed, so the task was ended or never began."""


class ActorPlacementGroupRemoved(RayError):
    """The placement group of the actor was removed, so the actor was ended or never began."""


class PendingCallsLimitExceeded(RayError):
    """As many calls as `max_pending_calls` allows are waiting for the actor already."""


class CrossLanguageError(RayError):
    """A value or an error of another language, which has no equal in Python."""
