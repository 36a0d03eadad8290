"""ES: evolution strategies (Salimans et al. 2017, https://arxiv.org/abs/1703.03864).

Perturbs the weights by Gaussian noise in both directions (mirrored sampling), ranks the returns,
and steps along g = 1/(2n) sum_i (u_i+ - u_i-) noise_i with Adam, where u are the centered ranks.
As in the authors' code, g is not divided by the standard deviation of the noise, because Adam is
invariant to it. Not included: virtual batch normalization, early termination of poor episodes.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np

from syncline.rl.algorithms.es.evolution import EvolutionAlgorithm, EvolutionConfig
from syncline.rl.algorithms.es.torch.evolution_torch_learner import ESTorchLearner
from syncline.rl.config.section import NotProvided
from syncline.rl.value_types import Results

ConfigT = TypeVar("ConfigT", bound="ESConfig")


class ESConfig(EvolutionConfig):
    """Options of ES."""

    episodes_per_batch: int = 1000
    stepsize: float = 0.01

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or ES)
        self.train_batch_size = 10_000
        self.l2_coeff = 0.005

    def training(
        self: ConfigT,
        *,
        episodes_per_batch: int = NotProvided,
        stepsize: float = NotProvided,
        **kwargs: Any,
    ) -> ConfigT:
        """Set hyperparameters.

        Args:
            episodes_per_batch: Minimum number of perturbed episodes per update; `train_batch_size`
                is the minimum number of their steps.
            stepsize: Learning rate of Adam.
            kwargs: Options of ES and ARS, and of all algorithms.
        """
        given = dict(locals())
        super().training(**given.pop("kwargs"))
        given.pop("__class__", None)
        return self._set(given)

    def validate(self) -> None:
        """Check all options."""
        super().validate()
        if self.episodes_per_batch < 2:
            raise ValueError(
                f"`episodes_per_batch={self.episodes_per_batch!r}` must be at least 2: episodes "
                "come in pairs."
            )

    def get_default_learner_class(self) -> type[ESTorchLearner]:
        """Return the learner with Adam."""
        return ESTorchLearner


class ES(EvolutionAlgorithm):
    """Evolution strategies."""

    @classmethod
    def get_default_config(cls) -> ESConfig:
        """Return the default options."""
        return ESConfig()

    def training_step(self) -> Results:
        """Run mirrored episodes, rank their returns, and take a step."""
        config = self.config
        pairs = self.run_pairs(math.ceil(config.episodes_per_batch / 2))
        while (steps := sum(p.length + n.length for p, n in pairs)) < config.train_batch_size:
            missing = (config.train_batch_size - steps) * len(pairs) / steps
            pairs += self.run_pairs(math.ceil(missing))
        returns = np.array([[p.episode_return, n.episode_return] for p, n in pairs])
        ranks = centered_ranks(returns)
        return self.ascend((ranks[:, 0] - ranks[:, 1]) / ranks.size, pairs)


def centered_ranks(values: np.ndarray) -> np.ndarray:
    """Return the ranks of values, scaled to [-0.5, 0.5], in the shape of `values`.

    Equal values are ranked in their order.
    """
    flat = values.reshape(-1)
    ranks = np.empty(len(flat))
    ranks[np.argsort(flat, kind="stable")] = np.arange(len(flat))
    return (ranks / (len(flat) - 1) - 0.5).reshape(values.shape)
