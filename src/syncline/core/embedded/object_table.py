"""The table of objects: values, reference counts, subscribers.

An object is freed when nothing holds it: no reference in any process, no task that takes it as an
argument, no other object that contains a reference to it. A value that arrives for a freed object
is discarded. The hub's lock guards the table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from syncline.core import error_messages
from syncline.core.embedded.messages import SHARED, Value, ValueCallback, error_value
from syncline.core.embedded.segments import Segment
from syncline.exceptions import ObjectFreedError
from syncline.records import dataclass


class Entry:
    """One object. `value` is None until it exists."""

    __slots__ = ("subscribers", "count", "on_free", "producer", "value")

    def __init__(self, count: int, producer: object) -> None:
        self.count = count
        self.producer = producer  # the task or call that makes the value, for `cancel`
        self.value: Value | None = None
        self.subscribers: list[ValueCallback] | None = None
        self.on_free: Callable[[int], None] | None = None  # for streams and actors


@dataclass(frozen=True, kw_only=True)
class ObjectStatistics:
    """Counts of objects."""

    objects: int
    pending: int
    """Objects without a value."""


class ObjectTable:
    """Objects by id. Not thread-safe."""

    def __init__(self, release_segment: Callable[[Segment], None]) -> None:
        self._release_segment = release_segment
        self.entries: dict[int, Entry] = {}
        self._arrived: deque[tuple[int, Value, list[ValueCallback]]] = deque()
        self._calling_subscribers = False

    @property
    def statistics(self) -> ObjectStatistics:
        """Current counts."""
        pending = sum(entry.value is None for entry in self.entries.values())
        return ObjectStatistics(objects=len(self.entries), pending=pending)

    def add(self, id: int, *, count: int = 1, producer: object = None) -> Entry:
        """Add an object with `count` references."""
        entry = self.entries[id] = Entry(count, producer)
        return entry

    def hold(self, ids: Iterable[int]) -> None:
        """Add a reference to each object; ids of freed objects are ignored."""
        entries = self.entries
        for id in ids:
            entry = entries.get(id)
            if entry is not None:
                entry.count += 1

    def release(self, ids: Iterable[int]) -> None:
        """Drop a reference to each object; free those without any, and their contents."""
        entries = self.entries
        work = list(ids)
        for id in work:  # grows: a chain of references may be longer than Python's stack
            entry = entries.get(id)
            if entry is not None:
                entry.count -= 1
                if entry.count <= 0:
                    work += self._free(id, entry)

    def settle(self, id: int, value: Value) -> None:
        """Set the value of an object and call its subscribers.

        Within a subscriber, the subscribers of other objects are called after it has returned: a
        chain of failing tasks may be longer than Python's stack.
        """
        entry = self.entries.get(id)
        if entry is None:
            self.discard(value)
            return
        if entry.value is not None:
            self.discard(value)  # a second result: the first attempt seemed lost
            return
        entry.value = value
        entry.producer = None
        if value[3]:
            self.hold(value[3])
        subscribers = entry.subscribers
        if subscribers is not None:
            entry.subscribers = None
            self._arrived.append((id, value, subscribers))
            if not self._calling_subscribers:
                self._call_subscribers()

    def _call_subscribers(self) -> None:
        self._calling_subscribers = True
        try:
            while self._arrived:
                id, value, subscribers = self._arrived.popleft()
                for callback in subscribers:
                    callback(id, value)
        finally:
            self._calling_subscribers = False

    def subscribe(self, id: int, callback: ValueCallback) -> None:
        """Call `callback(id, value)` when the object has a value; KeyError if it was freed."""
        entry = self.entries[id]
        if entry.value is not None:
            callback(id, entry.value)
        elif entry.subscribers is None:
            entry.subscribers = [callback]
        else:
            entry.subscribers.append(callback)

    def unsubscribe(self, id: int, callback: ValueCallback) -> None:
        """Cancel a subscription, if it is still pending."""
        entry = self.entries.get(id)
        if entry is not None and entry.subscribers is not None and callback in entry.subscribers:
            entry.subscribers.remove(callback)

    def empty(self, ids: Iterable[int]) -> None:
        """Replace the values that exist by errors, for `Engine.free`."""
        for id in ids:
            entry = self.entries.get(id)
            if entry is None or entry.value is None:
                continue
            form, data, _, contained = entry.value
            if form == SHARED:
                entry.on_free = lambda _, segment=data.segment: self._release_segment(segment)
            error = ObjectFreedError(error_messages.object_freed(id), object_id=f"{id:032x}")
            entry.value = error_value(error)
            self.release(contained)

    def discard(self, value: Value) -> None:
        """Free the memory of a value that no process will get."""
        if value[0] == SHARED:
            self._release_segment(value[1].segment)

    def _free(self, id: int, entry: Entry) -> tuple[int, ...]:
        """Free an object and return the ids that it contained."""
        del self.entries[id]
        if entry.on_free is not None:
            entry.on_free(id)
        value = entry.value
        if value is None:
            return ()
        if value[0] == SHARED:
            self._release_segment(value[1].segment)
        return value[3]
