"""Times of log lines, in a small file next to each log: `rank-0.times` for `rank-0.log`.

Logs contain exactly what the program printed, so the times cannot be in them. The file has entries
of 16 bytes, the position in the log and the seconds since the epoch: output from this position on
was written at this time or later. Output within `PRECISION_S` shares an entry.
"""

from __future__ import annotations

import os
import struct
import time
from bisect import bisect_right
from collections.abc import Callable

PRECISION_S = 0.01
TIMES_EXTENSION = ".times"
_ENTRY = struct.Struct("<qd")


class LogTimesWriter:
    """Writer of the times of one log. Not thread-safe. An error of the filesystem loses times and
    never fails the caller.

    Args:
        log_path: Path of the log.
        clock: Returns seconds since the epoch.
    """

    def __init__(self, log_path: str, clock: Callable[[], float] = time.time) -> None:
        self._path = os.path.splitext(log_path)[0] + TIMES_EXTENSION
        self._clock = clock
        self._fd = -1
        self._last = 0.0
        self._failed = False

    def note(self, position: int | Callable[[], int]) -> None:
        """Record that the output from a position of the log on is written now; do nothing within
        `PRECISION_S` of the last note. `position` may be a function, called only if needed.
        """
        now = self._clock()
        if self._failed or 0 <= now - self._last < PRECISION_S:
            return
        self._last = now
        try:
            if self._fd < 0:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._fd = os.open(self._path, flags, 0o666)
            os.write(
                self._fd, _ENTRY.pack(position if isinstance(position, int) else position(), now)
            )
        except OSError:
            self._failed = True

    def begin_part(self) -> None:
        """Begin a new part together with the log."""
        self.close()
        stem, extension = os.path.splitext(self._path)
        try:
            os.replace(self._path, f"{stem}.1{extension}")
        except OSError:  # nothing was noted
            return

    def close(self) -> None:
        """Close the file; a later note opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._last = -1, 0.0


class LogTimes:
    """Times of the lines of one part of a log.

    Args:
        data: Content of the file of times; invalid parts are ignored.
    """

    def __init__(self, data: bytes = b"") -> None:
        whole = len(data) - len(data) % _ENTRY.size
        self._positions: list[int] = []
        self._times: list[float] = []
        for position, moment in _ENTRY.iter_unpack(data[:whole]):
            # Forked processes write to the same log, so positions may come out of order.
            if moment == moment and (not self._positions or position > self._positions[-1]):
                self._positions.append(position)
                self._times.append(moment)

    def at(self, position: int) -> float | None:
        """Return the time of the output at a position; None if it is unknown."""
        place = bisect_right(self._positions, position)
        return self._times[place - 1] if place else None


def times_name(log_name: str) -> str:
    """Return the name of the file with the times of a log file."""
    return os.path.splitext(log_name)[0] + TIMES_EXTENSION
