"""`TorchGaussianMixture`: continuous actions with several modes."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from syncline.rl.modules.torch.distributions.base import TorchDistribution
from syncline.rl.modules.torch.distributions.deterministic import TorchDeterministic
from syncline.rl.value_types import Space

SAMPLES = 32
"""Number of samples for estimates of entropy and divergence."""


class TorchGaussianMixture(TorchDistribution):
    """Mixtures of normal distributions with independent components.

    To use it, set in a module
    `action_dist_cls = TorchGaussianMixture.get_partial_dist_cls(modes=3)`. Entropy and KL
    divergence have no closed form and are estimated from samples.

    Args:
        logits: [*batch, modes * (1 + 2 D)]: the logits of the modes, their means, and their log
            standard deviations.
        modes: Number of normal distributions.
    """

    def _get_torch_distribution(self, logits: torch.Tensor, modes: int = 2) -> Any:
        weights, rest = logits[..., :modes], logits[..., modes:]
        means, log_stds = rest.reshape(*rest.shape[:-1], 2, modes, -1).unbind(-3)
        normals = Normal(means, log_stds.exp(), validate_args=False)
        return MixtureSameFamily(
            Categorical(logits=weights, validate_args=False),
            Independent(normals, 1, validate_args=False),
            validate_args=False,
        )

    def entropy(self, **kwargs: object) -> torch.Tensor:
        """Return the estimated entropy. Its gradient uses the score function, E[-ln p grad ln p],
        because the mean gradient of -ln p is zero.
        """
        logp = self.logp(self._dist.sample((SAMPLES,)))
        surprise = -logp.detach()
        weight = surprise - surprise.mean(0)
        return surprise.mean(0) + (weight * (logp - logp.detach())).mean(0)

    def kl(self, other: TorchDistribution, **kwargs: object) -> torch.Tensor:
        """Return the estimated KL(self || other); only `other` gets gradients."""
        actions = self._dist.sample((SAMPLES,))
        return (self.logp(actions).detach() - other.logp(actions)).mean(0)

    def rsample(self, **kwargs: object) -> torch.Tensor:
        """Raise NotImplementedError: the choice of a mode has no gradient."""
        raise NotImplementedError(
            "TorchGaussianMixture does not support samples with gradients, which SAC needs: "
            "use TorchSquashedGaussian, or an algorithm such as PPO."
        )

    def to_deterministic(self) -> TorchDeterministic:
        """Return the mean of the most likely mode."""
        likeliest = self._dist.mixture_distribution.logits.argmax(-1)
        means = self._dist.component_distribution.mean
        index = likeliest[..., None, None].expand(*likeliest.shape, 1, means.shape[-1])
        return TorchDeterministic(loc=means.gather(-2, index).squeeze(-2))

    @staticmethod
    def required_input_dim(space: Space, modes: int = 2, **kwargs: Any) -> int:
        """Return modes * (1 + 2 D)."""
        if not isinstance(space, gym.spaces.Box):
            raise TypeError(f"TorchGaussianMixture is for Box action spaces, not for {space}.")
        return modes * (1 + 2 * int(np.prod(space.shape)))
