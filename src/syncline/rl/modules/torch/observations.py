"""Conversion of nested observations to vectors and images.

Discrete leaves become one-hot vectors, and other leaves are flattened. Images are kept separate for
convolutions.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch.nn.functional import one_hot

from syncline.rl.value_types import Space, Tree

SMALLEST_IMAGE = 8
"""Minimum height and width of Box observations with three dimensions that count as images."""

Path = tuple[Any, ...]


def leaf_spaces(space: Space, path: Path = ()) -> dict[Path, Space]:
    """Return the spaces of the leaves by their path of keys and indices."""
    if isinstance(space, gym.spaces.Dict):
        items: Any = space.spaces.items()
    elif isinstance(space, gym.spaces.Tuple):
        items = enumerate(space.spaces)
    else:
        return {path: space}
    return {
        found: leaf
        for key, each in items
        for found, leaf in leaf_spaces(each, (*path, key)).items()
    }


def at(tree: Tree, path: Path) -> Tree:
    """Return the part of nested observations at a path."""
    for key in path:
        tree = tree[key]
    return tree


def is_image(space: Space, *, has_filters: bool = False) -> bool:
    """Return True for Box spaces of shape [H, W, C]; small ones need explicit filters."""
    if not isinstance(space, gym.spaces.Box) or len(space.shape) != 3:
        return False
    return has_filters or min(space.shape[:2]) >= SMALLEST_IMAGE


def vector_size(space: Space) -> int:
    """Return the length of the vector of a leaf.

    Raises:
        ValueError: Values of the space do not have a fixed number of elements.
    """
    if isinstance(space, gym.spaces.Discrete):
        return int(space.n)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return int(space.nvec.sum())
    if isinstance(space, gym.spaces.Box | gym.spaces.MultiBinary):
        return int(np.prod(space.shape))
    raise ValueError(
        f"Observations of {space} have no default encoder. Convert them in a connector "
        "(`env_to_module_connector`) or write a custom TorchRLModule."
    )


def to_vector(space: Space, value: torch.Tensor) -> torch.Tensor:
    """Return the values [*batch, ...] of a leaf as float vectors [*batch, size]."""
    if isinstance(space, gym.spaces.Discrete):
        return one_hot(value.long() - int(space.start), int(space.n)).float()
    if isinstance(space, gym.spaces.MultiDiscrete):
        counts, starts = space.nvec.reshape(-1), np.broadcast_to(space.start, space.nvec.shape)
        values = _flat(value, space.nvec.ndim).long()
        parts = [
            one_hot(values[..., i] - int(start), int(n))
            for i, (n, start) in enumerate(zip(counts, starts.reshape(-1), strict=True))
        ]
        return torch.cat(parts, -1).float()
    assert space.shape is not None
    flat = _flat(value, len(space.shape))
    return flat if flat.dtype is torch.float32 else flat.float()


def image_input(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return images as floats; bytes are scaled to [0, 1]."""
    if value.dtype is torch.uint8:
        return value.to(dtype) / 255.0
    return value if value.dtype is dtype else value.to(dtype)


def _flat(value: torch.Tensor, dims: int) -> torch.Tensor:
    """Flatten the last `dims` dimensions."""
    if dims == 1:
        return value
    return value.reshape(*value.shape[: value.dim() - dims], -1)
