"""`ExperimentPlateauStopper`."""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from typing import Any, Literal

from syncline.train.metric_values import lookup
from syncline.tune.result import Metrics
from syncline.tune.stopper.stopper import Stopper
from syncline.tune.stopper.trial_plateau import finite_value, standard_deviation


class ExperimentPlateauStopper(Stopper):
    """Stop all trials when the best values of a metric over all trials are close together.

    Results without a finite value of the metric are ignored.

    Args:
        metric: Name of the metric; `a/b` for a nested one.
        std: Standard deviation of the best values at which the search ends.
        top: Number of best values to use, at least 2.
        mode: "min" if low values are good, "max" if high values are good.
        patience: Number of consecutive results with such a standard deviation before the search
            ends.

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(
        self,
        metric: str,
        std: float = 0.001,
        top: int = 10,
        mode: Literal["min", "max"] = "min",
        patience: int = 0,
    ) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f'mode={mode!r} must be "min" or "max".')
        if not isinstance(top, int) or top < 2:
            raise ValueError(
                f"top={top!r} must be an integer of at least 2, because a standard deviation needs "
                f"two values."
            )
        if not isinstance(patience, int) or patience < 0:
            raise ValueError(f"patience={patience!r} must be an integer of at least 0.")
        if not isinstance(std, (int, float)) or not std > 0:
            raise ValueError(f"std={std!r} must be above 0: a lower value would never be reached.")
        self._mode = mode
        self._metric = metric
        self._patience = patience
        self._iterations = 0
        self._std = std
        self._top = top
        self._top_values: list[float] = []

    def __call__(self, trial_id: str, result: Metrics) -> bool:
        value = finite_value(result, self._metric)
        if value is None:
            return self.stop_all()
        insort(self._top_values, value)
        if len(self._top_values) > self._top:
            self._top_values.pop(-1 if self._mode == "min" else 0)
        self._iterations = self._iterations + 1 if self.has_plateaued() else 0
        return self.stop_all()

    def has_plateaued(self) -> bool:
        """Return True if the best values are close together, regardless of `patience`."""
        return (
            len(self._top_values) == self._top and standard_deviation(self._top_values) <= self._std
        )

    def stop_all(self) -> bool:
        return self._iterations > 0 and self._iterations >= self._patience

    def unknown_keys(self, result: Mapping[str, Any]) -> list[str]:
        return [self._metric] if lookup(result, self._metric) is None else []
