"""`ray._private.test_utils` and `ray._common.test_utils`: waiting, as tests of programs do it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from syncline.core.remote import remote


def wait_for_condition(
    condition_predictor: Callable[..., bool],
    timeout: float = 10,
    retry_interval_ms: float = 100,
    raise_exceptions: bool = False,
    **kwargs: Any,
) -> None:
    """Call `condition_predictor(**kwargs)` until it returns True.

    Exceptions count as False unless `raise_exceptions`. Raises RuntimeError after `timeout`
    seconds; it names the last exception.
    """
    deadline = time.monotonic() + timeout
    last: Exception | None = None
    while time.monotonic() <= deadline:
        try:
            if condition_predictor(**kwargs):
                return
            last = None
        except Exception as error:
            if raise_exceptions:
                raise
            last = error
        time.sleep(retry_interval_ms / 1000)
    raise RuntimeError(_message(timeout, last)) from last


async def async_wait_for_condition(
    condition_predictor: Callable[..., bool | Awaitable[bool]],
    timeout: float = 10,
    retry_interval_ms: float = 100,
    **kwargs: Any,
) -> None:
    """Do the same as `wait_for_condition` in an event loop; the condition may be a coroutine."""
    deadline = time.monotonic() + timeout
    last: Exception | None = None
    while time.monotonic() <= deadline:
        try:
            met = condition_predictor(**kwargs)
            if await met if isinstance(met, Awaitable) else met:
                return
            last = None
        except Exception as error:
            last = error
        await asyncio.sleep(retry_interval_ms / 1000)
    raise RuntimeError(_message(timeout, last)) from last


def _message(timeout_s: float, last: Exception | None) -> str:
    text = f"The condition was not met within {timeout_s:g} s."
    return text if last is None else f"{text} The last call raised {type(last).__name__}: {last}"


class _Signal:
    """An event that tasks can wait for."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._waiting = 0

    async def send(self, clear: bool = False) -> None:
        """Set the event; with `clear`, unset it for later waits."""
        self._event.set()
        if clear:
            self._event.clear()

    async def wait(self, should_wait: bool = True) -> None:
        """Return once the event is set."""
        if should_wait:
            self._waiting += 1
            try:
                await self._event.wait()
            finally:
                self._waiting -= 1

    async def cur_num_waiters(self) -> int:
        """Return the number of calls that wait."""
        return self._waiting


class _Semaphore:
    """A number of permits that tasks take and return."""

    def __init__(self, value: int = 1) -> None:
        self._semaphore = asyncio.Semaphore(value)

    async def acquire(self) -> None:
        """Take a permit; wait for one."""
        await self._semaphore.acquire()

    async def release(self) -> None:
        """Return a permit."""
        self._semaphore.release()

    async def locked(self) -> bool:
        """Return True if no permit is left."""
        return self._semaphore.locked()


SignalActor = remote(num_cpus=0)(_Signal)
Semaphore = remote(num_cpus=0)(_Semaphore)
