"""`Connections`: the connectors of an env runner's configuration, on both sides of the module."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from syncline.rl.checkpointable import StateDict
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree, row, stack_trees
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.connectors.connector import Batch, ConnectorV2, batch_key
from syncline.rl.connectors.pipeline import (
    ConnectorPipelineV2,
    EnvToModulePipeline,
    ModuleToEnvPipeline,
)
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode
from syncline.rl.metrics.metrics_logger import MetricsLogger
from syncline.rl.metrics.names import (
    COMPONENT_ENV_TO_MODULE_CONNECTOR,
    COMPONENT_MODULE_TO_ENV_CONNECTOR,
)


class Connections:
    """The user's connectors of a runner; they run on its present episodes, once a step.

    What the default connectors of RLlib do, the runner and the module do on whole columns, so
    pipelines here contain only the user's pieces.

    Args:
        env_to_module: Connectors from environments to the module.
        module_to_env: Connectors from the module to environments.
        metrics: Logger that connectors get.
    """

    def __init__(
        self,
        env_to_module: ConnectorPipelineV2,
        module_to_env: ConnectorPipelineV2,
        metrics: MetricsLogger,
    ) -> None:
        self.env_to_module = env_to_module
        self.module_to_env = module_to_env
        self._metrics = metrics

    @classmethod
    def configured(
        cls,
        config: AlgorithmConfig,
        *,
        env: Any,
        observation_space: Any,
        action_space: Any,
        metrics: MetricsLogger,
    ) -> Connections | None:
        """Return the connectors of a configuration; None if it has none.

        Raises:
            TypeError: A function of the configuration returned something else than connectors.
        """
        if config._env_to_module_connector is None and config._module_to_env_connector is None:
            return None
        spaces = {
            "__env__": (env.observation_space, env.action_space),
            "__env_single__": (observation_space, action_space),
        }
        to_module = EnvToModulePipeline(
            observation_space,
            action_space,
            connectors=_made("env_to_module_connector", config, env, spaces, None),
        )
        to_module.set_input_spaces(observation_space, action_space)
        to_env = ModuleToEnvPipeline(
            connectors=_made("module_to_env_connector", config, env, spaces)
        )
        to_env.set_input_spaces(to_module.observation_space, to_module.action_space)
        return cls(to_module, to_env, metrics)

    def observe(
        self, module: Any, episodes: list[SingleAgentEpisode], *, explore: bool
    ) -> list[Tree]:
        """Return the newest observation of each episode, as the module gets it."""
        batch = self.env_to_module(
            rl_module=module,
            batch={},
            episodes=episodes,
            explore=explore,
            shared_data={},
            metrics=self._metrics,
        )
        written = batch.get(Columns.OBS)
        return [
            episode.get_observations(-1) if written is None else _item(written, episode, place)
            for place, episode in enumerate(episodes)
        ]

    def act(
        self,
        module: Any,
        episodes: list[SingleAgentEpisode],
        columns: dict[str, Tree],
        *,
        explore: bool,
    ) -> dict[str, Tree]:
        """Return the module's outputs [N, ...] as the connectors to the environments leave them."""
        if not self.module_to_env.connectors:
            return columns
        batch: Batch = {
            name: {
                batch_key(episode): [row(column, place)] for place, episode in enumerate(episodes)
            }
            for name, column in columns.items()
        }
        batch = self.module_to_env(
            rl_module=module,
            batch=batch,
            episodes=episodes,
            explore=explore,
            shared_data={},
            metrics=self._metrics,
        )
        return {
            name: stack_trees(
                np.stack, [_item(values, each, place) for place, each in enumerate(episodes)]
            )
            for name, values in batch.items()
        }

    def get_state(self) -> StateDict:
        """Return the states of both pipelines."""
        return {
            COMPONENT_ENV_TO_MODULE_CONNECTOR: self.env_to_module.get_state(),
            COMPONENT_MODULE_TO_ENV_CONNECTOR: self.module_to_env.get_state(),
        }

    def set_state(self, state: StateDict) -> None:
        """Set the states of both pipelines."""
        self.env_to_module.set_state(state[COMPONENT_ENV_TO_MODULE_CONNECTOR])
        self.module_to_env.set_state(state[COMPONENT_MODULE_TO_ENV_CONNECTOR])

    def merge_states(self, states: list[StateDict]) -> StateDict:
        """Return the state that joins those of several runners."""
        return {
            name: pipeline.merge_states([state[name] for state in states])
            for name, pipeline in (
                (COMPONENT_ENV_TO_MODULE_CONNECTOR, self.env_to_module),
                (COMPONENT_MODULE_TO_ENV_CONNECTOR, self.module_to_env),
            )
        }


def _made(option: str, config: AlgorithmConfig, *args: Any) -> list[ConnectorV2]:
    """Return the connectors that the function of an option makes."""
    function = getattr(config, f"_{option}")
    if function is None:
        return []
    made = _call(function, *args)
    pieces = list(made) if isinstance(made, Sequence) else [made]
    for piece in pieces:
        if not isinstance(piece, ConnectorV2):
            raise TypeError(
                f"`{option}` must return a ConnectorV2 or a list of them, but returned {made!r}."
            )
    return pieces


def _call(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function with as many of the arguments as it takes: older ones take `env` alone."""
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return function(*args)
    taken = [
        each
        for each in parameters
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    return function(*args[: len(taken)])


def _item(values: Any, episode: SingleAgentEpisode, place: int) -> Any:
    return values[batch_key(episode)][-1] if isinstance(values, dict) else values[place]
