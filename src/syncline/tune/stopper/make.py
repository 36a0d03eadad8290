"""`make_stopper`: whatever a program gives as `stop=`, as a stopper; and what to say of keys that
no result has.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from syncline.train.metric_values import flatten
from syncline.tune.result import AUTO_RESULT_KEYS, CONFIG
from syncline.tune.stopper.dictionary import DictionaryStopper
from syncline.tune.stopper.function_stopper import FunctionStopper
from syncline.tune.stopper.noop import NoopStopper
from syncline.tune.stopper.stopper import CombinedStopper, Stopper

StopCriterion: TypeAlias = (
    Mapping[str, Any] | Stopper | Callable[[str, dict[str, Any]], bool] | Sequence[Any] | None
)
"""What `stop=` may be: smallest values by key, a stopper, a function, or a list of these, of which
one suffices.
"""


def make_stopper(stop: StopCriterion) -> Stopper:
    """The stopper that a program means by `stop=`.

    Args:
        stop: `{"accuracy": 0.9}`, a stopper, `function(trial_id, result) -> bool`, a list of these
        (one suffices), or None for no stopping.

    Raises:
        TypeError: It is none of these: a class instead of an instance, for example.
        ValueError: A value in the dictionary makes no sense, or a class with `stop_all` does not
            derive from `Stopper`.
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
            f"stop={stop.__name__} is a class, which keeps no account of results: give an instance, `stop={stop.__name__}(…)`."
        )
    if callable(stop):
        return FunctionStopper(stop)
    raise TypeError(
        f'stop={stop!r} is a {type(stop).__name__}, which stops nothing: give a dictionary such as {{"training_iteration": 10}}, '
        "a syncline.tune.Stopper, a function of (trial_id, result), or a list of these."
    )


def unknown_keys_message(stopper: Stopper, result: Mapping[str, Any]) -> str | None:
    """What is wrong with the stopper's keys if `result` is what trials report, with the nearest
    names; None if nothing is.
    """
    unknown = stopper.unknown_keys(result)
    if not unknown:
        return None
    names = list(flatten({key: value for key, value in result.items() if key != CONFIG}))
    own = sorted(name for name in names if name not in AUTO_RESULT_KEYS)
    hints = [f"{key!r}{_nearest(key, names)}" for key in unknown]
    return (
        f"`stop=` looks at {', '.join(hints)}, which the result does not have, so no trial would ever stop by it. "
        f"Reported are {', '.join(map(repr, own)) or 'no metrics'}, besides the keys that every result has: correct the key, or report it."
    )


def _nearest(key: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(key, names, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
