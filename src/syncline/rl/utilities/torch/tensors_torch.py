"""Functions on tensors that programs import from `rllib.utils.torch_utils`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch.nn import functional

from syncline.rl.columns.trees import Tree, map_tree
from syncline.rl.modules.torch.observations import at, leaf_spaces, to_vector
from syncline.rl.value_types import CheckedSpace, Device, Space

FLOAT_MIN = -3.4e38
FLOAT_MAX = 3.4e38


def convert_to_torch_tensor(
    x: Tree, device: Device = None, pin_memory: bool = False, use_stream: bool = False
) -> Tree:
    """Convert a tree of arrays to tensors; float64 becomes float32."""

    def convert(leaf: Tree) -> Tree:
        if leaf is None:
            return None
        tensor = leaf if isinstance(leaf, torch.Tensor) else torch.as_tensor(np.asarray(leaf))
        tensor = tensor.float() if tensor.dtype is torch.float64 else tensor
        if pin_memory and torch.cuda.is_available():
            tensor = tensor.pin_memory()
        return tensor if device is None else tensor.to(device)

    return map_tree(convert, x)


def one_hot(x: torch.Tensor, space: Space) -> torch.Tensor:
    """Encode values of a Discrete or MultiDiscrete space as one-hot vectors."""
    return to_vector(space, x)


def flatten_inputs_to_1d_tensor(
    inputs: Tree,
    spaces_struct: CheckedSpace = None,
    time_axis: bool = False,
    batch_axis: bool = True,
) -> torch.Tensor:
    """Flatten nested values of a space to vectors; Discrete parts become one-hot."""
    space = spaces_struct
    if isinstance(space, dict):
        space = gym.spaces.Dict(space)
    if isinstance(space, (tuple, list)):
        space = gym.spaces.Tuple(space)
    parts = [to_vector(leaf, at(inputs, path)) for path, leaf in leaf_spaces(space).items()]
    return torch.cat(parts, -1)


def explained_variance(y: torch.Tensor, pred: torch.Tensor) -> torch.Tensor:
    """Return 1 - Var(y - pred) / Var(y), at least -1."""
    variance = torch.var(y, dim=[0]).clamp_min(1e-8)
    return torch.clamp(1 - torch.var(y - pred, dim=[0]) / variance, min=-1.0)


def sequence_mask(
    lengths: torch.Tensor, maxlen: int | None = None, dtype: Any = None, time_major: bool = False
) -> torch.Tensor:
    """Return the mask [S, L] of the steps of sequences; [L, S] if `time_major`."""
    longest = int(lengths.max()) if maxlen is None else maxlen
    mask = torch.arange(longest, device=lengths.device) < lengths[:, None]
    mask = mask.T if time_major else mask
    return mask.type(dtype or torch.bool)


def reduce_mean_ignore_inf(x: torch.Tensor, axis: int | None = None) -> torch.Tensor:
    """Return the mean without infinite values."""
    mask = torch.isfinite(x)
    kept = torch.where(mask, x, torch.zeros_like(x))
    if axis is None:
        return kept.sum() / mask.sum()
    return kept.sum(axis) / mask.sum(axis)


def huber_loss(x: torch.Tensor, delta: float = 1.0) -> torch.Tensor:
    """Return x^2 / 2 up to `delta`, and a linear function beyond."""
    return functional.huber_loss(x, torch.zeros_like(x), reduction="none", delta=delta)


def l2_loss(x: torch.Tensor) -> torch.Tensor:
    """Return half the sum of squares."""
    return 0.5 * torch.sum(torch.square(x))


def global_norm(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return the global norm of all tensors."""
    norms = torch.stack([torch.linalg.vector_norm(each) for each in tensors])
    total: torch.Tensor = torch.linalg.vector_norm(norms)
    return total


compute_global_norm = global_norm


def softmax_cross_entropy_with_logits(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return -sum(labels log softmax(logits))."""
    return torch.sum(-labels * functional.log_softmax(logits, -1), -1)


def symlog(x: torch.Tensor) -> torch.Tensor:
    """Return sign(x) ln(|x| + 1)."""
    return torch.sign(x) * torch.log1p(torch.abs(x))


def inverse_symlog(y: torch.Tensor) -> torch.Tensor:
    """Return sign(y) (exp(|y|) - 1)."""
    return torch.sign(y) * torch.expm1(torch.abs(y))


def set_torch_seed(seed: int | None = None) -> None:
    """Seed torch, including on GPUs."""
    if seed is not None:
        torch.manual_seed(seed)


def copy_torch_tensors(x: Tree, device: Device = None) -> Tree:
    """Return copies of a tree's tensors, without gradients."""

    def copied(leaf: Tree) -> Tree:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        made = leaf.detach().clone()
        return made if device is None else made.to(device)

    return map_tree(copied, x)


def get_device(config: object = None, num_gpus_requested: float = 1) -> torch.device:
    """Return the first GPU if requested and available, else the CPU."""
    gpu = bool(num_gpus_requested) and torch.cuda.is_available()
    return torch.device("cuda" if gpu else "cpu")


def update_target_network(main_net: Any, target_net: Any, tau: float) -> None:
    """Update the weights of a target network: tau main + (1 - tau) target."""
    with torch.no_grad():
        pairs = zip(target_net.parameters(), main_net.parameters(), strict=True)
        for target, main in pairs:
            target.lerp_(main, tau)
