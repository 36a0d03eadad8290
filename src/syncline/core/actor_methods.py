"""The methods of an actor: which there are, and how a worker finds the one that a call names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from syncline.core import refs
from syncline.core.options import MethodOptions

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

OPTIONS_ATTRIBUTE = "__syncline_method_options__"
"""Where `@method` leaves its options on a function, as a dict."""


def find_methods(cls: type) -> dict[str, Callable[..., Any]]:
    """Functions that calls may name: those of the class and its bases, static and class methods
    among them, but not `object`'s.
    """
    methods: dict[str, Callable[..., Any]] = {}
    for base in cls.__mro__:
        if base is object:
            continue
        for name, value in vars(base).items():
            function = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
            if inspect.isroutine(function) and name not in methods and name not in _NOT_CALLS:
                methods[name] = function
    return methods


def is_async_class(cls: type) -> bool:
    """Whether any method is a coroutine function or an asynchronous generator; such an actor runs
    its calls on an event loop.
    """
    return any(
        inspect.iscoroutinefunction(f) or inspect.isasyncgenfunction(f)
        for f in find_methods(cls).values()
    )


def is_generator(function: Callable[..., Any]) -> bool:
    """Whether calls of the function yield their values."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _terminate(actor: object) -> None:
    refs.current_engine().exit_actor()


def _ready(actor: object) -> bool:
    return True


def _call(actor: object, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(actor, *args, **kwargs)


_OF_EVERY_ACTOR: dict[str, Callable[..., Any]] = {
    "__ray_terminate__": _terminate,
    "__ray_ready__": _ready,
    "__ray_call__": _call,
}

OPTIONS_OF_EVERY_ACTOR: dict[str, MethodOptions] = {
    name: MethodOptions() for name in _OF_EVERY_ACTOR
}
"""Methods that every actor has: end after the earlier calls; answer when the constructor is done;
run a function on the instance.
"""


def bound_method(actor: object, name: str) -> Callable[..., Any]:
    """What a call of the method `name` runs; AttributeError where the actor has none."""
    function = _OF_EVERY_ACTOR.get(name)
    if function is None:
        return getattr(actor, name)  # type: ignore[no-any-return]
    return function.__get__(actor)  # type: ignore[no-any-return]
