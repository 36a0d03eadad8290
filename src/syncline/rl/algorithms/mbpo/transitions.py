"""Transitions of MBPO: the real steps of a buffer, and a ring of imagined steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from syncline.rl.buffers.replay_columns import N_STEP, WEIGHTS, ReplayColumns
from syncline.rl.columns.names import Columns
from syncline.rl.value_types import Batch, StateDict

NAMES = (
    Columns.OBS,
    Columns.ACTIONS,
    Columns.REWARDS,
    Columns.NEXT_OBS,
    Columns.TERMINATEDS,
    Columns.TRUNCATEDS,
)
"""Columns of a transition."""


class RealTransitions(ReplayColumns):
    """A ring of rows for each environment that can also be read as a whole."""

    def all_transitions(self) -> Batch:
        """Return the columns `NAMES` of all stored steps."""
        assert self._columns is not None
        rows = np.flatnonzero(self._is_step)
        found = {name: self._columns[name][rows] for name in NAMES if name in self._columns}
        found[Columns.NEXT_OBS] = self._columns[Columns.OBS][self._next(rows)]
        return found


class ImaginedTransitions:
    """A ring of imagined transitions.

    Not thread-safe.

    Args:
        capacity: Number of transitions; new ones replace the oldest.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._columns: dict[str, np.ndarray] = {}
        self._added = 0

    def __len__(self) -> int:
        return min(self._added, self.capacity)

    def add(self, transitions: Mapping[str, np.ndarray]) -> None:
        """Store transitions [N, …], at most as many as the capacity."""
        count = len(transitions[Columns.OBS])
        if count > self.capacity:
            raise ValueError(f"{count} transitions do not fit in a ring of {self.capacity}.")
        rows = (self._added + np.arange(count)) % self.capacity
        for name in NAMES:
            new = transitions[name]
            if name not in self._columns:
                self._columns[name] = np.zeros((self.capacity, *new.shape[1:]), new.dtype)
            self._columns[name][rows] = new
        self._added += count

    def resize(self, capacity: int) -> None:
        """Change the capacity; keep the newest transitions that fit."""
        if capacity == self.capacity:
            return
        kept = min(len(self), capacity)
        rows = (self._added - kept + np.arange(kept)) % self.capacity
        columns = {name: column[rows] for name, column in self._columns.items()}
        self.capacity, self._columns, self._added = capacity, {}, 0
        if columns:
            self.add(columns)

    def sample(self, count: int, random: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw transitions [count, …] with replacement."""
        rows = random.integers(len(self), size=count)
        return {name: column[rows] for name, column in self._columns.items()}

    def get_state(self) -> StateDict:
        """Return everything that later draws depend on."""
        return {"capacity": self.capacity, "added": self._added, "columns": self._columns}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned."""
        self.capacity, self._added = state["capacity"], state["added"]
        self._columns = {name: np.array(column) for name, column in state["columns"].items()}


def mixed(real: Mapping[str, object], imagined: Mapping[str, np.ndarray]) -> Batch:
    """Return real and imagined transitions as one batch for a learner."""
    batch = {name: np.concatenate([real[name], imagined[name]]) for name in NAMES}
    count = len(batch[Columns.REWARDS])
    batch[N_STEP] = np.ones(count, np.int64)
    batch[WEIGHTS] = np.ones(count, np.float32)
    return batch
