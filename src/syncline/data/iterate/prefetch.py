"""Prefetching: a thread prepares the next items of an iterator."""

from __future__ import annotations

import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Generic, TypeVar

from syncline.records import dataclass

T = TypeVar("T")

# Seconds to wait for a thread that runs user code after it was stopped; it ends when the code
# returns.
_CLOSE_S = 5.0
# Small items that may be ready beyond the depth. A thread that wakes up for each item finds the
# processor's caches cold, and takes a multiple of the time.
_BURST = 16


@dataclass(frozen=True, kw_only=True)
class PrefetchStatistics:
    """Statistics of a `Prefetcher`."""

    items: int
    """Items delivered to the consumer."""
    ready: int
    """Items that wait for the consumer."""
    waited_s: float
    """Seconds that the consumer waited for items."""


@dataclass(kw_only=True)
class WaitMeter:
    """Waiting time of a consumer, summed over the prefetchers that share the meter."""

    items: int = 0
    """Items delivered to the consumer."""
    waited_s: float = 0.0
    """Seconds that the consumer waited for items."""


@dataclass(kw_only=True)
class _Channel(Generic[T]):
    """State shared by the consumer and the thread. Dropping the `Prefetcher` ends the thread,
    because the thread only refers to this object.
    """

    source: Iterator[T]
    depth: int
    is_small: Callable[[T], bool]
    changed: threading.Condition = field(default_factory=threading.Condition)
    ready: deque[T] = field(default_factory=deque)
    error: BaseException | None = None
    ended: bool = False  # by the source
    closed: bool = False  # by the consumer


class Prefetcher(Iterator[T]):
    """An iterator over `source` with up to `depth` items ready.

    The thread starts with the first `next`. An error of the source is raised after the items before
    it, with its own traceback. `close`, also called when the iterator is dropped, ends the thread
    and closes a generator on the thread that ran it.

    Args:
        source: Items; used by the thread only.
        depth: Maximum number of ready items; 0 produces each item on demand without a thread.
        cancel: Called once on the consumer's thread, by `close` or at the end; makes a waiting
            source return.
        clock: Seconds.
        meter: Counts items and waiting time.
        is_small: True for items that need so little memory that the thread, once it is awake, may
            make a few more than `depth`.
    """

    def __init__(
        self,
        source: Iterator[T],
        *,
        depth: int,
        cancel: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.perf_counter,
        meter: WaitMeter | None = None,
        is_small: Callable[[T], bool] = lambda item: False,
    ) -> None:
        self._channel = _Channel(source=source, depth=depth, is_small=is_small)
        self._cancel: Callable[[], None] | None = cancel
        self._clock = clock
        self._meter = WaitMeter() if meter is None else meter
        self._thread: threading.Thread | None = None

    def __next__(self) -> T:
        begin = self._clock()
        item = self._next_ready() if self._channel.depth else self._next_on_demand()
        self._meter.waited_s += self._clock() - begin
        self._meter.items += 1
        return item

    def close(self) -> None:
        """End the iteration. May be called repeatedly."""
        channel = self._channel
        with channel.changed:
            channel.closed = True
            channel.ready.clear()
            channel.changed.notify_all()
        cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()
        if self._thread is None:
            _close(channel.source)
        elif self._thread is not threading.current_thread():  # a finalizer runs on any thread
            self._thread.join(_CLOSE_S)

    def __del__(self) -> None:
        if getattr(self, "_cancel", None) is not None:
            self.close()

    def statistics(self) -> PrefetchStatistics:
        """Return statistics."""
        return PrefetchStatistics(
            items=self._meter.items, ready=len(self._channel.ready), waited_s=self._meter.waited_s
        )

    def _next_on_demand(self) -> T:
        if self._channel.closed:
            raise StopIteration
        return next(self._channel.source)

    def _next_ready(self) -> T:
        channel = self._channel
        if self._thread is None and not channel.closed:
            # The thread uses the context variables of the consumer.
            context = contextvars.copy_context()
            self._thread = threading.Thread(
                target=context.run, args=(_fill, channel), name="syncline-prefetch", daemon=True
            )
            self._thread.start()
        with channel.changed:
            while not (channel.ready or channel.ended or channel.closed):
                channel.changed.wait()
            if channel.ready:
                item = channel.ready.popleft()
                if len(channel.ready) < channel.depth:
                    channel.changed.notify_all()
                return item
            error, channel.error = channel.error, None
        if error is not None:
            raise error
        raise StopIteration


def _fill(channel: _Channel[T]) -> None:
    """Run the thread: produce items until the source ends or the consumer closes."""
    error: BaseException | None = None
    try:
        _produce(channel)
    except BaseException as raised:  # any error belongs to the consumer
        error = raised
    with channel.changed:
        channel.error, channel.ended = error, True
        channel.changed.notify_all()


def _produce(channel: _Channel[T]) -> None:
    limit = channel.depth
    try:
        while _has_room(channel, limit):
            item = next(channel.source)
            limit = channel.depth + (_BURST if channel.is_small(item) else 0)
            with channel.changed:
                if not channel.closed:
                    channel.ready.append(item)
                    channel.changed.notify_all()
            del item  # while the thread waits for room, only the consumer holds the item
    except StopIteration:
        return
    finally:
        _close(channel.source)


def _has_room(channel: _Channel[T], limit: int) -> bool:
    """Wait for room if `limit` items are ready; return False if the consumer has closed."""
    with channel.changed:
        if len(channel.ready) >= limit:
            while len(channel.ready) >= channel.depth and not channel.closed:
                channel.changed.wait()
        return not channel.closed


def _close(source: Iterator[T]) -> None:
    close = getattr(source, "close", None)
    if callable(close):
        close()
