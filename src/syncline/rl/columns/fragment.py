"""`Fragment`: the steps that a runner sampled, as time-major arrays.

Covered: the columns, concatenation, flattening to rows, next observations. Not covered: sequences
for modules with a state (`sequences`) and how fragments are sampled (`runners/`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree, first_leaf, map_tree, stack_trees
from syncline.rl.value_types import Batch


@dataclass(kw_only=True)
class Fragment:
    """T steps of N trajectories; a trajectory is an environment, or an agent in one.

    A trajectory contains consecutive episodes: if step t ends an episode, `obs[t + 1]` is the first
    observation of the next episode, and the last observation of the ended one is in `final_obs`.
    """

    obs: Tree
    """Observations [T + 1, N, …], including the observation after the last step."""
    columns: dict[str, Tree]
    """Columns [T, N, …] by name: actions and the other outputs of the module."""
    rewards: np.ndarray
    """Rewards [T, N], float32."""
    terminated: np.ndarray
    """[T, N]: the step ended its episode in a terminal state."""
    truncated: np.ndarray
    """[T, N]: the step ended its episode for another reason, such as a time limit."""
    final_at: np.ndarray
    """[K, 2]: step and trajectory of each end of an episode, in ascending order."""
    final_obs: Tree
    """[K, …]: observations after these steps."""
    valid: np.ndarray | None = None
    """[T, N]: False for padding after the end of a trajectory; None without padding."""
    states: Tree = None
    """[ceil(T / state_every), N, …]: states of the module before each `state_every`-th step."""
    state_every: int = 0
    """Steps between two recorded states; 0 without states."""
    first_step: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """[N]: index of the first step within its episode."""
    episode: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """[N]: index of the trajectory's episode at the first step."""
    env: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """[N]: global index of the environment."""
    weights_version: int = 0
    """Number of updates of the weights that sampled the fragment."""

    @property
    def length(self) -> int:
        """T."""
        return len(self.rewards)

    @property
    def width(self) -> int:
        """N."""
        return int(self.rewards.shape[1])

    @property
    def num_steps(self) -> int:
        """Number of steps without padding."""
        return self.rewards.size if self.valid is None else int(self.valid.sum())

    @property
    def done(self) -> np.ndarray:
        """[T, N]: the step was the last of its episode."""
        done: np.ndarray = self.terminated | self.truncated
        return done

    @property
    def ends(self) -> np.ndarray:
        """[T, N]: the step was the last of its episode, or of its trajectory."""
        ends = self.done
        if self.valid is not None:
            ends[:-1] |= self.valid[:-1] & ~self.valid[1:]
        return ends

    def next_obs(self) -> Tree:
        """Return the observations [T, N, …] after each step, of the same episode."""
        times, trajectories = self.final_at.T

        def following(obs: np.ndarray, final: np.ndarray) -> np.ndarray:
            after = obs[1:]
            if len(times):
                after = after.copy()
                after[times, trajectories] = final
            return after

        return map_tree(following, self.obs, self.final_obs)

    def step_columns(self) -> dict[str, Tree]:
        """Return all columns [T, N, …], by name."""
        return {
            Columns.OBS: map_tree(lambda obs: obs[:-1], self.obs),
            **self.columns,
            Columns.REWARDS: self.rewards,
            Columns.TERMINATEDS: self.terminated,
            Columns.TRUNCATEDS: self.truncated,
        }

    def rows(self, columns: dict[str, Tree]) -> dict[str, Tree]:
        """Return columns [T, N, …] as rows [B, …] without padding, in the order of time."""
        valid = self.valid

        def flat(column: np.ndarray) -> Tree:
            if valid is not None:
                return column[valid]
            return column.reshape(-1, *column.shape[2:])

        return {name: map_tree(flat, column) for name, column in columns.items()}


def concatenate(fragments: Sequence[Fragment]) -> list[Fragment]:
    """Merge fragments of equal length along the trajectories; keep the others separate.

    Trajectories are ordered by the global index of their environment, so that the result does not
    depend on the assignment of environments to runners.
    """
    by_length: dict[tuple[int, int], list[Fragment]] = {}
    for fragment in fragments:
        by_length.setdefault((fragment.length, fragment.weights_version), []).append(fragment)
    return [_side_by_side(same) for same in by_length.values()]


def _side_by_side(fragments: list[Fragment]) -> Fragment:
    if len(fragments) == 1:
        return fragments[0]
    fragments = sorted(fragments, key=lambda each: int(each.env[0]) if len(each.env) else 0)
    starts = np.cumsum([0, *(each.width for each in fragments)])
    final_at = np.concatenate(
        [each.final_at + (0, start) for each, start in zip(fragments, starts, strict=False)]
    )
    order = np.lexsort((final_at[:, 1], final_at[:, 0]))
    first = fragments[0]
    masks = [each.valid for each in fragments]
    if any(mask is not None for mask in masks):
        valid = _joined([_mask(each) for each in fragments])
    else:
        valid = None
    return replace(
        first,
        obs=stack_trees(_joined, [each.obs for each in fragments]),
        columns={
            name: stack_trees(_joined, [each.columns[name] for each in fragments])
            for name in first.columns
        },
        rewards=_joined([each.rewards for each in fragments]),
        terminated=_joined([each.terminated for each in fragments]),
        truncated=_joined([each.truncated for each in fragments]),
        final_at=final_at[order],
        final_obs=stack_trees(
            lambda each: np.concatenate(each)[order], [each.final_obs for each in fragments]
        ),
        valid=valid,
        states=(
            None
            if first.states is None
            else stack_trees(_joined, [each.states for each in fragments])
        ),
        first_step=np.concatenate([each.first_step for each in fragments]),
        episode=np.concatenate([each.episode for each in fragments]),
        env=np.concatenate([each.env for each in fragments]),
    )


def _mask(fragment: Fragment) -> np.ndarray:
    if fragment.valid is None:
        return np.ones(fragment.rewards.shape, bool)
    return fragment.valid


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays, axis=1)


def num_rows(batch: Batch) -> int:
    """Return the number of rows of a batch."""
    return len(first_leaf(batch))
