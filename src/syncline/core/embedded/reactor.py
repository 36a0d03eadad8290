"""The reactor: waits for file descriptors and timers, and calls their handlers.

One thread runs it at a time.
"""

from __future__ import annotations

import heapq
import itertools
import os
import select
import time
from collections.abc import Callable

from syncline import system
from syncline.core.embedded.interrupts import Interruptible

# `epoll` and `poll` number the events alike.
READ = select.POLLIN | select.POLLHUP | select.POLLERR
WRITE = select.POLLOUT
LONGEST_SLEEP_S = 3600.0
"""Longest single wait; the operating system rejects waits of some weeks."""


class Reactor:
    """epoll (or poll), a pipe for wake-ups and a heap of timers.

    `register`, `modify`, `unregister`, `call_at` and `wake` are thread-safe; only the leader calls
    `run_once`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._wake_fd, self._waking_fd = system.nonblocking_pipe()
        self._poll = select.epoll() if system.IS_LINUX else system.Poll(self.wake)
        self._poll.register(self._wake_fd, READ)

    def register(self, fd: int, handler: Callable[[int], None]) -> None:
        """Call `handler(events)` whenever `fd` is readable or closed by the peer."""
        self._handlers[fd] = handler
        self._poll.register(fd, READ)

    def modify(self, fd: int, *, writable: bool) -> None:
        """Watch `fd` for room to write, or stop doing so."""
        if fd in self._handlers:
            self._poll.modify(fd, READ | WRITE if writable else READ)

    def handler(self, fd: int) -> Callable[[int], None]:
        """Return the handler of `fd`."""
        return self._handlers[fd]

    def unregister(self, fd: int) -> None:
        """Remove `fd`; call this before closing it."""
        if self._handlers.pop(fd, None) is not None:
            try:
                self._poll.unregister(fd)
            except OSError:
                pass  # closed already

    def call_at(self, moment: float, action: Callable[[], None]) -> None:
        """Call `action` once, at or after `moment`, in seconds of the reactor's clock."""
        heapq.heappush(self._timers, (moment, next(self._order), action))
        self.wake()

    def call_later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Call `action` once, after `delay_s`."""
        self.call_at(self._clock() + delay_s, action)

    def wake(self) -> None:
        """Make the thread inside `run_once` return."""
        try:
            os.write(self._waking_fd, b"\0")
        except (OSError, ValueError):
            pass  # a wake-up is pending, or the reactor is closed

    def fileno(self) -> int | None:
        """Return a descriptor that is readable when `run_once` would not wait, timers aside.

        None where the system has no such descriptor.
        """
        return self._poll.fileno()

    def next_timer_s(self) -> float | None:
        """Return the seconds until the next timer; None without one."""
        try:
            return max(0.0, self._timers[0][0] - self._clock())
        except IndexError:
            return None

    def run_once(self, timeout_s: float | None) -> None:
        """Wait for events, `timeout_s` at most, and call the handlers of all pending ones."""
        if self._timers:
            until = max(0.0, self._timers[0][0] - self._clock())
            timeout_s = until if timeout_s is None else min(until, timeout_s)
        with Interruptible():
            events = self._poll.poll(-1 if timeout_s is None else min(timeout_s, LONGEST_SLEEP_S))
        for fd, event in events:
            if fd == self._wake_fd:
                self._swallow_wake()
                continue
            handler = self._handlers.get(fd)
            if handler is not None:
                handler(event)
        # Read once: a timer that schedules another for now must not delay the descriptors.
        now = self._clock()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()

    def close(self) -> None:
        """Close the reactor's descriptors."""
        self._poll.close()
        fds = (self._wake_fd, self._waking_fd)
        self._waking_fd = -1  # a late `wake` must not write into a file that reuses the number
        for fd in fds:
            if fd >= 0:
                os.close(fd)
        self._wake_fd = -1
        self._handlers.clear()
        self._timers.clear()

    def _swallow_wake(self) -> None:
        try:
            os.read(self._wake_fd, 4096)
        except BlockingIOError:
            pass
