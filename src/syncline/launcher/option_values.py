"""Types of the values on the command line of `syncline run`.

Each takes the text of an argument or of its variable, and raises ArgumentTypeError for a value that
would fail later, or have no effect.
"""

from __future__ import annotations

import math
import signal
from argparse import ArgumentTypeError
from collections.abc import Callable

DEVICES = ("auto", "cpu", "gpu", "xpu")
"""Names of devices whose number is the number of workers."""
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def whole_number(least: int, most: float = math.inf) -> Callable[[str], int]:
    """Return a type for whole numbers from `least` to `most`."""

    def parse(text: str) -> int:
        try:
            found = int(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not a whole number") from None
        if found < least:
            raise ArgumentTypeError(f"{found} is too small: pass {least} or more")
        if found > most:
            raise ArgumentTypeError(f"{found} is too large: pass {most:g} or less")
        return found

    return parse


def seconds_or_never(text: str) -> float:
    """Return a number of seconds; 0 means never."""
    found = _number(text)
    if found < 0:
        raise ArgumentTypeError(f"{text} is below zero: pass a number of seconds, or 0 for never")
    return found


def interval(text: str) -> float:
    """Return a number of seconds above zero."""
    found = _number(text)
    if found <= 0:
        raise ArgumentTypeError(f"{text} is not above zero: pass a number of seconds")
    return found


def duration(text: str) -> float:
    """Return the seconds of `90`, `300s`, `5m`, `2h` or `1d`."""
    number, unit = (text[:-1], text[-1:]) if text[-1:] in _UNITS else (text, "")
    try:
        found = float(number) * _UNITS[unit]
    except ValueError:
        found = 0.0
    if not 0 < found < math.inf:
        raise ArgumentTypeError(f"{text!r} is no time above zero: write 90, 300s, 5m, 2h or 1d")
    return found


def nodes(text: str) -> str:
    """Return a number of nodes, or MIN:MAX."""
    least, colon, most = text.partition(":")
    numbers = [least, most if colon else least]
    if not all(number.isdecimal() for number in numbers):
        raise ArgumentTypeError(f"{text!r} is neither a number of nodes nor MIN:MAX, such as 1:4")
    if not 1 <= int(numbers[0]) <= int(numbers[1]):
        raise ArgumentTypeError(f"{text}: pass at least 1 node, and MIN not above MAX")
    return text


def workers(text: str) -> str:
    """Return a number of workers, or the name of a device, whose names torch may extend."""
    try:
        number = int(text)
    except ValueError:
        if text.isidentifier():
            return text
        raise ArgumentTypeError(
            f"{text!r} is neither a number of workers nor one of {', '.join(DEVICES)}"
        ) from None
    if number < 1:
        raise ArgumentTypeError(f"{number}: a job needs at least one worker per node")
    return str(number)


def ranks(text: str) -> str:
    """Return local ranks `0,1,…`, or an empty text."""
    if text and not all(part.strip().isdecimal() for part in text.split(",")):
        raise ArgumentTypeError(f"{text!r} is no list of local ranks: write 0,1,…")
    return text


def signals(text: str) -> str:
    """Return names of signals `SIGTERM,SIGINT,…`."""
    for name in filter(None, map(str.strip, text.split(","))):
        if name not in signal.Signals.__members__:
            raise ArgumentTypeError(f"{name!r} is no signal: write names such as SIGTERM,SIGINT")
    return text


def switch(text: str) -> bool:
    """Return the value of a variable for a flag: 0 for off, other whole numbers for on."""
    return bool(whole_number(-1)(text or "0"))


def comma_separated(text: str) -> list[str]:
    """Split at single commas; two commas mean one in the text."""
    mark = "\0"
    return [part.replace(mark, ",") for part in text.replace(",,", mark).split(",")]


def _number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ArgumentTypeError(f"{text!r} is not a finite number")
    return found
