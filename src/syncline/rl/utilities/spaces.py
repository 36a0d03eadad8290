"""Functions on spaces and their values, and RLlib's additional spaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import DTypeLike

from syncline.rl.columns.trees import Tree, first_leaf, leaves, map_tree, stack_trees
from syncline.rl.runners.actions import actions_for_env, actions_from_env
from syncline.rl.value_types import CheckedSpace, Space


class Simplex(gym.Space[np.ndarray]):
    """Vectors of positive numbers with sum 1.

    Args:
        shape: Shape; the last dimension sums to 1.
        concentration: Parameters of the Dirichlet distribution for samples.
        dtype: Dtype of the numbers.
    """

    def __init__(
        self, shape: Sequence[int], concentration: Any = None, dtype: DTypeLike = np.float32
    ) -> None:
        super().__init__(tuple(shape), dtype)
        self.dim = shape[-1]
        self.concentration = [1.0] * self.dim if concentration is None else concentration

    def sample(self, mask: Any = None, probability: Any = None) -> np.ndarray:
        """Return a random vector."""
        front = self.shape[:-1] if self.shape else ()
        drawn: np.ndarray = self.np_random.dirichlet(self.concentration, front)
        return drawn.astype(self.dtype)

    def contains(self, x: Tree) -> bool:
        """Return True for a vector of this space."""
        array = np.asarray(x)
        close = np.allclose(array.sum(-1), 1.0, rtol=1e-3, atol=1e-3)
        return array.shape == self.shape and bool(close) and bool((array >= 0).all())


def unsquash_action(action: Tree, action_space_struct: CheckedSpace) -> Tree:
    """Scale actions from [-1, 1] to the bounds of a space."""
    return _apply(action, action_space_struct, normalize=True, clip=False)


def clip_action(action: Tree, action_space: Space) -> Tree:
    """Clip actions to the bounds of a space."""
    return _apply(action, action_space, normalize=False, clip=True)


def normalize_action(action: Tree, action_space_struct: object) -> Tree:
    """Scale an action of a Box to [-1, 1]."""
    function = actions_from_env(as_space(action_space_struct), normalize=True)
    return action if function is None else function(action)[0]


def _apply(action: Tree, space: Space, **options: bool) -> Tree:
    function = actions_for_env(as_space(space), **options)
    return action if function is None else function(map_tree(np.asarray, action))


def as_space(struct: Any) -> Space:
    """Convert a dict or tuple of spaces to a space."""
    if isinstance(struct, dict):
        return gym.spaces.Dict({key: as_space(each) for key, each in struct.items()})
    if isinstance(struct, (tuple, list)):
        return gym.spaces.Tuple([as_space(each) for each in struct])
    space: Space = struct
    return space


def get_base_struct_from_space(space: Space) -> Any:
    """Convert a space to dicts and tuples of spaces."""
    if isinstance(space, gym.spaces.Dict):
        return {key: get_base_struct_from_space(each) for key, each in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(get_base_struct_from_space(each) for each in space.spaces)
    return space


def flatten_space(space: Space) -> list[Space]:
    """Return the leaves of a space, in order."""
    found: list[Space] = leaves(get_base_struct_from_space(space))
    return found


def is_composite_space(space: Space) -> bool:
    """Return True for a Dict or Tuple."""
    return isinstance(space, (gym.spaces.Dict, gym.spaces.Tuple))


def get_original_space(space: Space) -> Space:
    """Return the original space of a flattened space, or the space itself."""
    original: Space = getattr(space, "original_space", space)
    return original


def flatten_to_single_ndarray(input_: object) -> np.ndarray:
    """Flatten nested arrays to one vector."""
    if not isinstance(input_, (list, tuple, dict)):
        return np.asarray(input_)
    return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in leaves(input_)])


def batch(list_of_structs: Sequence[Tree], **_: object) -> Tree:
    """Stack a list of items to a tree of arrays with a batch dimension."""
    if not list_of_structs:
        raise ValueError("batch() got an empty list: there is nothing to stack.")
    return stack_trees(np.stack, [map_tree(np.asarray, each) for each in list_of_structs])


def unbatch(batches_struct: Tree) -> list[Tree]:
    """Split a tree of arrays to a list of items."""
    count = len(first_leaf(batches_struct))
    return [map_tree(lambda leaf, n=n: leaf[n], batches_struct) for n in range(count)]


def get_dummy_batch_for_space(
    space: Space,
    batch_size: int = 32,
    *,
    fill_value: float | str = 0.0,
    time_size: int | None = None,
    **_: object,
) -> Tree:
    """Return a batch of values of a space, random or filled with one value."""
    front = (batch_size,) if time_size is None else (batch_size, time_size)

    def filled(leaf: Tree) -> np.ndarray:
        if fill_value == "random":
            count = int(np.prod(front))
            drawn = np.stack([np.asarray(leaf.sample()) for _ in range(count)])
            return drawn.reshape(*front, *drawn.shape[1:])
        return np.full((*front, *(leaf.shape or ())), fill_value, leaf.dtype)

    return map_tree(filled, get_base_struct_from_space(space))
