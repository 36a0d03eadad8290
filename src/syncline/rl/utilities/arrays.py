"""Functions on NumPy arrays that programs import from `rllib.utils.numpy`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import DTypeLike

from syncline.rl.columns.trees import Tree, map_tree
from syncline.rl.value_types import CheckedSpace

SMALL_NUMBER = 1e-6
LARGE_INTEGER = 100_000_000
MIN_LOG_NN_OUTPUT = -5
MAX_LOG_NN_OUTPUT = 2


def convert_to_numpy(x: Tree, reduce_type: bool = True, reduce_floats: bool = True) -> Tree:
    """Convert a tree of tensors, arrays and numbers to a tree of arrays.

    Args:
        x: The tree.
        reduce_type: Convert float64 to float32 and int64 to int32.
        reduce_floats: If False, keep the dtype of floats.
    """

    def convert(leaf: Tree) -> Tree:
        array = leaf.detach().cpu().numpy() if hasattr(leaf, "detach") else np.asarray(leaf)
        if not reduce_type:
            return array
        if reduce_floats and array.dtype == np.float64:
            return array.astype(np.float32)
        return array.astype(np.int32) if array.dtype == np.int64 else array

    return map_tree(convert, x)


def one_hot(
    x: Tree,
    depth: int = 0,
    on_value: float = 1.0,
    off_value: float = 0.0,
    dtype: DTypeLike = np.float32,
) -> np.ndarray:
    """Encode integers [...] as one-hot vectors [..., depth]; a depth of 0 is the maximum plus 1."""
    numbers = np.asarray(x, np.int64)
    depth = depth or int(numbers.max()) + 1
    made = np.full((*numbers.shape, depth), off_value, dtype)
    np.put_along_axis(made, numbers[..., None], on_value, -1)
    return made


def one_hot_multidiscrete(x: Tree, depths: Sequence[int]) -> np.ndarray:
    """Encode integers [..., n] as concatenated one-hot vectors."""
    numbers = np.asarray(x)
    parts = [one_hot(numbers[..., i], depth) for i, depth in enumerate(depths)]
    return np.concatenate(parts, -1)


def softmax(x: Tree, axis: int = -1, epsilon: float | None = None) -> np.ndarray:
    """Return exp(x) / sum(exp(x)), at least `epsilon`."""
    shifted = np.exp(np.asarray(x) - np.max(x, axis, keepdims=True))
    made: np.ndarray = shifted / shifted.sum(axis, keepdims=True)
    limited: np.ndarray = np.maximum(made, SMALL_NUMBER if epsilon is None else epsilon)
    return limited


def sigmoid(x: Tree, derivative: bool = False) -> np.ndarray:
    """Return 1 / (1 + exp(-x)) or, with `derivative`, x (1 - x)."""
    array = np.asarray(x)
    made: np.ndarray = array * (1 - array) if derivative else 1 / (1 + np.exp(-array))
    return made


def relu(x: Tree, alpha: float = 0.0) -> np.ndarray:
    """Return x where it is positive, else alpha x."""
    array = np.asarray(x)
    made: np.ndarray = np.maximum(array, array * alpha)
    return made


def huber_loss(x: Tree, delta: float = 1.0) -> np.ndarray:
    """Return x^2 / 2 up to `delta`, and a linear function beyond."""
    size = np.abs(np.asarray(x))
    loss: np.ndarray = np.where(size < delta, np.square(size) * 0.5, delta * (size - 0.5 * delta))
    return loss


def l2_loss(x: Tree) -> np.ndarray:
    """Return half the sum of squares."""
    return np.asarray(np.sum(np.square(x)) / 2.0)


def fc(x: Tree, weights: object, biases: object = None, framework: str | None = None) -> np.ndarray:
    """Return the output of a fully connected layer; torch weights are [out, in]."""
    matrix = convert_to_numpy(weights, reduce_type=False)
    matrix = matrix.T if framework == "torch" else matrix
    bias = 0.0 if biases is None else convert_to_numpy(biases, reduce_type=False)
    made: np.ndarray = np.matmul(convert_to_numpy(x, reduce_type=False), matrix) + bias
    return made


def flatten_inputs_to_1d_tensor(
    inputs: Tree,
    spaces_struct: CheckedSpace = None,
    time_axis: bool = False,
    batch_axis: bool = True,
) -> np.ndarray:
    """Flatten nested values to vectors; with spaces, Discrete parts become one-hot.

    Args:
        inputs: The values.
        spaces_struct: Their space, or a dict or tuple of spaces.
        time_axis: Values have a time dimension after the batch dimension.
        batch_axis: Values have a batch dimension.
    """
    front = int(batch_axis) + int(time_axis)
    return np.concatenate(_vectors(inputs, spaces_struct, front), -1).astype(np.float32)


def _vectors(value: Any, space: CheckedSpace, front: int) -> list[np.ndarray]:
    if isinstance(space, (gym.spaces.Dict, gym.spaces.Tuple)):
        space = space.spaces
    if isinstance(value, dict):
        return [v for k in value for v in _vectors(value[k], space and space[k], front)]
    if isinstance(value, (tuple, list)) and not np.isscalar(value):
        return [v for i, e in enumerate(value) for v in _vectors(e, space and space[i], front)]
    array = np.asarray(value)
    if isinstance(space, gym.spaces.Discrete):
        return [one_hot(array - space.start, int(space.n))]
    if isinstance(space, gym.spaces.MultiDiscrete):
        flat = array.reshape(*array.shape[:front], -1)
        return [one_hot_multidiscrete(flat, [int(n) for n in space.nvec.reshape(-1)])]
    return [array.reshape(*array.shape[:front], -1)]


def explained_variance(y: object, pred: object) -> float:
    """Return 1 - Var(y - pred) / Var(y), at least -1."""
    variance = np.var(np.asarray(y))
    return float(max(-1.0, 1.0 - np.var(np.asarray(y) - np.asarray(pred)) / max(variance, 1e-8)))
