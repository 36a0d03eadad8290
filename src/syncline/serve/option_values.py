"""Checks of the options of serve, and conversion of dicts to option classes.

Wrong types raise `OptionTypeError`, which is a TypeError and, like the errors of Ray's option
classes, a ValueError; impossible values raise ValueError. Messages name the option and its value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from importlib import import_module
from typing import Any, TypeVar

from syncline.suggestions import did_you_mean

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


class OptionTypeError(TypeError, ValueError):
    """An option has a value of the wrong type, or is unknown."""


def wrong_type(name: str, value: object, wanted: str) -> OptionTypeError:
    """Return the error for a value of the wrong type."""
    return OptionTypeError(f"`{name}={value!r}` is a {type(value).__name__}: give {wanted}")


def number(
    name: str,
    value: object,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    optional: bool = False,
) -> None:
    """Check a finite number within bounds; None only if `optional`."""
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong_type(name, value, "a number or None" if optional else "a number")
    _check_bounds(name, value, above, least, most)


def integer(
    name: str,
    value: object,
    *,
    least: int | None = None,
    most: int | None = None,
    optional: bool = False,
) -> None:
    """Check an integer within bounds; None only if `optional`."""
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(name, value, "an integer or None" if optional else "an integer")
    _check_bounds(name, value, None, least, most)


def _check_bounds(
    name: str, value: float, above: float | None, least: float | None, most: float | None
) -> None:
    if not math.isfinite(value):
        raise ValueError(f"`{name}={value}` is not finite: give a finite number")
    too_small = (above is not None and value <= above) or (least is not None and value < least)
    if too_small or (most is not None and value > most):
        lower = f"more than {above:g}" if above is not None else f"at least {least:g}"
        bounds = lower if most is None else f"{lower} and at most {most:g}"
        raise ValueError(f"`{name}={value}` is out of range: give {bounds}")


def boolean(name: str, value: object) -> None:
    """Check True or False."""
    if not isinstance(value, bool):
        raise wrong_type(name, value, "True or False")


def text(name: str, value: object, *, optional: bool = False, empty: bool = True) -> None:
    """Check a string; None only if `optional`, '' only if `empty`."""
    if value is None and optional:
        return
    if not isinstance(value, str):
        raise wrong_type(name, value, "a string or None" if optional else "a string")
    if not value and not empty:
        raise ValueError(f"`{name}=''` is empty: give a non-empty string")


def texts(name: str, value: object) -> tuple[str, ...]:
    """Return a list of strings as a tuple."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise wrong_type(name, value, "a list of strings")
    return tuple(value)


def mapping(name: str, value: object) -> dict[str, Any]:
    """Return a copy of a mapping whose keys are strings."""
    if not isinstance(value, Mapping):
        raise wrong_type(name, value, "a dict")
    for key in value:
        if not isinstance(key, str):
            raise OptionTypeError(f"`{name}` has the key {key!r}: keys are strings")
    return dict(value)


def choice(name: str, value: object, allowed: Iterable[object]) -> None:
    """Check one of the allowed values."""
    allowed = list(allowed)
    if value not in allowed:
        hint = did_you_mean(value, [str(a) for a in allowed]) if isinstance(value, str) else ""
        listed = ", ".join(repr(item) for item in allowed)
        raise ValueError(f"`{name}={value!r}` is unknown: give one of {listed}.{hint}")


def member(name: str, value: object, enum: type[E]) -> E:
    """Return the member of a string enum with this value."""
    if isinstance(value, enum):
        return value
    if not isinstance(value, str):
        raise wrong_type(name, value, f"one of {', '.join(repr(e.value) for e in enum)}")
    choice(name, value, [e.value for e in enum])
    return enum(value)


def jsonable(name: str, value: object) -> None:
    """Check a value that JSON can represent."""
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"`{name}` is not JSON-serializable: {error}") from error


def options(cls: type[T], value: object, name: str) -> T:
    """Return `value`, an instance of the dataclass `cls` or a dict of its fields, as an instance.

    `name` is the option, or the path in a configuration file. Errors of the fields name it.
    """
    if isinstance(value, cls):
        return value
    given = mapping(name, value) if isinstance(value, Mapping) else None
    if given is None:
        raise wrong_type(name or "value", value, f"a dict or a {cls.__name__}")
    check_keys(name, given, option_names(cls))
    required = [
        f.name
        for f in fields(cls)  # type: ignore[arg-type]  # a dataclass
        if f.init and f.default is MISSING and f.default_factory is MISSING and f.name not in given
    ]
    if required:
        missing = f"the field {required[0]!r} is missing: add it"
        raise OptionTypeError(within(name, missing))
    try:
        return cls(**given)
    except OptionTypeError as error:
        raise OptionTypeError(within(name, error)) from None
    except ValueError as error:
        raise ValueError(within(name, error)) from None


def within(name: str, error: Exception | str) -> str:
    """Return the text of an error with the path of its option, such as "In `a.b`: …".

    An empty name is the whole configuration.
    """
    text = str(error)
    if not name:
        return text
    return f"In `{name}.{text[4:]}" if text.startswith("In `") else f"In `{name}`: {text}"


def option_names(cls: type) -> list[str]:
    """Return the names of the arguments of a dataclass."""
    return [f.name for f in fields(cls) if f.init]


def check_keys(name: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise OptionTypeError for the first key that is unknown, with the nearest known one."""
    known = list(known)
    for key in given:
        if key not in known:
            problem = (
                f"unknown field {key!r}.{did_you_mean(key, known)} Fields: {', '.join(known)}."
            )
            raise OptionTypeError(within(name, problem))


def imported(path: str) -> Any:
    """Return the object with the import path "module:name" or "module.name".

    Raises ImportError or AttributeError if it does not exist.
    """
    module, separator, name = path.partition(":")
    if not separator:
        module, _, name = path.rpartition(".")
    value: object = import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value
