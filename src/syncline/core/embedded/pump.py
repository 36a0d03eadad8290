"""Who turns the reactor: the thread that waits for something does it itself, so that an answer
needs no hand-over between threads.

A thread that waits becomes the *leader*: it turns the reactor until its own condition holds,
settling the conditions of the others on the way. Other waiting threads *follow*: they sleep until
the leader settles theirs, or leaves and promotes one of them. While nobody waits, one background
thread leads. It holds back for a moment after each wait, because a program that waits once mostly
waits again, and two threads that hand the interpreter to and fro cost more than the work.
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
"""How long the background thread leaves the reactor to threads that come back soon."""
REST_S = 0.5
"""How long the background thread sleeps at most while others wait: a reference that dies meanwhile
is told of after so long.
"""
IDLE_TURN_S = 0.25
"""The longest that references which died unnoticed keep their objects."""


class Waiter:
    """Something that a thread waits for: `remaining` counts down to zero, under the lock of whoever
    counts.
    """

    __slots__ = ("_gate", "done", "remaining")

    def __init__(self, remaining: int = 1) -> None:
        self.remaining = remaining
        self.done = remaining <= 0
        self._gate: threading.Lock | _LeaderGate | None = None

    def count(self) -> None:
        """One of the things that were waited for has happened."""
        self.remaining -= 1
        if self.remaining <= 0 and not self.done:
            self.settle()

    def settle(self) -> None:
        """Nothing is waited for any more."""
        self.done = True
        self.nudge()

    def nudge(self) -> None:
        """Wake the waiting thread to look again."""
        gate = (
            self._gate
        )  # not cleared here: the waiting thread may have put a new one there meanwhile
        if gate is not None:
            try:
                gate.release()
            except RuntimeError:
                pass  # another thread has nudged already


class _LeaderGate:
    """Stands for the reactor that the leader sleeps in: another thread may settle what the leader
    waits for.
    """

    __slots__ = ("_wake", "leader")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.leader = 0

    def release(self) -> None:
        """Wake the leader, unless it is the one who calls."""
        if threading.get_ident() != self.leader:
            self._wake()


class Pump:
    """Shares one reactor among the threads of a process."""

    def __init__(self, reactor: Reactor, *, name: str, tend: Callable[[], None]) -> None:
        """`tend`: called by the background thread when it takes over from threads that stopped
        waiting, and now and then at other times.
        """
        self._reactor = reactor
        self._name = name
        self._tend = tend
        self._leader = threading.Lock()
        self._leader_gate = _LeaderGate(reactor.wake)
        self._followers: deque[Waiter] = deque()
        self._inside: set[int] = (
            set()
        )  # threads inside `wait`; one instruction of the interpreter adds or removes one
        self._visits = (
            0  # grows with every visit; where two threads race it grows by one, which is as good
        )
        self._rest = threading.Lock()  # held while the background thread rests; released to wake it
        self._rest.acquire()
        self._resting = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the background thread."""
        self._thread = threading.Thread(
            target=self._lead_in_background, name=self._name, daemon=True
        )
        self._thread.start()

    def wait(self, waiter: Waiter, timeout_s: float | None = None) -> bool:
        """Wait until `waiter` is done; False if `timeout_s` passed first."""
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
                if self._resting and not self._inside:
                    self._wake_background()
                if self._followers:
                    self._promote()

    def close(self) -> None:
        """End the background thread; threads that still wait get RuntimeError."""
        self._closed = True
        self._wake_background()
        self._reactor.wake()
        for waiter in list(self._followers):
            waiter.nudge()
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
        turn = self._reactor.turn
        self._leader_gate.leader = threading.get_ident()
        waiter._gate = self._leader_gate
        try:
            while not waiter.done and not self._closed:
                if deadline is None:
                    turn(None)
                else:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return
                    turn(left)
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
                return  # the leader left before this follower was listed
            self._reactor.wake()  # a background leader steps back for a thread that waits
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
                waiter.nudge()
                return

    def _lead_in_background(self) -> None:
        while not self._closed:
            self._stand_back()
            if self._closed or not self._leader.acquire(timeout=LINGER_S):
                continue
            try:
                while not self._inside and not self._closed:
                    self._tend()
                    self._reactor.turn(IDLE_TURN_S)
            except Exception:
                if not self._closed:  # a defect of ours; without this thread everything that nobody waits for would stop
                    logger.exception("syncline's background thread met an error and goes on")
            finally:
                self._leader.release()
            self._promote()

    def _stand_back(self) -> None:
        """Return once no thread has waited for a moment. While one waits and goes on waiting, rest
        until it stops.
        """
        while not self._closed:
            visits = self._visits
            time.sleep(LINGER_S)
            if self._visits != visits:
                continue
            if not self._inside:
                return
            self._resting = True  # before the look: whoever leaves from here on wakes this thread
            if self._inside and not self._closed and not self._rest.acquire(timeout=REST_S):
                self._tend()
            self._resting = False

    def _wake_background(self) -> None:
        try:
            self._rest.release()
        except RuntimeError:
            pass  # it is awake, or about to be
