"""SIGTERM as a notice: the process is told, and lives on to save its work, until it is told a
second time or killed.

Covered: actors that ask for it (`on_terminate`), and the program's own process for as long as a
block runs (`noticed`). Not covered: other signals, and what becomes of the processes that such a
process has started: they end by SIGTERM, as ever.

Python runs signal handlers in the main thread, when that is back from C code, and lets only the
main thread change them. So the main thread prepares everything at a time when it is free
(`prepare`), with the system's own handling left in force; any thread may then switch between the
two. A thread hears of the signal by way of Python's wake-up descriptor, whatever the main thread
does meanwhile.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

logger = logging.getLogger("syncline")

_SYSTEMS_OWN = 0
"""C's SIG_DFL: the system ends the process."""

_set_c_handler = ctypes.pythonapi.PyOS_setsig
"""Sets what the system calls for a signal, from any thread, and gives what it called before.
`signal.signal` keeps Python's side.
"""
_set_c_handler.argtypes = (ctypes.c_int, ctypes.c_void_p)
_set_c_handler.restype = ctypes.c_void_p


class _Watch:
    """Waits for SIGTERM in this process. Made and closed in the main thread; `arm` may be called
    from any.
    """

    def __init__(self) -> None:
        self._callback: Callable[[], None] | None = None
        self._is_told = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._previous: Any = signal.getsignal(signal.SIGTERM)
        self._read, self._write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._write, False)
        self._former_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        if (
            self._former_fd != -1
        ):  # an event loop has it: notices come when the main thread runs Python
            signal.set_wakeup_fd(self._former_fd)
        signal.signal(signal.SIGTERM, self._on_signal)
        self._pythons = _set_c_handler(signal.SIGTERM, _SYSTEMS_OWN)
        if self._previous is not signal.SIG_DFL:
            _set_c_handler(signal.SIGTERM, self._pythons)

    def arm(self, callback: Callable[[], None]) -> None:
        """From now on the signal calls `callback`, once."""
        with self._lock:
            self._callback = callback
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._listen, name="syncline-termination", daemon=True
                )
                self._thread.start()
        _set_c_handler(signal.SIGTERM, self._pythons)

    def close(self) -> None:
        """Put back what was there before."""
        signal.signal(signal.SIGTERM, self._previous)
        if self._former_fd == -1:
            signal.set_wakeup_fd(-1)
        os.close(self._write)  # the thread ends with it
        if self._thread is None:
            os.close(self._read)

    def forget_in_child(self) -> None:
        """In a child that this process forked: let go of the parent's pipe; the signal ends the
        child.
        """
        self._thread, self._previous = None, signal.SIG_DFL
        self.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Python's handler, in the main thread; mostly the thread has told already."""
        if self._callback is not None:
            with suppress(BlockingIOError):  # so full that the thread is about to read it
                os.write(self._write, bytes([number]))
        elif self._is_told:
            return
        elif callable(self._previous):
            self._previous(number, frame)
        else:  # it came while this was being set up
            _set_c_handler(number, _SYSTEMS_OWN)
            os.kill(os.getpid(), number)

    def _listen(self) -> None:
        while numbers := os.read(self._read, 4096):
            if signal.SIGTERM in numbers:
                self._tell()
        os.close(self._read)

    def _tell(self) -> None:
        with self._lock:
            callback, self._callback = self._callback, None
            if callback is None:  # the same signal, by the other way
                return
            self._is_told = True
            _set_c_handler(
                signal.SIGTERM, _SYSTEMS_OWN
            )  # the second one ends the process, whatever that does then
        try:
            callback()
        except Exception:
            logger.exception("what was to be done at SIGTERM (pid=%d) failed", os.getpid())


class _Process:
    """What this process waits with."""

    def __init__(self) -> None:
        self.of_actor: _Watch | None = None
        self.of_program: _Watch | None = None


_process = _Process()


def prepare() -> None:
    """Called by engines in the main thread of a worker that becomes an actor; nothing changes until
    that calls `on_terminate`.
    """
    if threading.current_thread() is threading.main_thread() and _process.of_actor is None:
        _process.of_actor = _Watch()


def on_terminate(callback: Callable[[], None]) -> bool:
    """In an actor, from any of its threads: let SIGTERM call `callback`, soon and on a thread of
    its own, instead of ending the process.

    The process then goes on; a second SIGTERM, and the engine when it ends the actor, end it as
    ever. A later call replaces the callback. Returns whether the process will be told: False
    outside of actors, and for those of the inline engine, which have no process.
    """
    watch = _process.of_actor
    if watch is None:
        return False
    watch.arm(callback)
    return True


def outlast_notice() -> None:
    """In an actor that others need while they save their work: the first SIGTERM, sent to all
    processes of a job, changes nothing here.
    """
    on_terminate(lambda: None)


@contextmanager
def noticed(callback: Callable[[], None]) -> Iterator[bool]:
    """While the block runs, SIGTERM to this process calls `callback` on a thread of its own; a
    second one ends the process as ever.

    The value is whether that is so: nothing is changed outside of the main thread, and where the
    program has a handler of its own or ignores the signal.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):
        yield False
        return
    watch = _process.of_program = _Watch()
    try:
        watch.arm(callback)
        yield True
    finally:
        _process.of_program = None
        watch.close()


class _Fork(threading.local):
    """What a thread that forks had blocked before."""

    mask: set[Any] | None = None


_fork = _Fork()


def _before_fork() -> None:
    """A signal to the child must not come before that has let go of this process's watch."""
    if _process.of_actor is not None or _process.of_program is not None:
        _fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _after_fork() -> None:
    mask, _fork.mask = _fork.mask, None
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _after_fork_in_child() -> None:
    for watch in (_process.of_program, _process.of_actor):
        if watch is not None:
            watch.forget_in_child()
    _process.of_program = _process.of_actor = None
    _after_fork()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child
)
