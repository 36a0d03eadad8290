"""TD3: twin delayed deep deterministic policy gradients (Fujimoto et al. 2018,
https://arxiv.org/abs/1802.09477). DDPG (Lillicrap et al. 2016, https://arxiv.org/abs/1509.02971) is
TD3 without the second critic, the delayed policy and the target smoothing.
"""

from __future__ import annotations

from typing import Any, TypeVar

from syncline.rl.algorithm.off_policy import OffPolicyAlgorithm, OffPolicyConfig
from syncline.rl.algorithms.td3.torch.td3_torch_learner import TD3TorchLearner
from syncline.rl.algorithms.td3.torch.td3_torch_module import DefaultTD3TorchRLModule
from syncline.rl.config.learning import LearningRate
from syncline.rl.config.schedule import Schedule
from syncline.rl.config.section import NotProvided
from syncline.rl.modules.rl_module import RLModuleSpec
from syncline.rl.modules.torch.catalog import Catalog
from syncline.rl.value_types import Options, OptionSchedule

ConfigT = TypeVar("ConfigT", bound="TD3Config")


class TD3Config(OffPolicyConfig):
    """Options of TD3."""

    twin_q: bool = True
    policy_delay: int = 2
    smooth_target_policy: bool = True
    target_noise: float = 0.2
    target_noise_clip: float = 0.5
    exploration_noise: OptionSchedule = 0.1
    actor_lr: LearningRate = 1e-3
    critic_lr: LearningRate = 1e-3
    l2_reg: float = 0.0

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or TD3)
        self.lr = None
        self.train_batch_size = 100
        self.tau = 5e-3
        self.target_network_update_freq = 0
        self.num_steps_sampled_before_learning_starts = 10_000
        self.rollout_fragment_length = "auto"
        self.min_sample_timesteps_per_iteration = 1000
        self.replay_buffer_config = {"type": "EpisodeReplayBuffer", "capacity": 1_000_000}

    def training(
        self: ConfigT,
        *,
        twin_q: bool = NotProvided,
        policy_delay: int = NotProvided,
        smooth_target_policy: bool = NotProvided,
        target_noise: float = NotProvided,
        target_noise_clip: float = NotProvided,
        exploration_noise: OptionSchedule = NotProvided,
        actor_lr: LearningRate = NotProvided,
        critic_lr: LearningRate = NotProvided,
        l2_reg: float = NotProvided,
        **kwargs: Any,
    ) -> ConfigT:
        """Set hyperparameters.

        Args:
            twin_q: Train two critics, and use the smaller value as target.
            policy_delay: Critic updates per update of the policy and the targets.
            smooth_target_policy: Add noise to the actions of the target policy.
            target_noise: Standard deviation of that noise; actions are in [-1, 1].
            target_noise_clip: Maximum absolute value of that noise.
            exploration_noise: Standard deviation of the action noise during exploration, or a
                schedule over environment steps. `stddev` of `exploration_config` takes precedence.
            actor_lr: Learning rate of the policy, or a schedule.
            critic_lr: Learning rate of the critics, or a schedule.
            l2_reg: L2 penalty on the weights of the critics (half the sum of squares).
            kwargs: Options of all algorithms with a replay buffer.
        """
        given = dict(locals())
        super().training(**given.pop("kwargs"))
        given.pop("__class__", None)
        return self._set(given)

    def validate(self) -> None:
        """Check all options."""
        super().validate()
        Schedule(self._stddev, "exploration_noise")
        if self.policy_delay < 1:
            raise ValueError(f"`policy_delay={self.policy_delay!r}` must be at least 1.")
        if self.lr is not None:
            raise ValueError(
                f"`lr={self.lr!r}` has no effect: {type(self).__name__.removesuffix('Config')} has "
                "two learning rates. Set `training(lr=None, actor_lr=…, critic_lr=…)`."
            )
        if not self.normalize_actions:
            raise ValueError(
                "`normalize_actions=False` is not supported: the policy returns actions in "
                "[-1, 1], which must be scaled to the action space. Leave the option at True."
            )

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """Return the specification of policy and critics."""
        return RLModuleSpec(module_class=DefaultTD3TorchRLModule, catalog_class=Catalog)

    def get_default_learner_class(self) -> type[TD3TorchLearner]:
        """Return TD3's learner."""
        return TD3TorchLearner

    @property
    def _stddev(self) -> Any:
        return self.exploration_config.get("stddev", self.exploration_noise)

    @property
    def _model_config_auto_includes(self) -> Options:
        return {
            **super()._model_config_auto_includes,
            "twin_q": self.twin_q,
            "exploration_noise": self._stddev,
        }


class TD3(OffPolicyAlgorithm):
    """Twin delayed deep deterministic policy gradients."""

    @classmethod
    def get_default_config(cls) -> TD3Config:
        """Return the default options."""
        return TD3Config()


class DDPGConfig(TD3Config):
    """Options of DDPG: TD3 without its three additions."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or DDPG)
        self.twin_q = False
        self.policy_delay = 1
        self.smooth_target_policy = False
        self.train_batch_size = 256
        self.tau = 2e-3
        self.l2_reg = 1e-6
        self.num_steps_sampled_before_learning_starts = 1500
        self.replay_buffer_config = {"type": "EpisodeReplayBuffer", "capacity": 50_000}


class DDPG(TD3):
    """Deep deterministic policy gradients."""

    @classmethod
    def get_default_config(cls) -> DDPGConfig:
        """Return the default options."""
        return DDPGConfig()
