"""`TorchDiagGaussian` and `TorchSquashedGaussian`: continuous actions."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch.nn.functional import softplus

from syncline.rl.modules.distribution import Distribution, Noise
from syncline.rl.modules.torch.distributions.base import Shape, TorchDistribution
from syncline.rl.modules.torch.distributions.deterministic import TorchDeterministic
from syncline.rl.value_types import Space

LOG_2PI = math.log(2.0 * math.pi)
SQUASHED_LOG_STD = (-5.0, 2.0)
"""Range of log standard deviations of squashed Gaussians."""
_MARGIN = 1e-6


class TorchDiagGaussian(TorchDistribution):
    """Normal distributions with independent components.

    Args:
        loc: Means, [*batch, D]; if `scale` is None, followed by the log standard deviations.
        scale: Standard deviations, [*batch, D].
        event_shape: Shape of an action with D elements; by default [D].
    """

    def __init__(
        self,
        loc: object,
        scale: object = None,
        *,
        log_std: torch.Tensor | None = None,
        event_shape: Shape | None = None,
    ) -> None:
        if scale is None and log_std is None:
            loc, log_std = torch.as_tensor(loc).chunk(2, dim=-1)
        self.loc = torch.as_tensor(loc)
        self._log_std = log_std
        self._scale = None if scale is None else torch.as_tensor(scale)
        self._event_shape = None if event_shape is None else tuple(event_shape)

    @property
    def log_std(self) -> torch.Tensor:
        """Log standard deviations, [*batch, D]."""
        if self._log_std is None:
            assert self._scale is not None
            self._log_std = self._scale.log()
        return self._log_std

    @property
    def scale(self) -> torch.Tensor:
        """Standard deviations, [*batch, D]."""
        if self._scale is None:
            self._scale = self.log_std.exp()
        return self._scale

    @property
    def _dist(self) -> Any:
        return torch.distributions.Normal(self.loc, self.scale, validate_args=False)

    def logp(self, value: torch.Tensor, **kwargs: object) -> torch.Tensor:
        """Return the log-density of each action, [*batch]."""
        return self._normal_logp((self._flat(value) - self.loc) / self.scale)

    def _normal_logp(self, z: torch.Tensor) -> torch.Tensor:
        """Return the log-density of loc + scale * z."""
        return (0.5 * (z.square() + LOG_2PI) + self.log_std).sum(-1).neg()

    def entropy(self, **kwargs: object) -> torch.Tensor:
        """Return the entropy, [*batch]."""
        log_std = self.log_std.expand_as(self.loc)
        return log_std.sum(-1) + 0.5 * (1.0 + LOG_2PI) * self.loc.shape[-1]

    def kl(self, other: Any, **kwargs: object) -> torch.Tensor:
        """Return KL(self || other), [*batch]."""
        ratio = (self.scale / other.scale).square()
        distance = ((self.loc - other.loc) / other.scale).square()
        terms: torch.Tensor = other.log_std - self.log_std + 0.5 * (ratio + distance - 1.0)
        return terms.sum(-1)

    def sample(self, *, sample_shape: Shape | None = None, **kwargs: object) -> torch.Tensor:
        """Return actions, [*sample_shape, *batch, *event]."""
        with torch.no_grad():
            return self.rsample(sample_shape=sample_shape)

    def rsample(self, *, sample_shape: Shape | None = None, **kwargs: object) -> torch.Tensor:
        """Return actions with gradients, [*sample_shape, *batch, *event]."""
        return self._event(self.loc + self.scale * self._draw(sample_shape))

    def _draw(self, sample_shape: Shape | None) -> torch.Tensor:
        return torch.randn(
            (*(sample_shape or ()), *self.loc.shape), dtype=self.loc.dtype, device=self.loc.device
        )

    def sample_with_noise(self, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return actions and log-densities for normal noise, [*batch, D]."""
        z = noise.to(self.loc.dtype)
        return self._event(self.loc + self.scale * z), self._normal_logp(z)

    def to_deterministic(self) -> Distribution:
        """Return the deterministic distribution of the mean."""
        return TorchDeterministic(loc=self._event(self.loc))

    def _event(self, flat: torch.Tensor) -> torch.Tensor:
        """Reshape actions to the shape of an action."""
        if self._event_shape is None:
            return flat
        return flat.reshape(*flat.shape[:-1], *self._event_shape)

    def _flat(self, value: torch.Tensor) -> torch.Tensor:
        """Flatten actions to their elements."""
        if self._event_shape is None:
            return value
        batch = value.shape[: value.dim() - len(self._event_shape)]
        return value.reshape(*batch, self.loc.shape[-1])

    @property
    def noise(self) -> Noise | None:
        """One normal number per element."""
        return Noise(self.loc.shape[-1], "normal")

    @staticmethod
    def required_input_dim(space: Space, **kwargs: object) -> int:
        """Return the total number of means and log standard deviations."""
        return 2 * _num_elements(TorchDiagGaussian, space)

    @classmethod
    def from_logits(
        cls, logits: torch.Tensor, *, event_shape: Shape | None = None, **kwargs: Any
    ) -> Any:
        """Return the distributions for means and log standard deviations, [*batch, 2D]."""
        loc, log_std = logits.chunk(2, dim=-1)
        return cls(loc, log_std=log_std, event_shape=event_shape)


