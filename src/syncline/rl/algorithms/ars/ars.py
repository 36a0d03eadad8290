"""ARS: augmented random search (Mania et al. 2018, https://arxiv.org/abs/1803.07055).

Perturbs a linear policy in both directions of Gaussian noise, keeps the b best directions by
max(r+, r-), and steps by stepsize / (b s) sum_i (r_i+ - r_i-) noise_i, where s is the standard
deviation of their 2b returns. This is V2-t of the paper with the observation filter, and V1-t
without it.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from syncline.rl.algorithms.es.evolution import EvolutionAlgorithm, EvolutionConfig
from syncline.rl.algorithms.es.torch.evolution_torch_learner import ARSTorchLearner
from syncline.rl.config.section import NotProvided
from syncline.rl.value_types import Options, Results

ConfigT = TypeVar("ConfigT", bound="ARSConfig")


class ARSConfig(EvolutionConfig):
    """Options of ARS."""

    num_rollouts: int = 32
    rollouts_used: int = 32
    sgd_stepsize: float = 0.01
    offset: float = 0.0

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or ARS)
        self.action_noise_std = 0.0

    def training(
        self: ConfigT,
        *,
        num_rollouts: int = NotProvided,
        rollouts_used: int = NotProvided,
        sgd_stepsize: float = NotProvided,
        offset: float = NotProvided,
        **kwargs: Any,
    ) -> ConfigT:
        """Set hyperparameters.

        Args:
            num_rollouts: Number of directions per update; each takes two episodes.
            rollouts_used: Number of best directions that the update uses.
            sgd_stepsize: Step size.
            offset: Value subtracted from each reward, such as a survival bonus.
            kwargs: Options of ES and ARS, and of all algorithms.
        """
        given = dict(locals())
        super().training(**given.pop("kwargs"))
        given.pop("__class__", None)
        return self._set(given)

    def validate(self) -> None:
        """Check all options."""
        super().validate()
        if not 1 <= self.rollouts_used <= self.num_rollouts:
            raise ValueError(
                f"`rollouts_used={self.rollouts_used!r}` must be between 1 and "
                f"`num_rollouts={self.num_rollouts!r}`."
            )

    def get_default_learner_class(self) -> type[ARSTorchLearner]:
        """Return the learner with plain gradient steps."""
        return ARSTorchLearner

    @property
    def _model_config_auto_includes(self) -> Options:
        return {**super()._model_config_auto_includes, "fcnet_hiddens": []}


class ARS(EvolutionAlgorithm):
    """Augmented random search."""

    @classmethod
    def get_default_config(cls) -> ARSConfig:
        """Return the default options."""
        return ARSConfig()

    def training_step(self) -> Results:
        """Run mirrored episodes, keep the best directions, and take a step."""
        config = self.config
        pairs = self.run_pairs(config.num_rollouts)
        returns = np.array(
            [[each.episode_return - config.offset * each.length for each in pair] for pair in pairs]
        )
        best = best_directions(returns, config.rollouts_used)
        used = returns[best]
        deviation = max(float(used.std()), 1e-8)
        weights = (used[:, 0] - used[:, 1]) / (len(best) * deviation)
        return self.ascend(weights, [pairs[n] for n in best])


def best_directions(returns: np.ndarray, count: int) -> np.ndarray:
    """Return the rows of returns [n, 2] with the `count` largest maxima, best first."""
    return np.argsort(-returns.max(1), kind="stable")[:count]
