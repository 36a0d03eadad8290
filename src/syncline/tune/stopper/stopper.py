"""The base class `Stopper`, stoppers for values, iterations, functions and time, and `make_stopper`
for the argument `stop=`.
"""

from __future__ import annotations

import difflib
import inspect
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from numbers import Real
from typing import Any, TypeAlias

from syncline.train.metric_values import flatten, lookup
from syncline.tune.result import AUTO_RESULT_KEYS, CONFIG, TRAINING_ITERATION, Metrics

logger = logging.getLogger("syncline")


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

    def unknown_keys(self, result: Mapping[str, Any]) -> list[str]:
        return list(
            dict.fromkeys(key for stopper in self._stoppers for key in stopper.unknown_keys(result))
        )


class NoopStopper(Stopper):
    """Never stop."""

    def __call__(self, trial_id: str, result: Metrics) -> bool:
        return False

    def stop_all(self) -> bool:
        return False


class DictionaryStopper(Stopper):
    """Stop a trial when one of several values is large enough, for
    `stop={"training_iteration": 10, "accuracy": 0.9}`.

    Values that a result lacks or that cannot be compared are ignored.

    Args:
        criteria: Smallest value that ends a trial, by key; `a/b` for a nested key, and True for
            boolean values.

    Raises:
        TypeError: A key is not a string, or a value is not a number.
        ValueError: A value is a nested dictionary, or False, which any result would reach.
    """

    def __init__(self, criteria: Mapping[str, float | bool]) -> None:
        for key, value in criteria.items():
            _check_criterion(key, value)
        self._criteria = dict(criteria)

    def __call__(self, trial_id: str, result: Metrics) -> bool:
        for key, bound in self._criteria.items():
            value = result.get(key)
            if value is None:
                value = lookup(result, key)
            if _reaches(value, bound):
                return True
        return False

    def stop_all(self) -> bool:
        return False

    def unknown_keys(self, result: Mapping[str, Any]) -> list[str]:
        return [key for key in self._criteria if lookup(result, key) is None]


def _reaches(value: Any, bound: float | bool) -> bool:
    try:
        return bool(value >= bound)
    except (TypeError, ValueError):  # strings, lists, arrays
        return False


def _check_criterion(key: object, value: object) -> None:
    if not isinstance(key, str):
        raise TypeError(
            f"stop={{{key!r}: {value!r}}}: {key!r} is not a key of a result. Give the name of a "
            f"metric."
        )
    if isinstance(value, Mapping):
        inner = next(iter(value), "key")
        raise ValueError(
            f"stop={{{key!r}: {value!r}}} is nested, but results are compared with numbers. Write "
            f"{key + '/' + str(inner)!r} as the key."
        )
    if value is False:
        raise ValueError(
            f"stop={{{key!r}: False}} would end each trial with its first result. Give True, or a "
            f"number."
        )
    # bool is a Real, and NumPy registers its numbers as Real, but not its booleans.
    if not isinstance(value, Real) or value != value:
        raise TypeError(
            f"stop={{{key!r}: {value!r}}}: results cannot be compared with {value!r}. Give a "
            f"number, or True."
        )


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


