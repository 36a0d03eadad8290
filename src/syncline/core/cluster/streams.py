"""Items of Ray's generators, called back as they come: one thread with an event loop for all
streams of this process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class StreamStatistics:
    """What the thread waits for."""

    waiting: int
    """Streams whose next item somebody asked for."""


class Streams:
    """Waits for next items. Thread safe; the thread starts with the first question."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[Any] = set()

    def next_item(self, generator: Any, callback: Callable[[Any], None]) -> None:
        """Call back, in the thread, with Ray's reference to the next item of `generator`, or None
        at its end.
        """
        future = asyncio.run_coroutine_threadsafe(_wait(generator, callback), self._running_loop())
        with self._lock:
            self._waiting.add(future)
        future.add_done_callback(self._forget)

    def statistics(self) -> StreamStatistics:
        """What there is now."""
        with self._lock:
            return StreamStatistics(waiting=len(self._waiting))

    def close(self) -> None:
        """End the thread; nothing is called back any more."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    def _forget(self, future: Any) -> None:
        with self._lock:
            self._waiting.discard(future)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._loop.run_forever, name="syncline-streams", daemon=True
                ).start()
            return self._loop


async def _wait(generator: Any, callback: Callable[[Any], None]) -> None:
    try:
        item = await generator.__anext__()
    except StopAsyncIteration:
        item = None
    callback(item)
