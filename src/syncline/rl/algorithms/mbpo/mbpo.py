"""MBPO: model-based policy optimization (Janner et al. 2019, https://arxiv.org/abs/1906.08253).

An ensemble learns the dynamics from all real steps. Short model rollouts start from real states,
with the current policy and a random ensemble member in every step. SAC learns from them and a small
fraction of real steps. Unlike in the paper, the model also learns terminal states (unless
`termination_fn` is given), and its outputs are normalized.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np

from syncline.rl.algorithms.mbpo.torch.dynamics import Dynamics, DynamicsOptions
from syncline.rl.algorithms.mbpo.transitions import ImaginedTransitions, RealTransitions, mixed
from syncline.rl.algorithms.sac.sac import SAC, SACConfig
from syncline.rl.checkpointable import StateDict
from syncline.rl.columns.names import Columns
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.config.schedule import Schedule
from syncline.rl.config.section import NotProvided
from syncline.rl.metrics.names import DEFAULT_MODULE_ID, TIMERS
from syncline.rl.runners.threads import limited_threads
from syncline.rl.value_types import (
    CheckedSpace,
    OptionMapping,
    Options,
    OptionSchedule,
    Selection,
    Space,
)
from syncline.suggestions import did_you_mean

ConfigT = TypeVar("ConfigT", bound="MBPOConfig")

DYNAMICS = "dynamics"
"""Key of the dynamics model's results."""


class MBPOConfig(SACConfig):
    """Options of MBPO."""

    dynamics_model: Options = {}
    dynamics_train_freq: int = 250
    num_rollouts_per_step: int = 400
    rollout_length: OptionSchedule = 1
    num_trainings_retained: int = 1
    real_data_ratio: float = 0.05
    num_updates_per_step: int = 20
    termination_fn: Callable[..., np.ndarray] | None = None

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or MBPO)
        self.dynamics_model = asdict(DynamicsOptions())
        self.actor_lr = self.critic_lr = self.alpha_lr = 3e-4
        self.num_steps_sampled_before_learning_starts = 5000
        self.replay_buffer_config = {"type": "EpisodeReplayBuffer", "capacity": 1_000_000}

    def training(
        self: ConfigT,
        *,
        dynamics_model: OptionMapping = NotProvided,
        dynamics_train_freq: int = NotProvided,
        num_rollouts_per_step: int = NotProvided,
        rollout_length: OptionSchedule = NotProvided,
        num_trainings_retained: int = NotProvided,
        real_data_ratio: float = NotProvided,
        num_updates_per_step: int = NotProvided,
        termination_fn: Callable[..., np.ndarray] | None = NotProvided,
        **kwargs: Any,
    ) -> ConfigT:
        """Set hyperparameters.

        Args:
            dynamics_model: Fields of `DynamicsOptions`, such as `ensemble_size` and
                `fcnet_hiddens`; merged.
            dynamics_train_freq: Environment steps between trainings of the model.
            num_rollouts_per_step: Model rollouts per environment step.
            rollout_length: Steps of a rollout, or a schedule `[[0, 1], [20_000, 1], [100_000, 15]]`
                over environment steps, rounded down.
            num_trainings_retained: Number of model trainings whose rollouts are retained.
            real_data_ratio: Fraction of real steps in a batch.
            num_updates_per_step: SAC updates per environment step.
            termination_fn: Function of (obs, actions, new_obs), all [N, …], that returns which
                `new_obs` are terminal; None to learn it. Actions are in the module's range.
            kwargs: Options of SAC.
        """
        given = dict(locals())
        super().training(**given.pop("kwargs"))
        given.pop("__class__", None)
        if dynamics_model is not NotProvided:
            unknown = next((key for key in dynamics_model if key not in self.dynamics_model), None)
            if unknown is not None:
                raise ValueError(
                    f"`dynamics_model` has no option {unknown!r}."
                    f"{did_you_mean(unknown, self.dynamics_model)}"
                )
            given["dynamics_model"] = {**self.dynamics_model, **dynamics_model}
        return self._set(given)

    def validate(self) -> None:
        """Check all options."""
        super().validate()
        DynamicsOptions(**self.dynamics_model)
        Schedule(self.rollout_length, "rollout_length")
        if not 0.0 <= self.real_data_ratio <= 1.0:
            raise ValueError(f"`real_data_ratio={self.real_data_ratio!r}` must be from 0 to 1.")
        for name in (
            "dynamics_train_freq",
            "num_rollouts_per_step",
            "num_trainings_retained",
            "num_updates_per_step",
            "num_steps_sampled_before_learning_starts",
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"`{name}={value!r}` must be a whole number of at least 1.")
        if self.num_learners:
            raise ValueError(
                "MBPO trains in the algorithm's process, not on `num_learners="
                f"{self.num_learners}`: set it to 0."
            )
        if self.is_multi_agent:
            raise ValueError("MBPO supports one agent: remove `multi_agent(…)`.")
        if self.n_step != 1:
            raise ValueError(f"`n_step={self.n_step!r}`: MBPO learns from single steps; use 1.")


