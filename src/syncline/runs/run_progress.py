"""Progress of a run, derived from the reports of rank 0. Pure: times are passed with every call.

A metric `progress` between 0 and 1 is the fraction that is done. Otherwise a counter among the
metrics is compared with its end in `train_loop_config`. The names of both are in `_COUNTERS` and
are searched at the top level, in this order: steps before iterations before epochs.

A counter whose first value is an integer not above the number of earlier reports counts from 0:
with `epoch=0`, one epoch is done. If it later reaches its end, it was a count of completed units.
Non-integer numbers are completed units. A counter that decreases within an attempt is ignored, and
the next one is used.

The remaining time assumes the average speed since the first report of this attempt, or since its
start if nothing was done before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from syncline.runs.json_values import Record

FRACTION = "progress"
"""Metric with the fraction of the run that is done."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Progress of a run."""

    done: float
    total: float
    unit: str
    """`epoch`, `step`, `iteration` or `trial`; "" for a fraction."""
    left_s: float | None
    """Estimated seconds until the end; None if unknown."""

    @property
    def share(self) -> float:
        """Fraction between 0 and 1."""
        return self.done / self.total


@dataclass(frozen=True)
class _Counter:
    unit: str
    metrics: tuple[str, ...]
    totals: tuple[str, ...]


_COUNTERS = (
    _Counter(
        "step",
        ("global_step", "step", "steps"),
        ("max_steps", "total_steps", "num_steps", "num_train_steps", "n_steps", "steps"),
    ),
    _Counter(
        "iteration",
        ("iteration", "iter", "training_iteration"),
        ("max_iterations", "total_iterations", "num_iterations", "n_iterations", "iterations"),
    ),
    _Counter(
        "epoch",
        ("epoch", "current_epoch", "epochs"),
        ("max_epochs", "total_epochs", "num_epochs", "num_train_epochs", "n_epochs", "epochs"),
    ),
)


COUNTED = (FRACTION, *(name for counter in _COUNTERS for name in counter.metrics))
"""Metrics from which the progress is derived."""


@dataclass(kw_only=True)
class _Candidate:
    """Counter with a known end."""

    unit: str
    metrics: tuple[str, ...]
    total: float
    counts_from_0: bool | None = None
    """None until the counter was reported."""
    value: float | None = None
    """Latest value in this attempt."""

    def done(self, value: float, index: int) -> float:
        """Return the completed part of `total` if report number `index` has this value."""
        self.value = value
        is_whole = isinstance(value, int)
        if self.counts_from_0 is None:
            self.counts_from_0 = is_whole and value <= index
        if value >= self.total:
            self.counts_from_0 = False
        return min(self.total, value + 1 if self.counts_from_0 and is_whole else value)


class ProgressMeter:
    """Derives the progress from the reports of rank 0.

    Args:
        config: `train_loop_config`.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self._known = [
            _Candidate(unit=counter.unit, metrics=counter.metrics, total=total)
            for counter in _COUNTERS
            if (total := _first_number(config, counter.totals, positive=True)) is not None
        ]
        self._candidates = list(self._known)
        self._current: _Candidate | None = None
        self._unit = ""
        self._total = 1.0
        self._first: tuple[float, float] | None = None  # (time, done) in this attempt
        self._last: tuple[float, float] | None = None  # kept until the next attempt reports
        self._is_fresh = True
        self._began = 0.0

    def attempt_began(self, now: float, *, is_fresh: bool) -> None:
        """Record the start of the training functions; `is_fresh` if nothing was done before."""
        self._candidates = list(self._known)
        for candidate in self._known:
            candidate.value = None
        self._current = self._first = None
        self._is_fresh, self._began = is_fresh, now

    def attempt_ended(self) -> None:
        """Record the end of the training functions. The progress stays; the remaining time is
        unknown.
        """
        self._first = None

    def reported(self, metrics: Record, index: int, now: float) -> None:
        """Record report number `index` of rank 0."""
        fraction = _number(metrics.get(FRACTION))
        if fraction is not None and 0 <= fraction <= 1:
            self._note("", 1.0, float(fraction), now)
            return
        for candidate in list(self._candidates):
            value = _first_number(metrics, candidate.metrics)
            if value is None:
                if candidate is self._current:  # a later report may have it again
                    return
            elif value < max(0, candidate.value or 0):
                self._candidates.remove(candidate)
            else:
                self._current = candidate
                self._note(candidate.unit, candidate.total, candidate.done(value, index), now)
                return

    def progress(self, now: float) -> Progress | None:
        """Return the progress; None if it is unknown."""
        if self._last is None:
            return None
        last, done = self._last
        first, done_before = self._first or self._last
        left_s = None
        if done > done_before and last > first:
            left_s = max(
                0.0, (self._total - done) * (last - first) / (done - done_before) - (now - last)
            )
        return Progress(done=done, total=self._total, unit=self._unit, left_s=left_s)

    def _note(self, unit: str, total: float, done: float, now: float) -> None:
        if self._first is None or (unit, total) != (self._unit, self._total):
            self._first = (self._began, 0.0) if self._is_fresh else (now, done)
            self._unit, self._total = unit, total
        elif self._last is not None and done < self._last[1]:  # the fraction restarted
            self._first = (now, done)
        self._last = (now, done)


def _first_number(
    values: Mapping[str, object], names: Iterable[str], *, positive: bool = False
) -> int | float | None:
    """Return the first number under one of the names."""
    found = (_number(values.get(name)) for name in names)
    return next((each for each in found if each is not None and (each > 0 or not positive)), None)


def _number(value: object) -> int | float | None:
    """Return `value` if it is a number, except NaN."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value:
        return value
    return None
