"""Deferral of Ctrl-C while the engine's state is inconsistent.

Python runs signal handlers in the main thread, between any two instructions. A KeyboardInterrupt
inside the hub would lose a message or leave a lock held. Therefore, while the main thread owns a
guard or the shield, the handler only sends the signal again a moment later; otherwise the program's
previous handler runs. Guards are plain re-entrant locks, so messages pay nothing for this.
"""

from __future__ import annotations

import _thread
import signal
import threading
import time
import weakref
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Any

AGAIN_S = 0.001
"""Seconds until a deferred signal is sent again."""

Guard = AbstractContextManager[Any]
"""A lock under which the main thread is not interrupted."""


class _State:
    """State of the signal handler."""

    def __init__(self) -> None:
        self.previous: Any = None
        self.main = threading.main_thread().ident
        self.shield: Any = threading.RLock()
        self.guards: list[weakref.ref[Any]] = []


_state = _State()


def make_guard() -> Guard:
    """Return a new guard."""
    guard: Any = threading.RLock()
    _state.guards = [known for known in _state.guards if known() is not None] + [weakref.ref(guard)]
    return guard  # type: ignore[no-any-return]


def shielded() -> AbstractContextManager[Any]:
    """Return a context in which the main thread is not interrupted, except in `Interruptible`."""
    return _state.shield if threading.get_ident() == _state.main else nullcontext()


class Interruptible:
    """A sleep inside a shielded section that a signal may end."""

    __slots__ = ("_held",)

    def __enter__(self) -> None:
        shield = _state.shield
        self._held = shield._release_save() if shield._is_owned() else None

    def __exit__(self, *_: object) -> None:
        if self._held is not None:
            _state.shield._acquire_restore(self._held)


def install(previous: object = None) -> None:
    """Install the handler before the current one, or before `previous`.

    Does nothing outside the main thread.
    """
    _state.main = threading.main_thread().ident
    if threading.get_ident() != _state.main:
        return
    current = signal.getsignal(signal.SIGINT)
    if current is _on_signal and previous is None:
        return
    if previous is None and (not callable(current)):
        return  # ignored, default or set from C: keep the program's choice
    _state.previous = previous if previous is not None else current
    signal.signal(signal.SIGINT, _on_signal)


def uninstall() -> None:
    """Restore the program's handler."""
    if threading.get_ident() == _state.main and signal.getsignal(signal.SIGINT) is _on_signal:
        signal.signal(signal.SIGINT, _state.previous)


def reset_after_fork() -> None:
    """Release all guards in a forked child, whose only thread is the main thread."""
    _state.main = threading.main_thread().ident
    _state.shield = threading.RLock()
    for guard in _state.guards:
        lock = guard()
        if lock is not None:
            lock._at_fork_reinit()


def _on_signal(number: int, frame: FrameType | None) -> None:
    if _state.shield._is_owned() or any(
        lock is not None and lock._is_owned() for lock in [guard() for guard in _state.guards]
    ):
        # not `threading`, whose locks the signal may have interrupted
        _thread.start_new_thread(_send_again, ())
    else:
        _state.previous(number, frame)


def _send_again() -> None:
    time.sleep(AGAIN_S)
    if _state.main is not None:
        signal.pthread_kill(_state.main, signal.SIGINT)
