"""DreamerV3: learns a world model, and trains a policy on trajectories that the model imagines
(Hafner et al. 2023, https://arxiv.org/abs/2301.04104).

Every update draws sequences of real steps, trains the world model on them, imagines `horizon_H`
steps from each of their states, and trains critic and actor on the imagined steps. Not included:
the critic's loss on replayed steps and the block-diagonal GRU, both from a later version of the
paper.
"""

from __future__ import annotations

from typing import Any, TypeVar

from syncline.rl.algorithm.off_policy import OffPolicyAlgorithm, OffPolicyConfig
from syncline.rl.algorithms.dreamerv3.sequence_replay import SequenceReplay
from syncline.rl.algorithms.dreamerv3.torch.dreamerv3_torch_learner import DreamerV3TorchLearner
from syncline.rl.algorithms.dreamerv3.torch.dreamerv3_torch_rl_module import DreamerV3TorchRLModule
from syncline.rl.algorithms.dreamerv3.torch.networks import model_size
from syncline.rl.checkpointable import StateDict
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.config.learning import LearningRate
from syncline.rl.config.section import NotProvided
from syncline.rl.metrics.names import TIMERS
from syncline.rl.modules.rl_module import RLModuleSpec
from syncline.rl.value_types import Options, Selection

ConfigT = TypeVar("ConfigT", bound="DreamerV3Config")

REPLAY = "EpisodeReplayBuffer"
SLOW_CRITIC_RATE = 0.02
"""Weight of the critic in an update of the slow critic."""


