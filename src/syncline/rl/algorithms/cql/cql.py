"""CQL: conservative Q-learning (Kumar et al. 2020, https://arxiv.org/abs/2006.04779): SAC on
recorded data with critics that assign low values to unrecorded actions. Continuous actions only.
"""

from __future__ import annotations

from typing import Any, TypeVar

from syncline.rl.algorithm.offline import OfflineAlgorithm, check_offline
from syncline.rl.algorithms.cql.torch.cql_torch_learner import CQLTorchLearner
from syncline.rl.algorithms.sac.sac import SACConfig
from syncline.rl.columns.names import Columns
from syncline.rl.config.section import NotProvided

ConfigT = TypeVar("ConfigT", bound="CQLConfig")


class CQLConfig(SACConfig):
    """Options of CQL."""

    bc_iters: int = 20_000
    temperature: float = 1.0
    num_actions: int = 10
    lagrangian: bool = False
    lagrangian_thresh: float = 5.0
    min_q_weight: float = 5.0
    deterministic_backup: bool = True

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or CQL)
        self.actor_lr = 1e-4
        self.critic_lr = 1e-3
        self.alpha_lr = 1e-3
        self.num_env_runners = 0
        self.min_time_s_per_iteration = None
        self.min_sample_timesteps_per_iteration = 0
        self.min_train_timesteps_per_iteration = 100

    def training(
        self: ConfigT,
        *,
        bc_iters: int = NotProvided,
        temperature: float = NotProvided,
        num_actions: int = NotProvided,
        lagrangian: bool = NotProvided,
        lagrangian_thresh: float = NotProvided,
        min_q_weight: float = NotProvided,
        deterministic_backup: bool = NotProvided,
        **kwargs: Any,
    ) -> ConfigT:
        """Set hyperparameters.

        Args:
            bc_iters: Number of initial updates in which the policy clones recorded actions.
            temperature: Temperature of the soft maximum over actions.
            num_actions: Sampled actions of each kind (uniform, policy at s, policy at s') for that
                maximum.
            lagrangian: Learn the weight of the penalty.
            lagrangian_thresh: Target gap between the soft maximum and recorded actions for the
                learned weight.
            min_q_weight: Weight of the penalty.
            deterministic_backup: Omit the entropy from targets.
            kwargs: Options of SAC.
        """
        given = dict(locals())
        super().training(**given.pop("kwargs"))
        given.pop("__class__", None)
        return self._set(given)

    def validate(self) -> None:
        """Check all options."""
        super().validate()
        check_offline(self, "CQL")
        if self.temperature <= 0:
            raise ValueError(f"`temperature={self.temperature!r}` must be positive.")
        if self.num_actions < 1:
            raise ValueError(f"`num_actions={self.num_actions!r}` must be at least 1.")

    def get_default_learner_class(self) -> type[CQLTorchLearner]:
        """Return CQL's learner."""
        return CQLTorchLearner


class CQL(OfflineAlgorithm):
    """Conservative Q-learning."""

    required_columns = (Columns.REWARDS, Columns.TERMINATEDS, Columns.NEXT_OBS)

    @classmethod
    def get_default_config(cls) -> CQLConfig:
        """Return the default options."""
        return CQLConfig()
