"""Errors that syncline raises, under Ray's names.

This module has the errors of tasks, actors and objects. Errors of training runs are in
`syncline.train`.

RayError (also called SynclineError)
├── RayTaskError                    user code raised; also an instance of the cause's class
│   └── UserCodeException           an operator of a dataset failed
├── TaskCancelledError              the task was cancelled
├── RayActorError                   a call to an actor has no result
│   ├── ActorDiedError              the actor is dead
│   └── ActorUnavailableError       the actor is restarting
├── ActorUnschedulableError         no node can ever satisfy the actor's resources
├── TaskUnschedulableError          no node can ever satisfy the task's resources
├── WorkerCrashedError              the worker process of the task died
├── OutOfMemoryError                the process was killed because memory ran out
│   └── ActorOutOfMemoryError       (also ActorDiedError) the process was an actor's
├── NodeDiedError                   the node that ran the task died
├── LocalRayletDiedError            this machine's engine ended under a running program
├── GetTimeoutError (TimeoutError)  `get` timed out
├── ObjectLostError                 an object's value is lost
│   ├── ObjectFreedError            the object was freed
│   ├── ObjectFetchTimedOutError    (cluster) no node sent the object
│   ├── ObjectReconstructionFailedError  (cluster) the object cannot be computed again
│   ├── OwnerDiedError              the process that created the object died
│   └── ReferenceCountingAssertionError  (cluster) the object was deleted under a reference
├── ObjectStoreFullError            memory and disk have no room for an object
├── OutOfDiskError                  the disk has no room to spill objects
├── RuntimeEnvSetupError            a worker could not set up a `runtime_env`
├── TaskPlacementGroupRemoved       the task's placement group was removed
├── ActorPlacementGroupRemoved      the actor's placement group was removed
├── PendingCallsLimitExceeded       the actor has `max_pending_calls` pending calls
├── ActorAlreadyExistsError (ValueError)  the name of an actor is taken
├── ActorHandleNotFoundError (ValueError)  (cluster) a handle is of an earlier session
├── AsyncioActorExit                (cluster) an async actor ended itself
├── AuthenticationError             (cluster) the token is missing or wrong
├── CrossLanguageError              (cluster) a value or error of another language
├── ObjectRefStreamEndOfStreamError  (cluster) a generator has no more items
├── OufOfBandObjectRefSerializationException  (cluster) a reference was pickled by other means
├── PlasmaObjectNotAvailable        (cluster) an object is not in shared memory
├── RpcError                        (cluster) a message was lost
├── UnserializableException         (cluster) an error that cannot be rebuilt
└── RaySystemError                  (cluster) a process of the cluster failed
    ├── RayCgraphCapacityExceeded   a buffer of a compiled graph is full
    ├── RayChannelError             a channel of a compiled graph failed
    │   └── RayChannelTimeoutError (TimeoutError)  a channel timed out
    ├── RayDirectTransportError     a transfer between devices failed
    └── StreamingGeneratorReplayInconsistentError  a retried generator yielded other items

Errors marked (cluster) are raised on Ray clusters only.
"""

from __future__ import annotations

import re
import types
from functools import lru_cache

from syncline.core import error_frames

__all__ = [
    "ActorAlreadyExistsError",
    "ActorDiedError",
    "ActorHandleNotFoundError",
    "ActorOutOfMemoryError",
    "ActorPlacementGroupRemoved",
    "ActorUnavailableError",
    "ActorUnschedulableError",
    "AsyncioActorExit",
    "AuthenticationError",
    "CrossLanguageError",
    "GetTimeoutError",
    "LocalRayletDiedError",
    "NodeDiedError",
    "ObjectFetchTimedOutError",
    "ObjectFreedError",
    "ObjectLostError",
    "ObjectReconstructionFailedError",
    "ObjectRefStreamEndOfStreamError",
    "ObjectStoreFullError",
    "OufOfBandObjectRefSerializationException",
    "OutOfDiskError",
    "OutOfMemoryError",
    "OwnerDiedError",
    "PendingCallsLimitExceeded",
    "PlasmaObjectNotAvailable",
    "RayActorError",
    "RayCgraphCapacityExceeded",
    "RayChannelError",
    "RayChannelTimeoutError",
    "RayDirectTransportError",
    "RayError",
    "RaySystemError",
    "RayTaskError",
    "ReferenceCountingAssertionError",
    "RpcError",
    "RuntimeEnvSetupError",
    "StreamingGeneratorReplayInconsistentError",
    "SynclineError",
    "TaskCancelledError",
    "TaskPlacementGroupRemoved",
    "TaskUnschedulableError",
    "UnserializableException",
    "UserCodeException",
    "WorkerCrashedError",
    "WorkerTraceback",
]


