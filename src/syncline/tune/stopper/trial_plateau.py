"""`TrialPlateauStopper`: a trial whose metric does not move any more ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Literal

from syncline.train.metric_values import lookup
from syncline.tune.result import DONE
from syncline.tune.stopper.plateau import metric_value, spread
from syncline.tune.stopper.stopper import Stopper


class TrialPlateauStopper(Stopper):
    """Stops a trial when the latest values of a metric lie close together.

    Results in which the metric is missing, or not a finite number, are part of no plateau: one
    among the latest keeps the trial going.

    Args:
        metric: Which one; `a/b` for a nested one.
        std: The trial ends when the standard deviation of the latest values is below this.
        num_results: How many values are looked at.
        grace_period: No trial ends before it has reported so many results.
        metric_threshold: No trial ends unless its latest value is at least (`mode="max"`) or at
            most (`mode="min"`) this.
        mode: "min" or "max"; needed with `metric_threshold`.

    Raises:
        ValueError: `metric_threshold` without a mode.
    """

    def __init__(
        self,
        metric: str,
        std: float = 0.01,
        num_results: int = 4,
        grace_period: int = 4,
        metric_threshold: float | None = None,
        mode: Literal["min", "max"] | None = None,
    ) -> None:
        if metric_threshold is not None and mode not in ("min", "max"):
            raise ValueError(
                f"metric_threshold={metric_threshold!r} with mode={mode!r} does not say whether trials are to be above it or below: "
                'give mode="min" or mode="max".'
            )
        self._metric = metric
        self._mode = mode
        self._std = std
        self._num_results = num_results
        self._grace_period = grace_period
        self._metric_threshold = metric_threshold
        self._seen: dict[str, int] = {}
        self._latest: dict[str, deque[float | None]] = {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        latest = self._latest.setdefault(trial_id, deque(maxlen=self._num_results))
        latest.append(metric_value(result, self._metric))
        self._seen[trial_id] = self._seen.get(trial_id, 0) + 1
        stops = (
            self._seen[trial_id] >= self._grace_period
            and self._is_good(latest[-1])
            and self._is_flat(latest)
        )
        if stops or result.get(DONE):
            del self._latest[trial_id], self._seen[trial_id]
        return stops

    def stop_all(self) -> bool:
        return False

    def unknown_keys(self, result: Mapping[str, Any]) -> list[str]:
        return [self._metric] if lookup(result, self._metric) is None else []

    def _is_good(self, value: float | None) -> bool:
        if self._metric_threshold is None or value is None:
            return value is not None
        return (
            value <= self._metric_threshold
            if self._mode == "min"
            else value >= self._metric_threshold
        )

    def _is_flat(self, latest: deque[float | None]) -> bool:
        values = [value for value in latest if value is not None]
        return len(values) == self._num_results and spread(values) < self._std
