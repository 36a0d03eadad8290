"""JSON that may come from anybody, as values that those who show them can go on with.

`json` alone makes a hundred times as many bytes of values out of some texts, whole numbers that no
float holds, halves of characters that nothing can send, and nests as deep as it can itself, which
is deeper than others can go. Here there are limits, far beyond what records of syncline have;
numbers and characters that do not fit are replaced by those that are nearest.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

MOST_VALUES = 1_000_000
"""In one text."""
DEEPEST = 64
_LARGEST = 2**63
"""Whole numbers of this size and beyond become floats."""
_HALVES = (b"\\ud", b"\\uD")
_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
_MANY_DIGITS = b"0" * 19
_LONG_WHOLE = re.compile(rb"[:,\[\s]-?\d{19}")
_HALF = re.compile("[\ud800-\udfff]")


def parsed(data: bytes) -> Any:
    """The value of a text.

    Raises:
        ValueError: It is no JSON, or holds too many values, or nests too deeply.
    """
    if weight(data) > MOST_VALUES:
        raise ValueError(
            f"it holds more than {MOST_VALUES} values, and no record of syncline has so many"
        )
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    is_flat = data.count(b"[") + data.count(b"{") <= DEEPEST
    return value if is_flat and fits(data) else tamed(value)


def weight(data: bytes) -> int:
    """How many values there can be in a text, at most; what it takes in memory is in proportion to
    that, and to its length.
    """
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def fits(data: bytes) -> bool:
    """Whether no number or character of a text has to be replaced. Quick: most do not have long
    numbers, and of others one looks closer.
    """
    if any(half in data for half in _HALVES):
        return False
    return _MANY_DIGITS not in data.translate(_DIGITS) or _LONG_WHOLE.search(b" " + data) is None


def tamed(value: Any, room: int = DEEPEST) -> Any:
    """A value with what does not fit replaced: numbers by floats, if need be infinite ones, and
    halves of characters by question marks.

    Raises:
        ValueError: It is nested more deeply than `room`.
    """
    if isinstance(value, str):
        return _HALF.sub("?", value)
    if isinstance(value, int):
        return value if -_LARGEST < value < _LARGEST else _float(value)
    if not isinstance(value, (dict, list)):
        return value
    if room == 0:
        raise ValueError(_TOO_DEEP)
    if isinstance(value, list):
        return [tamed(item, room - 1) for item in value]
    return {_HALF.sub("?", key): tamed(item, room - 1) for key, item in value.items()}


_TOO_DEEP = f"it nests deeper than {DEEPEST} levels, and no record of syncline does"


def _float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
