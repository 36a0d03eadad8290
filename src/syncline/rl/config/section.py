"""`Section`: options declared as class attributes, set by methods that take keywords only."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

from syncline.rl.config.older import RENAMED, WITHOUT_EFFECT
from syncline.suggestions import did_you_mean


class _NotProvided:
    """Type of `NotProvided`."""

    def __repr__(self) -> str:
        return "NotProvided"

    def __bool__(self) -> bool:
        return False


NotProvided: Any = _NotProvided()
"""Default of arguments whose option keeps its value."""

SectionT = TypeVar("SectionT", bound="Section")


class Section:
    """Base of groups of options.

    The annotated class attributes are the options and their defaults; every instance gets its own
    copies of mutable ones.
    """

    def __init__(self) -> None:
        for cls in reversed(type(self).__mro__):
            if issubclass(cls, Section):
                for name in vars(cls).get("__annotations__", ()):
                    self.__dict__[name] = copy.copy(getattr(cls, name))

    def _set(self: SectionT, given: Mapping[str, Any], **renamed: str) -> SectionT:
        """Set the options that were provided; `given` are the arguments of the calling method.

        `renamed` maps arguments to the attributes that hold them.
        """
        for name, value in given.items():
            if name != "self" and value is not NotProvided and not name.startswith("__"):
                setattr(self, renamed.get(name, name), value)
        return self

    def _older(self, method: str, older: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keywords of a method that it does not declare, after a check of their names.

        Raises:
            TypeError: A name is no option, in this release or an earlier one.
        """
        for name in older:
            if name in RENAMED or name in WITHOUT_EFFECT or name in self.__dict__:
                continue
            known = {
                each
                for cls in type(self).__mro__
                if method in vars(cls)
                for each in inspect.signature(vars(cls)[method]).parameters
            }
            raise TypeError(
                f"{type(self).__name__}.{method}() has no argument {name!r}."
                f"{did_you_mean(name, known)}"
            )
        return dict(older)


def check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise ValueError, with the nearest name, unless `value` is one of `choices`."""
    if value not in choices:
        listed = ", ".join(map(repr, choices))
        hint = did_you_mean(str(value), [str(each) for each in choices])
        raise ValueError(f"`{name}={value!r}` is unknown.{hint} Use one of {listed}.")
