"""Ctrl-C is put off while the engine changes something, and comes through at the first moment when
nothing is half done.

Python runs signal handlers in the main thread, between any two instructions. A KeyboardInterrupt in
the middle of the hub would lose a message or leave a lock behind. So while the main thread owns a
guard or the shield, the handler only has the signal sent again a moment later; otherwise the
handler that the program had before runs. Guards are plain re-entrant locks: on the way of every
message nothing is paid for this.
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
"""When a signal that came at a bad moment is sent again."""

Guard = AbstractContextManager[Any]
"""A lock under which the main thread is not interrupted."""


class _State:
    """What the handler needs to know."""

    def __init__(self) -> None:
        self.previous: Any = None
        self.main = threading.main_thread().ident
        self.shield: Any = threading.RLock()
        self.guards: list[weakref.ref[Any]] = []


_state = _State()


def make_guard() -> Guard:
    """A new guard."""
    guard: Any = threading.RLock()
    _state.guards = [known for known in _state.guards if known() is not None] + [weakref.ref(guard)]
    return guard  # type: ignore[no-any-return]


def shielded() -> AbstractContextManager[Any]:
    """A section in which the main thread is not interrupted, but for sleeps inside
    `interruptible`.
    """
    return _state.shield if threading.get_ident() == _state.main else nullcontext()


class Interruptible:
    """A sleep inside a shielded section, which a signal may end."""

    __slots__ = ("_held",)

    def __enter__(self) -> None:
        shield = _state.shield
        self._held = shield._release_save() if shield._is_owned() else None

    def __exit__(self, *_: object) -> None:
        if self._held is not None:
            _state.shield._acquire_restore(self._held)


def install(previous: Any = None) -> None:
    """Put our handler before the one that is there (or before `previous`); outside the main thread
    nothing happens.
    """
    _state.main = threading.main_thread().ident
    if threading.get_ident() != _state.main:
        return
    current = signal.getsignal(signal.SIGINT)
    if current is _on_signal and previous is None:
        return
    if previous is None and (not callable(current)):
        return  # ignored, default or set from C: the program's choice stays
    _state.previous = previous if previous is not None else current
    signal.signal(signal.SIGINT, _on_signal)


def uninstall() -> None:
    """Give the program its own handler back."""
    if threading.get_ident() == _state.main and signal.getsignal(signal.SIGINT) is _on_signal:
        signal.signal(signal.SIGINT, _state.previous)


def reset_after_fork() -> None:
    """In a forked child: its one thread is the main thread, and whatever other threads held is
    free.
    """
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
        _thread.start_new_thread(
            _send_again, ()
        )  # not `threading`: its own locks may be what the signal interrupted
    else:
        _state.previous(number, frame)


def _send_again() -> None:
    time.sleep(AGAIN_S)
    if _state.main is not None:
        signal.pthread_kill(_state.main, signal.SIGINT)
