"""Which part of a value cannot be pickled: a search that runs only after pickling has failed.

The search pickles the parts of the value one by one and descends into the first that fails: items
of containers, attributes, closure variables, globals and defaults of functions, attributes of
classes. It is bounded in depth and time; when the bound is hit the deepest part found so far is
named.
"""

from __future__ import annotations

import functools
import inspect
import time
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

MAX_DEPTH = 16
MAX_CHILDREN = 10_000
BUDGET_S = 2.0

PickleCheck = Callable[[object], Exception | None]


class Culprit(NamedTuple):
    """The smallest part of a value that cannot be pickled."""

    path: str
    """Where it is, for example ``config["a"].lock`` or ``closure variable `lock` of function `f`
    ``.
    """

    type_name: str
    """Its type with the module, for example ``_thread.lock``."""

    reason: str
    """What the pickler said."""


class _Part(NamedTuple):
    path: str
    """An expression if `quoted`, otherwise words that already carry their quotes."""
    value: Any


def find(
    value: object,
    path: str,
    error: Exception,
    can_pickle: PickleCheck,
    clock: Callable[[], float] = time.monotonic,
) -> Culprit:
    """Descend from `value` (called `path`, and known to fail with `error`) to the part that is to
    blame.
    """
    deadline = clock() + BUDGET_S
    seen = {id(value)}
    alive = [value]  # parts may be temporaries: without a reference their ids would be used again
    current = _Part(path, value)
    for _ in range(MAX_DEPTH):
        for part in _parts(current):
            if clock() > deadline:
                return _culprit(current, error)
            if id(part.value) in seen:
                continue
            part_error = can_pickle(part.value)
            if part_error is not None:
                break
        else:
            return _culprit(current, error)
        seen.add(id(part.value))
        alive.append(part.value)
        current, error = part, part_error
    return _culprit(current, error)


def _culprit(part: _Part, error: Exception) -> Culprit:
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
    return Culprit(part.path, type_name, str(error) or type(error).__name__)


def _parts(whole: _Part) -> Iterator[_Part]:
    for count, part in enumerate(_all_parts(whole)):
        if count >= MAX_CHILDREN:
            return
        yield part


def _all_parts(whole: _Part) -> Iterator[_Part]:
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
        except ValueError:  # the variable has no value yet
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


def _reduction_parts(value: Any, path: str) -> Iterator[_Part]:
    """What the object's own `__reduce_ex__` would have pickled: a `__getstate__` that leaves
    something out is obeyed.
    """
    try:
        reduced = value.__reduce_ex__(5)
    except Exception:
        return
    if not isinstance(reduced, tuple):
        return
    _, args, state, items, pairs = (*reduced, None, None, None, None)[:5]
    for fields in (
        state if isinstance(state, tuple) and len(state) == 2 else (state,)
    ):  # (attributes, slots), or attributes
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
