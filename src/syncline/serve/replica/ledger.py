"""`Ledger`: the calls that have begun in a replica, in a file that outlives the process.

The file is an array of u64 slots, mapped into memory: the id of a call, or zero. A replica writes
the id before user code starts, and zero after the socket has taken the answer. When the replica
dies, each of its callers reads the file: a call without an answer whose id is not in the file did
not begin, so it can be sent again. Call ids are unique over all callers and all time, so the id of
an answered call may stay in its slot until the slot is used again.

The file survives the death of the process, not that of the machine.
"""

from __future__ import annotations

import mmap
import os
from array import array

from syncline.records import dataclass

SLOT_BYTES = 8
LEAST_SLOTS = 512
"""Slots of a new file: one page."""


@dataclass(frozen=True, kw_only=True)
class LedgerStatistics:
    """Counts of a ledger."""

    slots: int
    used: int


class Ledger:
    """Writes the ledger of one replica. One thread uses it."""

    def __init__(self, path: str, slots: int = LEAST_SLOTS) -> None:
        """Create the file, or replace it."""
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._slots = memoryview(b"").cast("Q")
        self._map: mmap.mmap | None = None
        self._free: list[int] = []
        self._resize(max(slots, LEAST_SLOTS))

    def begin(self, call_id: int) -> int:
        """Record that a call begins; return its slot. The file grows if no slot is free."""
        if not self._free:
            self._resize(2 * len(self._slots))
        slot = self._free.pop()
        self._slots[slot] = call_id
        return slot

    def end(self, slot: int) -> None:
        """Free the slot of a call whose answer the socket has taken."""
        self._slots[slot] = 0
        self._free.append(slot)

    @property
    def is_full(self) -> bool:
        """True if the next `begin` lets the file grow."""
        return not self._free

    def statistics(self) -> LedgerStatistics:
        """Return the current counts."""
        slots = len(self._slots)
        return LedgerStatistics(slots=slots, used=slots - len(self._free))

    def close(self) -> None:
        """Unmap the file, which stays: callers may read it after the end of the process."""
        self._slots.release()
        if self._map is not None:
            self._map.close()
            self._map = None
        os.close(self._file)

    def _resize(self, slots: int) -> None:
        before = len(self._slots)
        os.ftruncate(self._file, slots * SLOT_BYTES)
        mapped = mmap.mmap(self._file, slots * SLOT_BYTES)
        self._slots.release()
        if self._map is not None:
            self._map.close()
        self._map = mapped
        self._slots = memoryview(mapped).cast("Q")
        self._free.extend(range(slots - 1, before - 1, -1))


def read(path: str) -> frozenset[int] | None:
    """Return the ids of the calls that have begun; None if the file does not exist any more.

    Call it after the connection to the replica has ended and its last frame was handled.
    """
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return None
    ids = array("Q")
    ids.frombytes(content[: len(content) // SLOT_BYTES * SLOT_BYTES])
    begun = set(ids)
    begun.discard(0)
    return frozenset(begun)
