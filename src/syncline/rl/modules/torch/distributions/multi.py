"""`TorchMultiDistribution`: nested actions of Dict and Tuple spaces."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch

from syncline.rl.columns.trees import leaves, map_tree
from syncline.rl.modules.distribution import Distribution, Noise
from syncline.rl.modules.torch.distributions.base import Shape
from syncline.rl.value_types import Space, Tree

_BELOW_ONE = 1.0 - 2.0**-53


class TorchMultiDistribution(Distribution):
    """Independent distributions, one per leaf of an action space.

    Args:
        child_distribution_struct: The distributions, nested like the space.
    """

    def __init__(self, child_distribution_struct: object) -> None:
        super().__init__()
        self._struct = child_distribution_struct
        self._children: list[Any] = leaves(child_distribution_struct)

    def sample(self, *, sample_shape: Shape | None = None, **kwargs: object) -> Tree:
        """Return actions, nested like the space."""
        return map_tree(lambda child: child.sample(sample_shape=sample_shape), self._struct)

    def rsample(self, *, sample_shape: Shape | None = None, **kwargs: object) -> Tree:
        """Return actions with gradients, nested like the space."""
        return map_tree(lambda child: child.rsample(sample_shape=sample_shape), self._struct)

    def logp(self, value: Tree, **kwargs: object) -> torch.Tensor:
        """Return the log-probability of nested actions, [*batch]."""
        return self._sum(
            child.logp(part) for child, part in zip(self._children, leaves(value), strict=True)
        )

    def entropy(self, **kwargs: object) -> torch.Tensor:
        """Return the entropy, [*batch]."""
        return self._sum(child.entropy() for child in self._children)

    def kl(self, other: TorchMultiDistribution, **kwargs: object) -> torch.Tensor:
        """Return KL(self || other), [*batch]."""
        pairs = zip(self._children, other._children, strict=True)
        return self._sum(mine.kl(theirs) for mine, theirs in pairs)

    @staticmethod
    def _sum(terms: Tree) -> torch.Tensor:
        return torch.stack(list(terms)).sum(0)

    @property
    def noise(self) -> Noise | None:
        """The concatenated noise of all leaves; normal if a leaf needs normal noise."""
        needed = [child.noise for child in self._children]
        if None in needed:
            return None
        kinds = {each.kind for each in needed if each.size}
        size = sum(each.size for each in needed)
        return Noise(size, "normal" if "normal" in kinds else "uniform")

    def sample_with_noise(self, noise: torch.Tensor) -> tuple[Tree, torch.Tensor]:
        """Return actions and log-probabilities for noise [*batch, size].

        Discrete leaves convert normal noise to uniform noise.
        """
        needed = [child.noise for child in self._children]
        normal = any(each.kind == "normal" and each.size for each in needed)
        parts = torch.split(noise, [each.size for each in needed], -1)
        drawn = []
        for child, part, own in zip(self._children, parts, needed, strict=True):
            if normal and own.kind == "uniform":
                part = torch.special.ndtr(part).clamp(max=_BELOW_ONE)
            drawn.append(child.sample_with_noise(part))
        actions = iter([action for action, _ in drawn])
        logp = self._sum(logp for _, logp in drawn)
        return map_tree(lambda _: next(actions), self._struct), logp

    def to_deterministic(self) -> Distribution:
        """Return the deterministic distribution of the greedy actions."""
        return TorchMultiDistribution(
            map_tree(lambda child: child.to_deterministic(), self._struct)
        )

    @staticmethod
    def required_input_dim(
        space: Space, input_lens: object = (), as_list: bool = False, **kwargs: object
    ) -> Any:
        """Return the number of parameters of all leaves, or of each leaf."""
        lengths = [int(each) for each in leaves(input_lens)]
        return lengths if as_list else sum(lengths)

    @classmethod
    def from_logits(
        cls,
        logits: torch.Tensor,
        child_distribution_cls_struct: object = None,
        input_lens: object = (),
        **kwargs: Any,
    ) -> Any:
        """Return the distributions with these parameters.

        Args:
            logits: Concatenated parameters of all leaves, [*batch, D].
            child_distribution_cls_struct: Classes, nested like the space.
            input_lens: Number of parameters of each leaf.
            **kwargs: Ignored.
        """
        parts = iter(torch.split(logits, [int(each) for each in leaves(input_lens)], -1))
        return cls(
            map_tree(lambda child: child.from_logits(next(parts)), child_distribution_cls_struct)
        )


def space_tree(space: Space) -> Any:
    """Return the spaces of the leaves, nested like the space."""
    if isinstance(space, gym.spaces.Dict):
        return {key: space_tree(each) for key, each in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(space_tree(each) for each in space.spaces)
    return space
