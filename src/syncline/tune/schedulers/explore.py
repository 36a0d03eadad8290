"""Mutation of configurations for population based training.

Pure functions apart from the random generator. Not covered: the selection of the trials to mutate
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

from syncline.tune.result import Config
from syncline.tune.search.sample import Categorical, Domain, Function

Mutations = Mapping[str, Any]
"""By hyperparameter: a list of values, a `Domain`, a function that draws a value, or a mapping of
these for nested hyperparameters.
"""


def check_mutations(mutations: Mutations, path: str = "") -> None:
    """Check that a value can be drawn for each hyperparameter.

    Raises:
        TypeError: A mutation has an unsupported type.
        ValueError: A mutation is an empty list, or a `sample_from`, which needs the whole
            configuration.
    """
    for key, mutation in mutations.items():
        name = f"{path}{key}"
        if isinstance(mutation, Mapping):
            check_mutations(mutation, f"{name}/")
        elif isinstance(mutation, Function):
            raise ValueError(
                f"hyperparam_mutations[{name!r}] is a sample_from(), which needs the whole "
                f"configuration and cannot be resampled alone. Use a search space such as "
                f"tune.uniform(), a list, or a function without arguments."
            )
        elif isinstance(mutation, (list, tuple)):
            if not mutation:
                raise ValueError(
                    f"hyperparam_mutations[{name!r}] is empty: give at least one value."
                )
        elif not isinstance(mutation, Domain) and not callable(mutation):
            raise TypeError(
                f"hyperparam_mutations[{name!r}]={mutation!r} must be a list, a tuple, a dict, a "
                f"search space such as tune.uniform(), or a function without arguments, not "
                f"{type(mutation).__name__}."
            )


def explore(
    config: Mapping[str, Any],
    mutations: Mutations,
    *,
    resample_probability: float,
    factors: Sequence[float],
    source: random.Random,
) -> Config:
    """Return a copy of `config` with all hyperparameters of `mutations` changed: resampled with
    `resample_probability`, otherwise perturbed to the neighbor in a list or by one of `factors`.
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
            changed[key] = _perturbed(value, mutation, factors, source)
    return changed


def fill_missing(config: Config, mutations: Mutations, source: random.Random) -> Config:
    """Draw the hyperparameters of `mutations` that `config` lacks, in place; return them by flat
    key (`a/b`).
    """
    drawn: Config = {}
    for key, mutation in mutations.items():
        if isinstance(mutation, Mapping):
            inner = fill_missing(config.setdefault(key, {}), mutation, source)
            drawn.update({f"{key}/{name}": value for name, value in inner.items()})
        elif key not in config:
            config[key] = drawn[key] = draw(mutation, source)
    return drawn


def draw(mutation: Any, source: random.Random) -> Any:
    """Draw a value from a list, a `Domain` or a function."""
    if isinstance(mutation, (list, tuple)):
        return source.choice(mutation)
    if isinstance(mutation, Domain):
        return mutation.sample(None, random_state=source.getrandbits(32))
    with _global_generators_from(source):
        return mutation()


def only_mutated(config: Mapping[str, Any], mutations: Mutations, path: str = "") -> Config:
    """Return the values of `config` for the hyperparameters of `mutations`, by flat key (`a/b`)."""
    values: Config = {}
    for key, mutation in mutations.items():
        if isinstance(mutation, Mapping) and isinstance(config.get(key), Mapping):
            values.update(only_mutated(config[key], mutation, f"{path}{key}/"))
        elif key in config:
            values[f"{path}{key}"] = config[key]
    return values


def _perturbed(
    value: Any, mutation: object, factors: Sequence[float], source: random.Random
) -> Any:
    is_number = isinstance(value, Number) and not isinstance(value, bool)
    if isinstance(mutation, Categorical) and not is_number:
        mutation = list(mutation.categories)  # Strings and booleans cannot be multiplied.
    if isinstance(mutation, (list, tuple)):
        if value not in mutation:
            return source.choice(mutation)
        position = mutation.index(value) + source.choice((-1, 1))
        return mutation[min(max(position, 0), len(mutation) - 1)]
    if not is_number:
        return value
    return _like(value, value * source.choice(factors))


def _like(value: object, changed: Any) -> Any:
    """Convert `changed` to an integer or a boolean if `value` is one."""
    if isinstance(value, bool):
        return bool(changed)
    if isinstance(value, int) and isinstance(changed, float):
        return round(changed)
    return changed


@contextmanager
def _global_generators_from(source: random.Random) -> Iterator[None]:
    """Seed the global generators from `source`, so that user functions draw reproducible values."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    random.seed(source.getrandbits(64))
    np.random.seed(source.getrandbits(32))
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def apply_custom_explore(
    function: Callable[[Config], Config] | None, config: Config, source: random.Random
) -> Config:
    """Return the configuration that the user's `custom_explore_fn` returns; `config` without one.

    Raises:
        ValueError: The function did not return a dict.
    """
    if function is None:
        return config
    with _global_generators_from(source):
        changed = function(config)
    if not isinstance(changed, dict):
        raise ValueError(
            f"custom_explore_fn returned {changed!r}: it must return the new configuration of the "
            f"trial, a dict."
        )
    return changed
