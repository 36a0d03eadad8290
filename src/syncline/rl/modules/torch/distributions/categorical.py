"""`TorchCategorical` and `TorchMultiCategorical`: one or several discrete actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import torch

from syncline.rl.modules.distribution import Distribution, Noise
from syncline.rl.modules.torch.distributions.base import Shape, TorchDistribution
from syncline.rl.modules.torch.distributions.deterministic import TorchDeterministic
from syncline.rl.value_types import Space, Tree


class TorchCategorical(TorchDistribution):
    """Integers from 0 to K - 1.

    Args:
        logits: Unnormalized log-probabilities, [*batch, K]. Minus infinity excludes an action.
        probs: Unnormalized probabilities; alternative to `logits`.
        temperature: Divisor of the logits; small values make samples greedy.

    Raises:
        ValueError: Not exactly one of `logits` and `probs` is given, or `temperature` is not
            positive.
    """

    def __init__(
        self,
        logits: torch.Tensor | None = None,
        probs: torch.Tensor | None = None,
        temperature: float = 1.0,
    ) -> None:
        if (logits is None) == (probs is None):
            raise ValueError("TorchCategorical needs exactly one of `logits` and `probs`.")
        if temperature <= 0:
            raise ValueError(f"`temperature={temperature}` must be positive.")
        if logits is None:
            assert probs is not None
            logits = probs.log()
        self.logits = logits if temperature == 1.0 else logits / temperature
        self._log_probs: torch.Tensor | None = None

    @property
    def log_probs(self) -> torch.Tensor:
        """Log-probabilities of all actions, [*batch, K]."""
        if self._log_probs is None:
            self._log_probs = torch.log_softmax(self.logits, -1)
        return self._log_probs

    @property
    def probs(self) -> torch.Tensor:
        """Probabilities of all actions, [*batch, K]."""
        return self.log_probs.exp()

    @property
    def _dist(self) -> Any:
        return torch.distributions.Categorical(logits=self.logits, validate_args=False)

    def logp(self, value: torch.Tensor, **kwargs: object) -> torch.Tensor:
        """Return the log-probability of each action, [*sample_shape, *batch]."""
        value = value.long()
        log_probs = self.log_probs
        if value.dim() >= log_probs.dim():
            log_probs = log_probs.expand(*value.shape, -1)
        return log_probs.gather(-1, value.unsqueeze(-1)).squeeze(-1)

    def entropy(self, **kwargs: object) -> torch.Tensor:
        """Return the entropy, [*batch]."""
        return (self.probs * self._finite_log_probs()).sum(-1).neg()

    def kl(self, other: Any, **kwargs: object) -> torch.Tensor:
        """Return KL(self || other), [*batch]."""
        difference: torch.Tensor = self._finite_log_probs() - other._finite_log_probs()
        return (self.probs * difference).sum(-1)

    def _finite_log_probs(self) -> torch.Tensor:
        """Return log-probabilities whose product with a probability of 0 is 0."""
        return self.log_probs.clamp(min=torch.finfo(self.logits.dtype).min)

    def sample(self, *, sample_shape: Shape | None = None, **kwargs: object) -> torch.Tensor:
        """Return actions, [*sample_shape, *batch], int64."""
        shape = (*(sample_shape or ()), *self.logits.shape[:-1], 1)
        noise = torch.rand(shape, dtype=torch.float64, device=self.logits.device)
        return self._inverse_cdf(noise)

    def rsample(self, *, sample_shape: Shape | None = None, **kwargs: object) -> torch.Tensor:
        """Return one-hot actions with straight-through gradients, [*sample_shape, *batch, K]."""
        actions = self.sample(sample_shape=sample_shape)
        probs = self.probs
        one_hot = torch.nn.functional.one_hot(actions, probs.shape[-1]).to(probs.dtype)
        return (one_hot - probs).detach() + probs

    def sample_with_noise(self, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return actions and log-probabilities for uniform noise, [*batch, 1]."""
        actions = self._inverse_cdf(noise)
        return actions, self.logp(actions)

    def _inverse_cdf(self, noise: torch.Tensor) -> torch.Tensor:
        """Return the number of actions whose cumulative probability is at most `noise`.

        Rounding errors never select an action with probability 0.
        """
        logits = self.logits.detach()
        weights = (logits - logits.amax(-1, keepdim=True)).exp_()
        cumulative = weights.cumsum(-1, dtype=torch.float64)
        below: torch.Tensor = cumulative <= noise * cumulative[..., -1:]
        return below.sum(-1)

    def to_deterministic(self) -> Distribution:
        """Return the deterministic distribution of the most probable action."""
        return TorchDeterministic(loc=self.logits.argmax(-1))

    @property
    def noise(self) -> Noise | None:
        """One uniform number."""
        return Noise(1, "uniform")

    @staticmethod
    def required_input_dim(space: Space, **kwargs: object) -> int:
        """Return the number of actions."""
        if not isinstance(space, gym.spaces.Discrete):
            raise TypeError(f"TorchCategorical is for Discrete action spaces, not for {space}.")
        return int(space.n)


