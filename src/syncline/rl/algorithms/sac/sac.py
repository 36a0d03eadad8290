"""SAC: soft actor-critic (Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905), with two critics
and a learned temperature; for discrete actions, Christodoulou 2019
(https://arxiv.org/abs/1910.07207).
"""

from __future__ import annotations

from typing import Any, TypeVar

from syncline.rl.algorithm.off_policy import OffPolicyAlgorithm, OffPolicyConfig
from syncline.rl.algorithms.sac.torch.sac_torch_learner import SACTorchLearner
from syncline.rl.algorithms.sac.torch.sac_torch_module import DefaultSACTorchRLModule
from syncline.rl.config.learning import LearningRate
from syncline.rl.config.section import NotProvided
from syncline.rl.modules.rl_module import RLModuleSpec
from syncline.rl.modules.torch.catalog import Catalog
from syncline.rl.value_types import Options

ConfigT = TypeVar("ConfigT", bound="SACConfig")


class SACConfig(OffPolicyConfig):
    """Options of SAC."""

    twin_q: bool = True
    actor_lr: LearningRate = 3e-5
    critic_lr: LearningRate = 3e-4
    alpha_lr: LearningRate = 3e-4
    initial_alpha: float = 1.0
    target_entropy: float | str = "auto"
    q_model_config: Options = {}
    policy_model_config: Options = {}
    optimization_config: Options = {}
    clip_actions: bool = False

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or SAC)
        self.lr = None
        self.train_batch_size = 256
        self.tau = 5e-3
        self.target_network_update_freq = 0
        self.num_steps_sampled_before_learning_starts = 1500
        self.rollout_fragment_length = "auto"
        self.min_time_s_per_iteration = 1
        self.min_sample_timesteps_per_iteration = 100
        self.replay_buffer_config = {
            "type": "PrioritizedEpisodeReplayBuffer",
            "capacity": 1_000_000,
            "alpha": 0.6,
            "beta": 0.4,
        }

    def training(
        self: ConfigT,
        *,
        twin_q: bool = NotProvided,
        actor_lr: LearningRate = NotProvided,
        critic_lr: LearningRate = NotProvided,
        alpha_lr: LearningRate = NotProvided,
        initial_alpha: float = NotProvided,
        target_entropy: float | str = NotProvided,
        q_model_config: Options = NotProvided,
        policy_model_config: Options = NotProvided,
        optimization_config: Options = NotProvided,
        clip_actions: bool = NotProvided,
        **kwargs: Any,
    ) -> ConfigT:
        """Set hyperparameters.

        Args:
            twin_q: Use the smaller value of two critics.
            actor_lr: Learning rate of the policy, or a schedule.
            critic_lr: Learning rate of the critics, or a schedule.
            alpha_lr: Learning rate of the temperature, or a schedule.
            initial_alpha: Initial temperature.
            target_entropy: Target value of the entropy; "auto" is minus the number of action
                dimensions or, with discrete actions, 0.98 of the maximum entropy.
            q_model_config: Options of the critics in older releases.
            policy_model_config: Options of the policy in older releases.
            optimization_config: Learning rates in older releases.
            clip_actions: Clip actions to their bounds.
            kwargs: Options of all algorithms with a replay buffer.
        """
        given = dict(locals())
        super().training(**given.pop("kwargs"))
        given.pop("__class__", None)
        return self._set(given)

    def validate(self) -> None:
        """Check all options."""
        super().validate()
        if self.initial_alpha <= 0:
            raise ValueError(f"`initial_alpha={self.initial_alpha!r}` must be positive.")
        if self.lr is not None:
            raise ValueError(
                f"`lr={self.lr!r}` has no effect: SAC has three learning rates. Set "
                "`training(lr=None, actor_lr=…, critic_lr=…, alpha_lr=…)`."
            )

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """Return the specification of policy and critics."""
        return RLModuleSpec(module_class=DefaultSACTorchRLModule, catalog_class=Catalog)

    def get_default_learner_class(self) -> type[SACTorchLearner]:
        """Return SAC's learner."""
        return SACTorchLearner

    @property
    def _model_config_auto_includes(self) -> Options:
        return {**super()._model_config_auto_includes, "twin_q": self.twin_q}


class SAC(OffPolicyAlgorithm):
    """Soft actor-critic."""

    @classmethod
    def get_default_config(cls) -> SACConfig:
        """Return the default options."""
        return SACConfig()
