"""`Slowest`: the slowest calls of a period. Pure."""

from __future__ import annotations

import heapq
import itertools
from typing import Generic, TypeVar

PERIOD_S = 10.0
"""Seconds of wall-clock time of which each process reports its slowest calls."""
KEPT = 5
"""Calls per period and process."""

T = TypeVar("T")


class Slowest(Generic[T]):
    """Keeps the items with the longest times. A hot path compares with `limit_s` before `add`."""

    __slots__ = ("_heap", "_kept", "_number", "limit_s")

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._heap: list[tuple[float, int, T]] = []
        self._number = itertools.count()
        self.limit_s = -1.0
        """Seconds up to which an item would be dropped."""

    def add(self, seconds: float, item: T) -> None:
        """Keep an item if it is among the slowest."""
        entry = (seconds, next(self._number), item)
        if len(self._heap) < self._kept:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)
        if len(self._heap) == self._kept:
            self.limit_s = self._heap[0][0]

    def take(self) -> tuple[T, ...]:
        """Return the items, the slowest first, and begin a new period."""
        taken = tuple(item for _, _, item in sorted(self._heap, reverse=True, key=_key))
        self._heap.clear()
        self.limit_s = -1.0
        return taken


def _key(entry: tuple[float, int, T]) -> tuple[float, int]:
    return entry[0], -entry[1]


def period_of(wall_s: float) -> int:
    """Return the number of the period of a time, the same in all processes."""
    return int(wall_s / PERIOD_S)
