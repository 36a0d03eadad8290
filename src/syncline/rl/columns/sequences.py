"""`Sequences`: pieces of trajectories of at most L steps, for modules with a state.

A piece belongs to one episode and begins at a known state: a recorded one, or the initial state of
an episode.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.rl.columns.fragment import Fragment
from syncline.rl.columns.trees import Tree, map_tree


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """S pieces of a fragment."""

    trajectory: np.ndarray
    """[S]."""
    start: np.ndarray
    """First step of each piece, [S]."""
    length: np.ndarray
    """Number of steps of each piece, [S]."""
    longest: int
    """L: the padded length of all pieces."""
    fragment: Fragment

    @property
    def mask(self) -> np.ndarray:
        """[S, L]: False for padding."""
        return np.arange(self.longest) < self.length[:, None]

    def column(self, column: Tree) -> Tree:
        """Return the column [T, N, …] as pieces [S, L, …], padded with 0."""
        mask = self.mask
        times = np.minimum(self.start[:, None] + np.arange(self.longest), self.fragment.length - 1)

        def pieces(leaf: np.ndarray) -> Tree:
            found = leaf[times, self.trajectory[:, None]]
            found[~mask] = 0
            return found

        return map_tree(pieces, column)

    def observations(self) -> Tree:
        """Return the observations of each piece and the following observation, [S, L + 1, …]."""
        last = self.start + self.length
        times = np.minimum(self.start[:, None] + np.arange(self.longest + 1), last[:, None])
        fragment = self.fragment
        ends = fragment.done[last - 1, self.trajectory]
        number = np.full(fragment.done.shape, -1)
        number[fragment.final_at[:, 0], fragment.final_at[:, 1]] = range(len(fragment.final_at))
        pieces_at_end = np.flatnonzero(ends)
        finals = number[last[ends] - 1, self.trajectory[ends]]

        def pieces(obs: np.ndarray, final: np.ndarray) -> Tree:
            found = obs[times, self.trajectory[:, None]]
            found[pieces_at_end, self.length[ends]] = final[finals]
            return found

        return map_tree(pieces, fragment.obs, fragment.final_obs)

    def states(self, initial: Tree) -> Tree:
        """Return the state before each piece, [S, …].

        Args:
            initial: State at the beginning of episodes, without the first dimension.
        """
        recorded = self.start % self.fragment.state_every == 0
        index = np.where(recorded, self.start // self.fragment.state_every, 0)

        def pieces(states: np.ndarray, begin: np.ndarray) -> Tree:
            found = states[index, self.trajectory].copy()
            found[~recorded] = begin
            return found

        return map_tree(pieces, self.fragment.states, initial)

    def scatter(self, pieces: np.ndarray) -> np.ndarray:
        """Return values [S, L] as a column [T, N]; 0 outside of pieces."""
        found = np.zeros(self.fragment.rewards.shape, pieces.dtype)
        mask = self.mask
        times = self.start[:, None] + np.arange(self.longest)
        trajectories = np.broadcast_to(self.trajectory[:, None], mask.shape)
        found[times[mask], trajectories[mask]] = pieces[mask]
        return found


def sequences(fragment: Fragment) -> Sequences:
    """Cut a fragment at recorded states and at the ends of episodes; drop padding."""
    length, width = fragment.rewards.shape
    begins = np.zeros((length, width), bool)
    begins[:: fragment.state_every] = True
    begins[1:] |= fragment.done[:-1]
    if fragment.valid is not None:
        begins[1:] |= fragment.valid[1:] & ~fragment.valid[:-1]
        begins &= fragment.valid
        follows = np.zeros_like(begins)
        follows[:-1] = fragment.valid[1:] & ~begins[1:]
    else:
        follows = np.zeros_like(begins)
        follows[:-1] = ~begins[1:]
    trajectory, start = np.nonzero(begins.T)
    _, stop = np.nonzero((~follows & _mask(fragment)).T)
    return Sequences(
        trajectory=trajectory,
        start=start,
        length=stop - start + 1,
        longest=fragment.state_every,
        fragment=fragment,
    )


def _mask(fragment: Fragment) -> np.ndarray:
    return np.ones(fragment.rewards.shape, bool) if fragment.valid is None else fragment.valid
