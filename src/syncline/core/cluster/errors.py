"""Ray's errors as ours. What comes out is also an instance of Ray's class, so that `except` clauses of either library catch it.

User code's exceptions are wrapped in the worker (`failure`), so that they arrive as on every engine: Ray's own wrapping around ours is
taken off again here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import ray
import ray.exceptions

from syncline import exceptions
from syncline.core.tracebacks import raisable, task_error
from syncline.exceptions import RayError, RayTaskError


def failure(error: Exception) -> BaseException:
    """In a worker: what to raise for an exception of user code; RayTaskError that is also an instance of its class."""
    if type(error) is ray.exceptions.AsyncioActorExit:
        return error
    name = ray.get_runtime_context().get_task_name() or "task"
    return task_error(name, error, ip=ray.util.get_node_ip_address()).as_instanceof_cause()


def translated(error: BaseException) -> BaseException:
    """The exception to raise for what Ray raised or stored; itself where it is none of Ray's."""
    if isinstance(error, ray.exceptions.RayTaskError):
        return _of_user_code(error)
    if not isinstance(error, ray.exceptions.RayError) or isinstance(error, RayError):
        return error
    return _of_machinery(error)


def _of_user_code(error: Any) -> BaseException:
    cause = error.cause
    if isinstance(cause, ray.exceptions.RayError) and not isinstance(cause, RayTaskError):
        return translated(cause)
    if isinstance(cause, RayError) and not isinstance(cause, RayTaskError):
        return raisable(cause)
    if isinstance(cause, RayTaskError):
        plain = RayTaskError(cause.function_name, cause.traceback_str, cause.cause, cause.proctitle, cause.pid, cause.ip)
    else:  # Ray itself failed around the user's code, such as with a result that cannot be pickled
        told = vars(error)  # not its attributes: those of the cause show through where Ray joined the two
        plain = RayTaskError(told.get("function_name", ""), told.get("traceback_str") or str(error), _explained(cause), pid=told.get("pid"))
    return _also(raisable(plain), ray.exceptions.RayTaskError)


def _explained(cause: Any) -> Any:
    if isinstance(cause, ModuleNotFoundError) and (cause.name or "").partition(".")[0] == "syncline":
        return ModuleNotFoundError(
            "the nodes of this cluster have no syncline, so tasks cannot run there: install it on every node, "
            "with `pip install syncline` in the environment in which Ray was started",
            name=cause.name,
        )
    return cause


def _of_machinery(error: Any) -> BaseException:
    """An error of ours with the text of Ray's; the nearest class that both libraries have."""
    ours: type[RayError] = RayError
    for base in type(error).__mro__:
        known = getattr(exceptions, base.__name__, None)
        if base.__module__ == "ray.exceptions" and isinstance(known, type) and issubclass(known, RayError):
            ours = known
            break
    made = ours(str(error))
    for name in ("actor_id", "pid"):
        value = getattr(error, name, None)
        if value is not None and hasattr(made, name):
            setattr(made, name, value)
    return _also(raisable(made), type(error))


def _also(error: BaseException, ray_class: type[BaseException]) -> BaseException:
    """The same error as an instance of Ray's class too."""
    both = _both(type(error), ray_class)  # type: ignore[arg-type]  # classes are hashable
    if both is not None:
        error.__class__ = both
    return error


@lru_cache(maxsize=1024)
def _both(ours: type[BaseException], rays: type[BaseException]) -> type[BaseException] | None:
    body = {"__module__": ours.__module__, "__qualname__": ours.__qualname__, "__str__": ours.__str__, "__reduce__": _reduce}
    try:
        return type(ours.__name__, (ours, rays), body)
    except TypeError:  # their layouts do not fit together
        return None


def _reduce(self: BaseException) -> Any:
    """As the error of ours that it is: Ray's class comes in again where Ray's error is translated."""
    ours = type(self).__mro__[1]
    if issubclass(ours, RayTaskError):
        return RayTaskError.__reduce__(self)  # type: ignore[arg-type]
    return (_restored, (ours, self.args, dict(self.__dict__)))


def _restored(cls: type[BaseException], args: tuple[Any, ...], attributes: dict[str, Any]) -> BaseException:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error
