"""`HandlerThreads`: the threads that run sync methods of user code."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from syncline.records import dataclass


@dataclass(frozen=True, kw_only=True)
class ThreadStatistics:
    """Counts of the threads."""

    threads: int
    jobs: int
    """Jobs that run or wait."""
    limit: int


class _Job:
    """A function call in a thread and the future of its result."""

    __slots__ = ("context", "error", "function", "future", "on_end", "result")

    def __init__(
        self,
        function: Callable[[], Any],
        future: asyncio.Future[Any],
        on_end: Callable[[], None] | None,
    ) -> None:
        self.function = function
        self.future = future
        self.on_end = on_end
        self.context = contextvars.copy_context()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Run the function; keep its result or error."""
        try:
            self.result = self.context.run(self.function)
        except StopIteration as error:  # futures refuse it
            self.error = RuntimeError("the handler raised StopIteration")
            self.error.__cause__ = error
        except BaseException as error:
            self.error = error

    def deliver(self) -> None:
        """Settle the future, on the loop's thread."""
        if not self.future.done():
            if self.error is None:
                self.future.set_result(self.result)
            else:
                self.future.set_exception(self.error)
        if self.on_end is not None:
            self.on_end()


class HandlerThreads:
    """Up to `limit` daemon threads. Methods are called on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        self._loop = loop
        self._limit = limit
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads = 0
        self._jobs = 0
        self._done: deque[_Job] = deque()
        self._wakes = False  # True while a call of `_deliver` is under way to the loop

    def submit(
        self, function: Callable[[], object], on_end: Callable[[], None] | None = None
    ) -> asyncio.Future[Any]:
        """Run `function` in a thread, with a copy of the context, and return its future.

        A cancelled future does not stop the thread. `on_end` is called on the loop when the
        function has ended, also then.
        """
        future = self._loop.create_future()
        self._jobs += 1
        if self._jobs > self._threads and self._threads < self._limit:
            self._threads += 1
            threading.Thread(
                target=self._work, name=f"handler-{self._threads}", daemon=True
            ).start()
        self._queue.put(_Job(function, future, on_end))
        return future

    def resize(self, limit: int) -> None:
        """Change the limit; excess threads end after their jobs."""
        self._limit = limit
        while self._threads > limit:
            self._threads -= 1
            self._queue.put(None)

    def close(self) -> None:
        """Let the threads end after their jobs."""
        self.resize(0)

    def statistics(self) -> ThreadStatistics:
        """Return the current counts."""
        return ThreadStatistics(threads=self._threads, jobs=self._jobs, limit=self._limit)

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            job.run()
            self._done.append(job)
            if not self._wakes:
                self._wakes = True
                try:
                    self._loop.call_soon_threadsafe(self._deliver)
                except RuntimeError:  # the loop is closed
                    return

    def _deliver(self) -> None:
        self._wakes = False
        while self._done:
            job = self._done.popleft()
            self._jobs -= 1
            job.deliver()
