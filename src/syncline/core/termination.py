"""SIGTERM as a notice: the process keeps running to save its work, and a second SIGTERM ends it.

Covered: actors that call `on_terminate`, and the driver while a `termination_notice` block runs.
Not covered: other signals, and child processes of such a process, which end by SIGTERM as usual.

Python runs signal handlers in the main thread, once it returns from C code, and lets only the main
thread change them. So the main thread installs everything ahead of time (`prepare`) with the
system's default action still in effect; any thread may then switch between the two. A separate
thread receives the signal through Python's wake-up descriptor, regardless of the main thread.
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
from typing import TypeAlias

logger = logging.getLogger("syncline")

_Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | signal.Handlers | None

_DEFAULT_ACTION = 0
"""C's SIG_DFL: the system ends the process."""

_set_c_handler = ctypes.pythonapi.PyOS_setsig
"""Set the C-level handler of a signal from any thread and return the previous one.

`signal.signal` still holds the Python-level handler.
"""
_set_c_handler.argtypes = (ctypes.c_int, ctypes.c_void_p)
_set_c_handler.restype = ctypes.c_void_p


class _SigtermNotice:
    """Receives SIGTERM in this process.

    Create and close it in the main thread; any thread may call `arm`.
    """

    def __init__(self) -> None:
        self._callback: Callable[[], None] | None = None
        self._was_notified = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._previous: _Handler = signal.getsignal(signal.SIGTERM)
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._former_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        if self._former_fd != -1:  # owned by an event loop: the main thread delivers the notice
            signal.set_wakeup_fd(self._former_fd)
        signal.signal(signal.SIGTERM, self._on_signal)
        self._python_handler = _set_c_handler(signal.SIGTERM, _DEFAULT_ACTION)
        if self._previous is not signal.SIG_DFL:
            _set_c_handler(signal.SIGTERM, self._python_handler)

    def arm(self, callback: Callable[[], None]) -> None:
        """Call `callback` once on the next SIGTERM."""
        with self._lock:
            self._callback = callback
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._listen, name="syncline-termination", daemon=True
                )
                self._thread.start()
        _set_c_handler(signal.SIGTERM, self._python_handler)

    def close(self) -> None:
        """Restore the previous handlers."""
        signal.signal(signal.SIGTERM, self._previous)
        if self._former_fd == -1:
            signal.set_wakeup_fd(-1)
        os.close(self._write)  # the thread ends with it
        if self._thread is None:
            os.close(self._read)

    def forget_in_child(self) -> None:
        """In a forked child: close the parent's pipe; SIGTERM then ends the child."""
        self._thread, self._previous = None, signal.SIG_DFL
        self.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Python's handler in the main thread; usually the other thread has already notified."""
        if self._callback is not None:
            with suppress(BlockingIOError):  # the pipe is full: the thread is about to read it
                os.write(self._write, bytes([number]))
        elif self._was_notified:
            return
        elif callable(self._previous):
            self._previous(number, frame)
        else:  # the signal arrived during setup
            _set_c_handler(number, _DEFAULT_ACTION)
            os.kill(os.getpid(), number)

    def _listen(self) -> None:
        while numbers := os.read(self._read, 4096):
            if signal.SIGTERM in numbers:
                self._notify()
        os.close(self._read)

    def _notify(self) -> None:
        with self._lock:
            callback, self._callback = self._callback, None
            if callback is None:  # the same signal, already handled by the main thread
                return
            self._was_notified = True
            # Before the callback, so that a second SIGTERM ends the process in any case.
            _set_c_handler(signal.SIGTERM, _DEFAULT_ACTION)
        try:
            callback()
        except Exception:
            logger.exception("the SIGTERM callback failed (pid=%d)", os.getpid())


class _Process:
    """Notices of this process."""

    def __init__(self) -> None:
        self.of_actor: _SigtermNotice | None = None
        self.of_driver: _SigtermNotice | None = None


_process = _Process()


def prepare() -> None:
    """Install the handler in the main thread of a worker that becomes an actor.

    Engines call it. SIGTERM keeps its default action until the actor calls `on_terminate`.
    """
    if threading.current_thread() is threading.main_thread() and _process.of_actor is None:
        _process.of_actor = _SigtermNotice()


def on_terminate(callback: Callable[[], None]) -> bool:
    """In an actor, from any thread: let SIGTERM call `callback` instead of ending the process.

    The callback runs on its own thread. The process continues; a second SIGTERM, or the engine when
    it ends the actor, ends it. A later call replaces the callback. Returns False if the process
    gets no notices: outside actors, and for actors of the inline engine.
    """
    notice = _process.of_actor
    if notice is None:
        return False
    notice.arm(callback)
    return True


def ignore_first_sigterm() -> None:
    """In an actor that others need while they save their work: ignore the first SIGTERM.

    A job scheduler sends it to all processes of a job.
    """
    on_terminate(lambda: None)


@contextmanager
def termination_notice(callback: Callable[[], None]) -> Iterator[bool]:
    """While the block runs, let SIGTERM call `callback` on its own thread.

    A second SIGTERM ends the process. Yields False, and changes nothing, outside the main thread
    and if the program has its own handler or ignores the signal.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):
        yield False
        return
    notice = _process.of_driver = _SigtermNotice()
    try:
        notice.arm(callback)
        yield True
    finally:
        _process.of_driver = None
        notice.close()


class _Fork(threading.local):
    """Signal mask of a forking thread before the fork."""

    mask: set[int] | None = None


_fork = _Fork()


def _before_fork() -> None:
    """Block SIGTERM until the child has closed this process's notice."""
    if _process.of_actor is not None or _process.of_driver is not None:
        _fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _after_fork() -> None:
    mask, _fork.mask = _fork.mask, None
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _after_fork_in_child() -> None:
    for notice in (_process.of_driver, _process.of_actor):
        if notice is not None:
            notice.forget_in_child()
    _process.of_driver = _process.of_actor = None
    _after_fork()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child
)
