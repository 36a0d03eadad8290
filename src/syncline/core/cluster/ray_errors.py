"""Translation of Ray's errors to ours, which are also instances of Ray's classes.

`except` clauses of either library thus catch them. Workers wrap exceptions of user code
(`task_failure`) so that they arrive as on every engine; Ray's own wrapping is removed here.
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


def task_failure(error: Exception) -> BaseException:
    """In a worker: wrap an exception of user code in a RayTaskError of its class."""
    if type(error) is ray.exceptions.AsyncioActorExit:
        return error
    name = ray.get_runtime_context().get_task_name() or "task"
    return task_error(name, error, ip=ray.util.get_node_ip_address()).as_instanceof_cause()


def translated(error: BaseException) -> BaseException:
    """Return the exception to raise for an error of Ray's; other errors are returned unchanged."""
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
        text, first = _with_remedy(cause.traceback_str, first, _missing_in_worker_only(first))
        plain = RayTaskError(cause.function_name, text, first, cause.proctitle, cause.pid, cause.ip)
    else:  # Ray itself failed, for example with a result that cannot be pickled
        # `getattr` could return attributes of the cause, if Ray has joined the two classes.
        attributes = vars(error)
        text = _uncoloured(attributes.get("traceback_str") or str(error))
        name = attributes.get("function_name") or _first(_FUNCTION, text) or ""
        text, cause = _with_remedy(text, cause, _first(_MISSING_MODULE, text))
        plain = RayTaskError(name, text, cause, pid=attributes.get("pid"))
    return _also(raisable(plain), ray.exceptions.RayTaskError)


def _with_remedy(
    text: str, cause: BaseException | None, missing: str | None
) -> tuple[str, BaseException | None]:
    """Append the remedy for the missing module, if any, to the traceback and the cause."""
    if missing is None:
        return text, cause
    remedy = _remedy(missing)
    error = ModuleNotFoundError(remedy, name=missing)
    return f"{text.rstrip()}\nModuleNotFoundError: {remedy}", error


def _remedy(missing: str) -> str:
    if missing.partition(".")[0] == "syncline":
        return (
            "the nodes of this cluster have no syncline, so tasks cannot run there: install it on "
            "every node, with `pip install syncline` in the environment in which Ray was started"
        )
    return (
        f"the workers of this cluster cannot import {missing!r}, which this program's code or "
        f"arguments need: install it on every node, or send it along, with "
        f"`init(runtime_env={{'working_dir': '.'}})` for files next to the program, `'py_modules'` "
        f"or `'pip'`"
    )


def _missing_in_worker_only(cause: BaseException | None) -> str | None:
    """Return the module that user code in a worker did not find although this program has it."""
    if type(cause) is not ModuleNotFoundError or not cause.name:
        return None
    try:
        return cause.name if importlib.util.find_spec(cause.name) is not None else None
    except (ImportError, ValueError):
        return None


def _uncoloured(text: str) -> str:
    return _COLOUR.sub("", text)


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return None if found is None else found[1]


def _of_machinery(error: Any) -> BaseException:
    """Return our error of the nearest class that both libraries have, with Ray's text."""
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
    text = _uncoloured(str(error))
    missing = _first(_MISSING_MODULE, text)
    made = ours(text if missing is None else f"{_remedy(missing)}\n{text}")
    for name in ("actor_id", "pid"):
        value = getattr(error, name, None)
        if value is not None and hasattr(made, name):
            setattr(made, name, value)
    return _also(raisable(made), type(error))


def get_timeout_error(message: str) -> BaseException:
    """Return the error of a wait that has timed out."""
    return _also(GetTimeoutError(message), ray.exceptions.GetTimeoutError)


def _known_to_ray(error: BaseException | None) -> BaseException | None:
    """Make our error, which user code passed on, also an instance of Ray's class of that name."""
    ray_class = getattr(ray.exceptions, type(error).__name__, None)
    if isinstance(error, RayError) and isinstance(ray_class, type):
        return _also(error, ray_class)
    return error


def _also(error: BaseException, ray_class: type[BaseException]) -> BaseException:
    """Make the error also an instance of Ray's class, if possible."""
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
    except TypeError:  # layout conflict
        return None


def _reduce(self: BaseException) -> tuple[object, ...]:
    """Pickle as our class only: Ray raises any task value that is an error of its own class."""
    ours = type(self).__bases__[0]
    if issubclass(ours, RayTaskError):
        return RayTaskError.__reduce__(self)  # type: ignore[arg-type]
    return (_restored, (ours, self.args, dict(self.__dict__)))


def _restored(
    cls: type[BaseException], args: tuple[object, ...], attributes: dict[str, object]
) -> BaseException:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error
