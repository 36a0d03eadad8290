"""Calls of the operating system that only Linux has, each with a portable counterpart.

The counterparts run on any POSIX system, and on Linux if `SYNCLINE_PORTABLE=1`, so that tests on
Linux cover them. They cost more: objects are files on disk instead of shared memory, and the engine
waits with `poll` instead of `epoll`.
"""

from __future__ import annotations

import math
import os
import select
import sys
from collections.abc import Callable
from pathlib import Path

from syncline import optional, settings

tempfile = optional.deferred("tempfile")  # it imports the random generators

IS_LINUX = sys.platform == "linux" and not settings.portable()
"""True if calls and files that only Linux has may be used."""

SHARED_MEMORY = Path("/dev/shm") if IS_LINUX else None
"""Directory of a file system in memory; None where there is none."""


def nonblocking_pipe() -> tuple[int, int]:
    """Return the ends of a pipe, (read, write), that never block and close on `exec`."""
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends


def allowed_cpus() -> tuple[int, ...]:
    """Return the CPUs of this process's affinity mask; all CPUs where there are no masks."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def anonymous_file(name: str) -> int:
    """Return the descriptor of a new empty file that ends with its last descriptor."""
    if IS_LINUX:
        return os.memfd_create(name)
    descriptor, path = tempfile.mkstemp(prefix=name)
    os.unlink(path)
    return int(descriptor)


class Poll:
    """`select.poll` with the methods of `select.epoll`.

    Args:
        wake: Wakes the thread inside `poll`, which sees a change only in its next call.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._poll = select.poll()
        self._wake = wake

    def register(self, fd: int, events: int) -> None:
        """Watch a descriptor."""
        self._poll.register(fd, events)
        self._wake()

    def modify(self, fd: int, events: int) -> None:
        """Watch other events of a descriptor."""
        self._poll.modify(fd, events)
        self._wake()

    def unregister(self, fd: int) -> None:
        """Stop watching a descriptor; raise OSError if it is not watched."""
        try:
            self._poll.unregister(fd)
        except KeyError:
            raise OSError(f"descriptor {fd} is not watched") from None

    def poll(self, timeout_s: float) -> list[tuple[int, int]]:
        """Return (descriptor, events) of all that are ready; wait for the first, forever if < 0."""
        return self._poll.poll(None if timeout_s < 0 else math.ceil(timeout_s * 1000))

    def fileno(self) -> int | None:
        """Return None, because no single descriptor represents all watched ones."""
        return None

    def close(self) -> None:
        """Release nothing: there is no descriptor."""
