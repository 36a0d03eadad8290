"""Sharing of one reactor among the threads of a process (the leader/followers pattern).

A thread that waits becomes the *leader*: it runs the reactor until its own condition holds, and
settles the conditions of others on the way, so that an answer needs no switch between threads.
Other waiting threads *follow*: they sleep until the leader settles their condition, or leaves and
promotes one of them. While no thread waits, one background thread leads. It stays away for a
moment after each wait, because a program that waits once usually waits again, and two threads that
alternate on the interpreter lock cost more than the work.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from syncline.core.embedded.interrupts import Interruptible, shielded
from syncline.core.embedded.reactor import LONGEST_SLEEP_S, Reactor

logger = logging.getLogger("syncline")

LINGER_S = 0.004
"""Seconds that the background thread leaves the reactor to threads that come back soon."""
IDLE_CHECK_S = 0.5
"""Seconds between idle actions while threads wait, such as sending dropped references."""
IDLE_RUN_S = 0.25
"""Seconds between idle actions of the background thread while it leads."""


class Waiter:
    """A condition that a thread waits for: `remaining` reaches zero, under the owner's lock."""

    __slots__ = ("_gate", "done", "remaining")

    def __init__(self, remaining: int = 1) -> None:
        self.remaining = remaining
        self.done = remaining <= 0
        self._gate: threading.Lock | _LeaderGate | None = None

    def count(self) -> None:
        """Count one of the awaited events."""
        self.remaining -= 1
        if self.remaining <= 0 and not self.done:
            self.settle()

    def settle(self) -> None:
        """Mark the condition as met and wake the thread."""
        self.done = True
        self.wake()

    def wake(self) -> None:
        """Wake the waiting thread to check again."""
        gate = self._gate  # not cleared: the waiting thread may have set a new one meanwhile
        if gate is not None:
            try:
                gate.release()
            except RuntimeError:
                pass  # another thread has woken it


class _LeaderGate:
    """Wakes the leader, which sleeps in the reactor, when another thread settles its condition."""

    __slots__ = ("_wake", "leader")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.leader = 0

    def release(self) -> None:
        """Wake the leader, unless the caller is the leader."""
        if threading.get_ident() != self.leader:
            self._wake()


