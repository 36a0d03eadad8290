"""`Section`: options declared as class attributes and set by keyword-only methods."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

from syncline.rl.config.older import RENAMED, WITHOUT_EFFECT
from syncline.rl.value_types import Options
from syncline.suggestions import did_you_mean


class _NotProvided:
    """Type of `NotProvided`."""

    def __repr__(self) -> str:
        return "NotProvided"

    def __bool__(self) -> bool:
        return False


NotProvided: Any = _NotProvided()
"""Default of arguments; leaves the option unchanged."""

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

    def _set(self: SectionT, given: Mapping[str, object], **renamed: str) -> SectionT:
        """Set the provided options; `given` are the arguments of the calling method.

        `renamed` maps arguments to attributes with other names.
        """
        for name, value in given.items():
            if name != "self" and value is not NotProvided and not name.startswith("__"):
                setattr(self, renamed.get(name, name), value)
        return self

    def _older(self, method: str, older: Mapping[str, object]) -> Options:
        """Check and return the keywords that a method does not declare.

        Raises:
            TypeError: A name is not an option of this release or an earlier one.
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
    """Raise ValueError unless `value` is one of `choices`; suggest the nearest one."""
    if value not in choices:
        listed = ", ".join(map(repr, choices))
        hint = did_you_mean(str(value), [str(each) for each in choices])
        raise ValueError(f"`{name}={value!r}` is unknown.{hint} Use one of {listed}.")
