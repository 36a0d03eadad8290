"""Search for the part of a value that cannot be pickled; runs only after pickling has failed.

The search pickles the parts of the value one by one and descends into the first that fails: items
of containers, attributes, closure variables, globals and defaults of functions, attributes of
classes. Depth and time are limited; at a limit, the search returns the deepest failing part so far.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import time
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

MAX_DEPTH = 16
MAX_CHILDREN = 10_000
BUDGET_S = 2.0

PickleCheck = Callable[[object], Exception | None]


class UnpicklablePart(NamedTuple):
    """The smallest part of a value that cannot be pickled."""

    path: str
    """Its path, such as ``config["a"].lock`` or ``closure variable `lock` of function `f` ``."""

    type_name: str
    """Its type with the module, such as ``_thread.lock``."""

    reason: str
    """The pickler's error."""

    value: Any = None
    """The part itself."""


class _Part(NamedTuple):
    path: str
    """An expression, or words that contain their own quotes."""
    value: Any


def find_unpicklable(
    value: object,
    path: str,
    error: Exception,
    can_pickle: PickleCheck,
    clock: Callable[[], float] = time.monotonic,
) -> UnpicklablePart:
    """Find the part of `value` that causes `error`, starting at `path`."""
    deadline = clock() + BUDGET_S
    seen = {id(value)}
    alive = [value]  # keeps temporaries alive, so that their ids are not reused
    current = _Part(path, value)
    for _ in range(MAX_DEPTH):
        for part in itertools.islice(_parts(current), MAX_CHILDREN):
            if clock() > deadline:
                return _describe(current, error)
            if id(part.value) in seen:
                continue
            part_error = can_pickle(part.value)
            if part_error is not None:
                break
        else:
            return _describe(current, error)
        seen.add(id(part.value))
        alive.append(part.value)
        current, error = part, part_error
    return _describe(current, error)


def _describe(part: _Part, error: Exception) -> UnpicklablePart:
    if inspect.isclass(part.value):
        type_name = f"class {part.value.__qualname__}"
    elif isinstance(part.value, types.ModuleType):
        type_name = f"module {part.value.__name__}"
    else:
        cls = type(part.value)
        type_name = (
            cls.__qualname__
            if cls.__module__ == "builtins"
            else f"{cls.__module__}.{cls.__qualname__}"
        )
    reason = str(error) or type(error).__name__
    return UnpicklablePart(part.path, type_name, reason, part.value)


def _parts(whole: _Part) -> Iterator[_Part]:
    value, path = whole.value, whole.path
    if isinstance(value, types.FunctionType):
        yield from _function_parts(value)
    elif isinstance(value, types.MethodType):
        yield _Part(f"{path}.__self__", value.__self__)
        yield _Part(f"{path}.__func__", value.__func__)
    elif isinstance(value, functools.partial):
        yield _Part(f"{path}.func", value.func)
        yield _Part(f"{path}.args", value.args)
        yield _Part(f"{path}.keywords", value.keywords)
    elif inspect.isclass(value):
        yield from _class_parts(value)
    elif type(value) is dict:
        for key, item in value.items():
            yield _Part(f"key {key!r} of {path}", key)
            yield _Part(f"{path}[{_shown(key)}]", item)
    elif type(value) in (list, tuple):
        for index, item in enumerate(value):
            yield _Part(f"{path}[{index}]", item)
    elif type(value) in (set, frozenset):
        for item in value:
            yield _Part(f"an element of {path}", item)
    else:
        yield from _reduction_parts(value, path)


def _shown(key: object) -> str:
    return f'"{key}"' if isinstance(key, str) else repr(key)


def _function_parts(function: types.FunctionType) -> Iterator[_Part]:
    name = function.__qualname__.replace("<locals>.", "")
    for variable, cell in zip(
        function.__code__.co_freevars, function.__closure__ or (), strict=False
    ):
        try:
            yield _Part(f"closure variable `{variable}` of function `{name}`", cell.cell_contents)
        except ValueError:  # the variable is unset
            continue
    for variable in _global_names(function.__code__):
        if variable in function.__globals__:
            yield _Part(
                f"global `{variable}` used by function `{name}`", function.__globals__[variable]
            )
    parameters = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    for variable, default in zip(
        parameters[len(parameters) - len(defaults) :], defaults, strict=False
    ):
        yield _Part(f"default of parameter `{variable}` of function `{name}`", default)
    for variable, default in (function.__kwdefaults__ or {}).items():
        yield _Part(f"default of parameter `{variable}` of function `{name}`", default)
    for attribute, item in function.__dict__.items():
        yield _Part(f"attribute `{attribute}` of function `{name}`", item)


def _global_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


def _class_parts(cls: type) -> Iterator[_Part]:
    for name, item in vars(cls).items():
        if name in ("__dict__", "__weakref__", "__doc__", "__module__"):
            continue
        if isinstance(item, (staticmethod, classmethod)):
            item = item.__func__
        elif isinstance(item, property):
            item = item.fget
        yield _Part(f"`{cls.__qualname__}.{name}`", item)


def _reduction_parts(value: object, path: str) -> Iterator[_Part]:
    """Yield the parts that the object's `__reduce_ex__` would pickle."""
    try:
        reduced = value.__reduce_ex__(5)
    except Exception:
        return
    if not isinstance(reduced, tuple):
        return
    _, args, state, items, pairs = (*reduced, None, None, None, None)[:5]
    # The state is the attributes, or (attributes, slots).
    for fields in state if isinstance(state, tuple) and len(state) == 2 else (state,):
        if isinstance(fields, dict):
            for name, item in fields.items():
                yield _Part(f"{path}.{name}", item)
        elif fields is not None:
            yield _Part(f"the state of {path}", fields)
    for index, item in enumerate(items or ()):
        yield _Part(f"{path}[{index}]", item)
    for key, item in pairs or ():
        yield _Part(f"{path}[{_shown(key)}]", item)
    if args:
        for index, item in enumerate(args):
            yield _Part(f"argument {index} of the constructor of {path}", item)


def unpicklable_message(subject: str, path: str, part: UnpicklablePart, where: str) -> str:
    """Return the error message for `subject`, found at `path`; `where` says where to create it."""
    if part.path == path:
        place = "it"
    else:
        place = part.path if "`" in part.path else f"`{part.path}`"
    return (
        f"{subject} cannot be sent to another process: {place} is a {part.type_name} "
        f"({part.reason}). Create it {where} instead of sending it, or give its class a "
        f"`__reduce__` that returns how to rebuild it."
    )
