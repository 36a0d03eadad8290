"""The base class `Stopper`, and `CombinedStopper`, which combines several stoppers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from syncline.tune.result import Metrics


class Stopper(ABC):
    """Decide when a trial or the whole search ends early.

    Contract of subclasses: one thread calls both methods, `__call__` once for each result in the
    order of arrival, and `stop_all` often and at any time, so it must be fast. Instances must be
    picklable between any two calls.
    """

    @abstractmethod
    def __call__(self, trial_id: str, result: Metrics) -> bool:
        """Return True to end the trial that reported `result`."""

    @abstractmethod
    def stop_all(self) -> bool:
        """Return True to end all trials and to start no more."""

    def unknown_keys(self, result: Mapping[str, Any]) -> list[str]:
        """Return the keys that this stopper needs and `result` lacks. If the first result lacks
        them, they are probably misspelled.
        """
        return []

    def count_time(self, seconds: float) -> None:
        """Count seconds of the search that a kill cut off after this stopper was last saved. Called
        by a restore; most stoppers do not depend on the time.
        """
        return


class CombinedStopper(Stopper):
    """Stop when at least one of several stoppers does. Each stopper gets all results.

    Args:
        *stoppers: Stoppers to combine.

    Raises:
        TypeError: An argument is not a stopper.
    """

    def __init__(self, *stoppers: Stopper) -> None:
        for stopper in stoppers:
            if not isinstance(stopper, Stopper):
                raise TypeError(
                    f"CombinedStopper got {stopper!r}, which is not a Stopper. Pass instances of "
                    f"Stopper; wrap a function in FunctionStopper(function)."
                )
        self._stoppers = stoppers

    def __call__(self, trial_id: str, result: Metrics) -> bool:
        # No short circuit: each stopper must count this result.
        answers = [stopper(trial_id, result) for stopper in self._stoppers]
        return any(answers)

    def stop_all(self) -> bool:
        answers = [stopper.stop_all() for stopper in self._stoppers]
        return any(answers)

    def count_time(self, seconds: float) -> None:
        for stopper in self._stoppers:
            stopper.count_time(seconds)

    def unknown_keys(self, result: Mapping[str, Any]) -> list[str]:
        return list(
            dict.fromkeys(key for stopper in self._stoppers for key in stopper.unknown_keys(result))
        )
