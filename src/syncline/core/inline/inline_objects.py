"""The object table of the inline engine: the embedded engine's, with a lock and waiting."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from syncline.core import refs, serialization
from syncline.core.embedded.messages import Value, error_value, inline
from syncline.core.embedded.object_table import Entry, ObjectTable
from syncline.core.embedded.segments import Segment
from syncline.exceptions import ObjectLostError

_RESULT_SHIFT = 40
_RESULT_BITS = (1 << 24) - 1


def result_id(task_id: int, number: int) -> int:
    """Return the id of a task's result; the first one, number 0, has the task's id."""
    return task_id + (number << _RESULT_SHIFT)


def task_of(id: int) -> int:
    """Return the id of the task that makes a result; other objects are their own task."""
    return id & ~(_RESULT_BITS << _RESULT_SHIFT)


def pack_value(value: object, what: str = "value") -> Value:
    """Return a copy of `value`; TypeError if it cannot be pickled."""
    packed = serialization.pack(value, what=what)
    return inline(packed.data, packed.buffers, packed.refs)


class InlineObjects(ObjectTable):
    """Values, generators and actors by id, with reference counts. Thread-safe.

    Callbacks run after the lock is released. An object without references is freed once a
    reference to it was dropped.
    """

    def __init__(self) -> None:
        super().__init__(_no_segment)
        self._changed = threading.Condition(threading.RLock())
        self._due: deque[Callable[[], object]] = deque()
        self._prefix = secrets.randbits(63) << 64
        self._numbers = itertools.count(1)

    def new_id(self) -> int:
        """Return a new positive 128-bit number."""
        return self._prefix | next(self._numbers)

    def create(
        self, id: int | None = None, *, count: int = 0, on_free: Callable[[int], None] | None = None
    ) -> int:
        """Add an object without a value and return its id, by default a new one."""
        if id is None:
            id = self.new_id()
        with self._changed:
            entry = self.add(id, count=count)
            if on_free is not None:
                entry.on_free = lambda id: self._due.append(partial(on_free, id))
        return id

    def find(self, id: int) -> Entry:
        """Return an entry; ObjectLostError if there is none."""
        entry = self.entries.get(id)
        if entry is None:
            raise ObjectLostError(
                f"the object {id:032x} does not exist here: it was freed, or made before "
                "`shutdown()`. Keep the reference that `put` or `.remote()` returned for as long "
                "as the value is needed.",
                object_id=f"{id:032x}",
            )
        return entry

    def settle(self, id: int, value: Value) -> None:
        """Set the value of an object. The first value counts."""
        with self._changed:
            super().settle(id, value)
            self._changed.notify_all()
        self._run_due()

    def fail(self, id: int, error: BaseException) -> None:
        """Set an error instead of a value."""
        self.settle(id, error_value(error))

    def wait_for(self, entries: Sequence[Entry], needed: int, timeout_s: float | None) -> bool:
        """Wait until `needed` entries have a value; return False after the timeout."""
        with self._changed:
            return self._changed.wait_for(
                lambda: sum(entry.value is not None for entry in entries) >= needed, timeout_s
            )

    def call_back(self, id: int, callback: Callable[[Value], object]) -> None:
        """Call `callback` with the value when the object has one, now or later."""
        with self._changed:
            self.find(id)
            self.subscribe(id, lambda _, value: self._due.append(partial(callback, value)))
        self._run_due()

    def set_cancel(self, id: int, cancel: Callable[[], None]) -> None:
        """Set the action that cancels a pending object's call."""
        with self._changed:
            entry = self.entries.get(id)
            if entry is not None and entry.value is None:
                entry.producer = cancel

    def release(self, ids: Iterable[int]) -> None:
        with self._changed:
            super().release(ids)
        self._run_due()

    def empty(self, ids: Iterable[int]) -> None:
        with self._changed:
            super().empty(ids)
        self._run_due()

    def apply_refcounts(self) -> None:
        """Apply created and dropped references; free objects without references."""
        journal = refs.journal
        while journal or self._due:
            with self._changed:
                while journal:
                    try:
                        change = journal.popleft()
                    except IndexError:  # another thread took it
                        break
                    if change > 0:
                        self.hold((change,))
                    else:
                        super().release((-change,))
            self._run_due()

    def clear(self) -> None:
        """Remove all objects."""
        with self._changed:
            self.entries.clear()
            self._changed.notify_all()

    def _run_due(self) -> None:
        while self._due:
            try:
                action = self._due.popleft()
            except IndexError:  # another thread took it
                return
            action()


def _no_segment(segment: Segment) -> None:
    raise AssertionError(f"the inline engine has no shared memory, but got {segment}")