class TorchMultiCategorical(Distribution):
    """Several independent discrete actions, [*batch, C]; spaces MultiDiscrete and MultiBinary."""

    def __init__(self, categoricals: Sequence[TorchCategorical]) -> None:
        super().__init__()
        self._cats = list(categoricals)

    def sample(self, *, sample_shape: Shape | None = None, **kwargs: object) -> torch.Tensor:
        """Return actions, [*sample_shape, *batch, C], int64."""
        return torch.stack([each.sample(sample_shape=sample_shape) for each in self._cats], -1)

    def rsample(self, *, sample_shape: Shape | None = None, **kwargs: object) -> torch.Tensor:
        """Return the concatenated one-hot actions with gradients, [*batch, sum of K]."""
        return torch.cat([each.rsample(sample_shape=sample_shape) for each in self._cats], -1)

    def logp(self, value: torch.Tensor, **kwargs: object) -> torch.Tensor:
        """Return the log-probability, [*batch]."""
        return self._sum(each.logp(value[..., i]) for i, each in enumerate(self._cats))

    def entropy(self, **kwargs: object) -> torch.Tensor:
        """Return the entropy, [*batch]."""
        return self._sum(each.entropy() for each in self._cats)

    def kl(self, other: Any, **kwargs: object) -> torch.Tensor:
        """Return KL(self || other), [*batch]."""
        return self._sum(
            mine.kl(theirs) for mine, theirs in zip(self._cats, other._cats, strict=True)
        )

    @staticmethod
    def _sum(terms: Tree) -> torch.Tensor:
        return torch.stack(list(terms)).sum(0)

    def sample_with_noise(self, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return actions and log-probabilities for uniform noise, [*batch, C]."""
        actions = torch.stack(
            [each._inverse_cdf(noise[..., i : i + 1]) for i, each in enumerate(self._cats)], -1
        )
        return actions, self.logp(actions)

    @property
    def noise(self) -> Noise | None:
        """One uniform number per action."""
        return Noise(len(self._cats), "uniform")

    def to_deterministic(self) -> Distribution:
        """Return the deterministic distribution of the most probable actions."""
        return TorchDeterministic(torch.stack([each.logits.argmax(-1) for each in self._cats], -1))

    @staticmethod
    def required_input_dim(space: Space, **kwargs: object) -> int:
        """Return the total number of logits of all actions."""
        return sum(category_counts(space))

    @classmethod
    def from_logits(
        cls,
        logits: torch.Tensor,
        input_lens: Sequence[int] = (),
        temperatures: Sequence[float] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the distributions with these logits.

        Args:
            logits: [*batch, sum of K].
            input_lens: K of each action.
            temperatures: Temperature of each action; 1 if None.
            **kwargs: Ignored.
        """
        lengths = [int(each) for each in input_lens]
        temperatures = temperatures or [1.0] * len(lengths)
        if sum(lengths) != logits.shape[-1] or len(temperatures) != len(lengths):
            raise ValueError(
                f"`input_lens={lengths}` (with {len(temperatures)} temperatures) does not match "
                f"logits of shape {tuple(logits.shape)}: the lengths must sum to the last "
                "dimension, and each needs a temperature."
            )
        parts = torch.split(logits, lengths, -1)
        return cls(
            [
                TorchCategorical(logits=part, temperature=temperature)
                for part, temperature in zip(parts, temperatures, strict=True)
            ]
        )


def category_counts(space: Space) -> list[int]:
    """Return the number of values of each action of a MultiDiscrete or MultiBinary space."""
    if isinstance(space, gym.spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return [int(n) for n in space.nvec]
    if isinstance(space, gym.spaces.MultiBinary) and len(space.shape) == 1:
        return [2] * space.shape[0]
    raise TypeError(
        f"TorchMultiCategorical is for MultiDiscrete and MultiBinary action spaces with one "
        f"dimension, not for {space}."
    )