class FunctionStopper(Stopper):
    """Stop a trial when a function returns True.

    Args:
        function: Function of (trial_id, result), called for each result. It must be picklable by
            cloudpickle.

    Raises:
        TypeError: The function cannot be called with two arguments.
        ValueError: It has a method `stop_all`, but is not a `Stopper`.
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

    def __call__(self, trial_id: str, result: Metrics) -> bool:
        return bool(self._fn(trial_id, result))

    def stop_all(self) -> bool:
        return False

    @classmethod
    def is_valid_function(cls, fn: object) -> bool:
        """Return True if `fn` can be called and is neither a stopper nor a class.

        Raises:
            ValueError: It has a method `stop_all`, but is not a `Stopper`.
        """
        is_function = callable(fn) and not isinstance(fn, Stopper) and not isinstance(fn, type)
        if is_function and hasattr(fn, "stop_all"):
            raise ValueError(
                f"{fn!r} has a method `stop_all`, which would never be called because its class is "
                f"not a Stopper. Derive the class from syncline.tune.Stopper."
            )
        return is_function


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


class TimeoutStopper(Stopper):
    """Stop all trials after a total run time of the search, over all its restarts.

    Time counts from the first call of `stop_all`. The pickled form contains the remaining time and
    no clock reading, so time between two runs does not count.

    Args:
        timeout: Seconds, or a `timedelta`.
        clock: Function that returns monotonic seconds.

    Raises:
        ValueError: `timeout` is neither, or negative.
    """

    def __init__(
        self, timeout: float | timedelta, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        if (
            isinstance(seconds, bool)
            or not isinstance(seconds, (int, float))
            or math.isnan(seconds)
            or seconds < 0
        ):
            raise ValueError(
                f"timeout={timeout!r} must be 0 or more seconds, or a datetime.timedelta."
            )
        self._timeout_seconds = seconds
        self._budget = float(seconds)
        self._clock = clock
        self._last_check: float | None = None
        self._told = False

    def __call__(self, trial_id: str, result: Metrics) -> bool:
        return False

    def stop_all(self) -> bool:
        now = self._clock()
        if self._last_check is not None:
            self._budget -= now - self._last_check
        self._last_check = now
        if self._budget > 0:
            return False
        if not self._told:
            self._told = True
            logger.info(
                "The search has reached its timeout of %s seconds. All trials are stopped.",
                self._timeout_seconds,
            )
        return True

    @property
    def remaining_s(self) -> float:
        """Remaining seconds at the latest call of `stop_all`, at least 0."""
        return max(0.0, self._budget)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_last_check": None}


StopCriterion: TypeAlias = (
    Mapping[str, Any] | Stopper | Callable[[str, Metrics], bool] | Sequence[Any] | None
)
"""Types of `stop=`: smallest values by key, a stopper, a function, or a list of these, any of which
stops the trial.
"""


def make_stopper(stop: StopCriterion) -> Stopper:
    """Convert the argument `stop=` to a stopper.

    Args:
        stop: `{"accuracy": 0.9}`, a stopper, `function(trial_id, result) -> bool`, a list of these,
            any of which stops the trial, or None.

    Raises:
        TypeError: `stop` has another type, for example a class instead of an instance.
        ValueError: A value of the dictionary is invalid, or an object has a method `stop_all` but
            is not a `Stopper`.
    """
    if stop is None:
        return NoopStopper()
    if isinstance(stop, Stopper):
        return stop
    if isinstance(stop, Mapping):
        return DictionaryStopper(stop) if stop else NoopStopper()
    if isinstance(stop, (list, tuple)):
        return CombinedStopper(*(make_stopper(one) for one in stop)) if stop else NoopStopper()
    if isinstance(stop, type):
        raise TypeError(
            f"stop={stop.__name__} is a class, but must be an instance: `stop={stop.__name__}(…)`."
        )
    if callable(stop):
        return FunctionStopper(stop)
    raise TypeError(
        f"stop={stop!r} has the unsupported type {type(stop).__name__}. Give a dictionary such as "
        f'{{"training_iteration": 10}}, a syncline.tune.Stopper, a function of (trial_id, result), '
        f"or a list of these."
    )


def unknown_keys_message(stopper: Stopper, result: Mapping[str, Any]) -> str | None:
    """Describe the stopper's keys that `result` lacks, with similar names; None without any."""
    unknown = stopper.unknown_keys(result)
    if not unknown:
        return None
    names = list(flatten({key: value for key, value in result.items() if key != CONFIG}))
    own = sorted(name for name in names if name not in AUTO_RESULT_KEYS)
    hints = [f"{key!r}{_nearest(key, names)}" for key in unknown]
    return (
        f"`stop=` needs {', '.join(hints)}, which the result does not have, so it would never stop "
        f"a trial. The trial reported {', '.join(map(repr, own)) or 'no metrics'}, besides the "
        f"keys of all results. Correct the key, or report it."
    )


def _nearest(key: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(key, names, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
