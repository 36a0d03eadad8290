"""Local shuffle: the order of a rank's rows within windows of its own sequence.

The order is made of indices, so a batch is one `take` from the window. It depends on nothing but
(seed, epoch, rank, window, length), so a restart finds the same order, and the rows yielded so far
follow from their number alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_SEED_BITS = 2**64 - 1


@dataclass(frozen=True, kw_only=True)
class Windows:
    """How a rank shuffles its rows."""

    rows: int
    """Rows of a window; a multiple of the batch size, so that no batch lies in two windows. The
    last window may be shorter.
    """
    seed: int
    """Seed of the orders."""

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ValueError(f"a shuffle window has at least one row, not {self.rows}")

    def order(self, epoch: int, rank: int, window: int, length: int) -> np.ndarray:
        """The rows of a window in the order in which they are yielded: int64 `(length,)`, a
        permutation of `range(length)`.
        """
        # Of numpy's generators only RandomState promises the same permutations in every version,
        # and a cursor may outlive a version.
        random = np.random.RandomState(
            np.random.PCG64([self.seed & _SEED_BITS, epoch, rank, window])
        )
        return random.permutation(length).astype(np.int64, copy=False)

    def settled(self, rows: int) -> int:
        """Of the first `rows` rows yielded, those in windows that are over."""
        return rows - rows % self.rows

    def to_dict(self) -> dict[str, Any]:
        """A form for JSON."""
        return {"rows": self.rows, "seed": self.seed}


def windows_for(*, buffer_rows: int | None, batch_size: int | None, seed: int) -> Windows | None:
    """Windows of at least `buffer_rows` rows, rounded up to whole batches; None without a local
    shuffle.
    """
    if buffer_rows is None:
        return None
    whole = batch_size or 1
    return Windows(rows=-(-buffer_rows // whole) * whole, seed=seed)