class MBPO(SAC):
    """Model-based policy optimization."""

    @classmethod
    def get_default_config(cls) -> MBPOConfig:
        """Return the default options."""
        return MBPOConfig()

    def _build(self, config: AlgorithmConfig) -> None:
        super()._build(config)
        obs_space, self._action_space = self._spaces[DEFAULT_MODULE_ID]
        if not isinstance(obs_space, gym.spaces.Box) or len(obs_space.shape) != 1:
            raise ValueError(
                f"MBPO needs vector observations, not {obs_space}: flatten them with a connector "
                "or a wrapper of the environment."
            )
        self._random = np.random.Generator(np.random.Philox(self.seed))
        (device,) = self.learner_group.foreach_learner(lambda learner: learner.device)
        self.dynamics = Dynamics(
            observation_size=obs_space.shape[0],
            action_size=_vector_size(self._action_space),
            options=DynamicsOptions(**config.dynamics_model),
            random=self._random,
            device=device,
        )
        self.imagined = ImaginedTransitions(1)
        self._rollout_length = Schedule(config.rollout_length, "rollout_length")
        self._last_training: int | None = None

    def training_step(self) -> None:
        """Sample a round, train the model if it is due, and update SAC."""
        config = self.config
        random_actions = self._steps_sampled < config.num_steps_sampled_before_learning_starts
        before = self._steps_sampled
        self.store(self.sample_round(random_actions=random_actions))
        if self._steps_sampled < config.num_steps_sampled_before_learning_starts:
            return
        last = self._last_training
        if last is None or self._steps_sampled - last >= config.dynamics_train_freq:
            self._last_training = self._steps_sampled
            self.train_dynamics()
            self.imagine()
        for _ in range(config.num_updates_per_step * (self._steps_sampled - before)):
            self.learn_from_replay()
        self.env_runner_group.sync_weights(from_worker_or_learner_group=self.learner_group)

    def buffer(self, module_id: str, width: int) -> RealTransitions:
        """Return the buffer of real steps; create it with a ring per environment if missing."""
        if module_id not in self.buffers:
            self.buffers[module_id] = RealTransitions(
                self.config.replay_buffer_config["capacity"], num_envs=width, seed=self.seed
            )
        found = self.buffers[module_id]
        assert isinstance(found, RealTransitions)
        return found

    def train_dynamics(self) -> None:
        """Train the model on all real steps."""
        real = self.buffer(DEFAULT_MODULE_ID, 0).all_transitions()
        actions = _as_vectors(real[Columns.ACTIONS], self._action_space)
        with self.metrics.log_time((TIMERS, "dynamics_training_timer")), self._threads():
            report = self.dynamics.fit({**real, Columns.ACTIONS: actions})
        for name, value in asdict(report).items():
            self.metrics.log_value((DYNAMICS, name), value, window=1)

    def _threads(self) -> AbstractContextManager[None]:
        return limited_threads(max(int(self.config.num_cpus_for_main_process), 1))

    def imagine(self) -> None:
        """Roll out the current policy in the model from random real states; store the steps."""
        with self._threads():
            self._imagine()

    def _imagine(self) -> None:
        config = self.config
        length = max(int(self._rollout_length.value(self._steps_sampled)), 1)
        count = config.num_rollouts_per_step * config.dynamics_train_freq
        self.imagined.resize(count * length * config.num_trainings_retained)
        obs = self.buffer(DEFAULT_MODULE_ID, 0).sample(count)[Columns.OBS]
        module = self.get_module()
        assert module is not None
        acting = module.acting_policy()
        draw = (
            self._random.random if acting.noise_kind == "uniform" else self._random.standard_normal
        )
        for _ in range(length):
            noise = draw((len(obs), acting.noise_size))
            actions = acting.act(obs, noise, True)[0][Columns.ACTIONS]
            new_obs, rewards, terminated = self.dynamics.predict(
                obs, _as_vectors(actions, self._action_space)
            )
            if config.termination_fn is not None:
                terminated = np.asarray(config.termination_fn(obs, actions, new_obs), bool)
            self.imagined.add(
                {
                    Columns.OBS: obs,
                    Columns.ACTIONS: actions,
                    Columns.REWARDS: rewards,
                    Columns.NEXT_OBS: new_obs,
                    Columns.TERMINATEDS: terminated,
                    Columns.TRUNCATEDS: np.zeros(len(obs), bool),
                }
            )
            obs = new_obs[~terminated]
            if not len(obs):
                break
        self.metrics.log_value((DYNAMICS, "rollout_length"), length, window=1)
        self.metrics.log_value((DYNAMICS, "num_imagined_steps"), len(self.imagined), window=1)

    def learn_from_replay(self) -> None:
        """Update SAC on a batch of imagined and real steps."""
        config = self.config
        size = config.train_batch_size_per_learner
        num_real = round(config.real_data_ratio * size)
        batch = mixed(
            self.buffer(DEFAULT_MODULE_ID, 0).sample(num_real),
            self.imagined.sample(size - num_real, self._random),
        )
        self.learner_group.update_on_rows({DEFAULT_MODULE_ID: batch}, timesteps=self.timesteps())

    def get_state(
        self, components: Selection = None, *, not_components: Selection = None, **kwargs: object
    ) -> StateDict:
        """Return everything that the next iteration depends on."""
        state = super().get_state(components, not_components=not_components, **kwargs)
        state[DYNAMICS] = {
            "model": self.dynamics.get_state(),
            "imagined": self.imagined.get_state(),
            "random": self._random.bit_generator.state,
            "last_training": self._last_training,
        }
        return state

    def set_state(self, state: StateDict) -> None:
        """Restore a state."""
        super().set_state(state)
        if DYNAMICS in state:
            saved = state[DYNAMICS]
            self.dynamics.set_state(saved["model"])
            self.imagined.set_state(saved["imagined"])
            self._random.bit_generator.state = saved["random"]
            self._last_training = saved["last_training"]


def _vector_size(space: CheckedSpace) -> int:
    return int(space.n) if isinstance(space, gym.spaces.Discrete) else int(np.prod(space.shape))


def _as_vectors(actions: np.ndarray, space: Space) -> np.ndarray:
    """Return actions of a module as vectors [N, A]; discrete actions become one-hot vectors."""
    if isinstance(space, gym.spaces.Discrete):
        vectors: np.ndarray = np.eye(int(space.n), dtype=np.float32)[actions]
        return vectors
    return np.asarray(actions, np.float32).reshape(len(actions), -1)
