"""`TrialPlateauStopper`, and the functions that it shares with `ExperimentPlateauStopper`."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, Literal

from syncline.train.metric_values import lookup
from syncline.tune.result import DONE, Metrics
from syncline.tune.stopper.stopper import Stopper


class TrialPlateauStopper(Stopper):
    """Stop a trial when the latest values of a metric are close together.

    A trial continues while its latest results include one without a finite value of the metric.

    Args:
        metric: Name of the metric; `a/b` for a nested one.
        std: Standard deviation of the latest values below which the trial ends.
        num_results: Number of latest values to use.
        grace_period: Number of results before which no trial ends.
        metric_threshold: Trials end only if their latest value is at least (`mode="max"`) or at
            most (`mode="min"`) this.
        mode: "min" or "max"; required with `metric_threshold`.

    Raises:
        ValueError: `metric_threshold` is given without a mode.
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
                f"metric_threshold={metric_threshold!r} needs a direction, but mode={mode!r}. Give "
                f'mode="min" or mode="max".'
            )
        self._metric = metric
        self._mode = mode
        self._std = std
        self._num_results = num_results
        self._grace_period = grace_period
        self._metric_threshold = metric_threshold
        self._num_reported: dict[str, int] = {}
        self._latest: dict[str, deque[float | None]] = {}

    def __call__(self, trial_id: str, result: Metrics) -> bool:
        latest = self._latest.setdefault(trial_id, deque(maxlen=self._num_results))
        latest.append(finite_value(result, self._metric))
        self._num_reported[trial_id] = self._num_reported.get(trial_id, 0) + 1
        stops = (
            self._num_reported[trial_id] >= self._grace_period
            and self._passes_threshold(latest[-1])
            and self._is_flat(latest)
        )
        if stops or result.get(DONE):
            del self._latest[trial_id], self._num_reported[trial_id]
        return stops

    def stop_all(self) -> bool:
        return False

    def unknown_keys(self, result: Mapping[str, Any]) -> list[str]:
        return [self._metric] if lookup(result, self._metric) is None else []

    def _passes_threshold(self, value: float | None) -> bool:
        if self._metric_threshold is None or value is None:
            return value is not None
        if self._mode == "min":
            return value <= self._metric_threshold
        return value >= self._metric_threshold

    def _is_flat(self, latest: deque[float | None]) -> bool:
        values = [value for value in latest if value is not None]
        return len(values) == self._num_results and standard_deviation(values) < self._std


def standard_deviation(values: Collection[float]) -> float:
    """Return the population standard deviation of finite values."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


def finite_value(result: Mapping[str, Any], metric: str) -> float | None:
    """Return the metric as a float; None if it is missing, not a number, or not finite."""
    try:
        value = float(lookup(result, metric))
    except (TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None
