"""`Distribution`: the framework-independent interface of action distributions."""

from __future__ import annotations

import abc
from typing import Any, Literal, NamedTuple, TypeVar

from syncline.rl.value_types import Batch, Options, Space, Tree


class Noise(NamedTuple):
    """Random numbers that one sample needs."""

    size: int
    """Number of random numbers."""
    kind: Literal["uniform", "normal"]
    """Their distribution: U[0, 1) or N(0, 1)."""


DistributionT = TypeVar("DistributionT", bound="Distribution")


class Distribution(abc.ABC):
    """A batch of distributions over actions, one per leading index of the parameters."""

    @abc.abstractmethod
    def sample(self, *, sample_shape: tuple[int, ...] | None = None, **kwargs: object) -> Tree:
        """Return samples without gradients, of shape [*sample_shape, *batch, *event]."""

    @abc.abstractmethod
    def rsample(self, *, sample_shape: tuple[int, ...] | None = None, **kwargs: object) -> Tree:
        """Return samples through which gradients reach the parameters."""

    @abc.abstractmethod
    def logp(self, value: Tree, **kwargs: object) -> Tree:
        """Return the log-probability (log-density) of each value, of shape [*batch]."""

    @abc.abstractmethod
    def kl(self, other: Any, **kwargs: object) -> Tree:
        """Return KL(self || other), of shape [*batch]."""

    @abc.abstractmethod
    def entropy(self, **kwargs: object) -> Tree:
        """Return the entropy, of shape [*batch]."""

    @staticmethod
    @abc.abstractmethod
    def required_input_dim(space: Space, **kwargs: Any) -> int:
        """Return the length of the parameter vector for actions of `space`."""

    @classmethod
    def from_logits(cls: type[DistributionT], logits: Tree, **kwargs: Any) -> DistributionT:
        """Return the distributions whose parameter vectors are `logits`, of shape [*batch, D]."""
        raise NotImplementedError(f"{cls.__name__} does not implement `from_logits`.")

    @property
    def noise(self) -> Noise | None:
        """Noise that `sample_with_noise` needs per action; None if it is not supported."""
        return None

    def sample_with_noise(self, noise: Tree) -> tuple[Tree, Tree]:
        """Return samples and their log-probabilities as a function of random numbers.

        Args:
            noise: [*batch, size] random numbers, float64.
        """
        raise NotImplementedError(f"{type(self).__name__} draws its own random numbers.")

    def to_deterministic(self) -> Distribution:
        """Return the distribution of greedy actions."""
        return self

    @classmethod
    def get_partial_dist_cls(
        cls: type[DistributionT], **partial_kwargs: object
    ) -> type[DistributionT]:
        """Return a subclass that binds arguments of `from_logits` and `required_input_dim`."""

        class Partial(cls):  # type: ignore[valid-type, misc]  # a base class that is a variable
            @classmethod
            def from_logits(partial: Any, logits: Tree, **kwargs: Any) -> Any:
                merged = _merge(partial_kwargs, kwargs)
                return super().from_logits(logits, **merged)

            @staticmethod
            def required_input_dim(space: Space, **kwargs: object) -> int:
                merged = _merge(partial_kwargs, kwargs)
                bound = merged.pop("space", space)
                if space != bound:
                    raise ValueError(
                        f"{Partial.__name__} is for the action space {bound}, not for {space}."
                    )
                return int(cls.required_input_dim(space, **merged))

        Partial.__name__ = Partial.__qualname__ = f"{cls.__name__}Partial"
        return Partial


def _merge(partial: Batch, given: Options) -> Batch:
    if both := partial.keys() & given.keys():
        raise ValueError(f"The arguments {sorted(both)} are already set by `get_partial_dist_cls`.")
    return {**partial, **given}
