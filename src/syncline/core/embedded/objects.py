"""The table of objects: which exist, what they are worth, who holds them, who waits for them.

Lives in the driver's process, under the hub's lock. An object is freed when nobody holds it: no
reference in any process, no task that takes it as an argument, no other object that contains a
reference to it. A value of an object that nobody holds any more is dropped on arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from syncline.core.embedded.messages import SHARED, Value
from syncline.core.embedded.store import Store

Arrival = Callable[[int, Value], None]


class Entry:
    """One object. `value` is None until it exists."""

    __slots__ = ("arrivals", "count", "on_free", "producer", "value")

    def __init__(self, count: int, producer: Any) -> None:
        self.count = count
        self.producer = producer  # the task or call that makes it, for `cancel`
        self.value: Value | None = None
        self.arrivals: list[Arrival] | None = None
        self.on_free: Callable[[int], None] | None = (
            None  # for what is more than a value: streams, actors
        )


@dataclass(frozen=True, kw_only=True)
class ObjectStatistics:
    """How many objects there are now."""

    objects: int
    pending: int
    """Without a value yet."""


class ObjectTable:
    """Objects by id. Not thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.entries: dict[int, Entry] = {}

    @property
    def statistics(self) -> ObjectStatistics:
        """Counts of entries."""
        pending = sum(entry.value is None for entry in self.entries.values())
        return ObjectStatistics(objects=len(self.entries), pending=pending)

    def add(self, id: int, *, count: int = 1, producer: Any = None) -> Entry:
        """A new object, held `count` times."""
        entry = self.entries[id] = Entry(count, producer)
        return entry

    def hold(self, ids: Iterable[int]) -> None:
        """One more holder of each; an id that is unknown was freed and stays so."""
        entries = self.entries
        for id in ids:
            entry = entries.get(id)
            if entry is not None:
                entry.count += 1

    def release(self, ids: Iterable[int]) -> None:
        """One holder less of each; what nobody holds is freed, and what it contained is
        released.
        """
        entries = self.entries
        work = list(ids)
        for id in work:  # grows on the way: a chain of references may be longer than Python's stack
            entry = entries.get(id)
            if entry is not None:
                entry.count -= 1
                if entry.count <= 0:
                    work += self._free(id, entry)

    def settle(self, id: int, value: Value) -> None:
        """The object has its value; whoever waits is told."""
        entry = self.entries.get(id)
        if entry is None:
            self.discard(value)
            return
        if entry.value is not None:
            self.discard(value)  # made twice: the attempt before was thought lost
            return
        entry.value = value
        entry.producer = None
        if value[3]:
            self.hold(value[3])
        arrivals = entry.arrivals
        if arrivals is not None:
            entry.arrivals = None
            for arrival in arrivals:
                arrival(id, value)

    def await_value(self, id: int, arrival: Arrival) -> None:
        """Call `arrival(id, value)` when there is one. KeyError for an object that does not
        exist.
        """
        entry = self.entries[id]
        if entry.value is not None:
            arrival(id, entry.value)
        elif entry.arrivals is None:
            entry.arrivals = [arrival]
        else:
            entry.arrivals.append(arrival)

    def forget_arrival(self, id: int, arrival: Arrival) -> None:
        """Take back `await_value`; nothing happens if it has been called already."""
        entry = self.entries.get(id)
        if entry is not None and entry.arrivals is not None and arrival in entry.arrivals:
            entry.arrivals.remove(arrival)

    def discard(self, value: Value) -> None:
        """A value that nobody will have."""
        if value[0] == SHARED:
            self._store.release(value[1].segment)

    def _free(self, id: int, entry: Entry) -> tuple[int, ...]:
        """Free an object; the ids that it contained, which lose a holder."""
        del self.entries[id]
        if entry.on_free is not None:
            entry.on_free(id)
        value = entry.value
        if value is None:
            return ()
        if value[0] == SHARED:
            self._store.release(value[1].segment)
        return value[3]
