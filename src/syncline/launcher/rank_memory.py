"""Memory in which a worker writes for its launcher how it spends its time.

The launcher creates it, so that it can read it after the process has ended, and so that the script
has no additional open file. It holds the sums of `time_split`, and the latest observation for the
diagnosis as JSON. A checksum distinguishes a complete observation from one whose writing has not
ended, or was interrupted by a kill.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import threading
import zlib
from collections.abc import Sequence

from syncline import system
from syncline.diagnosis.collective_calls import CollectiveCall
from syncline.diagnosis.observation import Link, RankObserved
from syncline.diagnosis.thread_states import ThreadTimes
from syncline.launcher.time_split import PARTS

SIZE = 1 << 20
"""Bytes of address space; only pages that are written take memory."""
_SUMS = struct.Struct(f"={1 + len(PARTS)}d")  # the total, then `PARTS`
_HEAD = struct.Struct("=II")  # length and checksum of the observation
_BEGIN = _SUMS.size + _HEAD.size


class RankWriter:
    """The worker's side. The process must not write at the same time on two threads.

    Args:
        fd: Descriptor of the launcher's memory; may be closed after this.
    """

    def __init__(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, SIZE)

    def write_times(self, total_s: float, spent_s: Sequence[float]) -> None:
        """Write the time since the start, and those of `PARTS`."""
        _SUMS.pack_into(self._memory, 0, total_s, *spent_s)

    def write_observation(self, observed: RankObserved) -> None:
        """Replace the observation; the oldest calls are left out if it is too large."""
        data = packed(observed, SIZE - _BEGIN)
        self._memory[_BEGIN : _BEGIN + len(data)] = data
        _HEAD.pack_into(self._memory, _SUMS.size, len(data), zlib.crc32(data))


def packed(observed: RankObserved, most_bytes: int) -> bytes:
    """Return an observation as JSON, without the oldest calls if it is too large."""
    calls = observed.calls
    while True:
        content = [observed.window, vars(observed.times), observed.line, calls, observed.links]
        data = json.dumps(content, separators=(",", ":")).encode()
        if len(data) <= most_bytes or not calls:
            return data
        calls = calls[len(calls) // 2 + 1 :]


def unpacked(data: bytes | str) -> RankObserved:
    """Return the observation that `packed` has written."""
    window, times, line, calls, links = json.loads(data)
    return RankObserved(
        window=window,
        times=ThreadTimes(**times),
        line=line,
        calls=None if calls is None else tuple(CollectiveCall(*each) for each in calls),
        links=tuple(Link(tuple(local), tuple(remote), trip_s) for local, remote, trip_s in links),
    )


class RankMemory:
    """The launcher's side, for one process. For any thread."""

    def __init__(self) -> None:
        self.fd = system.anonymous_file("syncline-rank")
        """Descriptor for the process."""
        os.ftruncate(self.fd, SIZE)
        self._checksum = 0
        self._is_closed = False
        self._guard = threading.Lock()

    def times(self) -> dict[str, float] | None:
        """Return the seconds as records have them; None before the first look."""
        total_s, *parts = _SUMS.unpack(self._read(_SUMS.size, 0) or bytes(_SUMS.size))
        if not total_s:
            return None
        return {
            "total_s": total_s,
            **{f"{name}_s": s for name, s in zip(PARTS, parts, strict=True)},
        }

    def observation(self) -> RankObserved | None:
        """Return the latest observation; None without a new one."""
        head = self._read(_HEAD.size, _SUMS.size)
        if head is None:
            return None
        length, checksum = _HEAD.unpack(head)
        if not length or checksum == self._checksum:
            return None
        data = self._read(length, _BEGIN)
        if data is None or zlib.crc32(data) != checksum:
            return None
        self._checksum = checksum
        return unpacked(data)

    def close(self) -> None:
        """Release the memory."""
        with self._guard:
            self._is_closed = True
            os.close(self.fd)

    def _read(self, length: int, offset: int) -> bytes | None:
        with self._guard:
            return None if self._is_closed else os.pread(self.fd, length, offset)
