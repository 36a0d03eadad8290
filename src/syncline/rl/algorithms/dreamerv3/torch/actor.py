"""The policy of DreamerV3, and actions as vectors.

Covered: Discrete, MultiDiscrete and Box spaces. Discrete actions are one-hot vectors, sampled from
a mixture with 1 % uniform probability; Box actions are normally distributed around a squashed mean.
"""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.nn.functional import one_hot

from syncline.rl.algorithms.dreamerv3.torch.formulas import draw, mixed_probabilities
from syncline.rl.algorithms.dreamerv3.torch.networks import MLP, ModelSize
from syncline.rl.value_types import Space

STD_RANGE = (0.1, 1.0)
"""Range of the standard deviations of continuous actions."""


class ActionVectors:
    """Actions as vectors of floats.

    Raises:
        ValueError: The space is neither Discrete, MultiDiscrete nor Box.
    """

    def __init__(self, space: Space) -> None:
        self.counts: list[int] = []
        """Number of values of each discrete action; empty for a Box."""
        self._shape: tuple[int, ...] = ()
        if isinstance(space, gym.spaces.Discrete):
            self.counts = [int(space.n)]
        elif isinstance(space, gym.spaces.MultiDiscrete):
            self.counts = [int(each) for each in space.nvec.reshape(-1)]
            self._shape = tuple(space.nvec.shape)
        elif isinstance(space, gym.spaces.Box):
            self._shape = space.shape
        else:
            raise ValueError(
                f"DreamerV3 acts in Discrete, MultiDiscrete and Box spaces, not in {space}: "
                "flatten the action space in a wrapper of the environment."
            )
        self.size = sum(self.counts) or int(np.prod(self._shape))
        """Length of the vectors."""
        self.num_noise = len(self.counts) or self.size
        """Number of random numbers per action."""

    def encode(self, actions: torch.Tensor) -> torch.Tensor:
        """Return actions [*batch, …] as vectors [*batch, A]."""
        dims = actions.shape[: actions.dim() - len(self._shape)]
        if not self.counts:
            return self.clipped(actions.reshape(*dims, self.size).float())
        if len(self.counts) == 1:
            return one_hot(actions.reshape(dims).long(), self.counts[0]).float()
        parts = actions.reshape(*dims, len(self.counts)).long().unbind(-1)
        return torch.cat(
            [one_hot(each, count) for each, count in zip(parts, self.counts, strict=True)], -1
        ).float()

    def decode(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return vectors [*batch, A] as actions [*batch, …]."""
        dims = vectors.shape[:-1]
        if self.counts:
            parts = [each.argmax(-1) for each in torch.split(vectors, self.counts, -1)]
            return torch.stack(parts, -1).reshape(*dims, *self._shape)
        return self.clipped(vectors).reshape(*dims, *self._shape)

    def clipped(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the vectors that environment and world model get; Box actions are in [-1, 1]."""
        return vectors if self.counts else vectors.clamp(-1.0, 1.0)


class Actor(nn.Module):
    """Maps states to action distributions.

    Args:
        features: Length of a state.
        vectors: The actions.
        size: Widths.
    """

    def __init__(self, features: int, vectors: ActionVectors, size: ModelSize) -> None:
        super().__init__()
        self.vectors = vectors
        outputs = vectors.size if vectors.counts else 2 * vectors.size
        self.mlp = MLP(features, size.dense_units, size.num_dense_layers, outputs, zero=True)

    def forward(self, features: torch.Tensor) -> list[torch.Tensor]:
        """Return the probabilities of each discrete action, or mean and standard deviation."""
        outputs = self.mlp(features)
        if self.vectors.counts:
            return [mixed_probabilities(each) for each in outputs.split(self.vectors.counts, -1)]
        mean, raw = outputs.chunk(2, -1)
        low, high = STD_RANGE
        return [torch.tanh(mean), low + (high - low) * torch.sigmoid(raw + 2.0)]

    def sample(self, inputs: list[torch.Tensor], noise: torch.Tensor) -> torch.Tensor:
        """Sample action vectors [*batch, A] with uniform noise [*batch, num_noise]."""
        if self.vectors.counts:
            numbers = noise.unbind(-1)
            return torch.cat(
                [draw(each, number) for each, number in zip(inputs, numbers, strict=True)], -1
            )
        mean, std = inputs
        normal: torch.Tensor = torch.special.ndtri(noise.clamp(1e-6, 1.0 - 1e-6))
        return mean + std * normal

    def mode(self, inputs: list[torch.Tensor]) -> torch.Tensor:
        """Return the most likely action vectors [*batch, A]."""
        if self.vectors.counts:
            counts = self.vectors.counts
            return torch.cat(
                [
                    one_hot(each.argmax(-1), count).to(each.dtype)
                    for each, count in zip(inputs, counts, strict=True)
                ],
                -1,
            )
        return inputs[0]

    def logp_and_entropy(
        self, inputs: list[torch.Tensor], actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probabilities and entropies [*batch] for action vectors [*batch, A]."""
        if self.vectors.counts:
            logp = (torch.cat(inputs, -1).log() * actions).sum(-1)
            entropies = [-(each * each.log()).sum(-1) for each in inputs]
            return logp, torch.stack(entropies).sum(0)
        mean, std = inputs
        log_std = std.log()
        half = 0.5 * math.log(2.0 * math.pi)
        logp = (-0.5 * ((actions - mean) / std).square() - log_std - half).sum(-1)
        return logp, (log_std + half + 0.5).sum(-1)
