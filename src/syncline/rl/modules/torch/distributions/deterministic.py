"""`TorchDeterministic`: always the same action."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch

from syncline.rl.modules.distribution import Distribution, Noise
from syncline.rl.modules.torch.distributions.base import Shape
from syncline.rl.value_types import Space


class TorchDeterministic(Distribution):
    """The distribution of greedy actions; its parameters are the actions, [*batch, *event]."""

    def __init__(self, loc: torch.Tensor) -> None:
        super().__init__()
        self.loc = loc

    def sample(self, *, sample_shape: Shape | None = None, **kwargs: object) -> torch.Tensor:
        """Return the actions."""
        return self.loc.expand(*(sample_shape or ()), *self.loc.shape)

    def rsample(self, *, sample_shape: Shape | None = None, **kwargs: object) -> torch.Tensor:
        """Return the actions, with gradients."""
        return self.sample(sample_shape=sample_shape)

    def sample_with_noise(self, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the actions and zeros."""
        return self.loc, self.loc.new_zeros(noise.shape[:-1], dtype=torch.float32)

    def logp(self, value: torch.Tensor, **kwargs: object) -> torch.Tensor:
        """Return zeros in the shape of the parameters."""
        return torch.zeros_like(self.loc, dtype=torch.float32)

    def entropy(self, **kwargs: object) -> torch.Tensor:
        """Raise RuntimeError: a deterministic action has no density."""
        raise RuntimeError("TorchDeterministic has no entropy: its actions have no density.")

    def kl(self, other: object, **kwargs: object) -> torch.Tensor:
        """Raise RuntimeError: a deterministic action has no density."""
        raise RuntimeError("TorchDeterministic has no KL divergence: its actions have no density.")

    @property
    def noise(self) -> Noise | None:
        """No random number."""
        return Noise(0, "uniform")

    @staticmethod
    def required_input_dim(space: Space, **kwargs: object) -> int:
        """Return the number of elements of an action."""
        if not isinstance(space, gym.spaces.Box):
            raise TypeError(f"TorchDeterministic is for Box action spaces, not for {space}.")
        return int(np.prod(space.shape))

    @classmethod
    def from_logits(cls, logits: torch.Tensor, **kwargs: Any) -> Any:
        """Return the distributions of these actions."""
        return cls(loc=logits)
