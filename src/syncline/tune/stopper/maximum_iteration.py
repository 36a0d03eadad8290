"""`MaximumIterationStopper`."""

from __future__ import annotations

from syncline.tune.result import TRAINING_ITERATION, Metrics
from syncline.tune.stopper.stopper import Stopper


class MaximumIterationStopper(Stopper):
    """Stop a trial at a number of iterations.

    The iteration is `training_iteration` of the result, so iterations that a trial repeats after a
    failure count once. Results without it are counted.

    Args:
        max_iter: Last iteration of a trial, at least 1.

    Raises:
        ValueError: `max_iter` is not an integer above 0.
    """

    def __init__(self, max_iter: int) -> None:
        if not isinstance(max_iter, int) or isinstance(max_iter, bool) or max_iter < 1:
            raise ValueError(
                f"max_iter={max_iter!r} must be an integer of at least 1, so that trials can reach "
                f"it."
            )
        self._max_iter = max_iter
        self._counted: dict[str, int] = {}

    def __call__(self, trial_id: str, result: Metrics) -> bool:
        iteration = result.get(TRAINING_ITERATION)
        if iteration is None:
            iteration = self._counted[trial_id] = self._counted.get(trial_id, 0) + 1
        return bool(iteration >= self._max_iter)

    def stop_all(self) -> bool:
        return False
