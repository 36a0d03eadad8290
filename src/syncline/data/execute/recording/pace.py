"""`Pace`: when the next line of a record is due, so that records stay small however long executions
last. Pure, but for the clock.

A record may grow with the logarithm of its age: in the first minutes there is a line every two
seconds, after an hour about one a minute, after a day one in half an hour. Nothing that was written
is ever taken out again, and old parts of a record are the finer ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

LEAST_INTERVAL_S = 2.0
"""Time between two lines, at least."""
_FIRST_BYTES = 64_000
"""So much at once, and so much again each time that the age (plus a minute) has doubled: 1.3 MB in
a year.
"""
_DOUBLING_S = 60.0
_LEAST_COST = 1500
"""Short lines count as that many bytes: hundreds of samples are all that curves can show."""


class Pace:
    """What one file may hold by when. For one thread at a time; approximate for several."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._last_at = -math.inf
        self._spent = 0
        self._typical = 0

    @property
    def is_untouched(self) -> bool:
        """Whether nothing was written yet."""
        return self._spent == 0

    def permits(self, lines: int = 1) -> bool:
        """Whether so many more lines, each about as long as the last one, may be written now."""
        now = self._clock()
        if now < self._last_at + LEAST_INTERVAL_S:
            return False
        allowed = _FIRST_BYTES * (1 + math.log2(1 + (now - self._began) / _DOUBLING_S))
        return self._spent + lines * self._typical <= allowed

    def spend(self, size_bytes: int) -> None:
        """A line was written, permitted or not."""
        self._typical = max(size_bytes, _LEAST_COST)
        self._spent += self._typical
        self._last_at = self._clock()