class RayError(Exception):
    """Base class of all errors of syncline's tasks, actors and objects."""


SynclineError = RayError
"""The same class under syncline's own name."""


class WorkerTraceback(Exception):
    """A worker's traceback, set as the `__cause__` of an error that crossed processes.

    It is never raised directly.
    """

    def __init__(self, text: str = "") -> None:
        super().__init__(text)


class RayTaskError(RayError):
    """User code raised an exception in a task or an actor.

    `get` raises an instance of this class and of the cause's class.

    `cause` is the exception as user code raised it (a stand-in if it cannot be rebuilt),
    `traceback_str` its traceback with the frames of user code. `function_name`, `pid` and `ip` say
    where it was raised. `str()` includes the cause and the frames.
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
        if isinstance(cause, RayTaskError):  # an upstream task failed: keep the first error
            cause = cause.cause
        super().__init__(function_name, traceback_str, cause, proctitle, pid, ip)
        self.function_name = function_name
        self.traceback_str = traceback_str
        self.cause: BaseException | None = cause
        self.proctitle = proctitle
        self.pid = pid
        self.ip = ip

    def as_instanceof_cause(self) -> RayTaskError:
        """Return a new error that is also an instance of the cause's class.

        It has the cause's `args` and attributes. Returns `self` if Python cannot build such a
        class, or if raising it would not be an error (SystemExit, StopIteration); `.cause` then has
        the original.
        """
        cause = self.cause
        if cause is None or isinstance(self, type(cause)):
            return self
        cls = _class_with_cause(type(self), type(cause))  # type: ignore[arg-type]  # classes are hashable
        error = None if cls is None else _bare_instance(cls, cause.args)
        if not isinstance(error, RayTaskError):
            return self
        error.__dict__.update(cause.__dict__)
        error.__dict__.update(self.__dict__)
        _copy_slots(cause, error)
        error.args = cause.args
        return error

    def __str__(self) -> str:
        if not isinstance(self.__cause__, WorkerTraceback):
            return f"{self._where}\n{self.traceback_str}" if self.traceback_str else self._where
        # Raised by `get`: Python prints the worker's frames from `__cause__`.
        return f"{self._last_line}  [{self._where}{self._trail}]"

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self._last_line!r}, "
            f"function_name={self.function_name!r}, pid={self.pid})"
        )

    def __reduce__(self) -> tuple[object, ...]:
        # `pack_error` can encode any cause, also one that cannot be pickled or rebuilt.
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
    """A user function of a dataset operator raised, or its input could not be read.

    Also an instance of the cause's class. `function_name` is the operator. `traceback_str`, which
    is also `str()`, starts with a line that names the operator and the rows, followed by the
    traceback.
    """

    def __str__(self) -> str:
        return self.traceback_str or self.function_name


def _restore_task_error(
    plain: type[RayTaskError],
    function_name: str,
    traceback_str: str,
    cause: bytes | None,
    rest: tuple[str | None, int | None, str | None],
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
    """Return a class derived from both; None if Python cannot build one.

    Also None if raising the class would not be an error.
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
    except Exception:  # final class, metaclass or `__init_subclass__` that raises, layout conflict
        return None
    return made


def _bare_instance(cls: type[BaseException], args: tuple[object, ...]) -> BaseException | None:
    """Create an instance without running a user's `__new__` or `__init__`."""
    for base in cls.__mro__:
        if base.__module__ != "builtins" or not issubclass(base, BaseException):
            continue
        try:
            return base.__new__(cls, *args)
        except TypeError:  # another base decides the layout
            continue
    return None


def _slot_names(cls: type) -> list[str]:
    """Return the names of attributes outside of `__dict__`, such as `errno`."""
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
        except (AttributeError, TypeError):  # read-only: `__new__` has set it from `args`
            continue


