"""Wait for a condition, independent of the machine's speed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

GENEROUS_S = 60.0
"""Default limit, for slow and busy machines; a passing test never waits this long."""


def eventually(
    condition: Callable[[], T | None], *, within_s: float = GENEROUS_S, what: str = ""
) -> T:
    """Poll `condition()` and return its first true value; AssertionError after `within_s` seconds.

    `what` describes the condition in the error.
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
                f"{described}: not true within {within_s:g} s; the last value was {value!r}"
            )
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.1)
