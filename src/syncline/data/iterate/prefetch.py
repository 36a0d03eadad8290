"""Prefetching: the next items of an iterator, made on a thread while the program works on the
current one.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

# A thread that runs somebody's code is waited for at most so long after it was told to stop; it
# ends by itself when that code returns.
_LEAVE_S = 5.0


@dataclass(frozen=True, kw_only=True)
class PrefetchStatistics:
    """What a `Prefetcher` did."""

    items: int
    """Items that the program got."""
    ready: int
    """Items that wait for the program now."""
    waited_s: float
    """How long the program waited for items, in seconds: what its input costs it."""


@dataclass(kw_only=True)
class WaitMeter:
    """What a program's input costs it, summed up over the prefetchers that share it."""

    items: int = 0
    """Items that the program got."""
    waited_s: float = 0.0
    """How long it waited for its input, in seconds."""


@dataclass(kw_only=True)
class _Channel(Generic[T]):
    """What the program and the thread share. The thread knows nothing else, so a program that drops
    the `Prefetcher` ends it.
    """

    source: Iterator[T]
    depth: int
    changed: threading.Condition = field(default_factory=threading.Condition)
    ready: deque[T] = field(default_factory=deque)
    error: BaseException | None = None
    ended: bool = False  # by the source
    left: bool = False  # by the program


class Prefetcher(Iterator[T]):
    """An iterator over `source` that has up to `depth` items ready.

    The thread starts with the first `next`. Errors of the source reach the program after the items
    before them, with their own traceback. `close`, which dropping the iterator implies, ends the
    thread at once and a generator as source is closed on its own thread.

    Args:
        source: Used by the thread alone.
        depth: Items that may be ready; 0 makes each when it is asked for, without a thread.
        cancel: Called once, by `close` or at the end, on the program's thread; makes a source that
            waits for something stop waiting.
        clock: Seconds.
        meter: Counts the items and the waiting; prefetchers that share one are counted together.
    """

    def __init__(
        self,
        source: Iterator[T],
        *,
        depth: int,
        cancel: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.perf_counter,
        meter: WaitMeter | None = None,
    ) -> None:
        self._channel = _Channel(source=source, depth=depth)
        self._cancel: Callable[[], None] | None = cancel
        self._clock = clock
        self._meter = WaitMeter() if meter is None else meter
        self._thread: threading.Thread | None = None

    def __next__(self) -> T:
        begin = self._clock()
        item = self._next_ready() if self._channel.depth else self._make()
        self._meter.waited_s += self._clock() - begin
        self._meter.items += 1
        return item

    def close(self) -> None:
        """End now; a second call does nothing."""
        channel = self._channel
        with channel.changed:
            channel.left = True
            channel.ready.clear()
            channel.changed.notify_all()
        cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()
        if self._thread is None:
            _close(channel.source)
        elif (
            self._thread is not threading.current_thread()
        ):  # the garbage collector runs on any thread
            self._thread.join(_LEAVE_S)

    def __del__(self) -> None:
        if getattr(self, "_cancel", None) is not None:
            self.close()

    def statistics(self) -> PrefetchStatistics:
        """What happened so far."""
        return PrefetchStatistics(
            items=self._meter.items, ready=len(self._channel.ready), waited_s=self._meter.waited_s
        )

    def _make(self) -> T:
        if self._channel.left:
            raise StopIteration
        return next(self._channel.source)

    def _next_ready(self) -> T:
        channel = self._channel
        if self._thread is None and not channel.left:
            # Settings in context variables are the program's own, not the thread's.
            context = contextvars.copy_context()
            self._thread = threading.Thread(
                target=context.run, args=(_fill, channel), name="syncline-prefetch", daemon=True
            )
            self._thread.start()
        with channel.changed:
            while not (channel.ready or channel.ended or channel.left):
                channel.changed.wait()
            if channel.ready:
                item = channel.ready.popleft()
                channel.changed.notify_all()
                return item
            error, channel.error = channel.error, None
        if error is not None:
            raise error
        raise StopIteration


def _fill(channel: _Channel[T]) -> None:
    """What the thread does: make items while there is room, until the source ends or the program
    leaves.
    """
    error: BaseException | None = None
    try:
        _make_ahead(channel)
    except BaseException as raised:  # whatever it is, it belongs to the program
        error = raised
    with channel.changed:
        channel.error, channel.ended = error, True
        channel.changed.notify_all()


def _make_ahead(channel: _Channel[T]) -> None:
    try:
        while _has_room(channel):
            item = next(channel.source)
            with channel.changed:
                if not channel.left:
                    channel.ready.append(item)
                    channel.changed.notify_all()
            del item  # while this waits for room, the program alone holds what it got
    except StopIteration:
        return
    finally:
        _close(channel.source)


def _has_room(channel: _Channel[T]) -> bool:
    """Wait for room; False if the program has left."""
    with channel.changed:
        while len(channel.ready) >= channel.depth and not channel.left:
            channel.changed.wait()
        return not channel.left


def _close(source: Iterator[T]) -> None:
    close = getattr(source, "close", None)
    if callable(close):
        close()
