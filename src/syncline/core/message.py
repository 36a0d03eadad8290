"""`Message`: the base class of values that processes send to each other in large variety.

Its subclasses behave like frozen dataclasses with keyword-only fields. `dataclass` compiles six
functions for each class, for almost a millisecond; a process with 100 kinds of messages would take
a tenth of a second longer to start.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, FrozenInstanceError, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_options):
        """Do nothing: the decorator is for type checkers."""
        return lambda cls: cls


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Message:
    """A frozen value; see the module. Fields are declared as in a dataclass."""

    _names: ClassVar[frozenset[str]] = frozenset()
    _defaults: ClassVar[dict[str, Any]] = {}
    _factories: ClassVar[dict[str, Callable[[], object]]] = {}

    def __init_subclass__(cls) -> None:
        names, cls._defaults, cls._factories = set(cls._names), {}, {}
        for base in reversed(cls.__mro__[1:-1]):
            cls._defaults |= base.__dict__.get("_defaults", {})
            cls._factories |= base.__dict__.get("_factories", {})
        for name in cls.__dict__.get("__annotations__", {}):
            names.add(name)
            default = cls.__dict__.get(name, MISSING)
            if isinstance(default, Field):
                delattr(cls, name)
                if default.default_factory is not MISSING:
                    cls._factories[name] = default.default_factory
                    continue
                default = default.default
            if default is not MISSING:
                cls._defaults[name] = default
        cls._names = frozenset(names)

    def __init__(self, **values: object) -> None:
        if values.keys() != self._names:
            values = self._complete(values)
        self.__dict__.update(values)

    def _complete(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the values with those of the fields that were left out."""
        for name, factory in self._factories.items():
            if name not in values:
                values[name] = factory()
        values = {**self._defaults, **values}
        if values.keys() != self._names:
            kind = type(self).__name__
            unknown, missing = values.keys() - self._names, self._names - values.keys()
            if unknown:
                raise TypeError(f"{kind} has no fields {', '.join(sorted(unknown))}")
            raise TypeError(f"{kind} needs the fields {', '.join(sorted(missing))}")
        return values

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *[self.__dict__[name] for name in sorted(self._names)]))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({shown})"
