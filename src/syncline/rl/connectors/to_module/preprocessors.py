"""Connectors that change the newest observation of each episode.

They write it into the episode, so that later connectors and the learner see the changed value.
"""

from __future__ import annotations

import abc
from collections.abc import Collection
from typing import Any

import gymnasium as gym
import numpy as np

from syncline.rl.columns.names import Columns
from syncline.rl.connectors.agent_spaces import for_each_agent, space_of_agent
from syncline.rl.connectors.connector import Batch, ConnectorV2
from syncline.rl.connectors.to_module.items import items_of
from syncline.rl.episodes.episode_type import EpisodeType
from syncline.rl.value_types import AgentDict, AgentID, Episode, Episodes, Space, Tree


class SingleAgentObservationPreprocessor(ConnectorV2, abc.ABC):
    """Base of connectors that change the newest observation of an agent.

    Implement `preprocess`, and `recompute_output_observation_space` if the space changes; with
    several agents, spaces are Dicts by agent id.
    """

    @abc.abstractmethod
    def preprocess(self, observation: Tree, episode: EpisodeType) -> Tree:
        """Return the replacement of an observation.

        Args:
            observation: Newest observation of an agent.
            episode: The agent's `SingleAgentEpisode`.
        """

    def __call__(self, *, batch: Batch, episodes: Episodes, **kwargs: object) -> Batch:
        """Replace the newest observation of each episode."""
        for episode in self.single_agent_episode_iterator(episodes):
            changed = self.preprocess(observation=episode.get_observations(-1), episode=episode)
            space = self.observation_space
            if episode.agent_id is not None:
                space = _of_agent(space, episode.agent_id)
            write_newest(episode, changed, space)
        return batch


class MultiAgentObservationPreprocessor(ConnectorV2, abc.ABC):
    """Base of connectors that change the newest observations of all agents together.

    Implement `preprocess`, and `recompute_output_observation_space` if the spaces change.
    """

    @abc.abstractmethod
    def preprocess(self, observations: AgentDict[Tree], episode: EpisodeType) -> AgentDict[Tree]:
        """Return the replacements of the newest observations, by agent id.

        Args:
            observations: Newest observations of the agents with an observation.
            episode: The `MultiAgentEpisode`.
        """

    def __call__(self, *, batch: Batch, episodes: Episodes, **kwargs: object) -> Batch:
        """Replace the newest observations of each episode.

        Raises:
            ValueError: `preprocess` returned observations of other agents.
        """
        for episode in episodes:
            newest = {
                single.agent_id: single for single in self.single_agent_episode_iterator([episode])
            }
            observations = {agent: single.get_observations(-1) for agent, single in newest.items()}
            changed = self.preprocess(observations=dict(observations), episode=episode)
            if set(changed) != set(observations):
                raise ValueError(
                    f"{type(self).__name__}.preprocess() returned observations of the agents "
                    f"{sorted(map(str, changed))}, but must return those of the given agents: "
                    f"{sorted(map(str, observations))}."
                )
            for agent, observation in changed.items():
                space = _of_agent(self.observation_space, agent)
                write_newest(newest[agent], observation, space)
        return batch


def _of_agent(space: Space, agent: AgentID) -> Any:
    """Return the space of an agent in a Dict by agent, or else the space itself."""
    if isinstance(space, gym.spaces.Dict) and agent in space.spaces:
        return space[agent]
    return space


class FlattenObservations(ConnectorV2):
    """Flattens each observation to a vector; Discrete parts become one-hot.

    Args:
        multi_agent: Spaces are Dicts by agent id.
        agent_ids: Agents whose observations are flattened; None for all agents.
        as_learner_connector: Flatten the observations of whole episodes into the batch.
        keys_to_remove: Keys of Dict observations to leave out.
    """

    def __init__(
        self,
        input_observation_space: Space | None = None,
        input_action_space: Space | None = None,
        *,
        multi_agent: bool = False,
        agent_ids: Collection[AgentID] | None = None,
        as_learner_connector: bool = False,
        keys_to_remove: Collection[str] | None = None,
        **kwargs: object,
    ) -> None:
        self._multi_agent = multi_agent
        self._agent_ids = agent_ids
        self._whole = as_learner_connector
        self._left_out = set(keys_to_remove or ())
        super().__init__(input_observation_space, input_action_space, **kwargs)
        self._kwargs = {
            "multi_agent": multi_agent,
            "agent_ids": agent_ids,
            "as_learner_connector": as_learner_connector,
            "keys_to_remove": keys_to_remove,
        }

    def recompute_output_observation_space(
        self, input_observation_space: Space | None, input_action_space: Space | None
    ) -> Any:
        """Return the spaces of the vectors."""
        return for_each_agent(
            self._vector_space,
            input_observation_space,
            multi_agent=self._multi_agent,
            agent_ids=self._agent_ids,
        )

    def _vector_space(self, space: Space) -> gym.spaces.Box:
        size = gym.spaces.flatdim(self._without_keys(space))
        return gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def _without_keys(self, space: Space) -> Space:
        if not self._left_out:
            return space
        if not isinstance(space, gym.spaces.Dict):
            raise ValueError(
                f"`keys_to_remove={sorted(self._left_out)}` needs Dict observations, but the space "
                f"is {space}. Remove the argument."
            )
        return gym.spaces.Dict(
            {key: each for key, each in space.spaces.items() if key not in self._left_out}
        )

    def __call__(self, *, batch: Batch, episodes: Episodes, **kwargs: object) -> Batch:
        """Flatten the newest observations; for learners, all observations."""
        for episode in self.single_agent_episode_iterator(
            episodes, agents_that_stepped_only=not self._whole
        ):
            if self._agent_ids is not None and episode.agent_id not in self._agent_ids:
                continue
            given = self.input_observation_space or episode.observation_space
            space = self._without_keys(space_of_agent(given, episode, self._multi_agent))
            if self._whole:
                items = items_of(episode.get_observations(slice(0, len(episode))))
                flat = [self._flat(space, item) for item in items]
                self.add_n_batch_items(batch, Columns.OBS, flat, len(flat), episode)
            else:
                changed = self._flat(space, episode.get_observations(-1))
                write_newest(episode, changed, gym.spaces.Box(-np.inf, np.inf, changed.shape))
        return batch

    def _flat(self, space: Space, observation: Tree) -> np.ndarray:
        if self._left_out:
            observation = {
                key: each for key, each in observation.items() if key not in self._left_out
            }
        return np.asarray(gym.spaces.flatten(space, observation), np.float32)


