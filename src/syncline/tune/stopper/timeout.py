"""`TimeoutStopper`."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from datetime import timedelta

from syncline.tune.result import Metrics
from syncline.tune.stopper.stopper import Stopper

logger = logging.getLogger("syncline")


class TimeoutStopper(Stopper):
    """Stop all trials after a total run time of the search, over all its restarts.

    Time counts from the first call of `stop_all`. The pickled form contains the remaining time and
    no clock reading, so time between two runs does not count.

    Args:
        timeout: Seconds, or a `timedelta`.
        clock: Function that returns monotonic seconds, by default `time.monotonic`; not part of the
            pickled form.

    Raises:
        ValueError: `timeout` is neither, or negative.
    """

    def __init__(
        self, timeout: float | timedelta, *, clock: Callable[[], float] | None = None
    ) -> None:
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        if (
            isinstance(seconds, bool)
            or not isinstance(seconds, (int, float))
            or math.isnan(seconds)
            or seconds < 0
        ):
            raise ValueError(
                f"timeout={timeout!r} must be 0 or more seconds, or a datetime.timedelta."
            )
        self._timeout_seconds = seconds
        self._budget = float(seconds)
        self._clock = clock
        self._last_check: float | None = None
        self._told = False

    def __call__(self, trial_id: str, result: Metrics) -> bool:
        return False

    def stop_all(self) -> bool:
        now = (self._clock or time.monotonic)()
        if self._last_check is not None:
            self._budget -= now - self._last_check
        self._last_check = now
        if self._budget > 0:
            return False
        if not self._told:
            self._told = True
            logger.info(
                "The search has reached its timeout of %s seconds. All trials are stopped.",
                self._timeout_seconds,
            )
        return True

    @property
    def remaining_s(self) -> float:
        """Remaining seconds at the latest call of `stop_all`, at least 0."""
        return max(0.0, self._budget)

    def count_time(self, seconds: float) -> None:
        self._budget -= seconds
        self._last_check = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_last_check": None, "_clock": None}
