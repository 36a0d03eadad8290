"""`OffPolicyAlgorithm`: samples into replay buffers and trains on batches from them.

Covered: the ratio of sampling to updates, buffers and their state. Not covered: losses
(`algorithms/`), the buffers themselves (`buffers/`).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.buffers.checkpoints import ReplayBuffers
from syncline.rl.buffers.custom import CustomBuffer
from syncline.rl.buffers.episode_buffers import (
    EpisodeReplayBuffer,
    MultiAgentEpisodeReplayBuffer,
    MultiAgentPrioritizedEpisodeReplayBuffer,
    PrioritizedEpisodeReplayBuffer,
)
from syncline.rl.buffers.replay_columns import INDICES, ReplayColumns
from syncline.rl.checkpointable import StateDict
from syncline.rl.columns.fragment import concatenate
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.config.section import NotProvided
from syncline.rl.learners.group import fragments_of
from syncline.rl.metrics.names import LEARNER_RESULTS, REPLAY_BUFFER_RESULTS
from syncline.rl.runners.sample import Sample
from syncline.rl.value_types import Components, OptionMapping, Options, Results
from syncline.suggestions import did_you_mean

ConfigT = TypeVar("ConfigT", bound="OffPolicyConfig")

REPLAY_BUFFERS = "replay_buffers"
"""Component of checkpoints."""

PRIORITIZED = (
    "PrioritizedEpisodeReplayBuffer",
    "MultiAgentPrioritizedEpisodeReplayBuffer",
    "PrioritizedReplayBuffer",
    "MultiAgentPrioritizedReplayBuffer",
)
UNIFORM = (
    "EpisodeReplayBuffer",
    "MultiAgentEpisodeReplayBuffer",
    "ReplayBuffer",
    "MultiAgentReplayBuffer",
)


OWN_CLASSES = (
    EpisodeReplayBuffer,
    PrioritizedEpisodeReplayBuffer,
    MultiAgentEpisodeReplayBuffer,
    MultiAgentPrioritizedEpisodeReplayBuffer,
)
BUFFER_OPTIONS = ("type", "capacity", "alpha", "beta", "batch_size_B", "batch_length_T")
OLDER_BUFFER_OPTIONS = (
    "learning_starts",
    "prioritized_replay",
    "prioritized_replay_alpha",
    "prioritized_replay_beta",
    "prioritized_replay_eps",
    "replay_burn_in",
    "replay_mode",
    "replay_sequence_length",
    "replay_sequence_override",
    "replay_zero_init_states",
    "storage_unit",
    "worker_side_prioritization",
    "_enable_replay_buffer_api",
    "metrics_num_episodes_for_smoothing",
    "max_episodes",
    "replay_batch_size",
    "num_shards",
)
"""Options from older releases without effect."""


class OffPolicyConfig(AlgorithmConfig):
    """Options of algorithms with a replay buffer."""

    replay_buffer_config: Options = {
        "type": "PrioritizedEpisodeReplayBuffer",
        "capacity": 50_000,
        "alpha": 0.6,
        "beta": 0.4,
    }
    num_steps_sampled_before_learning_starts: int = 1000
    training_intensity: float | None = None
    target_network_update_freq: int = 500
    tau: float = 1.0
    n_step: Any = 1
    store_buffer_in_checkpoints: bool = True

    def training(
        self: ConfigT,
        *,
        replay_buffer_config: OptionMapping = NotProvided,
        num_steps_sampled_before_learning_starts: int = NotProvided,
        training_intensity: float | None = NotProvided,
        target_network_update_freq: int = NotProvided,
        tau: float = NotProvided,
        n_step: int | tuple[int, int] = NotProvided,
        store_buffer_in_checkpoints: bool = NotProvided,
        **kwargs: Any,
    ) -> ConfigT:
        """Set hyperparameters.

        Args:
            replay_buffer_config: `type` ("EpisodeReplayBuffer" draws uniformly,
                "PrioritizedEpisodeReplayBuffer" in proportion to errors; or your own class, which
                gets the other keys), `capacity` in steps, `alpha` and `beta` of the priorities.
                Keys are merged into the defaults; a new type replaces all of them.
            num_steps_sampled_before_learning_starts: Environment steps with random actions before
                the first update.
            training_intensity: Trained steps per sampled step; None for one update after each
                round of sampling.
            target_network_update_freq: Environment steps between updates of the target networks.
            tau: Weight of the online network in these updates.
            n_step: Number of rewards in a transition, or a range to draw it from.
            store_buffer_in_checkpoints: Save the buffer so that a restored run continues exactly.
            kwargs: Options of all algorithms.
        """
        given = dict(locals())
        super().training(**given.pop("kwargs"))
        given.pop("__class__", None)
        if replay_buffer_config is not NotProvided:
            before = self.replay_buffer_config
            same_type = replay_buffer_config.get("type", before["type"]) == before["type"]
            capacity = {"capacity": before["capacity"]}
            given["replay_buffer_config"] = {
                **(before if same_type else capacity),
                **replay_buffer_config,
            }
        return self._set(given)

    def update_from_dict(self: ConfigT, config_dict: Mapping[str, object]) -> ConfigT:
        """Set options from a dictionary; move buffer options from older releases to
        `replay_buffer_config`.
        """
        given = dict(config_dict)
        buffer: Options = {}
        if "buffer_size" in given:
            buffer["capacity"] = given.pop("buffer_size")
        if given.pop("prioritized_replay", None) is False:
            buffer["type"] = "EpisodeReplayBuffer"
        for name in ("alpha", "beta"):
            if f"prioritized_replay_{name}" in given:
                buffer[name] = given.pop(f"prioritized_replay_{name}")
        super().update_from_dict(given)
        return self.training(replay_buffer_config=buffer) if buffer else self

    def validate(self) -> None:
        """Check all options."""
        super().validate()
        self._check_buffer()
        first, last = (self.n_step,) * 2 if isinstance(self.n_step, int) else self.n_step
        if not 1 <= first <= last:
            raise ValueError(
                f"`n_step={self.n_step!r}` must be a number of at least 1, or a range such as "
                "(2, 5), both included."
            )
        capacity = self.replay_buffer_config["capacity"]
        if self.num_steps_sampled_before_learning_starts > capacity:
            raise ValueError(
                f"`num_steps_sampled_before_learning_starts="
                f"{self.num_steps_sampled_before_learning_starts}` is more than the buffer's "
                f"`capacity={capacity}`: steps would be lost before the first update."
            )

    def _check_buffer(self) -> None:
        given = self.replay_buffer_config
        kind = given.get("type")
        if kind in OWN_CLASSES:  # `ReplayColumns` samples the same way, but faster
            kind = given["type"] = kind.__name__
        if isinstance(kind, type):
            return
        if str(kind).rpartition(".")[2] not in PRIORITIZED + UNIFORM:
            known = PRIORITIZED + UNIFORM
            raise ValueError(
                f"`replay_buffer_config['type']={kind!r}` is unknown."
                f"{did_you_mean(str(kind), known)} Use one of {', '.join(known)}, or a class "
                "with their methods."
            )
        for name in given:
            if name not in BUFFER_OPTIONS + OLDER_BUFFER_OPTIONS:
                raise ValueError(
                    f"`replay_buffer_config[{name!r}]` is unknown."
                    f"{did_you_mean(name, BUFFER_OPTIONS)} Use {', '.join(BUFFER_OPTIONS)}."
                )

    def get_rollout_fragment_length(self, worker_index: int = 0) -> int:
        """Return the steps per environment in a fragment; "auto" is `n_step`."""
        if self.rollout_fragment_length == "auto":
            return int(self.n_step if isinstance(self.n_step, int) else self.n_step[1])
        return super().get_rollout_fragment_length(worker_index)

    def rounds(self) -> tuple[int, int]:
        """Return the number of sampling rounds and of updates in a training step."""
        if not self.training_intensity:
            return 1, 1
        sampled = (
            self.get_rollout_fragment_length()
            * self.num_envs_per_env_runner
            * max(self.num_env_runners, 1)
        )
        updates = self.training_intensity * sampled / self.total_train_batch_size
        if updates < 1:
            return round(1 / updates), 1
        return 1, round(updates)


class OffPolicyAlgorithm(Algorithm):
    """Base of algorithms with a replay buffer.

    Sampling and updates alternate, also with runners in other processes: runners wait during
    updates, and a seeded run is reproducible for any number of runners.
    """

    def _build(self, config: AlgorithmConfig) -> None:
        super()._build(config)
        self.buffers = ReplayBuffers(self.buffer)

    def training_step(self) -> None:
        """Sample, store, and update in the ratio of `training_intensity`."""
        config = self.config
        rounds, updates = config.rounds()
        for _ in range(rounds):
            random_actions = self._steps_sampled < config.num_steps_sampled_before_learning_starts
            self.store(self.sample_round(random_actions=random_actions))
        if self._steps_sampled < config.num_steps_sampled_before_learning_starts:
            return
        for _ in range(updates):
            self.learn_from_replay()
        self.env_runner_group.sync_weights(from_worker_or_learner_group=self.learner_group)

    def sample_round(self, **options: Any) -> list[Sample]:
        """Sample a fragment from every environment."""
        samples = self.env_runner_group.sample_steps(step=self._steps_sampled, **options)
        self.log_samples(samples)
        return samples

    def store(self, samples: list[Sample]) -> None:
        """Add samples to the buffers."""
        for module_id, fragments in fragments_of(samples).items():
            for fragment in concatenate(fragments):
                self.buffer(module_id, fragment.width).add(fragment)

    def buffer(self, module_id: str, width: int) -> ReplayColumns:
        """Return the buffer of a module; create it with a ring per trajectory if missing."""
        if module_id not in self.buffers:
            given = self.config.replay_buffer_config
            if isinstance(given["type"], type):
                self.buffers[module_id] = self._custom_buffer(dict(given))
                return self.buffers[module_id]
            prioritized = str(given["type"]).rpartition(".")[2] in PRIORITIZED
            self.buffers[module_id] = ReplayColumns(
                given["capacity"],
                num_envs=width,
                seed=self.seed,
                alpha=given.get("alpha", 0.6) if prioritized else 0.0,
            )
        return self.buffers[module_id]

    def _custom_buffer(self, given: Options) -> Any:
        """Return the buffer of a user-defined class."""
        kind, capacity = given.pop("type"), given["capacity"]
        given.pop("beta", None)  # an option of `sample`
        return CustomBuffer(kind(**{"seed": self.seed, **given}), capacity)

    def learn_from_replay(self) -> None:
        """Draw a batch from each buffer, update, and set the new priorities of its rows."""
        config = self.config
        drawn = {
            module_id: buffer.sample(
                config.total_train_batch_size,
                n_step=config.n_step,
                gamma=config.gamma,
                beta=config.replay_buffer_config.get("beta", 0.0),
            )
            for module_id, buffer in self.buffers.items()
            if buffer.num_steps and self._is_trained(module_id)
        }
        errors = self.learner_group.update_on_rows(drawn, timesteps=self.timesteps())
        for module_id, found in errors.items():
            self.buffers[module_id].update_priorities(drawn[module_id][INDICES], found)

    def _is_trained(self, module_id: str) -> bool:
        train = self.config.policies_to_train
        return train is None or (train(module_id, None) if callable(train) else module_id in train)

    def _results(self, returned: object, calls: int) -> Results:
        self.metrics.aggregate(self.learner_group.reduce_metrics(), key=LEARNER_RESULTS)
        found = super()._results(returned, calls)
        found[REPLAY_BUFFER_RESULTS] = {
            module_id: {
                "num_steps_stored": buffer.num_steps,
                "num_steps_added_lifetime": buffer.statistics().num_steps_added,
            }
            for module_id, buffer in self.buffers.items()
        }
        return found

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: object,
    ) -> StateDict:
        """Return everything that the next iteration depends on."""
        state = super().get_state(components, not_components=not_components, **kwargs)
        if self.config.store_buffer_in_checkpoints and self._check_component(
            REPLAY_BUFFERS, components, not_components
        ):
            state[REPLAY_BUFFERS] = self.buffers.get_state()
        return state

    def set_state(self, state: StateDict) -> None:
        """Restore a state."""
        super().set_state(state)
        self.buffers.set_state(state.get(REPLAY_BUFFERS, {}))

    def get_checkpointable_components(self) -> Components:
        """Return the learner group, and the buffers if they are stored."""
        components = super().get_checkpointable_components()
        if self.config.store_buffer_in_checkpoints:
            components.append((REPLAY_BUFFERS, self.buffers))
        return components

    def save_to_path(self, path: object = None, **options: object) -> str:
        """Save to a directory and return its path. See `Checkpointable.save_to_path`."""
        written = super().save_to_path(path, **options)
        self.buffers.moved_to(os.path.join(written, REPLAY_BUFFERS))
        return written
