"""Ctrl-C is put off while the engine changes something, and delivered at the first moment when nothing is half done.

Python runs signal handlers in the main thread, between any two instructions. A KeyboardInterrupt in the middle of the hub would
lose a message or leave a lock behind. Inside a `Guard`, and inside `Shield` sections, the main thread only notes the signal; while it
sleeps in `interruptible`, and everywhere else, the handler that the program had before runs at once.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

_get_ident = threading.get_ident


class _State:
    """Touched by the main thread only, its signal handlers included."""

    __slots__ = ("depth", "main", "pending", "previous")

    def __init__(self) -> None:
        self.depth = 0
        self.pending: FrameType | None | bool = False  # False: none; else the frame that was interrupted
        self.previous: Any = None
        self.main = threading.main_thread().ident


_state = _State()


def install(previous: Any = None) -> None:
    """Put the noting handler before the one that is there (or before `previous`); outside the main thread nothing happens."""
    _state.main = threading.main_thread().ident
    if _get_ident() != _state.main:
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
    if _get_ident() == _state.main and signal.getsignal(signal.SIGINT) is _on_signal:
        signal.signal(signal.SIGINT, _state.previous)


def reset_after_fork() -> None:
    """In a forked child: its one thread is the main thread, and it is inside nothing."""
    _state.main = threading.main_thread().ident
    _state.depth = 0
    _state.pending = False


def _on_signal(number: int, frame: FrameType | None) -> None:
    if _state.depth:
        _state.pending = frame
    else:
        _state.previous(number, frame)


def _leave() -> None:
    _state.depth -= 1
    if _state.pending is not False and not _state.depth:
        frame, _state.pending = _state.pending, False
        _state.previous(signal.SIGINT, frame)


class Guard:
    """A lock under which the main thread is not interrupted."""

    __slots__ = ("_acquire", "_release")

    def __init__(self) -> None:
        lock = threading.Lock()
        self._acquire = lock.acquire
        self._release = lock.release

    def __enter__(self) -> None:
        if _get_ident() == _state.main:
            _state.depth += 1
        self._acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._release()
        if _get_ident() == _state.main:
            _leave()


class Shield:
    """A section in which the main thread is not interrupted. One object may be used again, also nested."""

    __slots__ = ()

    def __enter__(self) -> None:
        if _get_ident() == _state.main:
            _state.depth += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if _get_ident() == _state.main:
            _leave()


class Interruptible:
    """A section inside a `Shield` in which signals come through: only for a sleep that may end anywhere."""

    __slots__ = ("_depth", "_is_main")

    def __enter__(self) -> None:
        self._is_main = _get_ident() == _state.main
        if not self._is_main:
            return
        self._depth, _state.depth = _state.depth, 0
        if _state.pending is not False:
            frame, _state.pending = _state.pending, False
            try:
                _state.previous(signal.SIGINT, frame)
            except BaseException:
                _state.depth = self._depth
                raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._is_main:
            _state.depth = self._depth


SHIELD = Shield()
