"""Actions of modules and of environments.

Modules act in [-1, 1] if actions are normalized, and count discrete actions from 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from gymnasium import spaces

from syncline.rl.columns.trees import Tree
from syncline.rl.value_types import Space

ToEnv = Callable[[Tree], Tree]


def actions_for_env(space: Space, *, normalize: bool, clip: bool) -> ToEnv | None:
    """Return the function that converts actions of modules to those of environments; None for the
    identity.
    """
    if isinstance(space, spaces.Dict):
        parts = {
            key: actions_for_env(each, normalize=normalize, clip=clip)
            for key, each in space.spaces.items()
        }
        if not any(parts.values()):
            return None
        return lambda tree: {key: _applied(part, tree[key]) for key, part in parts.items()}
    if isinstance(space, spaces.Tuple):
        items = [actions_for_env(each, normalize=normalize, clip=clip) for each in space.spaces]
        if not any(items):
            return None
        return lambda tree: tuple(
            _applied(item, each) for item, each in zip(items, tree, strict=True)
        )
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return (lambda actions: actions + start) if start else None
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return _for_box(space, normalize, clip)
    return None


def is_normalized(space: Space) -> bool:
    """Return True for a Box whose actions are normalized to [-1, 1]."""
    return (
        isinstance(space, spaces.Box)
        and bool(space.is_bounded())
        and bool(np.issubdtype(space.dtype, np.floating))
    )


def _for_box(space: spaces.Box, normalize: bool, clip: bool) -> ToEnv | None:
    low, high = space.low, space.high
    if normalize and is_normalized(space):
        half, centre = (high - low) / 2.0, (high + low) / 2.0
        return lambda actions: np.clip(centre + half * actions, low, high).astype(space.dtype)
    if clip:
        return lambda actions: np.clip(actions, low, high).astype(space.dtype)
    return None


def actions_from_env(space: Space, *, normalize: bool) -> ToEnv | None:
    """Return the inverse of `actions_for_env` for a Box or Discrete space, on actions [B, …]; None
    for the identity.
    """
    if isinstance(space, spaces.Discrete) and space.start:
        start = int(space.start)
        return lambda actions: actions - start
    if normalize and is_normalized(space):
        assert isinstance(space, spaces.Box)
        half, centre = (space.high - space.low) / 2.0, (space.high + space.low) / 2.0
        shape = space.shape
        return lambda actions: np.clip(
            (np.asarray(actions).reshape(-1, *shape) - centre) / half, -1.0, 1.0
        ).astype(np.float32)
    return None


def random_action(space: Space, random: np.random.Generator, normalize: bool) -> Tree:
    """Return a random action in the module's range."""
    if isinstance(space, spaces.Dict):
        return {key: random_action(each, random, normalize) for key, each in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(random_action(each, random, normalize) for each in space.spaces)
    if isinstance(space, spaces.Discrete):
        return np.asarray(random.integers(space.n), np.int64)
    if isinstance(space, spaces.MultiDiscrete):
        return random.integers(space.nvec).astype(space.dtype)
    if isinstance(space, spaces.MultiBinary):
        return random.integers(2, size=space.shape).astype(space.dtype)
    if normalize and is_normalized(space):
        return random.uniform(-1.0, 1.0, space.shape).astype(np.float32)
    space.seed(int(random.integers(2**31)))
    return space.sample()


def _applied(function: ToEnv | None, tree: Tree) -> Tree:
    return tree if function is None else function(tree)
