"""Any value as one that JSON can hold, for records that people read.

Values that JSON has no form for become their description; nothing is read back as code. Values of
environment variables, where secrets often are, are left out.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from enum import Enum
from typing import Any

HIDDEN = "…"
"""Stands for the value of an environment variable."""
_LONGEST_DESCRIPTION = 500


def plain(value: Any) -> Any:
    """`value` in dictionaries, lists, strings, numbers, booleans and None: dataclasses as
    dictionaries, other objects as descriptions.
    """
    if isinstance(value, Enum):
        return plain(value.value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {
            str(key): _names_only(item) if key == "env_vars" else plain(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return describe(value)


def describe(value: Any) -> str:
    """A short text for a value that JSON has no form for: functions and classes by their name,
    others as they print.
    """
    name = getattr(value, "__qualname__", None)
    if isinstance(name, str):
        return f"{getattr(value, '__module__', '')}.{name}"
    try:
        text = repr(value)
    except Exception as error:  # a record must not end a run because an object cannot print itself
        text = f"<{type(value).__name__}, which cannot be printed: {error!r}>"
    return text if len(text) <= _LONGEST_DESCRIPTION else text[: _LONGEST_DESCRIPTION - 1] + "…"


def encode(value: Any) -> bytes:
    """One line of JSON, with the newline. Not-a-number and infinities are written as Python's
    `json` reads them.
    """
    return _ENCODER.encode(value).encode() + b"\n"


def _fallback(value: Any) -> Any:
    # Arrays have `tolist`; what it returns is made of lists and numbers.
    to_list = getattr(value, "tolist", None)
    return to_list() if callable(to_list) else plain(value)


_ENCODER = json.JSONEncoder(default=_fallback, separators=(",", ":"))


def _names_only(variables: Any) -> Any:
    return dict.fromkeys(map(str, variables), HIDDEN) if isinstance(variables, Mapping) else HIDDEN
