"""Weights of fully connected policies in torch as views for `NumpyActing`."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import torch
from torch import nn

from syncline.rl.modules.numpy_acting import (
    ActivationName,
    CategoricalSampler,
    GaussianSampler,
    Layer,
    NumpyActing,
    NumpyNetwork,
    PolicyWeights,
    Sampler,
)
from syncline.rl.modules.torch.distributions.categorical import TorchCategorical
from syncline.rl.modules.torch.distributions.gaussian import TorchDiagGaussian
from syncline.rl.modules.torch.encoders import TorchActorCriticEncoder, TorchMLPEncoder
from syncline.rl.modules.torch.heads import TorchFreeLogStdMLPHead, TorchMLPHead
from syncline.rl.value_types import ModuleType, Network, Space

_ACTIVATIONS: dict[type, ActivationName] = {
    nn.Tanh: "tanh",
    nn.ReLU: "relu",
    nn.SiLU: "silu",
    nn.ELU: "elu",
    nn.Identity: "linear",
}
_FORWARD_METHODS = ("_forward", "_forward_exploration", "_forward_inference", "acting_policy")


class TorchPolicyWeights:
    """The layers of an encoder and a head of torch, as views."""

    def __init__(self, stacks: list[nn.Sequential], log_std: nn.Parameter | None) -> None:
        self._stacks = stacks
        self._log_std = log_std
        self._first: Any = next(stacks[0].parameters())
        self._last: Any = list(stacks[-1].parameters())[-1]
        self._pointers = (0, 0)

    def is_current(self) -> bool:
        """Return False if parameters moved to other memory, for example to a flat vector."""
        return self._pointers == (self._first.data_ptr(), self._last.data_ptr())

    def views(self) -> PolicyWeights:
        """Return views of the parameters."""
        self._pointers = (self._first.data_ptr(), self._last.data_ptr())
        layers: list[Layer] = []
        for stack in self._stacks:
            for part in stack:
                if isinstance(part, nn.Linear):
                    layers.append(_layer(part))
                else:
                    last = layers.pop()
                    layers.append(
                        Layer(
                            weight=last.weight, bias=last.bias, activation=_ACTIVATIONS[type(part)]
                        )
                    )
        log_std = None if self._log_std is None else self._log_std.detach().numpy()
        return PolicyWeights(layers=tuple(layers), log_std=log_std)


def _layer(linear: nn.Linear) -> Layer:
    bias: Any = linear.bias
    return Layer(
        weight=linear.weight.detach().numpy().T,
        bias=None if bias is None else bias.detach().numpy(),
        activation="linear",
    )


def numpy_policy(module: ModuleType) -> NumpyActing | None:
    """Return acting with NumPy for an actor-critic module, or None if it is not supported.

    Supported are fully connected encoders and heads on the CPU in float32, without overridden
    forward methods, and `TorchCategorical` or `TorchDiagGaussian` actions.
    """
    encoder, head = module.encoder, module.pi
    if _is_customized(module) or type(encoder) is not TorchActorCriticEncoder:
        return None
    actor = encoder.encoder if encoder.config.shared else encoder.actor_encoder
    if type(actor) is not TorchMLPEncoder or type(head) not in (
        TorchMLPHead,
        TorchFreeLogStdMLPHead,
    ):
        return None
    stacks = [actor.net.mlp, head.net.mlp]
    log_std = head.log_std if isinstance(head, TorchFreeLogStdMLPHead) else None
    if not all(map(_is_simple, stacks)) or not _on_cpu(module):
        return None
    weights = TorchPolicyWeights(stacks, log_std)
    cls = module.get_exploration_action_dist_cls()
    if cls is not module.get_inference_action_dist_cls():
        return None
    sampler = numpy_sampler(cls, module.action_space)
    limit = head.log_std_clip_param if head.clip_log_std else math.inf
    return None if sampler is None else NumpyActing(weights, sampler, log_std_limit=limit)


def numpy_network(*parts: Network) -> NumpyNetwork | None:
    """Return the forward pass of an encoder and a head in NumPy; None unless they are fully
    more than fully connected layers on the CPU in float32.
    """
    if any(type(part) not in (TorchMLPEncoder, TorchMLPHead) for part in parts):
        return None
    stacks = [part.net.mlp for part in parts]
    if any(part._forward_hooks or getattr(part, "clip_log_std", False) for part in parts):
        return None
    if not all(map(_is_simple, stacks)) or not all(map(_on_cpu, parts)):
        return None
    return NumpyNetwork(TorchPolicyWeights(stacks, None))


def numpy_sampler(cls: object, space: Space) -> Sampler | None:
    """Return a NumPy sampler that is equivalent to a torch distribution, or None.

    It takes a third of the time for the rows of an acting step.
    """
    if cls is TorchCategorical:
        return CategoricalSampler()
    if cls is TorchDiagGaussian and isinstance(space, gym.spaces.Box):
        return GaussianSampler(tuple(space.shape))
    return None


def _is_customized(module: ModuleType) -> bool:
    """Return True if a subclass or an instance attribute overrides a forward method."""
    if module._forward_hooks or module._forward_pre_hooks:
        return True
    for name in _FORWARD_METHODS:
        owner = next(cls for cls in type(module).__mro__ if name in vars(cls))
        if name in vars(module) or not owner.__module__.startswith("syncline.rl.modules."):
            return True
    return False


def _is_simple(stack: nn.Sequential) -> bool:
    """Return True for linear layers, each followed by at most one known activation."""
    before: type | None = None
    for part in stack:
        if type(part) is nn.Linear:
            before = nn.Linear
        elif type(part) in _ACTIVATIONS and before is nn.Linear:
            before = type(part)
        else:
            return False
    return len(stack) > 0


def _on_cpu(module: ModuleType) -> bool:
    return all(
        each.device.type == "cpu" and each.dtype is torch.float32 for each in module.parameters()
    )
