"""`FunctionStopper`."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from syncline.tune.result import Metrics
from syncline.tune.stopper.stopper import Stopper


class FunctionStopper(Stopper):
    """Stop a trial when a function returns True.

    Args:
        function: Function of (trial_id, result), called for each result; its method `stop_all`, if
            it has one, ends all trials. It must be picklable by cloudpickle.

    Raises:
        TypeError: The function cannot be called with two arguments.
    """

    def __init__(self, function: Callable[[str, Metrics], bool]) -> None:
        if not self.is_valid_function(function):
            raise TypeError(
                f"{function!r} is not a function. Give `function(trial_id, result) -> bool`."
            )
        if not _accepts_two_arguments(function):
            name = getattr(function, "__qualname__", type(function).__name__)
            raise TypeError(
                f"The stopping function {name!r} cannot be called as `function(trial_id, result)`. "
                f"Give it these two positional parameters."
            )
        self._fn = function
        self._stop_all = getattr(function, "stop_all", None)

    def __call__(self, trial_id: str, result: Metrics) -> bool:
        return bool(self._fn(trial_id, result))

    def stop_all(self) -> bool:
        return self._stop_all is not None and bool(self._stop_all())

    @classmethod
    def is_valid_function(cls, fn: object) -> bool:
        """Return True if `fn` can be called and is neither a stopper nor a class."""
        return callable(fn) and not isinstance(fn, Stopper) and not isinstance(fn, type)


def _accepts_two_arguments(function: Callable[..., object]) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # Some functions written in C have no signature.
        return True
    try:
        signature.bind("trial_id", {})
    except TypeError:
        return False
    return True
