"""A2C: advantage actor-critic (Mnih et al. 2016, https://arxiv.org/abs/1602.01783), synchronous.

Samples a batch with the current policy and takes one policy gradient step. Not included:
asynchronous gradients (A3C); IMPALA and APPO are the asynchronous algorithms.
"""

from __future__ import annotations

from typing import Any, TypeVar

from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.a2c.torch.a2c_torch_learner import A2CTorchLearner
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.config.schedule import Schedule
from syncline.rl.config.section import NotProvided
from syncline.rl.modules.rl_module import RLModuleSpec
from syncline.rl.modules.torch.actor_critic import DefaultPPOTorchRLModule
from syncline.rl.value_types import OptionSchedule

ConfigT = TypeVar("ConfigT", bound="A2CConfig")


class A2CConfig(AlgorithmConfig):
    """Options of A2C."""

    use_critic: bool = True
    use_gae: bool = True
    lambda_: float = 1.0
    vf_loss_coeff: float = 0.5
    entropy_coeff: OptionSchedule = 0.01
    microbatch_size: int | None = None

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or A2C)
        self.lr = 1e-4
        self.grad_clip = 40.0
        self.rollout_fragment_length = "auto"
        self.train_batch_size = 200
        self.num_env_runners = 2
        self.min_time_s_per_iteration = 5

    def training(
        self: ConfigT,
        *,
        use_critic: bool = NotProvided,
        use_gae: bool = NotProvided,
        lambda_: float = NotProvided,
        vf_loss_coeff: float = NotProvided,
        entropy_coeff: OptionSchedule = NotProvided,
        microbatch_size: int | None = NotProvided,
        **kwargs: Any,
    ) -> ConfigT:
        """Set hyperparameters.

        Args:
            use_critic: Subtract a value function; otherwise advantages are plain returns.
            use_gae: Estimate advantages with GAE.
            lambda_: Lambda of GAE; 1 for n-step returns up to the end of the fragment.
            vf_loss_coeff: Coefficient of the value loss.
            entropy_coeff: Coefficient of the entropy bonus, or a schedule.
            microbatch_size: Rows per gradient computation, to save memory; the gradients of a batch
                are summed before the step. None for the whole batch.
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
        if self.microbatch_size is not None and self.microbatch_size < 1:
            raise ValueError(f"`microbatch_size={self.microbatch_size!r}` must be at least 1.")

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """Return the specification of an actor-critic module."""
        return RLModuleSpec(module_class=DefaultPPOTorchRLModule)

    def get_default_learner_class(self) -> type[A2CTorchLearner]:
        """Return A2C's learner."""
        return A2CTorchLearner

    @property
    def _samples_whole_batches(self) -> bool:
        return True


class A2C(Algorithm):
    """Advantage actor-critic."""

    @classmethod
    def get_default_config(cls) -> A2CConfig:
        """Return the default options."""
        return A2CConfig()

    def training_step(self) -> None:
        """Sample a batch, take one step on it, and send the new weights to the runners."""
        self.update(samples=self.sample_batch(self.config.total_train_batch_size))
        self.env_runner_group.sync_weights(from_worker_or_learner_group=self.learner_group)
