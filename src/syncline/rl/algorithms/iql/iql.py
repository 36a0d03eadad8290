"""IQL: implicit Q-learning (Kostrikov et al. 2021, https://arxiv.org/abs/2110.06169): learns values
and a policy from recorded data and never evaluates unrecorded actions. Continuous actions only.
"""

from __future__ import annotations

from typing import Any, TypeVar

from syncline.rl.algorithms.iql.torch.iql_torch_learner import (
    DefaultIQLTorchRLModule,
    IQLTorchLearner,
)
from syncline.rl.algorithms.marwil.marwil import MARWIL, MARWILConfig
from syncline.rl.columns.names import Columns
from syncline.rl.config.learning import LearningRate
from syncline.rl.config.section import NotProvided
from syncline.rl.modules.rl_module import RLModuleSpec
from syncline.rl.modules.torch.catalog import Catalog
from syncline.rl.value_types import Options, OptionSchedule

ConfigT = TypeVar("ConfigT", bound="IQLConfig")


class IQLConfig(MARWILConfig):
    """Options of IQL."""

    twin_q: bool = True
    expectile: float = 0.8
    actor_lr: LearningRate = 3e-4
    critic_lr: LearningRate = 3e-4
    value_lr: OptionSchedule = 3e-4
    target_network_update_freq: int = 0
    tau: float = 1.0

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or IQL)
        self.beta = 0.1
        self.lr = None
        self.prelearner_class = None
        self.offline_data_class = None

    def training(
        self: ConfigT,
        *,
        twin_q: bool = NotProvided,
        expectile: float = NotProvided,
        actor_lr: LearningRate = NotProvided,
        critic_lr: LearningRate = NotProvided,
        value_lr: OptionSchedule = NotProvided,
        target_network_update_freq: int = NotProvided,
        tau: float = NotProvided,
        **kwargs: Any,
    ) -> ConfigT:
        """Set hyperparameters.

        Args:
            twin_q: Learn two critics, and use the smaller value.
            expectile: Expectile of the action values that the value function learns; values near 1
                approximate the best recorded actions.
            actor_lr: Learning rate of the policy, or a schedule over trained steps.
            critic_lr: Learning rate of the critics, or a schedule.
            value_lr: Learning rate of the value function, or a schedule.
            target_network_update_freq: Trained steps between updates of the target critics.
            tau: Weight of the online critics in these updates.
            kwargs: Options of MARWIL; `beta` is the factor of advantages in the exponent.
        """
        given = dict(locals())
        super().training(**given.pop("kwargs"))
        given.pop("__class__", None)
        return self._set(given)

    def validate(self) -> None:
        """Check all options."""
        super().validate()
        if not 0.0 < self.expectile < 1.0:
            raise ValueError(f"`expectile={self.expectile!r}` must be between 0 and 1.")
        if self.lr is not None:
            raise ValueError(
                f"`lr={self.lr!r}` has no effect: IQL has three learning rates. Set "
                "`training(lr=None, actor_lr=…, critic_lr=…, value_lr=…)`."
            )

    def _check_beta(self) -> None:
        if self.beta <= 0.0:
            raise ValueError(f"`beta={self.beta!r}` must be positive.")

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """Return the specification of policy, critics and value function."""
        return RLModuleSpec(module_class=DefaultIQLTorchRLModule, catalog_class=Catalog)

    def get_default_learner_class(self) -> type[IQLTorchLearner]:
        """Return IQL's learner."""
        return IQLTorchLearner

    @property
    def _model_config_auto_includes(self) -> Options:
        return {**super()._model_config_auto_includes, "twin_q": self.twin_q}


class IQL(MARWIL):
    """Implicit Q-learning."""

    required_columns = (Columns.REWARDS, Columns.TERMINATEDS, Columns.NEXT_OBS)

    @classmethod
    def get_default_config(cls) -> IQLConfig:
        """Return the default options."""
        return IQLConfig()
