"""`LoopReader`: an event loop of a program reads the sockets of the program's link.

While a coroutine of the loop awaits an answer, the loop watches the link's reactor, so that the
answer needs no switch between threads. Other threads may also read; the first one gets the answer.
"""

from __future__ import annotations

import asyncio

from syncline.core.embedded.shared_reactor import SharedReactor
from syncline.serve.wire.loop_spinner import LoopSpinner


class LoopReader:
    """The reader of one event loop. Used on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, shared: SharedReactor) -> None:
        self.loop = loop
        self._shared = shared
        self._spinner = LoopSpinner(loop)
        self._awaiting = 0
        self._watched: int | None = None  # descriptor
        self._is_leaving = False
        self._timer: asyncio.TimerHandle | None = None

    def enter(self) -> None:
        """Register a coroutine that begins to await an answer."""
        if (descriptor := self._shared.fileno()) is None:
            return  # the link's own thread reads
        self._awaiting += 1
        if self._awaiting == 1:
            self._shared.enter(self)
            if self._watched is None:
                self._watched = descriptor
                self.loop.add_reader(self._watched, self._read)
                self._plan()
            self._spinner.start()

    def leave(self) -> None:
        """Record that a coroutine no longer awaits an answer."""
        if not self._awaiting:
            return
        self._awaiting -= 1
        if not self._awaiting:
            self._spinner.stop()
            self._shared.leave(self)
            if not self._is_leaving and not self.loop.is_closed():
                self._is_leaving = True
                self.loop.call_soon(self._end)  # later: the coroutine may await again at once

    def _end(self) -> None:
        self._is_leaving = False
        if self._awaiting or self._watched is None:
            return
        self.loop.remove_reader(self._watched)
        self._watched = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _read(self) -> None:
        if self._awaiting:
            self._shared.poll()
            self._plan()

    def _plan(self) -> None:
        """Look after the next timer of the reactor."""
        moment = self._shared.next_timer_s()
        if moment is None:
            return
        if self._timer is not None:
            if self._timer.when() <= self.loop.time() + moment:
                return
            self._timer.cancel()
        self._timer = self.loop.call_later(moment, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._read()
