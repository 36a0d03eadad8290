"""`MeanStdFilter`: standardizes observations by running means and standard deviations.

Statistics of several env runners are merged exactly: each runner stores the merged statistics and,
separately, its local statistics since the last merge (Chan et al. 1983, parallel variance).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from syncline.rl.checkpointable import StateDict
from syncline.rl.columns.trees import leaves, map_tree, stack_trees
from syncline.rl.connectors.agent_spaces import for_each_agent, space_of_agent
from syncline.rl.connectors.connector import Batch, ConnectorV2
from syncline.rl.connectors.to_module.preprocessors import write_newest
from syncline.rl.episodes.episode_type import EpisodeType
from syncline.rl.value_types import AgentDict, AgentID, CheckedSpace, Episodes, Space, Tree

SMALLEST_STD = 1e-8


@dataclass(kw_only=True)
class Moments:
    """Number, mean and sum of squared deviations of arrays."""

    count: float
    mean: np.ndarray
    squares: np.ndarray

    @classmethod
    def of_none(cls, shape: tuple[int, ...]) -> Moments:
        """Return the moments of an empty set."""
        return cls(count=0.0, mean=np.zeros(shape), squares=np.zeros(shape))

    @classmethod
    def of(cls, values: np.ndarray) -> Moments:
        """Return the moments of arrays [B, …]."""
        mean = values.mean(axis=0)
        return cls(
            count=float(len(values)), mean=mean, squares=np.square(values - mean).sum(axis=0)
        )

    def joined(self, other: Moments) -> Moments:
        """Return the moments of the union of both sets."""
        count = self.count + other.count
        if not other.count:
            return self
        if not self.count:
            return other
        change = other.mean - self.mean
        return Moments(
            count=count,
            mean=self.mean + change * (other.count / count),
            squares=self.squares
            + other.squares
            + np.square(change) * (self.count * other.count / count),
        )

    @property
    def std(self) -> np.ndarray:
        """Standard deviation; 1 for fewer than two arrays."""
        if self.count < 2:
            return np.ones_like(self.mean)
        std: np.ndarray = np.sqrt(self.squares / (self.count - 1))
        return std

    def get_state(self) -> StateDict:
        """Return the three values."""
        return {"count": self.count, "mean": self.mean, "squares": self.squares}


class MeanStdFilter(ConnectorV2):
    """Standardizes the Box parts of observations and writes them into the episodes.

    Args:
        multi_agent: Spaces are Dicts by agent id; each agent has separate statistics.
        de_mean_to_zero: Subtract the mean.
        de_std_to_one: Divide by the standard deviation.
        clip_by_value: Maximum absolute value of the result; None for no limit.
        update_stats: Update the statistics; False in production and in evaluation.
    """

    def __init__(
        self,
        input_observation_space: Space | None = None,
        input_action_space: Space | None = None,
        *,
        multi_agent: bool = False,
        de_mean_to_zero: bool = True,
        de_std_to_one: bool = True,
        clip_by_value: float | None = 10.0,
        update_stats: bool = True,
        **kwargs: object,
    ) -> None:
        self._multi_agent = multi_agent
        self.de_mean_to_zero = de_mean_to_zero
        self.de_std_to_one = de_std_to_one
        self.clip_by_value = clip_by_value
        self.update_stats = update_stats
        self._merged: AgentDict[list[Moments]] = {}
        """Merged statistics of all runners, by agent and leaf of its space."""
        self._own: AgentDict[list[Moments]] = {}
        """Local statistics since the last merge."""
        super().__init__(input_observation_space, input_action_space, **kwargs)
        self._kwargs = {
            "multi_agent": multi_agent,
            "de_mean_to_zero": de_mean_to_zero,
            "de_std_to_one": de_std_to_one,
            "clip_by_value": clip_by_value,
            "update_stats": update_stats,
        }

    def recompute_output_observation_space(
        self, input_observation_space: Space | None, input_action_space: Space | None
    ) -> Any:
        """Return the space with the bounds of the results."""
        return for_each_agent(
            self._filtered, input_observation_space, multi_agent=self._multi_agent
        )

    def _filtered(self, space: Space) -> Space:
        if isinstance(space, gym.spaces.Dict):
            return gym.spaces.Dict({k: self._filtered(each) for k, each in space.spaces.items()})
        if isinstance(space, gym.spaces.Tuple):
            return gym.spaces.Tuple([self._filtered(each) for each in space.spaces])
        if not isinstance(space, gym.spaces.Box):
            return space
        limit = np.inf if self.clip_by_value is None else self.clip_by_value
        return gym.spaces.Box(-limit, limit, space.shape, np.float32)

    def __call__(self, *, batch: Batch, episodes: Episodes, **kwargs: object) -> Batch:
        """Update the statistics with the newest observations, then standardize them."""
        by_agent: AgentDict[list[Tree]] = {}
        for episode in self.single_agent_episode_iterator(episodes):
            agent = episode.agent_id if self._multi_agent else None
            by_agent.setdefault(agent, []).append(episode)
        for agent, each in by_agent.items():
            self._filter(agent, each)
        return batch

    def _filter(self, agent: AgentID, episodes: list[EpisodeType]) -> None:
        space = space_of_agent(self.input_observation_space, episodes[0], self._multi_agent)
        observations = stack_trees(
            np.stack, [map_tree(np.asarray, each.get_observations(-1)) for each in episodes]
        )
        boxes = _boxes(space)
        merged, own = self._of_agent(agent, boxes)
        columns = leaves(observations)
        if self.update_stats:
            for place, box in enumerate(boxes):
                if box is not None:
                    seen = Moments.of(columns[place].astype(np.float64))
                    own[place] = own[place].joined(seen)
        known = [a.joined(b) for a, b in zip(merged, own, strict=True)]
        numbers = iter(range(len(boxes)))
        filtered = map_tree(
            lambda leaf: self._standardized(leaf, boxes, known, next(numbers)), observations
        )
        changed = self._filtered(space)
        for place, episode in enumerate(episodes):
            row = map_tree(lambda leaf, place=place: leaf[place], filtered)
            write_newest(episode, row, changed)

    def _standardized(
        self, values: np.ndarray, boxes: list[CheckedSpace], known: list[Moments], place: int
    ) -> np.ndarray:
        if boxes[place] is None:
            return values
        moments = known[place]
        made = values.astype(np.float64)
        if self.de_mean_to_zero:
            made = made - moments.mean
        if self.de_std_to_one:
            made = made / (moments.std + SMALLEST_STD)
        if self.clip_by_value is not None:
            made = np.clip(made, -self.clip_by_value, self.clip_by_value)
        return made.astype(np.float32)

    def _of_agent(
        self, agent: AgentID, boxes: list[CheckedSpace]
    ) -> tuple[list[Moments], list[Moments]]:
        if agent not in self._merged:
            self._merged[agent] = [
                Moments.of_none(() if box is None else box.shape) for box in boxes
            ]
        if agent not in self._own:
            self._own[agent] = [Moments.of_none(each.mean.shape) for each in self._merged[agent]]
        return self._merged[agent], self._own[agent]

    # -- state

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: object,
    ) -> StateDict:
        """Return the merged and the local statistics by agent."""
        return {"merged": _states(self._merged), "own": _states(self._own)}

    def set_state(self, state: StateDict) -> None:
        """Restore the state that `get_state` or `merge_states` returned."""
        self._merged = _moments(state["merged"])
        self._own = _moments(state["own"])

    def reset_state(self) -> None:
        """Clear the statistics."""
        self._merged, self._own = {}, {}

    def take_changes(self) -> StateDict:
        """Return the state, and move the local statistics to the merged ones."""
        state = self.get_state()
        self._merged, self._own = _joined(self._merged, self._own), {}
        return state

    def join_changes(self, changes: list[StateDict]) -> StateDict:
        """Return the first state combined with the local statistics of all states."""
        own: AgentDict[list[Moments]] = {}
        for each in changes:
            own = _joined(own, _moments(each["own"]))
        return {"merged": changes[0]["merged"], "own": _states(own)}

    def set_merged_state(self, state: StateDict) -> None:
        """Set the merged statistics; keep the local ones."""
        self._merged = _moments(state["merged"])

    def merge_states(self, states: list[StateDict]) -> StateDict:
        """Return the statistics of this filter combined with the local ones of the others."""
        made = _joined(self._merged, self._own)
        for state in states:
            for agent, known in _moments(state["merged"]).items():
                if agent not in made:
                    made[agent] = known
        for state in states:
            made = _joined(made, _moments(state["own"]))
        return {"merged": _states(made), "own": {}}


def _joined(
    one: AgentDict[list[Moments]], other: AgentDict[list[Moments]]
) -> AgentDict[list[Moments]]:
    """Return the union of both statistics, by agent."""
    made = dict(one)
    for agent, known in other.items():
        made[agent] = (
            [a.joined(b) for a, b in zip(made[agent], known, strict=True)]
            if agent in made
            else known
        )
    return made


def _boxes(space: Space) -> list[CheckedSpace]:
    """Return the leaves of a space in the order of its values; None for leaves without a mean."""
    if isinstance(space, gym.spaces.Dict):
        return [box for each in space.spaces.values() for box in _boxes(each)]
    if isinstance(space, gym.spaces.Tuple):
        return [box for each in space.spaces for box in _boxes(each)]
    return [space if isinstance(space, gym.spaces.Box) else None]


def _states(by_agent: AgentDict[list[Moments]]) -> AgentDict[list[StateDict]]:
    return {agent: [each.get_state() for each in known] for agent, known in by_agent.items()}


def _moments(by_agent: AgentDict[list[StateDict]]) -> AgentDict[list[Moments]]:
    return {agent: [Moments(**each) for each in known] for agent, known in by_agent.items()}
