"""`make_stopper`, which converts the argument `stop=` to a stopper, and `DictionaryStopper`, for a
dictionary of smallest values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, TypeAlias

from syncline.suggestions import did_you_mean
from syncline.train.metric_values import flatten, lookup
from syncline.tune.result import AUTO_RESULT_KEYS, CONFIG, Metrics
from syncline.tune.stopper.function_stopper import FunctionStopper
from syncline.tune.stopper.noop import NoopStopper
from syncline.tune.stopper.stopper import CombinedStopper, Stopper


class DictionaryStopper(Stopper):
    """Stop a trial when one of several values is large enough, for
    `stop={"training_iteration": 10, "accuracy": 0.9}`.

    Values that a result lacks or that cannot be compared are ignored.

    Args:
        criteria: Smallest value that ends a trial, by key; `a/b` or a nested dictionary for a
            nested key, and True for boolean values.

    Raises:
        TypeError: A key is not a string, or a value is not a number.
        ValueError: A value is False, which any result would reach.
    """

    def __init__(self, criteria: Mapping[str, Any]) -> None:
        self._criteria: dict[str, float | bool] = dict(_flat(criteria))

    def __call__(self, trial_id: str, result: Metrics) -> bool:
        return any(_reaches(lookup(result, key), bound) for key, bound in self._criteria.items())

    def stop_all(self) -> bool:
        return False

    def unknown_keys(self, result: Mapping[str, Any]) -> list[str]:
        return [key for key in self._criteria if lookup(result, key) is None]


def _flat(criteria: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float | bool]]:
    """Yield the checked values with their flat keys."""
    for key, value in criteria.items():
        if isinstance(key, str) and isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}/")
        else:
            _check_criterion(key, value)
            yield above + key, value


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


StopCriterion: TypeAlias = (
    Mapping[str, Any] | Stopper | Callable[[str, Metrics], bool] | Sequence[Any] | None
)
"""Types of `stop=`: smallest values by key, a stopper, a function, or a list of these, any of which
stops the trial.
"""


def make_stopper(stop: StopCriterion) -> Stopper:
    """Convert the argument `stop=` to a stopper.

    Args:
        stop: `{"accuracy": 0.9}`, a stopper or another object with its two methods,
            `function(trial_id, result) -> bool`, a list of these, any of which stops the trial, or
            None.

    Raises:
        TypeError: `stop` has another type, for example a class instead of an instance.
        ValueError: A value of the dictionary is invalid.
    """
    if stop is None:
        return NoopStopper()
    if isinstance(stop, Stopper):
        return stop
    if isinstance(stop, Mapping):
        return DictionaryStopper(stop) if stop else NoopStopper()
    if isinstance(stop, (list, tuple)):
        return CombinedStopper(*map(make_stopper, stop)) if stop else NoopStopper()
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
    hints = "".join(did_you_mean(key, names) for key in unknown)
    return (
        f"`stop=` needs {', '.join(map(repr, unknown))}, which the result does not have, so it "
        f"would never stop a trial.{hints} The trial reported "
        f"{', '.join(map(repr, own)) or 'no metrics'}, besides the keys of all "
        f"results. Correct the key, or report it."
    )
