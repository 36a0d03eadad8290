"""How far a run is, found out from what rank 0 reports. Pure: moments come with every call.

The rule. A metric `progress` between 0 and 1 is the share that is done. Otherwise a counter among
the metrics is set against its end in `train_loop_config`, steps before iterations before epochs:

    steps       global_step, step, steps              max_steps, total_steps, num_steps, num_train_steps, n_steps, steps
    iterations  iteration, iter, training_iteration   max_iterations, total_iterations, num_iterations, n_iterations, iterations
    epochs      epoch, current_epoch, epochs          max_epochs, total_epochs, num_epochs, num_train_epochs, n_epochs, epochs

Both are looked for at the top level, under these names, in this order. A whole number that is, when
it is first reported, not above the number of reports before it counts from 0: with `epoch=0` one
epoch is done. If it comes to its end later, it was a count of what is done. A number with a
fraction is what is done. A counter that goes down within an attempt does not count the run, and the
next one is taken.

The time that is left: as fast as on average since the first report of this attempt, or since its
beginning where nothing was done before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SHARE = "progress"
"""The metric that says it all."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a run is."""

    done: float
    total: float
    unit: str
    """`epoch`, `step` or `iteration`; "" for a share."""
    left_s: float | None
    """Seconds until the end, as far as can be told."""

    @property
    def share(self) -> float:
        """Between 0 and 1."""
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


@dataclass(kw_only=True)
class _Candidate:
    """A counter whose end is known."""

    unit: str
    metrics: tuple[str, ...]
    total: float
    counts_from_0: bool | None = None
    """None until it has been reported."""
    value: float | None = None
    """In this attempt."""

    def done(self, value: float, index: int) -> float:
        """How much of `total` is done when the report `index` says `value`."""
        self.value = value
        is_whole = isinstance(value, int)
        if self.counts_from_0 is None:
            self.counts_from_0 = is_whole and value <= index
        if value >= self.total:
            self.counts_from_0 = False
        return min(self.total, value + 1 if self.counts_from_0 and is_whole else value)


class ProgressMeter:
    """Follows the reports of rank 0.

    Args:
        config: `train_loop_config`.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._known = [
            _Candidate(unit=counter.unit, metrics=counter.metrics, total=total)
            for counter in _COUNTERS
            if (
                total := next(
                    (
                        end
                        for name in counter.totals
                        if (end := _number(config.get(name))) and end > 0
                    ),
                    None,
                )
            )
            is not None
        ]
        self._candidates = list(self._known)
        self._current: _Candidate | None = None
        self._unit = ""
        self._total = 1.0
        self._first: tuple[float, float] | None = None  # (moment, done) in this attempt
        self._last: tuple[float, float] | None = None  # stays over the next attempt's start
        self._is_fresh = True
        self._began = 0.0

    def attempt_began(self, now: float, *, is_fresh: bool) -> None:
        """Training functions run; with `is_fresh`, nothing has been done before."""
        self._candidates = list(self._known)
        for candidate in self._known:
            candidate.value = None
        self._current = self._first = None
        self._is_fresh, self._began = is_fresh, now

    def attempt_ended(self) -> None:
        """No training function runs: what is done stays, and how long the rest takes is not
        known.
        """
        self._first = None

    def reported(self, metrics: Mapping[str, Any], index: int, now: float) -> None:
        """Rank 0 has made its report number `index`."""
        share = _number(metrics.get(SHARE))
        if share is not None and 0 <= share <= 1:
            self._note("", 1.0, float(share), now)
            return
        for candidate in list(self._candidates):
            value = next(
                (
                    number
                    for name in candidate.metrics
                    if (number := _number(metrics.get(name))) is not None
                ),
                None,
            )
            if value is None:
                if candidate is self._current:  # it comes again with a later report
                    return
            elif value < max(0, candidate.value or 0):
                self._candidates.remove(candidate)
            else:
                self._current = candidate
                self._note(candidate.unit, candidate.total, candidate.done(value, index), now)
                return

    def progress(self, now: float) -> Progress | None:
        """How far the run is; None if that is not known."""
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
        elif self._last is not None and done < self._last[1]:  # a share that begins again
            self._first = (now, done)
        self._last = (now, done)


def _number(value: Any) -> int | float | None:
    """`value` if it is a number."""
    return (
        value
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
        else None
    )
