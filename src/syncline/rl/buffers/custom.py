"""`CustomBuffer`: adapts a user-defined buffer of episodes to replace `ReplayColumns`."""

from __future__ import annotations

from typing import Any

import numpy as np

from syncline.rl.buffers.episode_buffers import columns_of_transitions
from syncline.rl.buffers.replay_columns import INDICES, N_STEP, ReplayStatistics
from syncline.rl.columns.fragment import Fragment
from syncline.rl.columns.names import Columns
from syncline.rl.episodes.from_fragments import episode_of, parts_of
from syncline.rl.value_types import Batch, StateDict

SMALLEST_PRIORITY = 1e-6


class CustomBuffer:
    """Converts samples of runners to episodes, and episodes from the buffer to rows.

    Args:
        buffer: Has `add(episodes)`, `sample(num_items, n_step=, gamma=, beta=,
            sample_episodes=True)` and, to receive errors, `update_priorities(priorities)`.
        capacity: Capacity of the buffer in steps.
    """

    def __init__(self, buffer: Any, capacity: int) -> None:
        self.buffer = buffer
        self.capacity = capacity
        self._added = 0
        self._stored = 0

    def add(self, fragment: Fragment) -> None:
        """Store the steps of a fragment."""
        numbers = {n: int(fragment.episode[n]) for n in range(fragment.width)}
        episodes = []
        for part in parts_of(fragment):
            n = part.trajectory
            episode = episode_of(fragment, part)
            episode.id_ = f"{int(fragment.env[n])}-{numbers[n]}"
            numbers[n] += episode.is_done
            episodes.append(episode)
            self._added += len(episode)
        self.buffer.add(episodes)
        self._stored = min(self._added, self.capacity)

    @property
    def num_steps(self) -> int:
        """Number of steps that can be drawn."""
        known = getattr(self.buffer, "get_num_timesteps", None)
        return self._stored if known is None else int(known())

    def sample(
        self,
        num_items: int,
        *,
        n_step: int | tuple[int, int] = 1,
        gamma: float = 0.99,
        beta: float = 0.0,
    ) -> Batch:
        """Draw transitions; return columns [B, …]. See `ReplayColumns.sample`."""
        drawn = self.buffer.sample(
            num_items, n_step=n_step, gamma=gamma, beta=beta, sample_episodes=True
        )
        rows = columns_of_transitions(drawn)
        if N_STEP not in rows:
            rows[N_STEP] = np.ones(len(drawn), np.int64)
        rows[Columns.TERMINATEDS] = np.asarray(rows[Columns.TERMINATEDS], bool)
        rows[INDICES] = np.arange(len(drawn))
        return rows

    def update_priorities(self, rows: np.ndarray, errors: np.ndarray) -> None:
        """Pass the errors of the last sample to the buffer."""
        if hasattr(self.buffer, "update_priorities"):
            self.buffer.update_priorities(np.abs(errors) + SMALLEST_PRIORITY)

    def statistics(self) -> ReplayStatistics:
        """Return counts of the buffer; its size in bytes is unknown."""
        return ReplayStatistics(
            num_steps=self.num_steps, num_steps_added=self._added, capacity=self.capacity, bytes=0
        )

    def get_state(self, **_: Any) -> StateDict:
        """Return the buffer's state."""
        return {"added": self._added, "heads": [], "buffer": self.buffer.get_state()}

    def set_state(self, state: StateDict) -> None:
        """Restore the state that `get_state` returned."""
        self._added = state["added"]
        self._stored = min(self._added, self.capacity)
        self.buffer.set_state(state["buffer"])
