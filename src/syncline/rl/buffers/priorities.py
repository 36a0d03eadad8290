"""`Priorities`: samples indices in proportion to their priorities.

Priorities are stored in blocks with their sums. Sampling searches among the sums, then within one
block. With arrays this is faster than a tree, which needs one operation per level.
"""

from __future__ import annotations

import numpy as np

BLOCK = 256


class Priorities:
    """One priority per index; an index with priority 0 is never sampled.

    Args:
        size: Number of indices.
    """

    def __init__(self, size: int) -> None:
        blocks = -(-size // BLOCK)
        self._values = np.zeros((blocks, BLOCK))
        self._sums = np.zeros(blocks)
        self.largest = 1.0
        """Largest priority so far."""

    @property
    def total(self) -> float:
        """Sum of all priorities."""
        return float(self._sums.sum())

    def set(self, indices: np.ndarray, priorities: np.ndarray | float) -> None:
        """Set priorities."""
        self._values.reshape(-1)[indices] = priorities
        blocks = np.unique(indices // BLOCK)
        self._sums[blocks] = self._values[blocks].sum(axis=1)

    def get(self, indices: np.ndarray) -> np.ndarray:
        """Return priorities."""
        return np.asarray(self._values.reshape(-1)[indices])

    def draw(self, uniforms: np.ndarray) -> np.ndarray:
        """Return an index for each number in [0, 1), with replacement."""
        ends = np.cumsum(self._sums)
        targets = uniforms * ends[-1]
        blocks = np.minimum(np.searchsorted(ends, targets, side="right"), len(ends) - 1)
        within = np.cumsum(self._values[blocks], axis=1)
        left = targets - (ends[blocks] - self._sums[blocks])
        left = np.minimum(left, np.nextafter(within[:, -1], 0.0))
        return np.asarray(blocks * BLOCK + (within <= left[:, None]).sum(axis=1))

    def get_state(self) -> dict[str, object]:
        """Return the priorities."""
        return {"values": self._values, "largest": self.largest}

    def set_state(self, state: dict[str, object]) -> None:
        """Set the priorities."""
        values = np.asarray(state["values"])
        self._values[...] = values
        self._sums = values.sum(axis=1)
        self.largest = float(state["largest"])  # type: ignore[arg-type]
