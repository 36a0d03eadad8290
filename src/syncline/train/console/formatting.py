"""Texts of numbers, names, durations and paths for displays. Pure."""

from __future__ import annotations

import numbers
from datetime import datetime, timezone

DIGITS = 6
"""Significant digits of a non-integer number."""


def text_of(value: object, length: int = 20) -> str:
    """Return a value as text: "" for None, numbers with few digits, other texts shortened to
    `length`.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        return f"{float(value):.{DIGITS}g}"
    return shortened(" ".join(str(value).split()), length)


def shortened(text: str, length: int) -> str:
    """Return at most the last `length` characters of a text; names and paths usually differ at the
    end.
    """
    return text if len(text) <= length else f"...{text[len(text) - max(1, length - 3) :]}"


def is_number(value: object) -> bool:
    """Return True for numbers, whose columns are right-aligned."""
    return isinstance(value, numbers.Number) and not isinstance(value, bool)


def counted(count: int, noun: str) -> str:
    """Return `1 trial`, `3 trials`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return at most two units: "4.2 s", "1 min 05 s", "2 h 10 min", "3 d 4 h"."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def moment(seconds: float) -> str:
    """Return seconds since the epoch as local date and time."""
    return f"{datetime.fromtimestamp(seconds, tz=timezone.utc).astimezone():%Y-%m-%d %H:%M:%S}"


def located(path: str, *, local: bool, scheme: str) -> str:
    """Return a path as users can use it."""
    return path if local else f"{scheme}://{path}"