class DreamerV3Config(OffPolicyConfig):
    """Options of DreamerV3."""

    model_size: str = "XS"
    training_ratio: float = 1024
    batch_size_B: int = 16
    batch_length_T: int = 64
    horizon_H: int = 15
    use_stored_states: bool = False
    gae_lambda: float = 0.95
    entropy_scale: float = 3e-4
    return_normalization_decay: float = 0.99
    train_critic: bool = True
    train_actor: bool = True
    intrinsic_rewards_scale: float = 0.1
    world_model_lr: LearningRate = 1e-4
    actor_lr: LearningRate = 3e-5
    critic_lr: LearningRate = 3e-5
    world_model_grad_clip_by_global_norm: float = 1000.0
    critic_grad_clip_by_global_norm: float = 100.0
    actor_grad_clip_by_global_norm: float = 100.0
    symlog_obs: bool | str = "auto"
    use_float16: bool = False
    use_curiosity: bool = False

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or DreamerV3)
        self.lr = None
        self.gamma = 0.997
        self.rollout_fragment_length = 1
        self.num_steps_sampled_before_learning_starts = 0
        self.replay_buffer_config = {"type": REPLAY, "capacity": 1_000_000}
        self.tau = SLOW_CRITIC_RATE
        self.target_network_update_freq = 0
        self.metrics_num_episodes_for_smoothing = 1

    def training(
        self: ConfigT,
        *,
        model_size: str = NotProvided,
        training_ratio: float = NotProvided,
        batch_size_B: int = NotProvided,
        batch_length_T: int = NotProvided,
        horizon_H: int = NotProvided,
        use_stored_states: bool = NotProvided,
        gae_lambda: float = NotProvided,
        entropy_scale: float = NotProvided,
        return_normalization_decay: float = NotProvided,
        train_critic: bool = NotProvided,
        train_actor: bool = NotProvided,
        intrinsic_rewards_scale: float = NotProvided,
        world_model_lr: LearningRate = NotProvided,
        actor_lr: LearningRate = NotProvided,
        critic_lr: LearningRate = NotProvided,
        world_model_grad_clip_by_global_norm: float = NotProvided,
        critic_grad_clip_by_global_norm: float = NotProvided,
        actor_grad_clip_by_global_norm: float = NotProvided,
        symlog_obs: bool | str = NotProvided,
        use_float16: bool = NotProvided,
        use_curiosity: bool = NotProvided,
        **kwargs: Any,
    ) -> ConfigT:
        """Set hyperparameters.

        Args:
            model_size: "nano", "micro", "mini", "XXS", "XS", "S", "M", "L" or "XL". Override single
                widths with `rl_module(model_config={"dense_units": …, "gru_units": …})`.
            training_ratio: Replayed steps per sampled step.
            batch_size_B: Number of sequences in a batch.
            batch_length_T: Length of a sequence in steps.
            horizon_H: Number of imagined steps.
            use_stored_states: Begin replayed sequences in the recorded state of the runner instead
                of the initial state. Helps if a task needs memory that is longer than a sequence.
            gae_lambda: Lambda of the returns.
            entropy_scale: Weight of the actor's entropy.
            return_normalization_decay: Decay of the moving percentiles of returns.
            train_critic: Train the critic.
            train_actor: Train the actor, which needs the critic.
            intrinsic_rewards_scale: Has no effect: curiosity is not implemented.
            world_model_lr: Learning rate of the world model, or a schedule.
            actor_lr: Learning rate of the actor, or a schedule.
            critic_lr: Learning rate of the critic, or a schedule.
            world_model_grad_clip_by_global_norm: Maximum norm of the world model's gradients.
            critic_grad_clip_by_global_norm: Maximum norm of the critic's gradients.
            actor_grad_clip_by_global_norm: Maximum norm of the actor's gradients.
            symlog_obs: Apply symlog to observations other than images; "auto" means True.
            use_float16: Must be False: DreamerV3 computes in float32.
            use_curiosity: Must be False.
            kwargs: Options of all algorithms with a replay buffer.
        """
        given = dict(locals())
        super().training(**given.pop("kwargs"))
        given.pop("__class__", None)
        return self._set(given)

    def reporting(
        self: ConfigT,
        *,
        report_individual_batch_item_stats: bool = NotProvided,
        report_dream_data: bool = NotProvided,
        report_images_and_videos: bool = NotProvided,
        **kwargs: Any,
    ) -> ConfigT:
        """Set the content of results.

        Args:
            report_individual_batch_item_stats: Has no effect: results contain means.
            report_dream_data: Has no effect.
            report_images_and_videos: Has no effect.
            kwargs: Options of all algorithms.
        """
        super().reporting(**kwargs)
        return self

    @property
    def train_batch_size_per_learner(self) -> int:
        """Steps per batch and learner."""
        return self.batch_size_B_per_learner * self.batch_length_T

    @property
    def batch_size_B_per_learner(self) -> int:
        """Sequences per batch and learner."""
        return self.batch_size_B // (self.num_learners or 1)

    def validate(self) -> None:
        """Check all options."""
        super().validate()
        model_size({"model_size": self.model_size})
        if self.is_multi_agent:
            raise ValueError("DreamerV3 supports one agent: remove `multi_agent(…)`.")
        if self.train_actor and not self.train_critic:
            raise ValueError(
                "`train_actor=True` needs the critic: set `train_critic=True`, or also set "
                "`train_actor=False`."
            )
        for name in ("use_curiosity", "use_float16"):
            if getattr(self, name):
                raise ValueError(f"`{name}=True` is not implemented: remove the option.")
        for name in ("batch_size_B", "batch_length_T", "horizon_H"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"`{name}={value!r}` must be a whole number of at least 1.")
        if self.num_learners > 1 and self.batch_size_B % self.num_learners:
            raise ValueError(
                f"`batch_size_B={self.batch_size_B}` must be a multiple of "
                f"`num_learners={self.num_learners}`."
            )
        envs = self.num_envs_per_env_runner * (self.num_env_runners or 1)
        capacity = self.replay_buffer_config["capacity"]
        if capacity // envs < self.batch_length_T + 2:
            raise ValueError(
                f"`replay_buffer_config['capacity']={capacity}` leaves {capacity // envs} rows for "
                f"each of {envs} environments, too few for sequences of "
                f"`batch_length_T={self.batch_length_T}`: raise it to at least "
                f"{envs * (self.batch_length_T + 2)}."
            )
        if self.replay_buffer_config["type"] != REPLAY:
            raise ValueError(
                f"`replay_buffer_config['type']={self.replay_buffer_config['type']!r}`: DreamerV3 "
                f"draws sequences uniformly. Use {REPLAY!r}."
            )

    def validate_train_batch_size_vs_rollout_fragment_length(self) -> None:
        """Accept any fragment length: `training_ratio` decides how often batches are drawn."""

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """Return the specification of world model, actor and critic."""
        return RLModuleSpec(module_class=DreamerV3TorchRLModule)

    def get_default_learner_class(self) -> type[DreamerV3TorchLearner]:
        """Return DreamerV3's learner."""
        return DreamerV3TorchLearner

    @property
    def _model_config_auto_includes(self) -> Options:
        return {
            **super()._model_config_auto_includes,
            "model_size": self.model_size,
            "symlog_obs": self.symlog_obs,
            "use_stored_states": self.use_stored_states,
        }


