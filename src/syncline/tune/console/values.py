"""Texts of what trials hold: numbers shortened, names cut to what tells them apart, durations, errors. Pure."""

from __future__ import annotations

import numbers
import traceback
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from syncline.train import filesystem as directories
from syncline.train.checkpoint import Checkpoint

DIGITS = 6
"""Significant digits of a number with a fraction."""


def text_of(value: Any, length: int = 20) -> str:
    """A value in a table: "" for None, numbers with few digits, everything else in at most `length` characters, of which the last count."""
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
    """The last characters of a text that is longer than `length`; what tells names and paths apart usually stands at their end."""
    return text if len(text) <= length else f"...{text[len(text) - max(1, length - 3) :]}"


def is_number(value: Any) -> bool:
    """Whether a column of such values is aligned at its right end."""
    return isinstance(value, numbers.Number) and not isinstance(value, bool)


def parameters_text(parameters: Mapping[str, Any], length: int = 40) -> str:
    """Parameters in one line: `{'lr': 0.01, 'layers': 2}`."""
    values = (
        f"{key!r}: {text_of(value, length) if is_number(value) else shortened(repr(value), length)}" for key, value in parameters.items()
    )
    return f"{{{', '.join(values)}}}"


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """For each flat key (`model/lr`) its shortest end that no other key has: `lr`, or `model/lr` where there is an `optimizer/lr` too."""
    names = list(keys)
    owners: dict[str, int] = {}
    for key in names:
        for end in _ends(key):
            owners[end] = owners.get(end, 0) + 1
    return {key: next((end for end in _ends(key) if owners[end] == 1), key) for key in names}


def _ends(key: str) -> list[str]:
    """`c`, `b/c`, `a/b/c`."""
    parts = key.split("/")
    return ["/".join(parts[position:]) for position in range(len(parts) - 1, -1, -1)]


def counted(count: int, noun: str) -> str:
    """`1 trial`, `3 trials`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Two units at most: "4.2 s", "1 min 05 s", "2 h 10 min", "3 d 4 h"."""
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
    """Seconds since the epoch as this machine's date and time."""
    return f"{datetime.fromtimestamp(seconds, tz=timezone.utc).astimezone():%Y-%m-%d %H:%M:%S}"


def last_line(error: BaseException | None, text: str = "") -> str:
    """The line that says what went wrong: the last one of the traceback `text`, or of `error` itself."""
    lines = text.strip().splitlines() or ("".join(traceback.format_exception_only(error)).strip().splitlines() if error else [])
    return lines[-1].strip() if lines else "no reason is known"


def place(checkpoint: Checkpoint) -> str:
    """Where a checkpoint lies: a path of this machine, or a URI."""
    return located(checkpoint.path, local=directories.is_local(checkpoint.filesystem), scheme=checkpoint.filesystem.type_name)


def located(path: str, *, local: bool, scheme: str) -> str:
    """A path as people can use it."""
    return path if local else f"{scheme}://{path}"
