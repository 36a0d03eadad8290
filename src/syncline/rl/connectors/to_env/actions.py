"""Default connectors from a module to environments.

Runners do the same work on whole columns, so these connectors run only if a program calls a
pipeline itself or inserts connectors before them.
"""

from __future__ import annotations

import numpy as np

from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import map_tree, stack_trees
from syncline.rl.connectors.agent_spaces import space_of_agent
from syncline.rl.connectors.connector import Batch, batch_key
from syncline.rl.connectors.to_module.items import MEMORIZED, DefaultConnector, module_of
from syncline.rl.episodes.episode_type import EpisodeType
from syncline.rl.runners.actions import ToEnv, actions_for_env
from syncline.rl.value_types import AgentDict, Episode, Episodes, Space, Tree


class UnBatchToIndividualItems(DefaultConnector):
    """Splits arrays into items, under the keys of their episodes."""

    def __call__(
        self,
        *,
        batch: Batch,
        episodes: Episodes,
        shared_data: Batch | None = None,
        **kwargs: object,
    ) -> Batch:
        """Split all columns; with several modules, the columns of each."""
        memorized = (shared_data or {}).get(MEMORIZED)
        if memorized is None:
            keys = [batch_key(each) for each in self.single_agent_episode_iterator(episodes)]
            memorized = {None: keys}
        if None in memorized:
            return {name: _by_key(column, memorized[None]) for name, column in batch.items()}
        return {
            module_id: {
                name: _by_key(column, memorized[module_id]) for name, column in each.items()
            }
            for module_id, each in batch.items()
        }


def _by_key(column: object, keys: list[Tree]) -> Tree:
    if isinstance(column, dict) and any(key in column for key in keys):
        return column
    made: AgentDict[list[Tree]] = {}
    for place, key in enumerate(keys):
        made.setdefault(key, []).append(map_tree(lambda leaf, n=place: leaf[n], column))
    return made


class ModuleToAgentUnmapping(DefaultConnector):
    """Groups the items of modules by agent: module -> column -> key becomes column -> key."""

    def __call__(self, *, batch: Batch, **kwargs: object) -> Batch:
        """Regroup all columns."""
        made: Batch = {}
        for columns in batch.values():
            for name, items in columns.items():
                made.setdefault(name, {}).update(items)
        return made


class RemoveSingleTsTimeRankFromBatch(DefaultConnector):
    """Removes the time dimension from the items of modules with memory."""

    def __call__(self, *, rl_module: object, batch: Batch, **kwargs: object) -> Batch:
        """Change all columns except states."""
        for column, values in batch.items():
            if column in (Columns.STATE_OUT, Columns.STATE_IN) or not isinstance(values, dict):
                continue
            for key, items in values.items():
                module = module_of(rl_module, key)
                if module is not None and module.is_stateful():
                    values[key] = [map_tree(lambda leaf: leaf[0], item) for item in items]
        return batch


class NormalizeAndClipActions(DefaultConnector):
    """Adds the actions for `env.step`: unsquashed to the bounds, or clipped.

    Args:
        normalize_actions: Modules act in [-1, 1].
        clip_actions: Clip to the bounds.
    """

    def __init__(
        self,
        input_observation_space: Space | None = None,
        input_action_space: Space | None = None,
        *,
        normalize_actions: bool,
        clip_actions: bool,
        **kwargs: object,
    ) -> None:
        super().__init__(input_observation_space, input_action_space, **kwargs)
        self.normalize_actions = normalize_actions
        self.clip_actions = clip_actions
        self._kwargs = {"normalize_actions": normalize_actions, "clip_actions": clip_actions}

    def __call__(self, *, batch: Batch, episodes: Episodes, **kwargs: object) -> Batch:
        """Add the column `actions_for_env` unless the batch has it."""
        if Columns.ACTIONS_FOR_ENV in batch:
            return batch
        made: AgentDict[list[Tree]] = {}
        for episode, action in self.single_agent_episode_iterator(
            episodes, zip_with_batch_column=batch[Columns.ACTIONS]
        ):
            to_env = self._to_env(episode)
            made[batch_key(episode)] = [action if to_env is None else to_env(action)]
        batch[Columns.ACTIONS_FOR_ENV] = made
        return batch

    def _to_env(self, episode: Episode) -> ToEnv | None:
        space = self.input_action_space
        several = episode.agent_id is not None and hasattr(space, "spaces")
        return actions_for_env(
            space_of_agent(space, episode, several),
            normalize=self.normalize_actions,
            clip=self.clip_actions,
        )


class ListifyDataForVectorEnv(DefaultConnector):
    """Converts each column to a list with one item per environment, and actions to arrays.

    With several agents, the items are dicts by agent id.
    """

    def __call__(self, *, batch: Batch, episodes: Episodes, **kwargs: object) -> Batch:
        """Convert all columns."""
        if episodes and hasattr(episodes[0], "agent_episodes"):
            return {name: self._by_agent(items, episodes) for name, items in batch.items()}
        made: Batch = {}
        for name, items in batch.items():
            listed = [item for each in items.values() for item in each]
            if name in (Columns.ACTIONS, Columns.ACTIONS_FOR_ENV) and listed:
                made[name] = stack_trees(np.stack, [map_tree(np.asarray, each) for each in listed])
            else:
                made[name] = listed
        return made

    def _by_agent(
        self, items: AgentDict[list[Tree]], episodes: list[EpisodeType]
    ) -> list[AgentDict[Tree]]:
        places = {episode.id_: place for place, episode in enumerate(episodes)}
        made: list[AgentDict[Tree]] = [{} for _ in episodes]
        for (episode_id, agent, _), values in items.items():
            made[places[episode_id]][agent] = values[0]
        return made
