"""IMPALA: importance weighted actor-learner architecture (Espeholt et al. 2018,
https://arxiv.org/abs/1802.01561).

Runners sample continuously with weights that are a few updates old; V-trace corrects for the lag.
Without runners in other processes, sampling and learning alternate. Not included: replay of older
batches (APPO has a circular buffer).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.impala.torch.impala_torch_learner import IMPALATorchLearner
from syncline.rl.checkpointable import StateDict
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.config.schedule import Schedule
from syncline.rl.config.section import NotProvided, check_choice
from syncline.rl.metrics.names import LEARNER_RESULTS, TIMERS
from syncline.rl.modules.rl_module import RLModuleSpec
from syncline.rl.modules.torch.actor_critic import DefaultPPOTorchRLModule
from syncline.rl.plans.asynchronous import AsyncPlan
from syncline.rl.plans.batch_buffer import BatchBuffer
from syncline.rl.plans.driver import AsyncDriver
from syncline.rl.runners.sample import Sample
from syncline.rl.value_types import OptionSchedule, Selection

ConfigT = TypeVar("ConfigT", bound="IMPALAConfig")

STALENESS_KEY = "diff_num_grad_updates_vs_sampler_policy"


class IMPALAConfig(AlgorithmConfig):
    """Options of IMPALA."""

    vtrace: bool = True
    vtrace_clip_rho_threshold: float = 1.0
    vtrace_clip_pg_rho_threshold: float = 1.0
    use_gae: bool = True
    lambda_: float = 1.0
    broadcast_interval: int = 1
    learner_queue_size: int = 3
    opt_type: str = "adam"
    decay: float = 0.99
    momentum: float = 0.0
    epsilon: float = 0.1
    vf_loss_coeff: float = 0.5
    entropy_coeff: OptionSchedule = 0.01

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or IMPALA)
        self.lr = 5e-4
        self.grad_clip = 40.0
        self.rollout_fragment_length = 50
        self.train_batch_size = 500
        self.num_env_runners = 2
        self.num_learners = 1
        self.min_time_s_per_iteration = 10

    def training(
        self: ConfigT,
        *,
        vtrace: bool = NotProvided,
        vtrace_clip_rho_threshold: float = NotProvided,
        vtrace_clip_pg_rho_threshold: float = NotProvided,
        use_gae: bool = NotProvided,
        lambda_: float = NotProvided,
        broadcast_interval: int = NotProvided,
        learner_queue_size: int = NotProvided,
        minibatch_size: int | str | None = NotProvided,
        opt_type: str = NotProvided,
        decay: float = NotProvided,
        momentum: float = NotProvided,
        epsilon: float = NotProvided,
        vf_loss_coeff: float = NotProvided,
        entropy_coeff: OptionSchedule = NotProvided,
        **kwargs: Any,
    ) -> ConfigT:
        """Set hyperparameters.

        Args:
            vtrace: Correct for the age of the sampling weights; otherwise GAE is used.
            vtrace_clip_rho_threshold: Limit of the importance ratios in the value targets.
            vtrace_clip_pg_rho_threshold: Limit of the importance ratios in the advantages.
            use_gae: Estimate advantages with GAE (without V-trace only).
            lambda_: Lambda of GAE.
            broadcast_interval: Updates between broadcasts of the weights to the runners.
            learner_queue_size: Maximum number of batches that wait for the learners; when it is
            reached, runners wait.
            minibatch_size: Rows of a minibatch; None or "auto" for whole batches.
            opt_type: "adam" or "rmsprop".
            decay: Decay of RMSProp.
            momentum: Momentum of RMSProp.
            epsilon: Epsilon of RMSProp.
            vf_loss_coeff: Coefficient of the value loss.
            entropy_coeff: Coefficient of the entropy bonus, or a schedule.
            kwargs: Options of all algorithms.
        """
        given = dict(locals())
        super().training(**given.pop("kwargs"))
        given.pop("__class__", None)
        if minibatch_size == "auto":
            given["minibatch_size"] = None
        return self._set(given)

    def validate(self) -> None:
        """Check all options."""
        super().validate()
        Schedule(self.entropy_coeff, "entropy_coeff")
        check_choice("opt_type", self.opt_type, ("adam", "rmsprop"))
        for name in ("broadcast_interval", "learner_queue_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}={getattr(self, name)!r}` must be at least 1.")

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """Return the specification of an actor-critic module."""
        return RLModuleSpec(module_class=DefaultPPOTorchRLModule)

    def get_default_learner_class(self) -> type[IMPALATorchLearner]:
        """Return IMPALA's learner."""
        return IMPALATorchLearner

    def batch_buffer(self, seed: int) -> BatchBuffer:
        """Return the queue of batches for the learners."""
        return BatchBuffer(capacity=self.learner_queue_size)


class IMPALA(Algorithm):
    """Importance weighted actor-learner architecture."""

    @classmethod
    def get_default_config(cls) -> IMPALAConfig:
        """Return the default options."""
        return IMPALAConfig()

    def _build(self, config: AlgorithmConfig) -> None:
        super()._build(config)
        is_remote = bool(self.env_runner_group.num_remote_env_runners)
        ahead = config.max_requests_in_flight_per_env_runner
        self.plan = AsyncPlan(
            batch_steps=config.total_train_batch_size,
            buffer=self.config.batch_buffer(self.seed),
            requests_per_runner=1 + ahead if is_remote else 1,
            broadcast_interval=self.config.broadcast_interval,
            sample_while_learning=is_remote,
        )
        self._driver = AsyncDriver(
            plan=self.plan,
            runners=self.env_runner_group,
            learners=self.learner_group,
            update=self.learn,
            on_sample=lambda sample: self.log_samples([sample]),
        )

    def training_step(self) -> None:
        """Sample and train until the learners have finished an update."""
        self._driver.run(updates=1)
        times = self._driver.take_times()
        self.metrics.log_value((TIMERS, "learner_idle_s"), times.learner_idle_s, reduce="sum")
        self.metrics.log_value((TIMERS, "learner_busy_s"), times.learner_busy_s, reduce="sum")

    def learn(self, samples: Sequence[Sample]) -> None:
        """Train on a batch."""
        config = self.config
        version = self.learner_group.weights_version
        for sample in samples:
            for module_id, fragment in sample.fragments.items():
                self.metrics.log_value(
                    (LEARNER_RESULTS, module_id, STALENESS_KEY),
                    version - fragment.weights_version,
                    window=100,
                )
        self.update(
            samples=samples,
            num_epochs=config.num_epochs,
            minibatch_size=config.minibatch_size,
            shuffle_batch_per_epoch=config.shuffle_batch_per_epoch,
        )

    def get_state(
        self, components: Selection = None, *, not_components: Selection = None, **kwargs: object
    ) -> StateDict:
        """Return everything that the next iteration depends on, including requested fragments."""
        self._driver.drain()
        return {
            **super().get_state(components, not_components=not_components, **kwargs),
            "plan": self._driver.get_state(),
        }

    def set_state(self, state: StateDict) -> None:
        """Restore a state."""
        super().set_state(state)
        if "plan" in state:
            self._driver.set_state(state["plan"])
