"""`Stopper`, what all stoppers are, and `CombinedStopper`, which asks several."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any


class Stopper(ABC):
    """Says when a trial, or the search, has gone on for long enough.

    Contract for subclasses: both methods are called from one thread, `__call__` once for every
    result in the order of arrival, `stop_all` at any time and often, so it must be quick. Instances
    must be picklable.
    """

    @abstractmethod
    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether the trial that reported `result` ends with it."""

    @abstractmethod
    def stop_all(self) -> bool:
        """Whether all trials end now and none starts any more."""

    def unknown_keys(self, result: Mapping[str, Any]) -> list[str]:
        """Keys that this stopper looks at and `result` does not have; misspelled, presumably, if
        they are missing in the first result.
        """
        return []


class CombinedStopper(Stopper):
    """Stops when at least one of several stoppers does. All of them see every result.

    Args:
        stoppers: Those to ask.

    Raises:
        TypeError: One of them is no stopper.
    """

    def __init__(self, *stoppers: Stopper) -> None:
        for stopper in stoppers:
            if not isinstance(stopper, Stopper):
                raise TypeError(
                    f"CombinedStopper got {stopper!r}, which is no stopper, so it cannot be asked: give instances of Stopper, "
                    "for a function FunctionStopper(function)."
                )
        self._stoppers = stoppers

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        # Those after the first that stops must count this result too.
        answers = [stopper(trial_id, result) for stopper in self._stoppers]
        return any(answers)

    def stop_all(self) -> bool:
        answers = [stopper.stop_all() for stopper in self._stoppers]
        return any(answers)

    def unknown_keys(self, result: Mapping[str, Any]) -> list[str]:
        return list(
            dict.fromkeys(key for stopper in self._stoppers for key in stopper.unknown_keys(result))
        )
