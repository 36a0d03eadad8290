"""`OfflineAlgorithm`: learns from recorded data, and samples environments for evaluation only.

Covered: batches of an iteration, actions in the module's range, the position in the data, training
without an environment. Not covered: reading (`offline/`) and losses (`algorithms/`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.checkpointable import StateDict
from syncline.rl.columns.fragment import num_rows
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.metrics.names import (
    DEFAULT_MODULE_ID,
    LEARNER_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
)
from syncline.rl.offline.offline_data import OfflineData
from syncline.rl.runners.actions import actions_from_env
from syncline.rl.value_types import Selection, Space


def check_offline(config: AlgorithmConfig, name: str) -> None:
    """Check the options that all offline algorithms have.

    Raises:
        ValueError: Data are missing, or there are several agents.
    """
    if not config.is_offline:
        raise ValueError(
            f"{name} learns from recorded data: name them with `config.offline_data(input_=…)`."
        )
    if config.is_multi_agent:
        raise ValueError(f"{name} trains one policy; train several policies one by one.")


class OfflineAlgorithm(Algorithm):
    """Base of algorithms that learn from recorded steps."""

    required_columns: tuple[str, ...] = ()
    """Columns that the loss needs in addition to observations and actions."""

    def _build(self, config: AlgorithmConfig) -> None:
        super()._build(config)
        module = self.get_module()
        name = type(self).__name__
        if module is not None and module.is_stateful():
            raise ValueError(f"{name} trains modules without memory only; set `use_lstm=False`.")
        data_class = config.offline_data_class or OfflineData
        self.offline_data: Any = data_class(config)
        self._rows_trained = 0
        self._from_env = None
        if not config.input_read_episodes and not config.actions_in_input_normalized:
            _, action_space = self._spaces[DEFAULT_MODULE_ID]
            self._from_env = actions_from_env(action_space, normalize=config.normalize_actions)

    def _make_runners(self, config: AlgorithmConfig) -> Any:
        if config.env is None:
            if config.in_evaluation:
                raise ValueError(
                    "Evaluation needs an environment: name it in `config.environment(env=…)` or in "
                    "`config.evaluation(evaluation_config={'env': …})`."
                )
            return NoRunners(config)
        return super()._make_runners(config)

    def training_step(self) -> None:
        """Update once for each batch of this iteration."""
        for batch in self._batches(self.config.dataset_num_iters_per_learner):
            self._rows_trained += num_rows(batch)
            self.learner_group.update_on_rows(
                {DEFAULT_MODULE_ID: batch}, timesteps=self.timesteps()
            )
        self.metrics.aggregate(self.learner_group.reduce_metrics(), key=LEARNER_RESULTS)

    def _batches(self, count: int | None) -> Any:
        size = self.config.total_train_batch_size
        if count is None:
            return map(self._prepared, self.offline_data.one_pass(size))
        return (self._prepared(self.offline_data.sample(size)) for _ in range(count))

    def _prepared(self, batch: dict[str, Tree]) -> dict[str, Tree]:
        missing = set(self.required_columns) - set(batch)
        if missing:
            raise ValueError(
                f"{type(self).__name__} needs the columns {sorted(missing)}; the recorded data "
                f"have {sorted(batch)}. Name them in `input_read_schema`, such as "
                "{'new_obs': 'o_tp1'}."
            )
        if Columns.TERMINATEDS in batch:
            batch[Columns.TERMINATEDS] = np.asarray(batch[Columns.TERMINATEDS], bool)
        if self._from_env is not None:
            batch[Columns.ACTIONS] = self._from_env(batch[Columns.ACTIONS])
        return batch

    def timesteps(self) -> dict[str, int]:
        """Return the number of trained steps, which schedules use instead of sampled steps."""
        return {NUM_ENV_STEPS_SAMPLED_LIFETIME: self._rows_trained}

    def get_state(
        self, components: Selection = None, *, not_components: Selection = None, **kwargs: object
    ) -> StateDict:
        """Return everything that the next iteration depends on."""
        return {
            **super().get_state(components, not_components=not_components, **kwargs),
            "rows_trained": self._rows_trained,
            "offline_data": self.offline_data.get_state(),
        }

    def set_state(self, state: StateDict) -> None:
        """Restore a state."""
        super().set_state(state)
        self._rows_trained = state.get("rows_trained", 0)
        if state.get("offline_data"):
            self.offline_data.set_state(state["offline_data"])


class NoRunners:
    """Replacement for env runners without an environment; takes the spaces from the options.

    Args:
        config: The algorithm's options.
    """

    local_env_runner = None
    num_remote_worker_restarts = 0

    def __init__(self, config: AlgorithmConfig) -> None:
        spaces = config.observation_space, config.action_space
        if None in spaces:
            raise ValueError(
                "Without an environment the spaces must be given: "
                "`config.environment(observation_space=…, action_space=…)`, or name the "
                "environment of the data, `config.environment('CartPole-v1')`."
            )
        self._spaces = {DEFAULT_MODULE_ID: spaces}

    def get_spaces(self) -> dict[str, tuple[Space, Space]]:
        """Return observation and action space by module id."""
        return self._spaces

    def num_healthy_remote_workers(self) -> int:
        """Return 0."""
        return 0

    def share_modules(self, modules: object) -> None:
        """Do nothing."""

    def sync_weights(self, *args: object, **kwargs: object) -> None:
        """Do nothing."""

    def foreach_env_runner(self, *args: object, **kwargs: object) -> list[Any]:
        """Return nothing."""
        return []

    def get_states(self) -> dict[int, StateDict]:
        """Return nothing."""
        return {}

    def set_states(self, states: dict[int, StateDict]) -> bool:
        """Return True because no environment had to begin a new episode."""
        return True

    def take_sampling_s(self) -> float:
        """Return 0 seconds."""
        return 0.0

    def stop(self) -> None:
        """Do nothing."""
