"""`BatchBuffer`: batches that wait for the learners; each may be used several times.

With one pass in order it is a queue. With several passes in random order it is the circular buffer
of IMPACT (Luo et al. 2020, https://arxiv.org/abs/1912.00167), except that a full buffer blocks the
runners instead of dropping the oldest batch.
"""

from __future__ import annotations

import numpy as np

from syncline.rl.value_types import StateDict


class BatchBuffer:
    """Not thread-safe.

    Args:
        capacity: Maximum number of batches.
        passes: Number of uses of each batch.
        random: Chooses the next batch; None takes the oldest.
    """

    def __init__(
        self, *, capacity: int, passes: int = 1, random: np.random.Generator | None = None
    ) -> None:
        self.capacity = capacity
        self._passes = passes
        self._random = random
        self._left: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._left)

    @property
    def is_full(self) -> bool:
        """True if the buffer is full."""
        return len(self._left) >= self.capacity

    def add(self, batch: int) -> None:
        """Add a batch."""
        assert not self.is_full
        self._left[batch] = self._passes

    def take(self) -> tuple[int, bool]:
        """Return the next batch, and True if this is its last pass."""
        batches = list(self._left)
        place = 0 if self._random is None else int(self._random.integers(len(batches)))
        batch = batches[place]
        self._left[batch] -= 1
        is_last = not self._left[batch]
        if is_last:
            del self._left[batch]
        return batch, is_last

    def get_state(self) -> StateDict:
        """Return the batches with their passes, and the random state."""
        random = self._random
        return {
            "left": dict(self._left),
            "random": None if random is None else random.bit_generator.state,
        }

    def set_state(self, state: StateDict) -> None:
        """Restore the state that `get_state` returned."""
        self._left = dict(state["left"])
        if self._random is not None and state["random"] is not None:
            self._random.bit_generator.state = state["random"]
