"""`HangDetector`: decides when to log a runner that does not answer, and when to kill it."""

from __future__ import annotations

import math
from enum import Enum


class Verdict(Enum):
    """Action for a runner that has not answered yet."""

    WAIT = "wait"
    REPORT = "report"
    RESTART = "restart"


class HangDetector:
    """Monitors one call of a runner by its steps. Pure: the caller passes the time.

    A runner that has not answered is logged every `limit_s` seconds. If its steps are known, it is
    declared hanging after `limit_s + grace_s` seconds without a step.

    Args:
        limit_s: Seconds without an answer before it is logged; None for no limit.
        grace_s: Additional seconds without a step before the runner is declared hanging.
    """

    def __init__(self, limit_s: float | None, grace_s: float) -> None:
        self._limit_s = math.inf if limit_s is None else limit_s
        self._grace_s = grace_s
        self._began = self._last_step_at = 0.0
        self._next_report = math.inf
        self._progress: int | None = None
        self._can_restart = False

    def begin(self, now: float, progress: int | None, *, can_restart: bool) -> None:
        """Start monitoring a call; it may be declared hanging if `can_restart`."""
        self._began = self._last_step_at = now
        self._next_report = now + self._limit_s
        self._progress = progress
        self._can_restart = can_restart

    def waited_s(self, now: float) -> float:
        """Return the seconds since the start of the call."""
        return now - self._began

    def still_s(self, now: float) -> float:
        """Return the seconds without a step, as far as known."""
        return now - self._last_step_at

    def check(self, now: float, progress: int | None) -> Verdict:
        """Return the action to take; `progress` is the number of steps, or None if unknown."""
        if progress != self._progress:
            self._progress = progress
            self._last_step_at = now
        if self._may_be_given_up and self.still_s(now) >= self._limit_s + self._grace_s:
            return Verdict.RESTART
        if now >= self._next_report:
            self._next_report = now + self._limit_s
            return Verdict.REPORT
        return Verdict.WAIT

    def next_check_s(self, now: float) -> float | None:
        """Return the seconds until the result of `check` may change; None for never."""
        due = self._next_report
        if self._may_be_given_up:
            due = min(due, self._last_step_at + self._limit_s + self._grace_s)
        return None if math.isinf(due) else max(due - now, 0.0) + 1e-3

    @property
    def _may_be_given_up(self) -> bool:
        return self._can_restart and self._progress is not None
