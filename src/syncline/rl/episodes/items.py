"""Items: the values of single steps. An item is a value, or a dict or tuple of items.

Covered: mapping, stacking to arrays, one-hot encoding and fill values by space. Lists are values
here, unlike in `columns.trees`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from syncline.rl.value_types import Space, Tree

Item = Tree


def map_items(function: Callable[..., object], item: Item, *others: Item) -> Item:
    """Return the item of `function(leaf, …)`, applied to the corresponding leaves of all items."""
    if isinstance(item, dict):
        return {
            key: map_items(function, value, *(other[key] for other in others))
            for key, value in item.items()
        }
    if isinstance(item, tuple):
        return tuple(
            map_items(function, value, *(other[i] for other in others))
            for i, value in enumerate(item)
        )
    return function(item, *others)


def first_leaf(item: Item) -> Tree:
    """Return the first leaf."""
    while isinstance(item, (dict, tuple)):
        item = next(iter(item.values())) if isinstance(item, dict) else item[0]
    return item


def stack(items: Sequence[Item]) -> Item:
    """Stack items to one item of arrays [N, …]; an empty list gives an empty array."""
    if not items:
        return np.array([])
    return map_items(lambda *leaves: _stack_leaves(leaves), items[0], *items[1:])


def _stack_leaves(leaves: Sequence[Any]) -> np.ndarray:
    first = leaves[0]
    if isinstance(first, np.ndarray):
        return np.stack(leaves).astype(first.dtype, copy=False)
    return np.array(leaves)


def equal(one: Item, two: Item) -> bool:
    """Return True if two items have the same structure and values."""
    if isinstance(one, dict):
        return (
            isinstance(two, dict)
            and one.keys() == two.keys()
            and all(equal(value, two[key]) for key, value in one.items())
        )
    if isinstance(one, tuple):
        return (
            isinstance(two, tuple)
            and len(one) == len(two)
            and all(equal(a, b) for a, b in zip(one, two, strict=True))
        )
    return bool(np.array_equal(one, two))


def one_hot(item: Item, space: Space) -> Item:
    """Return an item or a batch with one-hot vectors for Discrete and MultiDiscrete parts."""
    if isinstance(space, spaces.Dict):
        return {key: one_hot(item[key], each) for key, each in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(one_hot(item[i], each) for i, each in enumerate(space))
    if isinstance(space, spaces.Discrete):
        return _one_hot(np.asarray(item) - space.start, int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        values = np.asarray(item) - space.start
        parts = [_one_hot(values[..., i], int(n)) for i, n in enumerate(space.nvec)]
        return np.concatenate(parts, axis=-1)
    return item


def _one_hot(values: np.ndarray, size: int) -> np.ndarray:
    encoded: np.ndarray = np.eye(size, dtype=np.float32)[values]
    return encoded


def filled(space: Space | None, fill: object, as_one_hot: bool) -> Item:
    """Return an item of a space in which every number is `fill`; `fill` itself without a space.

    With `as_one_hot`, Discrete and MultiDiscrete parts have the length of their one-hot encoding.
    """
    if isinstance(space, spaces.Dict):
        return {key: filled(each, fill, as_one_hot) for key, each in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(filled(each, fill, as_one_hot) for each in space)
    if as_one_hot and isinstance(space, spaces.Discrete):
        return np.full((int(space.n),), fill, np.float32)
    if as_one_hot and isinstance(space, spaces.MultiDiscrete):
        return np.full((int(space.nvec.sum()),), fill, np.float32)
    if space is None or space.shape is None:
        return fill
    return np.full(space.shape, fill, space.dtype)


def with_tuples(item: Item, space: Space | None) -> Item:
    """Convert the lists of Tuple spaces back to tuples; msgpack and JSON only have lists."""
    if isinstance(space, spaces.Dict) and isinstance(item, dict):
        return {key: with_tuples(value, space.spaces.get(key)) for key, value in item.items()}
    if isinstance(space, spaces.Tuple) and isinstance(item, (list, tuple)):
        return tuple(with_tuples(v, each) for v, each in zip(item, space.spaces, strict=True))
    return item
