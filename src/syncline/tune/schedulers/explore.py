"""How population based training changes a configuration: `explore`, `fill_missing`, and what may be
mutated, `check_mutations`.

Pure functions, apart from the generator that they draw from. Not covered: who is changed, and when
(`pbt.py`).
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Number
from typing import Any

import numpy as np

from syncline.tune.search.sample import Categorical, Domain, Function

Mutations = Mapping[str, Any]
"""By hyperparameter: a list of values, a `Domain`, a function that draws a value, or a mapping of
these for nested hyperparameters.
"""


def check_mutations(mutations: Mutations, path: str = "") -> None:
    """Whether all values are such that a value can be drawn from them.

    Raises:
        TypeError: One is of another kind.
        ValueError: One is a `sample_from`, which needs the whole configuration, or an empty list.
    """
    for key, mutation in mutations.items():
        name = f"{path}{key}"
        if isinstance(mutation, Mapping):
            check_mutations(mutation, f"{name}/")
        elif isinstance(mutation, Function):
            raise ValueError(
                f"hyperparam_mutations[{name!r}] is a sample_from(), which cannot be drawn again alone: use tune.uniform() and its kin, a "
                f"list, or a function without arguments."
            )
        elif isinstance(mutation, (list, tuple)):
            if not mutation:
                raise ValueError(
                    f"hyperparam_mutations[{name!r}] is empty: give at least one value."
                )
        elif not isinstance(mutation, Domain) and not callable(mutation):
            raise TypeError(
                f"hyperparam_mutations[{name!r}]={mutation!r} must be a list, a tuple, a dict, a search space such as tune.uniform(), or a "
                f"function without arguments, not {type(mutation).__name__}."
            )


def explore(
    config: Mapping[str, Any],
    mutations: Mutations,
    *,
    resample_probability: float,
    factors: Sequence[float],
    source: random.Random,
) -> dict[str, Any]:
    """A copy of `config` in which every hyperparameter of `mutations` is drawn anew, with
    `resample_probability`, or else moved a little: in a list to a neighbour, otherwise by one of
    `factors`.
    """
    changed = dict(copy.deepcopy(config))
    for key, mutation in mutations.items():
        value = config[key]
        if isinstance(mutation, Mapping):
            changed[key] = explore(
                value,
                mutation,
                resample_probability=resample_probability,
                factors=factors,
                source=source,
            )
        elif source.random() < resample_probability:
            drawn = draw(mutation, source)
            changed[key] = (
                drawn if isinstance(mutation, (list, tuple, Categorical)) else _like(value, drawn)
            )
        else:
            changed[key] = _moved(value, mutation, factors, source)
    return changed


def fill_missing(
    config: dict[str, Any], mutations: Mutations, source: random.Random
) -> dict[str, Any]:
    """Draw in place what `config` lacks of `mutations`; returns what was drawn, by flat key
    (`a/b`).
    """
    drawn: dict[str, Any] = {}
    for key, mutation in mutations.items():
        if isinstance(mutation, Mapping):
            inner = fill_missing(config.setdefault(key, {}), mutation, source)
            drawn.update({f"{key}/{name}": value for name, value in inner.items()})
        elif key not in config:
            config[key] = drawn[key] = draw(mutation, source)
    return drawn


def draw(mutation: Any, source: random.Random) -> Any:
    """A value of a list, a `Domain` or a function."""
    if isinstance(mutation, (list, tuple)):
        return source.choice(mutation)
    if isinstance(mutation, Domain):
        return mutation.sample(None, random_state=source.getrandbits(32))
    with _global_generators_from(source):
        return mutation()


def only_mutated(config: Mapping[str, Any], mutations: Mutations, path: str = "") -> dict[str, Any]:
    """The values of `config` that `mutations` names, by flat key (`a/b`)."""
    values: dict[str, Any] = {}
    for key, mutation in mutations.items():
        if isinstance(mutation, Mapping) and isinstance(config.get(key), Mapping):
            values.update(only_mutated(config[key], mutation, f"{path}{key}/"))
        elif key in config:
            values[f"{path}{key}"] = config[key]
    return values


def _moved(value: Any, mutation: Any, factors: Sequence[float], source: random.Random) -> Any:
    is_number = isinstance(value, Number) and not isinstance(value, bool)
    if isinstance(mutation, Categorical) and not is_number:
        mutation = list(mutation.categories)  # words and switches have neighbours, but no factor
    if isinstance(mutation, (list, tuple)):
        if value not in mutation:
            return source.choice(mutation)
        position = mutation.index(value) + source.choice((-1, 1))
        return mutation[min(max(position, 0), len(mutation) - 1)]
    if not is_number:
        return value
    return _like(value, value * source.choice(factors))


def _like(value: Any, changed: Any) -> Any:
    """`changed` as a whole number or a switch where `value` is one."""
    if isinstance(value, bool):
        return bool(changed)
    if isinstance(value, int) and isinstance(changed, float):
        return round(changed)
    return changed


@contextmanager
def _global_generators_from(source: random.Random) -> Iterator[None]:
    """Functions of the user draw from the global generators; inside, these give what `source`
    decides, so that the same search comes out the same again.
    """
    python_state, numpy_state = random.getstate(), np.random.get_state()
    random.seed(source.getrandbits(64))
    np.random.seed(source.getrandbits(32))
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def apply(
    function: Callable[[dict[str, Any]], dict[str, Any]],
    config: dict[str, Any],
    source: random.Random,
) -> dict[str, Any]:
    """What the user's `custom_explore_fn` makes of a configuration.

    Raises:
        ValueError: It returned none.
    """
    with _global_generators_from(source):
        changed = function(config)
    if not isinstance(changed, dict):
        raise ValueError(
            f"custom_explore_fn returned {changed!r}: it must return the configuration that the trial is to go on with, a dict."
        )
    return changed
