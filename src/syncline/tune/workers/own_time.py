"""`OwnTime`: seconds without the time for which this process waited for a core.

On a busy machine, a trial of a millisecond may take fifty. A trial that sleeps or waits for a
file takes its time also on an idle one. Linux counts both apart; on other systems the time is that
of a clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

WAITS_FILE = "/schedstat"
"""End of the path of the file with the waits of a thread."""
SHORTEST_S = 0.005
"""Minimum remaining time, so that few looks are taken at it."""
MAX_SHARE = 10.0
"""Maximum ratio of the clock to the own time, because several threads may wait at once."""


class OwnTime:
    """Time of this process since the object was created.

    Args:
        clock: Returns monotonic seconds.
        waited: Returns the seconds for which each thread of the process has waited for a core.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        waited: Callable[[], Mapping[str, float]] | None = None,
    ) -> None:
        self._clock = clock
        self._waited = waited or waited_s
        self._began = clock()
        self._waited_before = self._waited()

    def elapsed_s(self) -> float:
        """Return the seconds so far."""
        elapsed = self._clock() - self._began
        before = self._waited_before
        waits = sum(seconds - before.get(task, 0.0) for task, seconds in self._waited().items())
        return max(elapsed - max(waits, 0.0), elapsed / MAX_SHARE)

    def remaining_s(self, limit_s: float) -> float:
        """Return the time until `limit_s` at the earliest; 0 if it is over."""
        by_clock = self._began + limit_s - self._clock()
        if by_clock > 0:  # as a rule, and the other time takes a hundred times as long to get
            return by_clock
        remaining = limit_s - self.elapsed_s()
        return max(remaining, SHORTEST_S) if remaining > 0 else 0.0


def is_open_meanwhile(target: str) -> bool:
    """Return True for a file or directory that `waited_s` opens, on any thread."""
    return target.endswith(WAITS_FILE) or target == f"/proc/{os.getpid()}/task"


def waited_s() -> dict[str, float]:
    """Return the seconds for which each thread of this process has waited for a core; {} if the
    system does not count them.
    """
    found: dict[str, float] = {}
    try:
        tasks = os.listdir("/proc/self/task")
    except OSError:  # not Linux
        return found
    for task in tasks:
        try:
            with open(f"/proc/self/task/{task}{WAITS_FILE}", "rb") as file:
                found[task] = int(file.read().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):  # the thread has ended, or nothing is counted
            continue
    return found
