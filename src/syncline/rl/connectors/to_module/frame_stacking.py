"""`FrameStacking`: concatenates the last observations of an episode along their last axis.

Before a module, the stacked observation goes into the batch, and the episode keeps single frames.
Samples of runners contain stacked observations, so the learner connector has nothing to do for
them; it only stacks the frames of other episodes, such as recorded ones.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from syncline.rl.columns.names import Columns
from syncline.rl.connectors.agent_spaces import for_each_agent
from syncline.rl.connectors.connector import Batch, ConnectorV2, batch_key
from syncline.rl.connectors.to_module.items import module_of
from syncline.rl.episodes.episode_type import EpisodeType
from syncline.rl.modules.rl_module import RLModule
from syncline.rl.value_types import Episode, Episodes, Space


class FrameStacking(ConnectorV2):
    """Stacks the last `num_frames` observations, padded with zeros at the start of an episode.

    Args:
        num_frames: Number of observations.
        multi_agent: Spaces are Dicts by agent id.
        as_learner_connector: Stack for every step of whole episodes.
    """

    def __init__(
        self,
        input_observation_space: Space | None = None,
        input_action_space: Space | None = None,
        *,
        num_frames: int = 1,
        multi_agent: bool = False,
        as_learner_connector: bool = False,
        **kwargs: object,
    ) -> None:
        if num_frames < 1:
            raise ValueError(f"`num_frames={num_frames}` must be at least 1.")
        self.num_frames = num_frames
        self._multi_agent = multi_agent
        self._whole = as_learner_connector
        super().__init__(input_observation_space, input_action_space, **kwargs)
        self._kwargs = {
            "num_frames": num_frames,
            "multi_agent": multi_agent,
            "as_learner_connector": as_learner_connector,
        }

    def recompute_output_observation_space(
        self, input_observation_space: Space | None, input_action_space: Space | None
    ) -> Any:
        """Return the space with a last axis that is `num_frames` times as long."""
        if self._whole:
            return input_observation_space
        return for_each_agent(
            self._stacked_space, input_observation_space, multi_agent=self._multi_agent
        )

    def _stacked_space(self, space: Space) -> gym.spaces.Box:
        if not isinstance(space, gym.spaces.Box) or not space.shape:
            raise ValueError(
                f"Frames of {space} cannot be stacked: only arrays can. Put FlattenObservations "
                "before the frame stacking."
            )
        return gym.spaces.Box(
            np.concatenate([space.low] * self.num_frames, axis=-1),
            np.concatenate([space.high] * self.num_frames, axis=-1),
            dtype=space.dtype.type,
        )

    def __call__(
        self, *, rl_module: RLModule, batch: Batch, episodes: Episodes, **kwargs: object
    ) -> Batch:
        """Add the stacked observations to the batch."""
        for episode in self.single_agent_episode_iterator(
            episodes, agents_that_stepped_only=not self._whole
        ):
            if not self._whole:
                self.add_batch_item(batch, Columns.OBS, self._stacked(episode, -1), episode)
            elif not self._is_stacked(rl_module, episode):
                stacked = [self._stacked(episode, t) for t in range(len(episode))]
                self.add_n_batch_items(batch, Columns.OBS, stacked, len(stacked), episode)
        return batch

    def _is_stacked(self, rl_module: RLModule, episode: EpisodeType) -> bool:
        """Return True if the observations already have the module's shape."""
        module = module_of(rl_module, batch_key(episode))
        space = getattr(module, "observation_space", None)
        shape = np.shape(episode.get_observations(0))
        return space is not None and space.shape == shape

    def _stacked(self, episode: Episode, t: int) -> np.ndarray:
        buffer = episode.observations
        last = t if t >= 0 else len(buffer) + t
        frames = []
        for step in range(last - self.num_frames + 1, last + 1):
            if step < -buffer.lookback:
                frames.append(np.zeros_like(np.asarray(buffer.get(0))))
            else:
                frames.append(np.asarray(buffer.get(step, neg_index_as_lookback=True)))
        return np.concatenate(frames, axis=-1)


class FrameStackingEnvToModule(FrameStacking):
    """Stacks the newest observations for a module."""


class FrameStackingLearner(FrameStacking):
    """Stacks the observations of whole episodes for a learner."""

    def __init__(self, *args: Any, as_learner_connector: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, as_learner_connector=as_learner_connector, **kwargs)