class DreamerV3(OffPolicyAlgorithm):
    """DreamerV3."""

    @classmethod
    def get_default_config(cls) -> DreamerV3Config:
        """Return the default options."""
        return DreamerV3Config()

    def _build(self, config: AlgorithmConfig) -> None:
        super()._build(config)
        self._replayed = 0
        self._sampled_since_start = 0

    def training_step(self) -> None:
        """Sample until an update is due, then take all updates that are due.

        Sampling begins with the number of steps in a batch. These steps are not counted, so that
        learning does not begin with a long series of updates on a few of them.
        """
        config = self.config
        size = config.batch_size_B * config.batch_length_T
        while True:
            samples = self.sample_round()
            self.store(samples)
            if not self._is_filled(size):
                continue
            self._sampled_since_start += sum(sample.env_steps for sample in samples)
            due = self._sampled_since_start * config.training_ratio - self._replayed
            if due >= size:
                break
        for _ in range(int(due // size)):
            with self.metrics.log_time((TIMERS, "learner_update_timer")):
                self.learn_from_replay()
            self._replayed += size
        self.metrics.log_value(
            "actual_training_ratio", self._replayed / self._sampled_since_start, window=1
        )
        self.env_runner_group.sync_weights(from_worker_or_learner_group=self.learner_group)

    def _is_filled(self, size: int) -> bool:
        length = self.config.batch_length_T
        return all(
            each.statistics().num_steps_added >= size and each.num_sequences(length)
            for each in self._replays.values()
        )

    @property
    def _replays(self) -> dict[str, SequenceReplay]:
        return {
            module_id: each
            for module_id, each in self.buffers.items()
            if isinstance(each, SequenceReplay)
        }

    def buffer(self, module_id: str, width: int) -> SequenceReplay:
        """Return the buffer of a module; create it with a ring per environment if missing."""
        if module_id not in self.buffers:
            self.buffers[module_id] = SequenceReplay(
                self.config.replay_buffer_config["capacity"], num_envs=width, seed=self.seed
            )
        found = self.buffers[module_id]
        assert isinstance(found, SequenceReplay)
        return found

    def learn_from_replay(self) -> None:
        """Draw sequences from the buffer and update on them."""
        config = self.config
        drawn = {
            module_id: each.sample_sequences(config.batch_size_B, config.batch_length_T)
            for module_id, each in self._replays.items()
        }
        self.learner_group.update_on_rows(drawn, timesteps=self.timesteps())

    def get_state(
        self, components: Selection = None, *, not_components: Selection = None, **kwargs: object
    ) -> StateDict:
        """Return everything that the next iteration depends on."""
        state = super().get_state(components, not_components=not_components, **kwargs)
        return {**state, "training_ratio": (self._replayed, self._sampled_since_start)}

    def set_state(self, state: StateDict) -> None:
        """Restore a state."""
        super().set_state(state)
        self._replayed, self._sampled_since_start = state.get("training_ratio", (0, 0))
