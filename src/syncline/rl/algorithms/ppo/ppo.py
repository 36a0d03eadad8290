"""PPO: proximal policy optimization (Schulman et al. 2017, https://arxiv.org/abs/1707.06347).

Samples a batch with the current policy, computes advantages with GAE, and takes several epochs of
minibatches on the clipped objective. Not included: recurrent burn-in, value function ensembles.
"""

from __future__ import annotations

from typing import Any, TypeVar

from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.config.schedule import Schedule
from syncline.rl.config.section import NotProvided
from syncline.rl.modules.rl_module import RLModuleSpec
from syncline.rl.modules.torch.actor_critic import DefaultPPOTorchRLModule
from syncline.rl.value_types import Options, OptionSchedule

ConfigT = TypeVar("ConfigT", bound="PPOConfig")


class PPOConfig(AlgorithmConfig):
    """Options of PPO."""

    use_critic: bool = True
    use_gae: bool = True
    lambda_: float = 1.0
    use_kl_loss: bool = True
    kl_coeff: float = 0.2
    kl_target: float = 0.01
    vf_loss_coeff: float = 1.0
    entropy_coeff: OptionSchedule = 0.0
    clip_param: float = 0.3
    vf_clip_param: float = 10.0
    vf_share_layers: Any = None

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or PPO)
        self.lr = 5e-5
        self.rollout_fragment_length = "auto"
        self.train_batch_size = 4000
        self.num_epochs = 30
        self.minibatch_size = 128
        self.shuffle_batch_per_epoch = True
        self.num_env_runners = 2

    def training(
        self: ConfigT,
        *,
        use_critic: bool = NotProvided,
        use_gae: bool = NotProvided,
        lambda_: float = NotProvided,
        use_kl_loss: bool = NotProvided,
        kl_coeff: float = NotProvided,
        kl_target: float = NotProvided,
        vf_loss_coeff: float = NotProvided,
        entropy_coeff: OptionSchedule = NotProvided,
        clip_param: float = NotProvided,
        vf_clip_param: float = NotProvided,
        **kwargs: Any,
    ) -> ConfigT:
        """Set hyperparameters.

        Args:
            use_critic: Subtract a value function; otherwise advantages are plain returns.
            use_gae: Estimate advantages with GAE.
            lambda_: Lambda of GAE.
            use_kl_loss: Add the KL divergence from the sampling policy to the loss.
            kl_coeff: Initial coefficient of that divergence; it adapts to `kl_target`.
            kl_target: Target value of the divergence.
            vf_loss_coeff: Coefficient of the value loss.
            entropy_coeff: Coefficient of the entropy bonus, or a schedule.
            clip_param: Clip range of the probability ratio around 1.
            vf_clip_param: Maximum squared error of a value.
            kwargs: Options of all algorithms.
        """
        given = dict(locals())
        super().training(**given.pop("kwargs"))
        given.pop("__class__", None)
        return self._set(given)

    def validate(self) -> None:
        """Check all options."""
        super().validate()
        Schedule(self.entropy_coeff, "entropy_coeff")
        if not 0.0 <= self.lambda_ <= 1.0:
            raise ValueError(f"`lambda_={self.lambda_!r}` must be between 0 and 1.")
        if self.clip_param <= 0:
            raise ValueError(f"`clip_param={self.clip_param!r}` must be positive.")

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """Return the specification of an actor-critic module."""
        return RLModuleSpec(module_class=DefaultPPOTorchRLModule)

    def get_default_learner_class(self) -> type[PPOTorchLearner]:
        """Return PPO's learner."""
        return PPOTorchLearner

    @property
    def _model_config_auto_includes(self) -> Options:
        return {**super()._model_config_auto_includes, "vf_share_layers": False}

    @property
    def _samples_whole_batches(self) -> bool:
        return True


class PPO(Algorithm):
    """Proximal policy optimization."""

    @classmethod
    def get_default_config(cls) -> PPOConfig:
        """Return the default options."""
        return PPOConfig()

    def training_step(self) -> None:
        """Sample a batch, train on it, and send the new weights to the runners."""
        config = self.config
        samples = self.sample_batch(config.total_train_batch_size)
        self.update(
            samples=samples,
            num_epochs=config.num_epochs,
            minibatch_size=config.minibatch_size,
            shuffle_batch_per_epoch=config.shuffle_batch_per_epoch,
        )
        self.env_runner_group.sync_weights(from_worker_or_learner_group=self.learner_group)
