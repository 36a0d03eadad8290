"""Connectors that convert episodes to the columns of a training batch.

Learners do the work of the default connectors on whole fragments, so these run only if a program
calls a pipeline itself or appends connectors to them.
"""

from __future__ import annotations

import numpy as np

from syncline.rl.columns.names import Columns
from syncline.rl.connectors.connector import Batch, ConnectorV2
from syncline.rl.connectors.to_module.items import MASK_ADDED, DefaultConnector, items_of
from syncline.rl.returns.n_step import discounted_returns
from syncline.rl.value_types import Episode, Episodes, Space


class AddOneTsToEpisodesAndTruncate(DefaultConnector):
    """Adds a step to each episode, whose value bootstraps the last real step.

    The added step has the last observation, no reward, and False in `loss_mask`.
    """

    def __call__(
        self,
        *,
        batch: Batch,
        episodes: Episodes,
        shared_data: Batch | None = None,
        **kwargs: object,
    ) -> Batch:
        """Extend the episodes, and add the masks of ends and of real steps."""
        singles = list(self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False))
        for number, episode in enumerate(singles):
            # Several parts of one episode must have different keys.
            episode.id_ = f"{episode.id_}_{number}"
            steps = len(episode)
            _repeat_last(episode)
            last = [False] * (steps - 1)
            for column, items in (
                (Columns.LOSS_MASK, [True] * steps + [False]),
                (Columns.TERMINATEDS, [*last, bool(episode.is_terminated), False]),
                (Columns.TRUNCATEDS, [*last, not episode.is_terminated, False]),
            ):
                values = [np.bool_(item) for item in items]
                self.add_n_batch_items(batch, column, values, steps + 1, episode)
            if not episode.is_done:
                episode.is_truncated = True
        if shared_data is not None:
            shared_data[MASK_ADDED] = True
        return batch


def _repeat_last(episode: Episode) -> None:
    """Append a step that repeats the last observation and action, without reward."""
    for buffer in (
        episode.observations,
        episode.infos,
        episode.actions,
        *episode.extra_model_outputs.values(),
    ):
        buffer.append(buffer.get(-1))
    episode.rewards.append(np.float32(0.0))
    episode.t += 1


class AddColumnsFromEpisodesToTrainBatch(DefaultConnector):
    """Adds actions, rewards, ends, and all outputs of the module except its states."""

    def __call__(self, *, batch: Batch, episodes: Episodes, **kwargs: object) -> Batch:
        """Add the columns that are missing in the batch."""
        lacking = {
            name
            for name in (Columns.ACTIONS, Columns.REWARDS, Columns.TERMINATEDS, Columns.TRUNCATEDS)
            if name not in batch
        }
        present = set(batch)
        for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False):
            steps = len(episode)
            last = [np.bool_(False)] * (steps - 1)
            columns = {
                Columns.ACTIONS: items_of(episode.get_actions()),
                Columns.REWARDS: [np.float32(each) for each in episode.get_rewards()],
                Columns.TERMINATEDS: [*last, np.bool_(episode.is_terminated)],
                Columns.TRUNCATEDS: [*last, np.bool_(episode.is_truncated)],
            }
            columns = {name: items for name, items in columns.items() if name in lacking}
            for name in episode.extra_model_outputs:
                if name not in present and name != Columns.STATE_OUT:
                    columns[name] = items_of(episode.get_extra_model_outputs(name))
            for name, items in columns.items():
                self.add_n_batch_items(batch, name, items, steps, episode)
        return batch


class AddNextObservationsFromEpisodesToTrainBatch(ConnectorV2):
    """Adds the observation after each step as `new_obs`."""

    def __call__(self, *, batch: Batch, episodes: Episodes, **kwargs: object) -> Batch:
        """Add the column unless the batch has it."""
        if Columns.NEXT_OBS in batch:
            return batch
        for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False):
            steps = len(episode)
            items = items_of(episode.get_observations(slice(1, steps + 1)))
            self.add_n_batch_items(batch, Columns.NEXT_OBS, items, steps, episode)
        return batch


class AddInfosFromEpisodesToTrainBatch(ConnectorV2):
    """Adds the info before each step as `infos`."""

    def __call__(self, *, batch: Batch, episodes: Episodes, **kwargs: object) -> Batch:
        """Add the column unless the batch has it."""
        if Columns.INFOS in batch:
            return batch
        for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False):
            steps = len(episode)
            infos = episode.get_infos(slice(0, steps))
            self.add_n_batch_items(batch, Columns.INFOS, infos, steps, episode)
        return batch


class ComputeReturnsToGo(ConnectorV2):
    """Adds the discounted sum of the rewards from each step to the end as `returns_to_go`.

    Args:
        gamma: Discount factor.
    """

    def __init__(
        self,
        input_observation_space: Space | None = None,
        input_action_space: Space | None = None,
        *,
        gamma: float,
        **kwargs: object,
    ) -> None:
        super().__init__(input_observation_space, input_action_space, **kwargs)
        self.gamma = gamma
        self._kwargs = {"gamma": gamma}

    def __call__(self, *, batch: Batch, episodes: Episodes, **kwargs: object) -> Batch:
        """Add the column."""
        for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False):
            rewards = np.asarray(episode.get_rewards(), np.float32)[:, None]
            returns = discounted_returns(rewards, np.zeros(rewards.shape, bool), self.gamma)[:, 0]
            items = list(returns)
            self.add_n_batch_items(batch, Columns.RETURNS_TO_GO, items, len(items), episode)
        return batch
