"""JSON values of records: encoding of any Python value, and parsing of untrusted JSON.

Encoding: values without a JSON form become a short description; nothing is decoded as code. Values
of environment variables are left out, because they often contain secrets.

Parsing: some texts make `json` produce a hundred times their size in values, integers beyond every
float, lone surrogates that cannot be encoded, and nesting up to Python's own limit. `parsed` sets
limits far beyond real records, and replaces such numbers and characters by the nearest valid ones.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

JsonObject = dict[str, Any]
"""A parsed JSON object."""
Record = Mapping[str, Any]
"""A JSON object that is only read."""
HIDDEN = "…"
"""Placeholder for the value of an environment variable."""
_MAX_DESCRIPTION_LENGTH = 500


def plain(value: object) -> Any:
    """Convert `value` to dictionaries, lists, strings, numbers, booleans and None: dataclasses to
    dictionaries, other objects to descriptions.
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


def describe(value: object) -> str:
    """Return a short text for a value without a JSON form: the qualified name of a function or
    class, otherwise its `repr`.
    """
    name = getattr(value, "__qualname__", None)
    if isinstance(name, str):
        return f"{getattr(value, '__module__', '')}.{name}"
    try:
        text = repr(value)
    except Exception as error:  # a broken __repr__ must not end the run
        text = f"<{type(value).__name__}, which cannot be printed: {error!r}>"
    return (
        text if len(text) <= _MAX_DESCRIPTION_LENGTH else text[: _MAX_DESCRIPTION_LENGTH - 1] + "…"
    )


def encode(value: object) -> bytes:
    """Return one line of JSON with the newline. NaN and infinities are written as Python's `json`
    reads them.
    """
    return _ENCODER.encode(value).encode() + b"\n"


def _fallback(value: object) -> Any:
    # Arrays have `tolist`, which returns lists and numbers.
    to_list = getattr(value, "tolist", None)
    return to_list() if callable(to_list) else plain(value)


_ENCODER = json.JSONEncoder(default=_fallback, separators=(",", ":"))


def _names_only(variables: object) -> Any:
    return dict.fromkeys(map(str, variables), HIDDEN) if isinstance(variables, Mapping) else HIDDEN


MAX_VALUES = 1_000_000
"""Maximum number of values in one text."""
MAX_DEPTH = 64
_MAX_INTEGER = 2**63
"""Integers of this magnitude and above become floats."""
_HALVES = (b"\\ud", b"\\uD")
_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
_MANY_DIGITS = b"0" * 19
_LONG_WHOLE = re.compile(rb"[:,\[\s]-?\d{19}")
_HALF = re.compile("[\ud800-\udfff]")


def parse_json(data: bytes) -> Any:
    """Parse JSON of unknown origin.

    Raises:
        ValueError: The text is not JSON, has too many values, or nests too deeply.
    """
    if count_values(data) > MAX_VALUES:
        raise ValueError(f"The text has more than {MAX_VALUES} values; records have fewer.")
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    is_flat = data.count(b"[") + data.count(b"{") <= MAX_DEPTH
    return value if is_flat and needs_no_repair(data) else repaired(value)


def count_values(data: bytes) -> int:
    """Return an upper bound of the number of values in a text. The memory that they take is
    proportional to it and to the length of the text.
    """
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def needs_no_repair(data: bytes) -> bool:
    """Return True if no number or character of a text needs replacement. A cheap test passes most
    texts; only texts with long numbers need the regular expression.
    """
    if any(half in data for half in _HALVES):
        return False
    return _MANY_DIGITS not in data.translate(_DIGITS) or _LONG_WHOLE.search(b" " + data) is None


def repaired(value: object, room: int = MAX_DEPTH) -> Any:
    """Return a value with oversized integers replaced by floats (possibly infinite) and lone
    surrogates replaced by question marks.

    Raises:
        ValueError: The value nests more deeply than `room`.
    """
    if isinstance(value, str):
        return _HALF.sub("?", value)
    if isinstance(value, int):
        return value if -_MAX_INTEGER < value < _MAX_INTEGER else as_float(value)
    if not isinstance(value, (dict, list)):
        return value
    if room == 0:
        raise ValueError(_TOO_DEEP)
    if isinstance(value, list):
        return [repaired(item, room - 1) for item in value]
    return {_HALF.sub("?", key): repaired(item, room - 1) for key, item in value.items()}


_TOO_DEEP = f"The text nests deeper than {MAX_DEPTH} levels; records do not."


def as_float(value: float) -> float:
    """Return a number as a float; infinity for an int beyond its range."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def finite(value: object) -> float | None:
    """Return a finite number as a float; None for anything else, booleans included."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    number = as_float(value)
    return number if math.isfinite(number) else None
