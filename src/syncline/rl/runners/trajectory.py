"""`Trajectory`: the steps of one agent in one environment during sampling.

An agent's step lasts from its observation to its next one, or to the end of its episode; rewards in
between are summed. An unfinished step is kept for the next fragment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from syncline.rl.columns.fragment import Fragment
from syncline.rl.columns.trees import Tree, map_tree, stack_trees


@dataclass(kw_only=True)
class Row:
    """A finished step."""

    obs: Tree
    columns: dict[str, Tree]
    reward: float
    terminated: bool
    truncated: bool
    final_obs: Tree
    """Observation after the step if it ended its episode, else None."""
    state: Tree
    """State of the module before the step; None for stateless modules."""
    episode: int
    """Index of the environment's episode."""


class Trajectory:
    """The steps of an agent that uses one module.

    Args:
        number: Index of the trajectory within the algorithm.
        env: Index of the environment in its runner.
        agent: Id of the agent.
    """

    def __init__(self, number: int, env: int, agent: Any) -> None:
        self.number = number
        self.env = env
        self.agent = agent
        self.rows: list[Row] = []
        self.obs: Tree = None
        """Observation of the current step; None outside of episodes."""
        self.state: Tree = None
        """State of the module before that observation."""
        self.next_state: Tree = None
        self.columns: dict[str, Tree] | None = None
        """Columns of the unfinished step; None if the agent has not acted."""
        self.reward = 0.0
        self.first_step = 0
        self._steps = 0

    def acted(self, columns: dict[str, Tree], next_state: Tree) -> None:
        """Begin a step."""
        self.columns, self.next_state = columns, next_state

    def observed(self, obs: Tree, initial_state: Tree, episode: int) -> None:
        """End the unfinished step, if any, at the agent's next observation."""
        if self.columns is None:
            self.state = initial_state
        else:
            self._close(False, False, None, episode)
            self.state = self.next_state
        self.obs = obs

    def ended(self, terminated: bool, truncated: bool, final_obs: Tree, episode: int) -> None:
        """End the step and the episode."""
        if self.columns is not None:
            self._close(terminated, truncated, final_obs, episode)
        self.obs, self.state, self.reward, self._steps = None, None, 0.0, 0

    def _close(self, terminated: bool, truncated: bool, final_obs: Tree, episode: int) -> None:
        assert self.columns is not None
        self.rows.append(
            Row(
                obs=self.obs,
                columns=self.columns,
                reward=self.reward,
                terminated=terminated,
                truncated=truncated,
                final_obs=final_obs,
                state=self.state,
                episode=episode,
            )
        )
        self.columns, self.reward = None, 0.0
        self._steps += 1

    def handed_over(self) -> None:
        """Discard the finished steps."""
        self.rows = []
        self.first_step = self._steps


def fragment_of(
    trajectories: Sequence[Trajectory], state_every: int, weights_version: int
) -> Fragment:
    """Return the finished steps of trajectories (at least one each) as a fragment.

    Trajectories are padded to the longest.
    """
    lengths = np.array([len(each.rows) for each in trajectories])
    length, width = int(lengths.max()), len(trajectories)
    first = trajectories[0].rows[0]
    valid = np.arange(length)[:, None] < lengths
    rewards = np.zeros((length, width), np.float32)
    terminated, truncated = np.zeros((2, length, width), bool)
    obs = map_tree(lambda leaf: _zeros((length + 1, width), leaf), first.obs)
    columns = map_tree(lambda leaf: _zeros((length, width), leaf), first.columns)
    finals = []
    for n, trajectory in enumerate(trajectories):
        rows = trajectory.rows
        count = len(rows)
        rewards[:count, n] = [row.reward for row in rows]
        terminated[:count, n] = [row.terminated for row in rows]
        truncated[:count, n] = [row.truncated for row in rows]
        observations = [row.obs for row in rows]
        if trajectory.obs is not None:
            observations.append(trajectory.obs)
        map_tree(_fill(n), obs, stack_trees(np.stack, observations))
        map_tree(_fill(n), columns, stack_trees(np.stack, [row.columns for row in rows]))
        finals += [
            (t, n, row.final_obs) for t, row in enumerate(rows) if row.terminated or row.truncated
        ]
    finals.sort(key=lambda final: final[:2])
    if finals:
        final_obs = stack_trees(_stacked, [final for _, _, final in finals])
    else:
        final_obs = map_tree(lambda leaf: leaf[0, :0], obs)
    return Fragment(
        obs=obs,
        columns=columns,
        rewards=rewards,
        terminated=terminated,
        truncated=truncated,
        final_at=np.array([(t, n) for t, n, _ in finals], np.int64).reshape(-1, 2),
        final_obs=final_obs,
        valid=None if valid.all() else valid,
        states=_states(trajectories, length, state_every),
        state_every=state_every if first.state is not None else 0,
        first_step=np.array([each.first_step for each in trajectories]),
        episode=np.array([each.rows[0].episode for each in trajectories]),
        env=np.array([each.number for each in trajectories]),
        weights_version=weights_version,
    )


def _states(trajectories: Sequence[Trajectory], length: int, every: int) -> Tree:
    """Return the states before each `every`-th step, [ceil(T / every), N, …], or None."""
    first = trajectories[0].rows[0].state
    if first is None:
        return None
    return stack_trees(
        np.stack,
        [
            stack_trees(
                np.stack,
                [
                    each.rows[t].state if t < len(each.rows) else map_tree(np.zeros_like, first)
                    for each in trajectories
                ],
            )
            for t in range(0, length, every)
        ],
    )


def _fill(n: int) -> Tree:
    def fill(target: np.ndarray, values: np.ndarray) -> None:
        target[: len(values), n] = values

    return fill


def _zeros(shape: tuple[int, int], like: object) -> np.ndarray:
    like = np.asarray(like)
    dtype = np.float32 if like.dtype == np.float64 else like.dtype
    return np.zeros((*shape, *like.shape), dtype)


def _stacked(arrays: Tree) -> np.ndarray:
    stacked = np.stack(arrays)
    return stacked.astype(np.float32) if stacked.dtype == np.float64 else stacked
