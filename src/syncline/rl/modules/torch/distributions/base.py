"""`TorchDistribution`: the base class, which wraps a distribution of `torch.distributions`."""

from __future__ import annotations

from typing import Any

import torch

from syncline.rl.modules.distribution import Distribution
from syncline.rl.value_types import Tree

Shape = tuple[int, ...]


class TorchDistribution(Distribution):
    """A distribution over tensors.

    Custom classes implement `_get_torch_distribution` and `required_input_dim`; the other methods
    are derived from them and use torch's global random generator. The classes of this package
    override all methods.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__()
        self._wrapped = self._get_torch_distribution(*args, **kwargs)

    def _get_torch_distribution(self, *args: Any, **kwargs: Any) -> Any:
        """Return the `torch.distributions` object for the constructor arguments."""
        raise NotImplementedError(
            f"{type(self).__name__} must implement `_get_torch_distribution`."
        )

    @property
    def _dist(self) -> Any:
        """The wrapped `torch.distributions` object."""
        return self._wrapped

    def logp(self, value: torch.Tensor, **kwargs: object) -> torch.Tensor:
        """Return the log-probability of each value."""
        logp: torch.Tensor = self._dist.log_prob(value)
        return logp

    def entropy(self, **kwargs: object) -> torch.Tensor:
        """Return the entropy."""
        entropy: torch.Tensor = self._dist.entropy()
        return entropy

    def kl(self, other: TorchDistribution, **kwargs: object) -> torch.Tensor:
        """Return KL(self || other)."""
        return torch.distributions.kl.kl_divergence(self._dist, other._dist)

    def sample(self, *, sample_shape: Shape | None = None, **kwargs: object) -> Tree:
        """Return samples without gradients."""
        return self._dist.sample(torch.Size(sample_shape or ()))

    def rsample(self, *, sample_shape: Shape | None = None, **kwargs: object) -> Tree:
        """Return samples with gradients."""
        return self._dist.rsample(torch.Size(sample_shape or ()))

    def sample_and_logp(self, *, sample_shape: Shape | None = None) -> tuple[Tree, torch.Tensor]:
        """Return samples without gradients, and their log-probabilities."""
        sample = self.sample(sample_shape=sample_shape)
        return sample, self.logp(sample)

    def rsample_and_logp(self, *, sample_shape: Shape | None = None) -> tuple[Tree, torch.Tensor]:
        """Return samples with gradients, and their log-probabilities."""
        sample = self.rsample(sample_shape=sample_shape)
        return sample, self.logp(sample)

    @classmethod
    def from_logits(cls, logits: torch.Tensor, **kwargs: Any) -> Any:
        """Return the distributions with these parameter vectors, [*batch, D]."""
        return cls(logits=logits, **kwargs)
