"""`EpisodeStore`: replay of whole episodes, for modules with memory and for mixers.

Covered: assembly of episodes from fragments, uniform sampling, padding, exact state.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from syncline.rl.columns.fragment import Fragment
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree, map_tree, stack_trees
from syncline.rl.value_types import StateDict

Steps = dict[str, Tree]
"""Columns [t, …] of consecutive steps; `obs` of a complete episode has one more row."""


class EpisodeStore:
    """The newest complete episodes.

    Not thread-safe.

    Args:
        capacity: Number of episodes to keep; new ones replace the oldest.
        seed: Seed for sampling.
    """

    def __init__(self, capacity: int, seed: int) -> None:
        self._capacity = capacity
        self._random = np.random.Generator(np.random.Philox(seed))
        self._episodes: list[Steps] = []
        self._next = 0
        self._unfinished: dict[int, list[Steps]] = {}
        self.num_added = 0
        """Number of episodes added so far."""

    def __len__(self) -> int:
        return len(self._episodes)

    @property
    def num_steps(self) -> int:
        """Number of steps in the stored episodes."""
        return sum(len(each[Columns.REWARDS]) for each in self._episodes)

    def add(self, fragment: Fragment) -> None:
        """Add the steps of a fragment; episodes may continue those of earlier fragments."""
        for n in range(fragment.width):
            number = int(fragment.env[n])
            if fragment.first_step[n] == 0:  # a new episode: the unfinished one is lost
                self._unfinished.pop(number, None)
            valid = fragment.length if fragment.valid is None else int(fragment.valid[:, n].sum())
            finals = {int(t): k for k, (t, at) in enumerate(fragment.final_at) if at == n}
            begin = 0
            for end in [*finals, valid - 1]:
                if end < begin:
                    continue
                piece = slice(begin, end + 1)
                self._unfinished.setdefault(number, []).append(_steps(fragment, n, piece))
                if end in finals:
                    final = map_tree(
                        lambda leaf, k=finals[end]: leaf[k : k + 1], fragment.final_obs
                    )
                    self._finish(number, final)
                begin = end + 1

    def _finish(self, number: int, final: Tree) -> None:
        pieces = self._unfinished.pop(number)
        episode = stack_trees(lambda parts: np.concatenate(list(parts)), pieces)
        episode[Columns.OBS] = map_tree(
            lambda *parts: np.concatenate(parts), episode[Columns.OBS], final
        )
        if len(self._episodes) < self._capacity:
            self._episodes.append(episode)
        else:
            self._episodes[self._next] = episode
        self._next = (self._next + 1) % self._capacity
        self.num_added += 1

    def sample(self, count: int) -> dict[str, Tree]:
        """Return `count` episodes, drawn with replacement, padded to the longest of them.

        Columns are [count, L, …], `obs` [count, L + 1, …]; `loss_mask` is False for padding.
        """
        drawn = [self._episodes[n] for n in self._random.integers(len(self._episodes), size=count)]
        lengths = np.array([len(each[Columns.REWARDS]) for each in drawn])
        longest = int(lengths.max())
        found = {
            name: map_tree(
                lambda *parts, rows=longest + (name == Columns.OBS): _padded(parts, rows),
                *(each[name] for each in drawn),
            )
            for name in drawn[0]
        }
        found[Columns.LOSS_MASK] = np.arange(longest) < lengths[:, None]
        return found

    def get_state(self) -> StateDict:
        """Return everything that the next draws depend on."""
        return {
            "episodes": list(self._episodes),
            "next": self._next,
            "unfinished": {number: list(each) for number, each in self._unfinished.items()},
            "num_added": self.num_added,
            "random": self._random.bit_generator.state,
        }

    def set_state(self, state: StateDict) -> None:
        """Restore the state that `get_state` returned."""
        self._episodes = list(state["episodes"])
        self._next = state["next"]
        self._unfinished = {number: list(each) for number, each in state["unfinished"].items()}
        self.num_added = state["num_added"]
        self._random.bit_generator.state = state["random"]


def _steps(fragment: Fragment, n: int, piece: slice) -> Steps:
    """Return copies of the steps of a trajectory."""
    columns = {
        Columns.OBS: fragment.obs,
        Columns.ACTIONS: fragment.columns[Columns.ACTIONS],
        Columns.REWARDS: fragment.rewards,
        Columns.TERMINATEDS: fragment.terminated,
    }
    return {
        name: map_tree(lambda leaf: leaf[piece, n].copy(), each) for name, each in columns.items()
    }


def _padded(parts: Any, rows: int) -> np.ndarray:
    made = np.zeros((len(parts), rows, *parts[0].shape[1:]), parts[0].dtype)
    for place, part in enumerate(parts):
        made[place, : len(part)] = part
    return made
