"""Values, errors and who holds them: the store of the inline engine.

A value is kept pickled and made anew by every `get`, so nobody shares it; its large buffers are
read-only and are not copied again. Holders are counted from `refs.journal`. A value leaves with its
last holder, and with it the references inside.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from syncline.core import refs, serialization, tracebacks
from syncline.core.refs import Hold
from syncline.core.serialization import Packed
from syncline.exceptions import ObjectLostError

Callback = Callable[[Any, BaseException | None], None]


@dataclass(frozen=True, kw_only=True)
class ObjectStatistics:
    """What the store holds now."""

    objects: int
    """Values and errors, pending ones among them."""
    pending: int
    """Those that do not exist yet."""
    size_bytes: int
    """Bytes of all values."""


class Entry:
    """One value: pending, there, or an error. The table's lock guards it."""

    __slots__ = ("callbacks", "cancel", "error", "id", "nested", "packed")

    def __init__(self, id: int) -> None:
        self.id = id
        self.packed: Packed | None = None
        self.error: bytes | None = None
        self.nested: tuple[Hold, ...] = ()
        self.callbacks: list[Callable[[], None]] = []
        self.cancel: Callable[[], None] | None = (
            None  # while what makes the value can still be cancelled
        )

    @property
    def is_pending(self) -> bool:
        """Whether there is neither a value nor an error yet."""
        return self.packed is None and self.error is None

    def load(self) -> Any:
        """The value, made anew, or the error raised."""
        value, error = self.outcome()
        if error is not None:
            raise error
        return value

    def outcome(self) -> tuple[Any, BaseException | None]:
        """(value, None) or (None, error to raise)."""
        if self.error is not None:
            return None, tracebacks.raisable(serialization.unpack_error(self.error))
        assert self.packed is not None
        return serialization.unpack(self.packed.data, self.packed.buffers), None


class ObjectTable:
    """All values by id, and the count of holders of every id: of values, generators and actors
    alike.

    Thread safe. `on_release` is called with ids that nobody holds any more, outside of the lock.
    """

    def __init__(self, on_release: Callable[[int], None]) -> None:
        self._on_release = on_release
        self._entries: dict[int, Entry] = {}
        self._holders: dict[int, int] = {}
        self._changed = threading.Condition(threading.RLock())
        self._prefix = secrets.randbits(63) << 64
        self._numbers = itertools.count(1)

    def new_id(self) -> int:
        """A positive 128-bit number that was never given out."""
        return self._prefix | next(self._numbers)

    def create(self, id: int | None = None) -> Entry:
        """A pending value. It stays until somebody has held and dropped it."""
        entry = Entry(self.new_id() if id is None else id)
        with self._changed:
            self._entries[entry.id] = entry
        return entry

    def find(self, id: int) -> Entry:
        """The entry of `id`; ObjectLostError where there is none."""
        with self._changed:
            entry = self._entries.get(id)
        if entry is None:
            raise ObjectLostError(
                f"the object {id:032x} does not exist here: it was freed, or made before `shutdown()`. "
                "Keep the reference that `put` or `.remote()` returned for as long as the value is needed.",
                object_id=f"{id:032x}",
            )
        return entry

    def settle(self, entry: Entry, value: Any) -> None:
        """Give `entry` its value. TypeError, and no change, where the value cannot be pickled."""
        packed = serialization.pack(value, what="the result").detached()
        self._finish(entry, packed, None)

    def settle_packed(self, entry: Entry, packed: Packed) -> None:
        """Give `entry` a value that is pickled already, with buffers of its own."""
        self._finish(entry, packed, None)

    def fail(self, entry: Entry, error: BaseException) -> None:
        """Give `entry` an error instead of a value."""
        self._finish(entry, None, serialization.pack_error(error))

    def wait_for(self, entries: Iterable[Entry], needed: int, timeout_s: float | None) -> bool:
        """Wait until `needed` of `entries` are settled; False if `timeout_s` passes before."""
        watched = list(entries)
        with self._changed:
            return self._changed.wait_for(
                lambda: sum(not entry.is_pending for entry in watched) >= needed, timeout_s
            )

    def call_back(self, entry: Entry, callback: Callable[[], None]) -> None:
        """Call `callback` when `entry` is settled; at once, if it is."""
        with self._changed:
            if entry.is_pending:
                entry.callbacks.append(callback)
                return
        callback()

    def let_cancel(self, entry: Entry, cancel: Callable[[], None]) -> None:
        """What ends the work on `entry`; forgotten when it is settled."""
        with self._changed:
            if entry.is_pending:
                entry.cancel = cancel

    def drain(self) -> None:
        """Take the journal into the counts and let go of what nobody holds; again, if that lets go
        of more.
        """
        while refs.journal:
            released = self._count()
            for id in released:
                self._on_release(id)

    def clear(self) -> None:
        """Forget everything."""
        with self._changed:
            self._entries.clear()
            self._holders.clear()
            self._changed.notify_all()

    def statistics(self) -> ObjectStatistics:
        """What there is now."""
        with self._changed:
            entries = list(self._entries.values())
        return ObjectStatistics(
            objects=len(entries),
            pending=sum(entry.is_pending for entry in entries),
            size_bytes=sum(entry.packed.nbytes for entry in entries if entry.packed is not None),
        )

    def _finish(self, entry: Entry, packed: Packed | None, error: bytes | None) -> None:
        with self._changed:
            if (
                not entry.is_pending
            ):  # the first outcome counts: a call may end and be cancelled at the same moment
                return
            entry.packed, entry.error, entry.cancel = packed, error, None
            if packed is not None:
                entry.nested = tuple(Hold(id) for id in packed.refs)
            callbacks, entry.callbacks = entry.callbacks, []
            self._changed.notify_all()
        for callback in callbacks:
            callback()

    def _count(self) -> list[int]:
        """Ids whose count fell to zero; their values are gone when this returns."""
        dropped: set[int] = set()
        with self._changed:
            while True:
                try:
                    change = refs.journal.popleft()
                except IndexError:
                    break
                id = abs(change)
                self._holders[id] = self._holders.get(id, 0) + (1 if change > 0 else -1)
                if change < 0:
                    dropped.add(id)
            released = [id for id in dropped if self._holders.get(id, 0) <= 0]
            freed = [self._entries.pop(id, None) for id in released]
            for id in released:
                self._holders.pop(id, None)
        del freed  # outside of the lock: destructors of what was inside may call the engine
        return released
