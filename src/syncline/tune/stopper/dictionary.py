"""`DictionaryStopper`: a trial ends when one of several values has become large enough."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

from syncline.train.metric_values import lookup
from syncline.tune.stopper.stopper import Stopper


class DictionaryStopper(Stopper):
    """What `stop={"training_iteration": 10, "accuracy": 0.9}` means: a trial ends at the first
    result with one of the values reached.

    A value that a result does not have, or that cannot be compared, is not reached.

    Args:
        criteria: Smallest value that ends a trial, by key; `a/b` for a nested one. `True` for
        values that are true or false.

    Raises:
        TypeError: A key is no text, or a value no number.
        ValueError: A value is False, which the first result would reach whatever it says, or a
            nested dictionary.
    """

    def __init__(self, criteria: Mapping[str, float | bool]) -> None:
        for key, value in criteria.items():
            _check(key, value)
        self._criteria = dict(criteria)

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
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
    except (TypeError, ValueError):  # texts, lists, arrays
        return False


def _check(key: object, value: object) -> None:
    if not isinstance(key, str):
        raise TypeError(
            f"stop={{{key!r}: {value!r}}}: {key!r} is no key of a result: give the name of a metric."
        )
    if isinstance(value, Mapping):
        inner = next(iter(value), "key")
        raise ValueError(
            f"stop={{{key!r}: {value!r}}} is nested, which no result is compared with: write {key + '/' + str(inner)!r} as the key."
        )
    if value is False:
        raise ValueError(
            f"stop={{{key!r}: False}} is reached by every result, so trials would end with their first: give True, or a number."
        )
    # bool is a Real too; NumPy's numbers are registered as such, its booleans are not.
    if not isinstance(value, Real) or value != value:
        raise TypeError(
            f"stop={{{key!r}: {value!r}}}: no result can be compared with {value!r}: give a number, or True."
        )
