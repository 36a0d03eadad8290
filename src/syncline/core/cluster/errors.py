"""Ray's errors as ours. What comes out is also an instance of Ray's class, so that `except` clauses
of either library catch it.

User code's exceptions are wrapped in the worker (`failure`), so that they arrive as on every
engine: Ray's own wrapping around ours is taken off again here.
"""

from __future__ import annotations

import importlib.util
import re
from functools import lru_cache
from typing import Any

import ray
import ray.exceptions

from syncline import exceptions
from syncline.core.tracebacks import raisable, task_error
from syncline.exceptions import GetTimeoutError, RayError, RayTaskError

_MISSING_MODULE = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FUNCTION = re.compile(r"ray::(\S+)\(\)")


def failure(error: Exception) -> BaseException:
    """In a worker: what to raise for an exception of user code; RayTaskError that is also an
    instance of its class.
    """
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
        first = _known_to_ray(cause.cause)
        text, first = _with_remedy(cause.traceback_str, first, _name_missing_there_only(first))
        plain = RayTaskError(cause.function_name, text, first, cause.proctitle, cause.pid, cause.ip)
    else:  # Ray itself failed around the user's code, such as with a result that cannot be pickled
        told = vars(
            error
        )  # not its attributes: those of the cause show through where Ray joined the two
        text = _plain(told.get("traceback_str") or str(error))
        named = told.get("function_name") or _first(_FUNCTION, text) or ""
        text, cause = _with_remedy(text, cause, _first(_MISSING_MODULE, text))
        plain = RayTaskError(named, text, cause, pid=told.get("pid"))
    return _also(raisable(plain), ray.exceptions.RayTaskError)


def _with_remedy(text: str, cause: Any, missing: str | None) -> tuple[str, Any]:
    """A traceback and its cause, with what to do about the module `missing` as their last word."""
    if missing is None:
        return text, cause
    told = _remedy(missing)
    return f"{text.rstrip()}\nModuleNotFoundError: {told}", ModuleNotFoundError(told, name=missing)


def _remedy(missing: str) -> str:
    if missing.partition(".")[0] == "syncline":
        return (
            "the nodes of this cluster have no syncline, so tasks cannot run there: install it on every node, "
            "with `pip install syncline` in the environment in which Ray was started"
        )
    return (
        f"the workers of this cluster cannot import {missing!r}, which this program's code or arguments need: install it on every node, "
        f"or send it along, with `init(runtime_env={{'working_dir': '.'}})` for files beside the program, `'py_modules'` or `'pip'`"
    )


def _name_missing_there_only(cause: BaseException | None) -> str | None:
    """The module that user code in a worker did not find, where this program has it."""
    if type(cause) is not ModuleNotFoundError or not cause.name:
        return None
    try:
        return cause.name if importlib.util.find_spec(cause.name) is not None else None
    except (ImportError, ValueError):
        return None


def _plain(text: str) -> str:
    """Without the colours that Ray gives to parts of its messages."""
    return _COLOUR.sub("", text)


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return None if found is None else found[1]


def _of_machinery(error: Any) -> BaseException:
    """An error of ours with the text of Ray's; the nearest class that both libraries have."""
    ours: type[RayError] = RayError
    for base in type(error).__mro__:
        known = getattr(exceptions, base.__name__, None)
        if (
            base.__module__ == "ray.exceptions"
            and isinstance(known, type)
            and issubclass(known, RayError)
        ):
            ours = known
            break
    text = _plain(str(error))
    missing = _first(_MISSING_MODULE, text)
    made = ours(text if missing is None else f"{_remedy(missing)}\n{text}")
    for name in ("actor_id", "pid"):
        value = getattr(error, name, None)
        if value is not None and hasattr(made, name):
            setattr(made, name, value)
    return _also(raisable(made), type(error))


def timed_out(message: str) -> BaseException:
    """What a wait ends with that was told how long to last."""
    return _also(GetTimeoutError(message), ray.exceptions.GetTimeoutError)


def _known_to_ray(error: BaseException | None) -> BaseException | None:
    """An error of ours that user code passed on, such as that of an actor which died: as Ray's too,
    where Ray has one of that name.
    """
    rays = getattr(ray.exceptions, type(error).__name__, None)
    return _also(error, rays) if isinstance(error, RayError) and isinstance(rays, type) else error


def _also(error: BaseException, ray_class: type[BaseException]) -> BaseException:
    """The same error as an instance of Ray's class too."""
    both = _both(type(error), ray_class)  # type: ignore[arg-type]  # classes are hashable
    if both is not None:
        error.__class__ = both
    return error


@lru_cache(maxsize=1024)
def _both(ours: type[BaseException], rays: type[BaseException]) -> type[BaseException] | None:
    body = {
        "__module__": ours.__module__,
        "__qualname__": ours.__qualname__,
        "__str__": ours.__str__,
        "__reduce__": _reduce,
    }
    try:
        return type(ours.__name__, (ours, rays), body)
    except TypeError:  # their layouts do not fit together
        return None


def _reduce(self: BaseException) -> Any:
    """As the error of ours that it is: Ray raises whatever value of a task is an error of its own,
    also one that was returned.
    """
    ours = type(self).__bases__[0]
    if issubclass(ours, RayTaskError):
        return RayTaskError.__reduce__(self)  # type: ignore[arg-type]
    return (_restored, (ours, self.args, dict(self.__dict__)))


def _restored(
    cls: type[BaseException], args: tuple[Any, ...], attributes: dict[str, Any]
) -> BaseException:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error
