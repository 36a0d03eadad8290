"""Waiting for a condition without guessing how long the machine takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

GENEROUS_S = 60.0
"""How long a condition may take on a machine that is slow and busy. A test that passes never waits
this long.
"""


def eventually(condition: Callable[[], T], *, within_s: float = GENEROUS_S, what: str = "") -> T:
    """The first true value of `condition()`, asked again and again for at most `within_s` seconds;
    AssertionError without one.

    `what` says in the error what was waited for.
    """
    deadline = time.monotonic() + within_s
    pause_s = 0.001
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            described = what or getattr(condition, "__name__", repr(condition))
            raise AssertionError(
                f"{described}: not so within {within_s:g} s; the last answer was {value!r}"
            )
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.1)
