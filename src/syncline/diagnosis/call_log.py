"""`CallLog`: reads the recent collective calls of a rank, seldom if reading takes long."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from syncline.diagnosis.collective_calls import CollectiveCall

SHARE = 0.003
"""Largest share of the time that reading may take."""
_LONGEST_INTERVAL = 16
CALLS_OF_ALL = 16_384
"""Calls of all ranks together that the controller gets for one window."""
FEWEST_CALLS = 16
"""Calls of each rank that it gets in any case."""


class CallLog:
    """Recent calls, from a source that the framework sets when it creates its process group.

    Args:
        world_size: Number of ranks; of many, each returns fewer calls.
        window_s: Seconds of one window.
        clock: Returns the CPU time of the thread in seconds; the reading holds the interpreter.
    """

    def __init__(
        self,
        world_size: int = 1,
        window_s: float = 2.0,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._most = max(FEWEST_CALLS, CALLS_OF_ALL // world_size)
        self.source: Callable[[], Sequence[CollectiveCall]] | None = None
        """Returns the recent calls, oldest first; None without a process group."""
        self._window_s = window_s
        self._clock = clock
        self._every = 1

    def read(self, window: int | None) -> tuple[CollectiveCall, ...] | None:
        """Return the recent calls; None if this window is left out.

        If reading takes long, only windows are read whose number is a multiple of 2, 4, 8 and so
        on, so that ranks leave out the same ones.

        Args:
            window: Number of the window; None to read in any case.
        """
        if self.source is None:
            return ()
        if window is not None and window % self._every:
            return None
        began = self._clock()
        calls = tuple(self.source()[-self._most :])
        took_s = self._clock() - began
        self._every = 1
        while took_s > SHARE * self._window_s * self._every and self._every < _LONGEST_INTERVAL:
            self._every *= 2
        return calls
