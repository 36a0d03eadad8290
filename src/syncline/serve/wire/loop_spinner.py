"""`LoopSpinner`: keeps an event loop awake for the next frame.

A program that calls one by one sends its next call a few microseconds after the answer. A loop that
has not begun to sleep by then needs nobody to wake it; `spinning` says when that is worth it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

from syncline.serve.wire.spinning import SPIN_S, SpinLimit


class LoopSpinner:
    """Used on the loop's thread."""

    __slots__ = ("_clock", "_end", "_limit", "_loop", "_turns")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._limit = SpinLimit()
        self._end = 0.0  # 0 if no spin is under way
        self._turns = False  # True while a turn is planned

    def start(self) -> None:
        """Spin: a frame may come soon."""
        if not self._end and self._limit.allows():
            self._end = self._clock() + SPIN_S
            if not self._turns:
                self._turns = True
                self._loop.call_soon(self._turn)

    def stop(self) -> None:
        """Record that the frame has come."""
        if self._end:
            self._end = 0.0
            self._limit.note(found=True)

    def _turn(self) -> None:
        if self._end and self._clock() < self._end:
            self._loop.call_soon(self._turn)  # so that the loop looks at its sockets, and returns
            return
        self._turns = False
        if self._end:
            self._end = 0.0
            self._limit.note(found=False)