class TorchSquashedGaussian(TorchDiagGaussian):
    """Normal distributions squashed into [low, high] by tanh.

    The density is that of the squashed action (Haarnoja et al. 2018, appendix C,
    https://arxiv.org/abs/1801.01290), in its stable form log(1 - tanh(u)^2) =
    2 (log 2 - u - softplus(-2u)). Unlike RLlib's, it includes the scale of bounds other than -1
    and 1.

    Args:
        loc: Means before squashing, [*batch, D].
        scale: Standard deviations before squashing.
        low: Lower bounds.
        high: Upper bounds.
    """

    def __init__(
        self,
        loc: object,
        scale: object = 1.0,
        low: object = -1.0,
        high: object = 1.0,
        *,
        log_std: torch.Tensor | None = None,
        event_shape: Shape | None = None,
    ) -> None:
        given = None if log_std is not None else scale
        super().__init__(loc, given, log_std=log_std, event_shape=event_shape)
        self.low, self.high = low, high
        self._low = torch.as_tensor(low, dtype=self.loc.dtype, device=self.loc.device)
        self._high = torch.as_tensor(high, dtype=self.loc.dtype, device=self.loc.device)
        if event_shape is not None:
            self._low, self._high = self._low.reshape(-1), self._high.reshape(-1)

    def logp(self, value: torch.Tensor, **kwargs: object) -> torch.Tensor:
        """Return the log-density of each action, clipped near the bounds where it diverges."""
        unit = (self._flat(value) - self._low) / (self._high - self._low) * 2.0 - 1.0
        return self._squashed_logp(torch.atanh(unit.clamp(-1.0 + _MARGIN, 1.0 - _MARGIN)))

    def _squashed_logp(self, unsquashed: torch.Tensor) -> torch.Tensor:
        z = (unsquashed - self.loc) / self.scale
        jacobian = 2.0 * (math.log(2.0) - unsquashed - softplus(-2.0 * unsquashed))
        jacobian = jacobian + ((self._high - self._low) * 0.5).log()
        return self._normal_logp(z) - jacobian.sum(-1)

    def _squash(self, unsquashed: torch.Tensor) -> torch.Tensor:
        unit = (torch.tanh(unsquashed) + 1.0) * 0.5
        squashed = unit * (self._high - self._low) + self._low
        return self._event(torch.minimum(torch.maximum(squashed, self._low), self._high))

    def rsample(self, *, sample_shape: Shape | None = None, **kwargs: object) -> torch.Tensor:
        """Return actions with gradients."""
        return self._squash(self.loc + self.scale * self._draw(sample_shape))

    def sample_and_logp(
        self, *, sample_shape: Shape | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return actions and their log-densities, exact near the bounds, without gradients."""
        with torch.no_grad():
            return self.rsample_and_logp(sample_shape=sample_shape)

    def rsample_and_logp(
        self, *, sample_shape: Shape | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return actions and their log-densities, exact near the bounds, with gradients."""
        unsquashed = self.loc + self.scale * self._draw(sample_shape)
        return self._squash(unsquashed), self._squashed_logp(unsquashed)

    def sample_with_noise(self, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return actions and log-densities for normal noise, [*batch, D]."""
        unsquashed = self.loc + self.scale * noise.to(self.loc.dtype)
        return self._squash(unsquashed), self._squashed_logp(unsquashed)

    def entropy(self, **kwargs: object) -> torch.Tensor:
        """Raise ValueError: the entropy has no closed form."""
        raise ValueError(
            "The entropy of a squashed Gaussian has no closed form: estimate it by the mean of "
            "-logp over samples (`rsample_and_logp`)."
        )

    def kl(self, other: Any, **kwargs: object) -> torch.Tensor:
        """Return KL(self || other), equal to that of the Gaussians because tanh is invertible."""
        if not (_same(self._low, other._low) and _same(self._high, other._high)):
            raise ValueError(
                f"The KL divergence between actions in [{self.low}, {self.high}] and in "
                f"[{other.low}, {other.high}] is infinite or undefined."
            )
        return super().kl(other)

    def to_deterministic(self) -> Distribution:
        """Return the deterministic distribution of the squashed mean."""
        return TorchDeterministic(loc=self._squash(self.loc))

    @classmethod
    def from_logits(
        cls,
        logits: torch.Tensor,
        low: Any = -1.0,
        high: Any = 1.0,
        *,
        event_shape: Shape | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the distributions for means and log standard deviations, [*batch, 2D].

        The log standard deviations are clipped to `SQUASHED_LOG_STD`.
        """
        if not np.all(np.less(low, high)):
            raise ValueError(f"`low={low}` must be below `high={high}`.")
        loc, log_std = logits.chunk(2, dim=-1)
        log_std = log_std.clamp(*SQUASHED_LOG_STD)
        return cls(loc, log_std=log_std, low=low, high=high, event_shape=event_shape)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool((one == other).all())


def _num_elements(cls: type, space: Space) -> int:
    if not isinstance(space, gym.spaces.Box):
        raise TypeError(f"{cls.__name__} is for Box action spaces, not for {space}.")
    return int(np.prod(space.shape))
