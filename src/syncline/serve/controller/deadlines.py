"""Named deadlines of a state machine. Pure: times are arguments."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Deadlines(Generic[Key]):
    """At most one deadline per key; each operation costs O(log n)."""

    def __init__(self) -> None:
        self._times: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []  # with entries that were replaced
        self._count = 0

    def __contains__(self, key: Key) -> bool:
        return key in self._times

    def __len__(self) -> int:
        return len(self._times)

    def set(self, key: Key, at: float) -> None:
        """Set or move the deadline of `key`."""
        if self._times.get(key) == at:
            return
        self._times[key] = at
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, key))
        if len(self._heap) > 64 + 4 * len(self._times):
            self._compact()

    def cancel(self, key: Key) -> None:
        """Remove the deadline of `key`, if any."""
        self._times.pop(key, None)

    def next_at(self) -> float | None:
        """Return the earliest deadline, or None."""
        heap, times = self._heap, self._times
        while heap and times.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now: float) -> Key | None:
        """Remove and return the key of the earliest deadline if it has passed."""
        at = self.next_at()
        if at is None or at > now:
            return None
        key = heapq.heappop(self._heap)[2]
        del self._times[key]
        return key

    def _compact(self) -> None:
        kept: dict[Key, tuple[float, int, Key]] = {}
        for entry in self._heap:
            if self._times.get(entry[2]) == entry[0]:
                kept[entry[2]] = entry
        self._heap = list(kept.values())
        heapq.heapify(self._heap)
