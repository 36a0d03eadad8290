"""Definitions of tasks, actors and calls, and the methods of an actor class.

A definition is created when `@remote` or `.options()` is evaluated, not per call, and passed
unchanged to the engine with every call.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, fields
from typing import Any

from syncline.core import refs
from syncline.core.options import ActorOptions, MethodOptions, TaskOptions
from syncline.core.signatures import parameter_list

AnyFunction = Callable[..., Any]
"""A user's function or method."""

OPTIONS_ATTRIBUTE = "__syncline_method_options__"
"""Attribute in which `@method` stores its options on a function, as a dict."""

_NOT_CALLS = frozenset(
    {
        "__init__",
        "__new__",
        "__del__",
        "__init_subclass__",
        "__class_getitem__",
        "__getattribute__",
        "__getattr__",
    }
)


@dataclass(slots=True, eq=False)
class _Definition:
    """Base class: a slot in which an engine caches its preparation of the definition."""

    prepared: Any = field(default=None, init=False, repr=False)
    """Owned by the engine in `prepared_for`."""
    prepared_for: object | None = field(default=None, init=False, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), tuple(getattr(self, each.name) for each in fields(self) if each.init)


@dataclass(slots=True, eq=False)
class TaskDefinition(_Definition):
    """One remote function with its options."""

    function: AnyFunction
    name: str
    options: TaskOptions


@dataclass(slots=True, eq=False)
class ActorDefinition(_Definition):
    """One actor class with its options and the options of its methods by name."""

    cls: type
    name: str
    options: ActorOptions
    methods: dict[str, MethodOptions]
    is_async: bool
    signatures: dict[str, str] = field(default_factory=dict)
    """Parameter lists of the methods, where they are known."""

    @property
    def groups(self) -> tuple[str, ...]:
        """Concurrency groups that calls may name."""
        return tuple(self.options.concurrency_groups)


@dataclass(slots=True, eq=False)
class CallDefinition(_Definition):
    """One method of one actor with the options of the call."""

    actor_id: int
    class_name: str
    method: str
    options: MethodOptions
    groups: tuple[str, ...]
    signature: str | None = None
    """Parameter list of the method; None if it is unknown."""

    @property
    def name(self) -> str:
        """Name in errors and logs: `Class.method`."""
        return f"{self.class_name}.{self.method}"


# -- methods of an actor class


def find_methods(cls: type) -> dict[str, AnyFunction]:
    """Return the callable methods of a class by name, inherited ones included.

    Static and class methods count; methods of `object` do not.
    """
    methods: dict[str, AnyFunction] = {}
    for base in cls.__mro__:
        if base is object:
            continue
        for name, value in vars(base).items():
            function = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
            if inspect.isroutine(function) and name not in methods and name not in _NOT_CALLS:
                methods[name] = function
    return methods


def find_signatures(cls: type) -> dict[str, str]:
    """Return the parameter list of each method without `self`, where it is known."""
    signatures: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        for name, value in vars(base).items():
            is_static = isinstance(value, staticmethod)
            function = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
            if not inspect.isroutine(function) or name in _NOT_CALLS:
                continue
            parameters = parameter_list(function, skip_first=not is_static)
            if parameters is None:
                signatures.pop(name, None)
            else:
                signatures[name] = parameters
    return signatures


def constructor_parameters(cls: type) -> str | None:
    """Return the parameter list of a class; None if it is unknown."""
    for name in ("__init__", "__new__"):
        constructor = inspect.getattr_static(cls, name)
        if isinstance(constructor, staticmethod):
            constructor = constructor.__func__
        if constructor is not getattr(object, name):
            return parameter_list(constructor, skip_first=True)
    return ""


def is_async_class(cls: type) -> bool:
    """Return True if any method is async; such an actor runs its calls on an event loop."""
    return any(
        inspect.iscoroutinefunction(f) or inspect.isasyncgenfunction(f)
        for f in find_methods(cls).values()
    )


def is_generator(function: AnyFunction) -> bool:
    """Return True if calls of the function yield values."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def check_num_returns(function: AnyFunction, num_returns: object) -> None:
    """Raise ValueError if a function that yields nothing is to return its items."""
    if num_returns in ("streaming", "dynamic") and not is_generator(function):
        name = getattr(function, "__qualname__", function)
        raise ValueError(
            f"`num_returns={num_returns!r}` is for generator functions, but {name} does not "
            f"`yield`: use `yield` in it, or leave out `num_returns`"
        )


async def as_async_iterator(values: Any) -> AsyncIterator[object]:
    """Iterate over the items of a generator or an asynchronous generator."""
    if hasattr(values, "__aiter__"):
        async for value in values:
            yield value
    else:
        for value in values:
            yield value


_OF_EVERY_ACTOR: dict[str, AnyFunction] = {
    "__ray_terminate__": lambda actor: refs.engine_of_refs().exit_actor(),
    "__ray_ready__": lambda actor: True,
    "__ray_call__": lambda actor, function, *args, **kwargs: function(actor, *args, **kwargs),
}

OPTIONS_OF_EVERY_ACTOR: dict[str, MethodOptions] = {
    name: MethodOptions() for name in _OF_EVERY_ACTOR
}
"""Methods that every actor has: exit after the pending calls; return True once the constructor has
finished; run a function on the instance.
"""


def bound_method(actor: object, name: str) -> AnyFunction:
    """Return the method `name` of the instance's class; AttributeError if it has none.

    An attribute of the instance with the name of a method does not hide the method.
    """
    function = _OF_EVERY_ACTOR.get(name)
    if function is not None:
        return function.__get__(actor)  # type: ignore[no-any-return]
    if name not in getattr(actor, "__dict__", ()):
        return getattr(actor, name)  # type: ignore[no-any-return]
    method = inspect.getattr_static(type(actor), name)
    return method.__get__(actor, type(actor))  # type: ignore[no-any-return]