class TaskCancelledError(RayError):
    """The task was cancelled, before its start or while it ran."""

    def __init__(
        self,
        message: str = "The task was cancelled, so it has no value.",
        *,
        task_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.task_id = task_id


class _ProcessError(RayError):
    """Base class of errors of a process: its id, its exit cause and the tail of its log."""

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
    """A call to an actor has no result because of the actor's state."""

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
        """The full message."""
        return str(self)


class ActorDiedError(RayActorError):
    """The actor is dead and is not restarted; its calls have no result."""


class ActorUnavailableError(RayActorError):
    """The actor's process died and is restarting; the call may or may not have had an effect."""


class ActorUnschedulableError(RayError):
    """The machine or the placement group can never satisfy the actor's resources."""


class TaskUnschedulableError(RayError):
    """The machine or the placement group can never satisfy the task's resources."""


class WorkerCrashedError(_ProcessError):
    """The process that ran the task died, and no retries are left."""


class OutOfMemoryError(_ProcessError):
    """The process was killed because the machine ran out of memory."""


class ActorOutOfMemoryError(ActorDiedError, OutOfMemoryError):
    """The actor's process was killed because the machine ran out of memory; no restart follows."""


class NodeDiedError(RayError):
    """The node that ran the task died."""


class LocalRayletDiedError(RayError):
    """This machine's engine ended while the program used it."""


class GetTimeoutError(RayError, TimeoutError):
    """The values were not ready within the timeout; their tasks continue to run."""


class ObjectLostError(RayError):
    """The value of an object is lost and cannot be recomputed."""

    def __init__(self, message: str = "", *, object_id: str | None = None) -> None:
        super().__init__(message)
        self.object_id = object_id


class ObjectFreedError(ObjectLostError):
    """The object was freed before it was read."""


class OwnerDiedError(ObjectLostError):
    """The process that created the object died before a copy existed elsewhere."""


class ObjectFetchTimedOutError(ObjectLostError):
    """No node sent the object in time."""


class ObjectReconstructionFailedError(ObjectLostError):
    """The object is lost, and its task cannot run again."""


class ReferenceCountingAssertionError(ObjectLostError, AssertionError):
    """The object was deleted although a reference existed."""


class ObjectStoreFullError(RayError):
    """Neither shared memory nor the disk has room for the object."""


class OutOfDiskError(RayError):
    """The disk has no room to spill objects."""


class RuntimeEnvSetupError(RayError):
    """A worker could not set up the `runtime_env` of its task."""

    def __init__(self, error_message: str = "") -> None:
        super().__init__(error_message)
        self.error_message = error_message


class TaskPlacementGroupRemoved(RayError):
    """The task's placement group was removed, so the task was killed or never started."""


class ActorPlacementGroupRemoved(RayError):
    """The actor's placement group was removed, so the actor was killed or never started."""


class PendingCallsLimitExceeded(RayError):
    """The actor already has `max_pending_calls` pending calls."""


class ActorAlreadyExistsError(ValueError, RayError):
    """The name of an actor is taken."""

    @property
    def error_message(self) -> str:
        """The message."""
        return str(self)


class ActorHandleNotFoundError(ValueError, RayError):
    """The handle is of an actor of an earlier session."""

    @property
    def error_message(self) -> str:
        """The message."""
        return str(self)


class AsyncioActorExit(RayError):
    """An async actor ended itself with `exit_actor()`."""


class AuthenticationError(RayError):
    """The token of the cluster is missing or wrong."""


class ObjectRefStreamEndOfStreamError(RayError):
    """A generator has no more items."""


class OufOfBandObjectRefSerializationException(RayError):
    """A reference was pickled by other means than arguments, results and `put`."""


class PlasmaObjectNotAvailable(RayError):
    """An object is not in shared memory."""


class RpcError(RayError):
    """A message between processes of the cluster was lost."""

    def __init__(self, message: str = "", rpc_code: int | None = None) -> None:
        super().__init__(message)
        self.rpc_code = rpc_code


class UnserializableException(RayError):
    """An error of a task that cannot be rebuilt; the text has its traceback."""


class RaySystemError(RayError):
    """A process of the cluster failed."""

    def __init__(self, client_exc: object = "", traceback_str: str | None = None) -> None:
        super().__init__(client_exc, traceback_str)
        self.client_exc = client_exc
        self.traceback_str = traceback_str

    def __str__(self) -> str:
        text = str(self.client_exc)
        return f"{text}\n{self.traceback_str}" if self.traceback_str else text


class RayCgraphCapacityExceeded(RaySystemError):
    """A buffer of a compiled graph is full."""


class RayChannelError(RaySystemError):
    """A channel of a compiled graph failed."""


class RayChannelTimeoutError(RayChannelError, TimeoutError):
    """A channel of a compiled graph timed out."""


class RayDirectTransportError(RaySystemError):
    """A transfer of tensors between devices failed."""


class StreamingGeneratorReplayInconsistentError(RaySystemError):
    """A generator that was run again yielded other items."""


class CrossLanguageError(RayError):
    """A value or an error of another language that has no counterpart in Python."""
