"""Algorithms by name, such as "PPO". `Tuner` and `tune.run` accept these names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from typing import Any

from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.tune.registry import ENTRY_POINTS, get_trainable_cls

Loaded = tuple[type[Algorithm], AlgorithmConfig]
"""The class of an algorithm and its default options."""


def get_algorithm_class(alg: str, return_config: bool = False) -> Any:
    """Return the class of an algorithm; with `return_config`, also its default options.

    Args:
        alg: Name, such as "PPO"; the prefix "contrib/" of older releases is ignored.
        return_config: Return a tuple of class and options.

    Raises:
        TuneError: No algorithm has this name; the message suggests the nearest one.
        RetiredAlgorithmError: The algorithm is not supported; the message names a replacement.
        TypeError: The name belongs to a trainable that is not an algorithm.
    """
    found: Any = get_trainable_cls(alg.removeprefix("contrib/"))
    if not issubclass(found, Algorithm):
        raise TypeError(
            f"{alg!r} is the trainable {found.__name__}, which is not a reinforcement learning "
            "algorithm: register it under another name."
        )
    return (found, found.get_default_config()) if return_config else found


def _load(name: str) -> Loaded:
    found: Loaded = get_algorithm_class(name, return_config=True)
    return found


class _Algorithms(Mapping[str, Callable[[], Loaded]]):
    """Functions that load the installed algorithms."""

    def __getitem__(self, name: str) -> Callable[[], Loaded]:
        if name not in set(self):
            raise KeyError(name)
        return functools.partial(_load, name)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({point.name for point in metadata.entry_points(group=ENTRY_POINTS)}))

    def __len__(self) -> int:
        return len(list(iter(self)))


ALGORITHMS: Mapping[str, Callable[[], Loaded]] = _Algorithms()
"""Function that returns class and default options, by the name of the algorithm."""
