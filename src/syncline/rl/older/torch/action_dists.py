"""Action distributions of older releases, and an adapter to the current interface."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch.distributions import Beta, Categorical, Dirichlet, Normal, kl_divergence

from syncline.rl.columns.trees import leaves
from syncline.rl.modules.distribution import Distribution
from syncline.rl.value_types import CheckedSpace, Options, Space, Tree

LOG_STD_LIMITS = (-20.0, 2.0)
"""Limits of the log standard deviations of squashed distributions."""


class ActionDistribution:
    """A distribution over actions, parameterized by the outputs of a network.

    Args:
        inputs: Outputs of the network, [B, n].
        model: The network, for distributions that use other parts of it.
    """

    def __init__(self, inputs: Tree, model: object = None) -> None:
        self.inputs = inputs
        self.model = model

    def sample(self) -> Tree:
        """Return actions [B, …]."""
        raise NotImplementedError

    def deterministic_sample(self) -> Tree:
        """Return the most probable actions."""
        raise NotImplementedError

    def sampled_action_logp(self) -> Tree:
        """Return the log-probabilities of the last sampled actions."""
        raise NotImplementedError

    def logp(self, x: Tree) -> Tree:
        """Return the log-probabilities of actions, [B]."""
        raise NotImplementedError

    def kl(self, other: Any) -> Tree:
        """Return KL(self || other), [B]."""
        raise NotImplementedError

    def entropy(self) -> Tree:
        """Return the entropies, [B]."""
        raise NotImplementedError

    def multi_kl(self, other: Any) -> Tree:
        """Return KL(self || other) of each part."""
        return self.kl(other)

    def multi_entropy(self) -> Tree:
        """Return the entropy of each part."""
        return self.entropy()

    @staticmethod
    def required_model_output_shape(action_space: Space, model_config: Options) -> Any:
        """Return the number of outputs that the network must have."""
        raise NotImplementedError


class TorchDistributionWrapper(ActionDistribution):
    """Wraps a `torch.distributions` object, `self.dist`."""

    def __init__(self, inputs: Tree, model: object = None) -> None:
        if not isinstance(inputs, torch.Tensor):
            inputs = torch.as_tensor(np.asarray(inputs))
        super().__init__(inputs, model)
        self.last_sample: Tree = None
        self.dist: Any = None

    def logp(self, actions: torch.Tensor) -> torch.Tensor:
        """Return the log-probabilities of actions."""
        return cast("torch.Tensor", self.dist.log_prob(actions))

    def entropy(self) -> torch.Tensor:
        """Return the entropies."""
        return cast("torch.Tensor", self.dist.entropy())

    def kl(self, other: TorchDistributionWrapper) -> torch.Tensor:
        """Return KL(self || other)."""
        return kl_divergence(self.dist, other.dist)

    def sample(self) -> Tree:
        """Return actions."""
        self.last_sample = self.dist.sample()
        return self.last_sample

    def sampled_action_logp(self) -> torch.Tensor:
        """Return the log-probabilities of the last actions."""
        assert self.last_sample is not None
        return self.logp(self.last_sample)


class TorchCategorical(TorchDistributionWrapper):
    """Distribution over integers from 0; inputs are logits."""

    def __init__(self, inputs: Tree, model: object = None, temperature: float = 1.0) -> None:
        super().__init__(inputs, model)
        self.dist = Categorical(logits=self.inputs / temperature)

    def deterministic_sample(self) -> torch.Tensor:
        """Return the most probable numbers."""
        self.last_sample = self.dist.probs.argmax(dim=1)
        return cast("torch.Tensor", self.last_sample)

    @staticmethod
    def required_model_output_shape(
        action_space: CheckedSpace, model_config: Options | None = None
    ) -> int:
        """Return the number of actions."""
        return int(action_space.n)


class TorchMultiCategorical(TorchDistributionWrapper):
    """Distribution over several integers; inputs are their concatenated logits."""

    def __init__(
        self, inputs: Tree, model: object, input_lens: Any, action_space: CheckedSpace = None
    ) -> None:
        super().__init__(inputs, model)
        self._parts: list[Any] = [
            Categorical(logits=each) for each in self.inputs.split(tuple(input_lens), dim=1)
        ]

    def sample(self) -> torch.Tensor:
        """Return the numbers [B, n]."""
        self.last_sample = torch.stack([each.sample() for each in self._parts], dim=1)
        return cast("torch.Tensor", self.last_sample)

    def deterministic_sample(self) -> torch.Tensor:
        """Return the most probable numbers."""
        self.last_sample = torch.stack([each.probs.argmax(-1) for each in self._parts], dim=1)
        return cast("torch.Tensor", self.last_sample)

    def logp(self, actions: torch.Tensor) -> torch.Tensor:
        """Return the joint log-probabilities."""
        pairs = zip(self._parts, actions.unbind(-1), strict=True)
        return torch.stack([part.log_prob(each) for part, each in pairs]).sum(0)

    def multi_entropy(self) -> torch.Tensor:
        """Return the entropy of each number, [B, n]."""
        return torch.stack([each.entropy() for each in self._parts], dim=1)

    def entropy(self) -> torch.Tensor:
        """Return the sums of the entropies."""
        return self.multi_entropy().sum(1)

    def multi_kl(self, other: Any) -> torch.Tensor:
        """Return the divergence of each number, [B, n]."""
        pairs = zip(self._parts, other._parts, strict=True)
        return torch.stack([kl_divergence(one, two) for one, two in pairs], dim=1)

    def kl(self, other: object) -> torch.Tensor:
        """Return the sums of the divergences."""
        return self.multi_kl(other).sum(1)

    @staticmethod
    def required_model_output_shape(
        action_space: CheckedSpace, model_config: Options | None = None
    ) -> int:
        """Return the total number of logits."""
        return int(np.sum(action_space.nvec))


class TorchDiagGaussian(TorchDistributionWrapper):
    """Gaussian over vectors; inputs are means and log standard deviations."""

    def __init__(
        self, inputs: Tree, model: object = None, *, action_space: CheckedSpace = None
    ) -> None:
        super().__init__(inputs, model)
        mean, log_std = torch.chunk(self.inputs, 2, dim=1)
        self.dist = Normal(mean, torch.exp(log_std))

    def deterministic_sample(self) -> torch.Tensor:
        """Return the means."""
        self.last_sample = self.dist.mean
        return cast("torch.Tensor", self.last_sample)

    def logp(self, actions: torch.Tensor) -> torch.Tensor:
        """Return the log-densities."""
        return super().logp(actions).sum(-1)

    def entropy(self) -> torch.Tensor:
        """Return the entropies."""
        return super().entropy().sum(-1)

    def kl(self, other: TorchDistributionWrapper) -> torch.Tensor:
        """Return the divergences."""
        return super().kl(other).sum(-1)

    @staticmethod
    def required_model_output_shape(
        action_space: CheckedSpace, model_config: Options | None = None
    ) -> int:
        """Return twice the length of actions."""
        return int(np.prod(action_space.shape)) * 2


class TorchSquashedGaussian(TorchDistributionWrapper):
    """A Gaussian, squashed by tanh to [low, high]; its entropy has no closed form."""

    def __init__(
        self, inputs: Tree, model: object = None, low: float = -1.0, high: float = 1.0
    ) -> None:
        super().__init__(inputs, model)
        mean, log_std = torch.chunk(self.inputs, 2, dim=-1)
        self.dist = Normal(mean, torch.exp(torch.clamp(log_std, *LOG_STD_LIMITS)))
        self.low, self.high = low, high

    def sample(self) -> torch.Tensor:
        """Return actions."""
        self.last_sample = self._squash(self.dist.rsample())
        return cast("torch.Tensor", self.last_sample)

    def deterministic_sample(self) -> torch.Tensor:
        """Return the squashed means."""
        self.last_sample = self._squash(self.dist.mean)
        return cast("torch.Tensor", self.last_sample)

    def logp(self, x: torch.Tensor) -> torch.Tensor:
        """Return the log-densities."""
        normalized = (x - self.low) / (self.high - self.low) * 2.0 - 1.0
        limit = 1.0 - torch.finfo(x.dtype).eps
        raw = torch.atanh(normalized.clamp(-limit, limit))
        density = torch.clamp(self.dist.log_prob(raw), -100, 100).sum(-1)
        return density - torch.log(1 - torch.tanh(raw) ** 2 + 1e-6).sum(-1)

    def _squash(self, raw: torch.Tensor) -> torch.Tensor:
        return (torch.tanh(raw) + 1.0) / 2.0 * (self.high - self.low) + self.low

    @staticmethod
    def required_model_output_shape(
        action_space: CheckedSpace, model_config: Options | None = None
    ) -> int:
        """Return twice the length of actions."""
        return int(np.prod(action_space.shape)) * 2


class TorchBeta(TorchDistributionWrapper):
    """A Beta distribution on [low, high]; inputs are raw alpha and beta."""

    def __init__(
        self, inputs: Tree, model: object = None, low: float = 0.0, high: float = 1.0
    ) -> None:
        super().__init__(inputs, model)
        limit = float(np.log(1e6))
        positive = torch.log(torch.exp(torch.clamp(self.inputs, -limit, limit)) + 1.0) + 1.0
        self.low, self.high = low, high
        alpha, beta = torch.chunk(positive, 2, dim=-1)
        self.dist = Beta(alpha, beta)

    def sample(self) -> torch.Tensor:
        """Return actions."""
        self.last_sample = self.dist.sample() * (self.high - self.low) + self.low
        return cast("torch.Tensor", self.last_sample)

    def deterministic_sample(self) -> torch.Tensor:
        """Return the means."""
        self.last_sample = self.dist.mean * (self.high - self.low) + self.low
        return cast("torch.Tensor", self.last_sample)

    def logp(self, x: torch.Tensor) -> torch.Tensor:
        """Return the log-densities."""
        unit = (x - self.low) / (self.high - self.low)
        return cast("torch.Tensor", self.dist.log_prob(unit).sum(-1))

    def entropy(self) -> torch.Tensor:
        """Return the entropies."""
        return super().entropy().sum(-1)

    def kl(self, other: TorchDistributionWrapper) -> torch.Tensor:
        """Return the divergences."""
        return super().kl(other).sum(-1)

    @staticmethod
    def required_model_output_shape(
        action_space: CheckedSpace, model_config: Options | None = None
    ) -> int:
        """Return twice the length of actions."""
        return int(np.prod(action_space.shape)) * 2


class TorchDeterministic(TorchDistributionWrapper):
    """Deterministic actions, equal to the inputs."""

    def sample(self) -> torch.Tensor:
        """Return the inputs."""
        return cast("torch.Tensor", self.inputs)

    deterministic_sample = sample

    def sampled_action_logp(self) -> torch.Tensor:
        """Return zeros."""
        return torch.zeros((self.inputs.shape[0],), dtype=torch.float32)

    def logp(self, actions: Tree) -> torch.Tensor:
        """Return zeros."""
        return self.sampled_action_logp()

    @staticmethod
    def required_model_output_shape(
        action_space: CheckedSpace, model_config: Options | None = None
    ) -> int:
        """Return the length of actions."""
        return int(np.prod(action_space.shape))


class TorchDirichlet(TorchDistributionWrapper):
    """Dirichlet distribution over vectors of positive numbers with sum 1."""

    def __init__(self, inputs: Tree, model: object = None) -> None:
        super().__init__(inputs, model)
        self.epsilon = 1e-7
        concentration = torch.exp(self.inputs) + self.epsilon
        self.dist = Dirichlet(concentration=concentration)

    def deterministic_sample(self) -> torch.Tensor:
        """Return the means."""
        self.last_sample = self.dist.mean
        return cast("torch.Tensor", self.last_sample)

    def logp(self, x: torch.Tensor) -> torch.Tensor:
        """Return the log-densities."""
        x = torch.clamp(x, min=self.epsilon)
        return cast("torch.Tensor", self.dist.log_prob(x / x.sum(-1, keepdim=True)))

    @staticmethod
    def required_model_output_shape(
        action_space: CheckedSpace, model_config: Options | None = None
    ) -> int:
        """Return the length of actions."""
        return int(np.prod(action_space.shape))


class OlderDistribution(Distribution):
    """Adapts a distribution of older releases to the current interface.

    Subclasses created by `adapted` define the class and the network.
    """

    older_class: type
    model: Any = None

    def __init__(self, older: Any, deterministic: bool = False) -> None:
        self.older = older
        self._is_deterministic = deterministic

    @classmethod
    def from_logits(cls, logits: Any, **kwargs: object) -> OlderDistribution:
        """Return the distributions for outputs of the network, [*batch, n]."""
        return cls(_Reshaped(cls.older_class, logits, cls.model))

    def sample(self, *, sample_shape: Any = None, **kwargs: object) -> Tree:
        """Return samples."""
        name = "deterministic_sample" if self._is_deterministic else "sample"
        return self.older.call(name)

    rsample = sample

    def logp(self, value: Any, **kwargs: Any) -> Tree:
        """Return the log-probabilities."""
        return self.older.call("logp", flat_actions(value))

    def kl(self, other: Any, **kwargs: Any) -> Tree:
        """Return KL(self || other)."""
        return self.older.call("kl", other.older.dist)

    def entropy(self, **kwargs: object) -> Tree:
        """Return the entropies."""
        return self.older.call("entropy")

    @staticmethod
    def required_input_dim(space: Space, **kwargs: object) -> int:
        """Raise TypeError because the network determines it."""
        raise TypeError("Distributions from older releases get their inputs from a TorchModelV2.")

    def to_deterministic(self) -> OlderDistribution:
        """Return the distribution of the most probable actions."""
        return type(self)(self.older, deterministic=True)


class _Reshaped:
    """A distribution over rows, for inputs with any leading dimensions."""

    def __init__(self, cls: type, inputs: torch.Tensor, model: Any) -> None:
        self._front = inputs.shape[:-1]
        self.dist = cls(inputs.reshape(-1, inputs.shape[-1]), model)

    def call(self, name: str, *args: object) -> Any:
        """Call a method and reshape the result to the leading dimensions of the inputs."""
        dims = len(self._front)
        flat = [
            each.reshape(-1, *each.shape[dims:]) if isinstance(each, torch.Tensor) else each
            for each in args
        ]
        return _map(
            lambda leaf: leaf.reshape(*self._front, *leaf.shape[1:]),
            getattr(self.dist, name)(*flat),
        )


def _map(function: Any, tree: Tree) -> Any:
    if isinstance(tree, (tuple, list)):
        return tuple(_map(function, each) for each in tree)
    if isinstance(tree, dict):
        return {key: _map(function, each) for key, each in tree.items()}
    return function(tree)


def flat_actions(actions: Tree) -> Tree:
    """Concatenate the parts of actions to [*batch, n], as older distributions expect."""
    if isinstance(actions, torch.Tensor):
        return actions
    parts = leaves(actions)
    dims = min(part.dim() for part in parts)
    return torch.cat([part.reshape(*part.shape[:dims], -1).float() for part in parts], -1)


def adapted(older_class: type[object], model: object) -> type[OlderDistribution]:
    """Return a class that adapts an older distribution class and its network."""
    return type(
        older_class.__name__, (OlderDistribution,), {"older_class": older_class, "model": model}
    )
