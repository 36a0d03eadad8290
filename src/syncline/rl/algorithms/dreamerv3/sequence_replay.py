"""`SequenceReplay`: draws sequences of rows from the rings of `ReplayColumns`.

A sequence may cross the end of an episode: the row of the last observation is followed by the first
row of the next episode. As in the paper, a row has the reward of arriving at its observation.
"""

from __future__ import annotations

import numpy as np

from syncline.rl.buffers.replay_columns import ReplayColumns
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import map_tree
from syncline.rl.value_types import Batch

IS_FIRST = "is_first"
IS_TERMINATED = "is_terminated"
LATENT_H, LATENT_Z = "latent_h", "latent_z"
"""Columns of states after the row's observation, if runners record them."""
START_H, START_Z, START_ACTION = "start_h", "start_z", "start_action"
"""State and action before the first row of a sequence, [B, …]."""


class SequenceReplay(ReplayColumns):
    """A ring of rows for each environment, read as sequences."""

    def num_sequences(self, length: int) -> int:
        """Return the number of different sequences of `length` rows."""
        return int(self._starts(length).sum())

    def _starts(self, length: int) -> np.ndarray:
        """Return the number of rows in each ring at which a sequence may begin.

        The oldest row of a full ring is excluded: the overwritten row before it contained its
        reward and whether an episode began there.
        """
        filled = np.minimum(self._heads + 1, self._rows)
        is_full = self._heads + 1 > self._rows
        used = len(self._streams)
        starts: np.ndarray = np.maximum(filled - is_full - length + 1, 0)
        starts[used:] = 0
        return starts

    def sample_sequences(self, num_sequences: int, length: int) -> Batch:
        """Draw sequences with replacement; return columns [B, T, …].

        `obs` and `actions` belong to the row; `rewards` and `is_terminated` belong to the previous
        step and are 0 where `is_first`. The first row of a sequence also has `is_first`, unless
        states are recorded: then the sequence begins in the state of the row before it.

        Args:
            num_sequences: B.
            length: T.

        Raises:
            ValueError: No ring has enough rows.
        """
        starts = self._starts(length)
        ends = np.cumsum(starts)
        if not ends[-1]:
            raise ValueError(
                f"No environment has {length} stored rows yet (`batch_length_T={length}`): sample "
                "more steps before the first update, or lower `batch_length_T`."
            )
        assert self._columns is not None
        places = self._random.integers(ends[-1], size=num_sequences)
        streams = np.searchsorted(ends, places, side="right")
        offset = places - (ends - starts)[streams]
        oldest = np.maximum(self._heads + 2 - self._rows, 0)[streams]
        positions = (oldest + offset)[:, None] + np.arange(length)
        rings = streams[:, None] * self._rows
        rows = rings + positions % self._rows
        before = rings + (positions - 1) % self._rows
        is_first = ~self._is_step[before] | (positions == 0)
        batch = {
            name: map_tree(lambda stored: stored[rows], self._columns[name])
            for name in (Columns.OBS, Columns.ACTIONS)
        }
        batch[Columns.REWARDS] = np.where(is_first, 0.0, self._columns[Columns.REWARDS][before])
        batch[IS_TERMINATED] = self._columns[Columns.TERMINATEDS][before] & ~is_first
        if LATENT_H in self._columns:
            batch[START_H] = self._columns[LATENT_H][before[:, 0]]
            batch[START_Z] = self._columns[LATENT_Z][before[:, 0]]
            batch[START_ACTION] = self._columns[Columns.ACTIONS][before[:, 0]]
        else:
            is_first[:, 0] = True
        batch[IS_FIRST] = is_first
        return batch
