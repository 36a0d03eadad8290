"""`FunctionStopper`: a function of the program decides."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from syncline.tune.stopper.stopper import Stopper


class FunctionStopper(Stopper):
    """Stops a trial when a function says so.

    Args:
        function: Called as `function(trial_id, result)` for every result; true ends the trial. Must
        be picklable by cloudpickle.

    Raises:
        TypeError: It cannot be called with two arguments.
        ValueError: It has a method `stop_all`, but does not derive from `Stopper`.
    """

    def __init__(self, function: Callable[[str, dict[str, Any]], bool]) -> None:
        if not self.is_valid_function(function):
            raise TypeError(
                f"{function!r} is no function, so it cannot decide about results: give `function(trial_id, result) -> bool`."
            )
        if not _takes_two(function):
            raise TypeError(
                f"The stopping function {_name(function)} cannot be called as `function(trial_id, result)`: "
                "give it these two positional parameters."
            )
        self._fn = function

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return bool(self._fn(trial_id, result))

    def stop_all(self) -> bool:
        return False

    @classmethod
    def is_valid_function(cls, fn: object) -> bool:
        """Whether `fn` is a function, or something else that can be called and is no stopper.

        Raises:
            ValueError: It has a method `stop_all`, but does not derive from `Stopper`.
        """
        is_function = callable(fn) and not isinstance(fn, Stopper) and not isinstance(fn, type)
        if is_function and hasattr(fn, "stop_all"):
            raise ValueError(
                f"{fn!r} has a method `stop_all`, which would never be called because its class is no stopper: "
                "derive the class from syncline.tune.Stopper."
            )
        return is_function


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C do not say what they take
        return True
    try:
        signature.bind("trial_id", {})
    except TypeError:
        return False
    return True


def _name(function: Callable[..., Any]) -> str:
    return repr(getattr(function, "__qualname__", type(function).__name__))
