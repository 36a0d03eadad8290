"""`dataclass` for frozen classes, which compiles the methods of a class when they are first used.

The decorator of the standard library compiles six functions for each frozen class, for half a
millisecond. A process imports hundreds of such classes and uses a part of them, so that it starts
a tenth of a second earlier with this one. Classes behave the same, except that no attribute of an
instance can be assigned, not even one that is not a field. Classes that are not frozen, or have
slots, are left to the standard library.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

C = TypeVar("C", bound=type)

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, **options):
        """Make a class a dataclass, as `dataclasses.dataclass` does; see the module."""
        is_lazy = options.keys() <= {"frozen", "kw_only", "eq", "repr"} and options.get("frozen")
        wrap = _lazily(options) if is_lazy else dataclasses.dataclass(**options)
        return wrap if cls is None else wrap(cls)


_COMPILED: dict[str, dict[str, bool]] = {
    "__init__": {"init": True},
    "__repr__": {"repr": True},
    "__eq__": {"eq": True},
    "__hash__": {"unsafe_hash": True},
}
"""Options of the standard decorator by the method that is wanted."""
_NONE = {"init": False, "repr": False, "eq": False}


def _lazily(options: dict[str, Any]) -> Callable[[C], C]:
    """Return the decorator for a frozen class."""
    kw_only = bool(options.get("kw_only"))
    wanted = ["__init__"]
    if options.get("repr", True):
        wanted += ["__repr__"]
    if options.get("eq", True):
        wanted += ["__eq__", "__hash__"]

    def wrap(cls: C) -> C:
        namespace = {
            name: value
            for name, value in cls.__dict__.items()
            if name not in ("__dict__", "__weakref__")
        }
        # The standard library compiles methods for `frozen`, and demands it if a base has it.
        dataclasses.dataclass(**_NONE, frozen=_has_frozen_base(cls), kw_only=kw_only)(cls)
        vars(cls)["__dataclass_params__"].frozen = True
        defined: list[tuple[str, Any]] = [
            (name, _stub(cls, name, namespace, kw_only)) for name in wanted
        ]
        defined += [("__setattr__", _refuse_assignment), ("__delattr__", _refuse_deletion)]
        if "__init__" not in namespace:
            defined.append(("__signature__", _Signature(cls, defined[0][1].compiled)))
        for name, function in defined:
            if name not in namespace:
                setattr(cls, name, function)
        return cls

    return wrap


def _stub(cls: type, name: str, namespace: dict[str, Any], kw_only: bool) -> Callable[..., Any]:
    """Return a method that compiles the wanted one at its first call, and takes its place."""

    @functools.cache
    def compiled() -> Callable[..., Any]:
        copy = type(cls)(cls.__name__, cls.__bases__, dict(namespace))
        frozen = name == "__init__" or _has_frozen_base(cls)
        own = {**_NONE, **_COMPILED[name], "frozen": frozen, "kw_only": kw_only}
        method: Callable[..., Any] = getattr(dataclasses.dataclass(**own)(copy), name)
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        if vars(cls).get(name) is stub:  # not another decorator's
            setattr(cls, name, method)
        return method

    def stub(self: object, *arguments: Any, **keywords: Any) -> Any:
        return compiled()(self, *arguments, **keywords)

    stub.compiled = compiled  # type: ignore[attr-defined]
    return stub


class _Signature:
    """The signature of a class, for `inspect.signature`."""

    def __init__(self, cls: type, compiled: Callable[[], Callable[..., Any]]) -> None:
        self._cls = cls
        self._compiled = compiled

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        if owner is not self._cls:
            raise AttributeError("__signature__")
        signature = inspect.signature(self._compiled())
        return signature.replace(parameters=list(signature.parameters.values())[1:])


def _has_frozen_base(cls: type) -> bool:
    return any(
        vars(base)["__dataclass_params__"].frozen
        for base in cls.__mro__[1:]
        if "__dataclass_params__" in vars(base)
    )


def _refuse_assignment(self: object, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