class SharedReactor:
    """Shares one reactor among the threads of a process."""

    def __init__(self, reactor: Reactor, *, name: str, on_idle: Callable[[], None]) -> None:
        """`on_idle` is called by the background thread when it takes the lead, and periodically."""
        self._reactor = reactor
        self._name = name
        self._on_idle = on_idle
        self._leader = threading.Lock()
        self._leader_gate = _LeaderGate(reactor.wake)
        self._followers: deque[Waiter] = deque()
        self._inside: set[object] = set()  # threads inside `wait`, and visitors; changes are atomic
        self._visits = 0  # calls of `wait`; a lost update between two threads does no harm
        # held while the background thread sleeps; a release wakes it
        self._wake_signal = threading.Lock()
        self._wake_signal.acquire()
        self._sleeping = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the background thread."""
        self._thread = threading.Thread(
            target=self._lead_in_background, name=self._name, daemon=True
        )
        self._thread.start()

    def wait(self, waiter: Waiter, timeout_s: float | None = None) -> bool:
        """Wait until `waiter` is done; return False after the timeout."""
        if waiter.done:
            return True
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        thread = threading.get_ident()
        with shielded():
            self._inside.add(thread)
            self._visits += 1
            try:
                return self._wait(waiter, deadline)
            finally:
                self._inside.discard(thread)
                if self._sleeping and not self._inside:
                    self._wake_background()
                if self._followers:
                    self._promote()

    def visit(self) -> bool:
        """Keep the background thread away for a moment, like a wait.

        Return False if another thread leads. A thread that may find its answer at once looks at its
        descriptor itself after a visit, and waits only if it is not there.
        """
        self._visits += 1
        return not self._leader.locked()

    def enter(self, visitor: object) -> None:
        """Keep the background thread away until `leave`.

        The visitor watches `fileno` and the time of `next_timer_s`, and calls `poll`.
        """
        self._inside.add(visitor)
        self._visits += 1
        if self._leader.locked():
            self._reactor.wake()

    def leave(self, visitor: object) -> None:
        """End a visit."""
        self._inside.discard(visitor)
        if self._sleeping and not self._inside:
            self._wake_background()

    def poll(self) -> None:
        """Handle the events and timers that are due, unless another thread leads."""
        if self._leader.acquire(blocking=False):
            try:
                self._reactor.run_once(0.0)
            finally:
                self._leader.release()
            if self._followers:
                self._promote()

    def fileno(self) -> int | None:
        """Return a descriptor that is readable when there are events; None if there is none."""
        return self._reactor.fileno()

    def next_timer_s(self) -> float | None:
        """Return the seconds until the next timer; None without one."""
        return self._reactor.next_timer_s()

    def close(self) -> None:
        """End the background thread; waiting threads get RuntimeError."""
        self._closed = True
        self._wake_background()
        self._reactor.wake()
        for waiter in list(self._followers):
            waiter.wake()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)

    def _wait(self, waiter: Waiter, deadline: float | None) -> bool:
        while not waiter.done:
            if self._closed:
                raise RuntimeError(
                    "syncline was shut down while a thread of this process waited for a value"
                )
            if deadline is not None and time.monotonic() >= deadline:
                return False
            if self._leader.acquire(blocking=False):
                try:
                    self._lead(waiter, deadline)
                finally:
                    self._leader.release()
            else:
                self._follow(waiter, deadline)
        return True

    def _lead(self, waiter: Waiter, deadline: float | None) -> None:
        run_once = self._reactor.run_once
        self._leader_gate.leader = threading.get_ident()
        waiter._gate = self._leader_gate
        try:
            while not waiter.done and not self._closed:
                if deadline is None:
                    run_once(None)
                else:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return
                    run_once(left)
        finally:
            waiter._gate = None

    def _follow(self, waiter: Waiter, deadline: float | None) -> None:
        gate = threading.Lock()
        gate.acquire()
        waiter._gate = gate
        self._followers.append(waiter)
        try:
            if waiter.done:
                return
            if not self._leader.locked():
                return  # the leader left before this follower was registered
            self._reactor.wake()  # a background leader yields to a thread that waits
            left = (
                -1.0
                if deadline is None
                else min(max(0.0, deadline - time.monotonic()), LONGEST_SLEEP_S)
            )
            with Interruptible():
                gate.acquire(timeout=left)
        finally:
            waiter._gate = None
            try:
                self._followers.remove(waiter)
            except ValueError:
                pass

    def _promote(self) -> None:
        for waiter in list(self._followers):
            if not waiter.done:
                waiter.wake()
                return

    def _lead_in_background(self) -> None:
        while not self._closed:
            self._wait_until_unused()
            if self._closed or not self._leader.acquire(timeout=LINGER_S):
                continue
            try:
                while not self._inside and not self._closed:
                    self._on_idle()
                    self._reactor.run_once(IDLE_RUN_S)
            except Exception:
                if not self._closed:  # without this thread, unattended work would stop
                    logger.exception("error in syncline's background thread; it continues")
            finally:
                self._leader.release()
            self._promote()

    def _wait_until_unused(self) -> None:
        """Return once no thread has waited for a moment; sleep while one waits."""
        while not self._closed:
            visits = self._visits
            time.sleep(LINGER_S)
            if self._visits != visits:
                continue
            if not self._inside:
                return
            self._sleeping = True  # set before the check: a thread that leaves now wakes this one
            if (
                self._inside
                and not self._closed
                and not self._wake_signal.acquire(timeout=IDLE_CHECK_S)
            ):
                self._on_idle()
            self._sleeping = False

    def _wake_background(self) -> None:
        try:
            self._wake_signal.release()
        except RuntimeError:
            pass  # it is awake already
