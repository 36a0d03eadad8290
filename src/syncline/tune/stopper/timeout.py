"""`TimeoutStopper`: a search has so much time, over all its restarts together."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from syncline.tune.stopper.stopper import Stopper

logger = logging.getLogger("syncline")


class TimeoutStopper(Stopper):
    """Stops all trials when the search has run for so long.

    Time counts from the first call of `stop_all`, so that what comes before the search is not part
    of it. Pickled, it holds what is left of the time and no reading of a clock: while nothing runs,
    no time passes.

    Args:
        timeout: Seconds, or a `timedelta`.
        clock: Where the time is read: seconds since any moment, never set back.

    Raises:
        ValueError: It is neither, or negative.
    """

    def __init__(
        self, timeout: float | timedelta, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        if (
            isinstance(seconds, bool)
            or not isinstance(seconds, (int, float))
            or math.isnan(seconds)
            or seconds < 0
        ):
            raise ValueError(
                f"timeout={timeout!r} is no time to wait for: give seconds from 0, or a datetime.timedelta."
            )
        self._timeout_seconds = seconds
        self._budget = float(seconds)
        self._clock = clock
        self._last_check: float | None = None
        self._told = False

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        now = self._clock()
        if self._last_check is not None:
            self._budget -= now - self._last_check
        self._last_check = now
        if self._budget > 0:
            return False
        if not self._told:
            self._told = True
            logger.info(
                "The search has run for the %s seconds that it had: all trials are stopped.",
                self._timeout_seconds,
            )
        return True

    @property
    def remaining_s(self) -> float:
        """What was left of the time at the latest look, in seconds; 0 when it is up."""
        return max(0.0, self._budget)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last_check": None}
