"""`Connections`: the connectors of an env runner, before and after the module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from syncline.rl.checkpointable import StateDict
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree, map_tree, row, stack_trees
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.connectors.connector import Batch, ConnectorV2, batch_key
from syncline.rl.connectors.defaults import SINGLE_SPACES, VECTOR_SPACES, own_pieces
from syncline.rl.connectors.pipeline import ConnectorPipelineV2
from syncline.rl.connectors.to_module.items import MEMORIZED, as_array
from syncline.rl.episodes.multi_agent_episode import MultiAgentEpisode
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode
from syncline.rl.metrics.metrics_logger import MetricsLogger
from syncline.rl.metrics.names import (
    COMPONENT_ENV_TO_MODULE_CONNECTOR,
    COMPONENT_MODULE_TO_ENV_CONNECTOR,
)
from syncline.rl.modules.rl_module import RLModule
from syncline.rl.value_types import AgentDict, ModuleType, Space

if TYPE_CHECKING:
    from typing_extensions import Self


class Connections:
    """The user-defined connectors of a runner, which run once per step on its current episodes.

    The runner and the module do the work of default connectors on whole columns, so only the pieces
    connectors from the first to the last user-defined one run here.

    Args:
        env_to_module: Connectors from environments to the module.
        module_to_env: Connectors from the module to environments.
        metrics: Logger that is passed to connectors.
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

    @property
    def _to_module(self) -> list[ConnectorV2]:
        """Connectors to run, starting at the beginning of the pipeline."""
        pieces = self.env_to_module.connectors
        return pieces[: own_pieces(pieces).stop]

    @property
    def _to_env(self) -> list[ConnectorV2]:
        pieces = self.module_to_env.connectors
        return pieces[own_pieces(pieces)]

    @classmethod
    def configured(
        cls,
        config: AlgorithmConfig,
        *,
        env: Any,
        observation_space: Space,
        action_space: Space,
        metrics: MetricsLogger,
    ) -> Self:
        """Create the connectors of a configuration.

        Raises:
            TypeError: A function of the configuration did not return connectors.
        """
        spaces = {
            VECTOR_SPACES: (env.observation_space, env.action_space),
            SINGLE_SPACES: (observation_space, action_space),
        }
        to_module = config.build_env_to_module_connector(env=env, spaces=spaces)
        to_env = config.build_module_to_env_connector(env=env, spaces=spaces)
        return cls(to_module, to_env, metrics)

    @property
    def are_needed(self) -> bool:
        """True if there are user-defined connectors; default ones need not run."""
        return bool(self._to_module or self._to_env)

    def observe(
        self, module: ModuleType, episodes: list[SingleAgentEpisode], *, explore: bool
    ) -> list[Tree]:
        """Return the newest observation of each episode, transformed for the module."""
        batch = ConnectorPipelineV2(connectors=self._to_module)(
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
        module: ModuleType,
        episodes: list[SingleAgentEpisode],
        columns: dict[str, Tree],
        *,
        explore: bool,
    ) -> dict[str, Tree]:
        """Return the module's outputs [N, ...] after the connectors to the environments."""
        pieces = self._to_env
        if not pieces:
            return columns
        batch: Batch = {
            name: {
                batch_key(episode): [row(column, place)] for place, episode in enumerate(episodes)
            }
            for name, column in columns.items()
        }
        batch = ConnectorPipelineV2(connectors=pieces)(
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

    @property
    def pipelines(self) -> dict[str, ConnectorPipelineV2]:
        """Both pipelines, by name."""
        return {
            COMPONENT_ENV_TO_MODULE_CONNECTOR: self.env_to_module,
            COMPONENT_MODULE_TO_ENV_CONNECTOR: self.module_to_env,
        }

    def take_changes(self) -> StateDict | None:
        """Return the changes of both pipelines for merging, or None."""
        changes = {name: pipeline.take_changes() for name, pipeline in self.pipelines.items()}
        return changes if any(changes.values()) else None

    def set_merged_state(self, state: StateDict) -> None:
        """Set the merged states of both pipelines."""
        for name, pipeline in self.pipelines.items():
            pipeline.set_merged_state(state[name])


class MultiAgentConnections(Connections):
    """Connectors of a runner with several agents; batches contain the items of all agents."""

    def observe_agents(
        self, module: ModuleType, episodes: list[MultiAgentEpisode], *, explore: bool
    ) -> list[AgentDict[Tree]]:
        """Return the newest observations of each episode by agent, transformed for the modules."""
        shared: Batch = {}
        batch = ConnectorPipelineV2(connectors=self._to_module)(
            rl_module=module,
            batch={},
            episodes=episodes,
            explore=explore,
            shared_data=shared,
            metrics=self._metrics,
        )
        found: list[AgentDict[Tree]] = []
        for episode in episodes:
            singles = ConnectorV2.single_agent_episode_iterator([episode])
            found.append(
                {
                    single.agent_id: _observation(batch, single, shared.get(MEMORIZED))
                    for single in singles
                }
            )
        return found

    def act_agents(
        self,
        module: RLModule,
        episodes: dict[int, MultiAgentEpisode],
        columns: dict[int, AgentDict[dict[str, Tree]]],
        *,
        explore: bool,
    ) -> dict[int, AgentDict[dict[str, Tree]]]:
        """Return the modules' outputs by environment and agent, after the connectors to
        the environments.
        """
        pieces = self._to_env
        if not pieces:
            return columns
        singles = {
            (place, agent): episodes[place].agent_episodes[agent]
            for place, by_agent in columns.items()
            for agent in by_agent
        }
        batch: Batch = {}
        for (place, agent), single in singles.items():
            for name, value in columns[place][agent].items():
                ConnectorV2.add_batch_item(batch, name, value, single)
        batch = ConnectorPipelineV2(connectors=pieces)(
            rl_module=module,
            batch=batch,
            episodes=list(episodes.values()),
            explore=explore,
            shared_data={},
            metrics=self._metrics,
        )
        made: dict[int, AgentDict[dict[str, Tree]]] = {place: {} for place in columns}
        for (place, agent), single in singles.items():
            key = batch_key(single)
            made[place][agent] = {
                name: values[key][-1] if isinstance(values, dict) else values[place][agent]
                for name, values in batch.items()
                if key in values or (isinstance(values, list) and agent in values[place])
            }
        return made


def _observation(batch: Batch, single: SingleAgentEpisode, memorized: Tree) -> Tree:
    """Return an agent's observation from a batch, possibly grouped by module, else the newest."""
    key = batch_key(single)
    if Columns.OBS in batch and key in batch[Columns.OBS]:
        return batch[Columns.OBS][key][-1]
    of_module = batch.get(str(single.module_id))
    if memorized and isinstance(of_module, dict) and Columns.OBS in of_module:
        place = memorized[single.module_id].index(key)
        column = of_module[Columns.OBS]
        if isinstance(column, list):
            return column[place]
        return map_tree(lambda leaf: as_array(leaf)[place], column)
    return single.get_observations(-1)


def _item(values: object, episode: SingleAgentEpisode, place: int) -> Tree:
    """Return the item of an episode: by its key, or by its position in a batch."""
    if isinstance(values, dict) and batch_key(episode) in values:
        return values[batch_key(episode)][-1]
    if isinstance(values, list):
        return values[place]
    return map_tree(lambda leaf: as_array(leaf)[place], values)