class PrevActionsPrevRewards(ConnectorV2):
    """Extends each observation to a Dict with previous actions (one-hot) and previous rewards.

    Args:
        multi_agent: Spaces are Dicts by agent id.
        n_prev_actions: Number of previous actions; 0 for none.
        n_prev_rewards: Number of previous rewards; 0 for none.
    """

    ORIG_OBS_KEY = "_orig_obs"
    PREV_ACTIONS_KEY = "prev_n_actions"
    PREV_REWARDS_KEY = "prev_n_rewards"

    def __init__(
        self,
        input_observation_space: Space | None = None,
        input_action_space: Space | None = None,
        *,
        multi_agent: bool = False,
        n_prev_actions: int = 1,
        n_prev_rewards: int = 1,
        **kwargs: object,
    ) -> None:
        self._multi_agent = multi_agent
        self.n_prev_actions = n_prev_actions
        self.n_prev_rewards = n_prev_rewards
        super().__init__(input_observation_space, input_action_space, **kwargs)
        self._kwargs = {
            "multi_agent": multi_agent,
            "n_prev_actions": n_prev_actions,
            "n_prev_rewards": n_prev_rewards,
        }

    def recompute_output_observation_space(
        self, input_observation_space: Space | None, input_action_space: Space | None
    ) -> Any:
        """Return the spaces of the Dicts."""
        if input_action_space is None:
            return input_observation_space
        return for_each_agent(
            self._extended,
            input_observation_space,
            input_action_space,
            multi_agent=self._multi_agent,
        )

    def _extended(self, observation_space: Space, action_space: Space) -> gym.spaces.Dict:
        parts = {self.ORIG_OBS_KEY: observation_space}
        if self.n_prev_actions:
            size = gym.spaces.flatdim(action_space) * self.n_prev_actions
            parts[self.PREV_ACTIONS_KEY] = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        if self.n_prev_rewards:
            shape = (self.n_prev_rewards,)
            parts[self.PREV_REWARDS_KEY] = gym.spaces.Box(-np.inf, np.inf, shape, np.float32)
        return gym.spaces.Dict(parts)

    def __call__(self, *, batch: Batch, episodes: Episodes, **kwargs: object) -> Batch:
        """Extend the newest observation of each episode."""
        for episode in self.single_agent_episode_iterator(episodes):
            extended: Batch = {self.ORIG_OBS_KEY: episode.get_observations(-1)}
            if self.n_prev_actions:
                space = space_of_agent(self.input_action_space, episode, self._multi_agent)
                extended[self.PREV_ACTIONS_KEY] = self._actions(episode, space)
            if self.n_prev_rewards:
                extended[self.PREV_REWARDS_KEY] = _last(episode.rewards, self.n_prev_rewards, ())
            space = self.observation_space
            if self._multi_agent:
                space = space[episode.agent_id]
            write_newest(episode, extended, space)
        return batch

    def _actions(self, episode: Episode, space: Space) -> np.ndarray:
        size = gym.spaces.flatdim(space)
        known = episode.actions.len_incl_lookback()
        taken = [
            np.asarray(gym.spaces.flatten(space, episode.get_actions(-back)), np.float32)
            for back in range(min(self.n_prev_actions, known), 0, -1)
        ]
        missing = [np.zeros(size, np.float32)] * (self.n_prev_actions - len(taken))
        return np.concatenate([*missing, *taken])


def _last(buffer: Any, count: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return the last items of a buffer, padded with zeros in front."""
    known = min(buffer.len_incl_lookback(), count)
    items = [np.asarray(buffer.get(-back), np.float32) for back in range(known, 0, -1)]
    return np.stack([np.zeros(shape, np.float32)] * (count - known) + items)


class WriteObservationsToEpisodes(ConnectorV2):
    """Writes the observations of the batch into the episodes as the newest ones."""

    def __call__(self, *, batch: Batch, episodes: Episodes, **kwargs: object) -> Batch:
        """Write the column.

        Raises:
            ValueError: The batch has no observations.
        """
        if Columns.OBS not in batch:
            raise ValueError(
                "WriteObservationsToEpisodes found no column 'obs' in the batch. Put "
                "AddObservationsFromEpisodesToBatch, or another connector that adds it, before."
            )
        for episode, observation in self.single_agent_episode_iterator(
            episodes, zip_with_batch_column=batch[Columns.OBS]
        ):
            write_newest(episode, observation, _of_agent(self.observation_space, episode.agent_id))
        return batch


def write_newest(episode: EpisodeType, observation: Tree, space: Space) -> None:
    """Replace the newest observation of an episode and set its observation space."""
    episode.set_observations(at_indices=-1, new_data=observation)
    episode.observation_space = space
