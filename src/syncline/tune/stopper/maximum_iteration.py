"""`MaximumIterationStopper`: so many iterations, and no more."""

from __future__ import annotations

from typing import Any

from syncline.tune.result import TRAINING_ITERATION
from syncline.tune.stopper.stopper import Stopper


class MaximumIterationStopper(Stopper):
    """Stops a trial at its iteration of that number.

    Iterations are what the results say (`training_iteration`), so those that a trial repeats after
    a failure are not counted twice; results that do not say are counted one by one.

    Args:
        max_iter: The last iteration of a trial, at least 1.

    Raises:
        ValueError: It is no whole number above 0.
    """

    def __init__(self, max_iter: int) -> None:
        if not isinstance(max_iter, int) or isinstance(max_iter, bool) or max_iter < 1:
            raise ValueError(
                f"max_iter={max_iter!r} is no whole number above 0, so no trial could reach it: give at least 1."
            )
        self._max_iter = max_iter
        self._counted: dict[str, int] = {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        iteration = result.get(TRAINING_ITERATION)
        if iteration is None:
            iteration = self._counted[trial_id] = self._counted.get(trial_id, 0) + 1
        return bool(iteration >= self._max_iter)

    def stop_all(self) -> bool:
        return False
