"""Async user functions: several calls at once, results in the order of the calls."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

T = TypeVar("T")

# How long `close` waits for calls to notice that they are cancelled.
_CLOSE_S = 5.0


class EventLoop:
    """An event loop on a thread of its own, for as long as a process works on a chain: what the
    program's object keeps (sessions, connections) stays on one loop from task to task.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="syncline-async-functions", daemon=True
        )
        self._thread.start()

    def in_order(
        self,
        call: Callable[[T], Awaitable[Any]],
        items: Iterator[T],
        *,
        at_once: int,
        timeout_s: float | None,
    ) -> Generator[tuple[T, Future[Any]], None, None]:
        """(item, its result to come) for each item, in order; up to `at_once` calls run, each for
        at most `timeout_s`.

        Items are taken from the iterator when there is room for their calls. Closing the generator
        cancels the calls that run.
        """
        running: deque[tuple[T, Future[Any]]] = deque()
        try:
            for item in items:
                running.append(
                    (
                        item,
                        asyncio.run_coroutine_threadsafe(
                            _limited(call, item, timeout_s), self._loop
                        ),
                    )
                )
                if len(running) >= at_once:
                    yield running.popleft()
            while running:
                yield running.popleft()
        finally:
            for _, future in running:
                future.cancel()

    def close(self) -> None:
        """Stop the thread; calls that still run are cancelled. A call that blocks the loop is left
        to its daemon thread.
        """
        try:
            asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result(_CLOSE_S)
        except FutureTimeoutError:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def result_of(future: Future[T]) -> T:
    """What the call returned, waited for; or its error, with the frames of the function alone."""
    error = future.exception()
    if error is not None:
        raise error
    return future.result()


async def _limited(call: Callable[[T], Awaitable[Any]], item: T, timeout_s: float | None) -> Any:
    if timeout_s is None:
        return await call(item)
    running = asyncio.ensure_future(call(item))
    try:
        done, _ = await asyncio.wait({running}, timeout=timeout_s)
    finally:
        running.cancel()
    if not done:
        raise TimeoutError(f"the call took longer than {timeout_s} s")
    return running.result()


async def _cancel_all() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
