"""`ExperimentPlateauStopper`: a search whose best results do not get better any more ends."""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from typing import Any, Literal

from syncline.train.metric_values import lookup
from syncline.tune.stopper.plateau import metric_value, spread
from syncline.tune.stopper.stopper import Stopper


class ExperimentPlateauStopper(Stopper):
    """Stops all trials when the best values of a metric, of whatever trials, lie close together.

    Results in which the metric is missing, or not a finite number, are passed over.

    Args:
        metric: Which one; `a/b` for a nested one.
        std: The search ends when the standard deviation of the best values is at most this.
        top: How many values are looked at, at least 2.
        mode: Whether the best values are the lowest ("min") or the highest ("max").
        patience: The search ends only when so many results in a row have not changed that.

    Raises:
        ValueError: One of these is out of its range.
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
            raise ValueError(
                f'mode={mode!r} does not say which values are the best: give "min" or "max".'
            )
        if not isinstance(top, int) or top < 2:
            raise ValueError(
                f"top={top!r}: the spread of fewer than two values says nothing: give a whole number from 2."
            )
        if not isinstance(patience, int) or patience < 0:
            raise ValueError(
                f"patience={patience!r} is no number of results: give a whole number from 0."
            )
        if not isinstance(std, (int, float)) or not std > 0:
            raise ValueError(
                f"std={std!r}: no spread would ever be below it: give a number above 0."
            )
        self._mode = mode
        self._metric = metric
        self._patience = patience
        self._iterations = 0
        self._std = std
        self._top = top
        self._top_values: list[float] = []

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        value = metric_value(result, self._metric)
        if value is None:
            return self.stop_all()
        insort(self._top_values, value)
        if len(self._top_values) > self._top:
            self._top_values.pop(-1 if self._mode == "min" else 0)
        self._iterations = self._iterations + 1 if self.has_plateaued() else 0
        return self.stop_all()

    def has_plateaued(self) -> bool:
        """Whether the best values lie close together, however long they have done so."""
        return len(self._top_values) == self._top and spread(self._top_values) <= self._std

    def stop_all(self) -> bool:
        return self._iterations > 0 and self._iterations >= self._patience

    def unknown_keys(self, result: Mapping[str, Any]) -> list[str]:
        return [self._metric] if lookup(result, self._metric) is None else []
