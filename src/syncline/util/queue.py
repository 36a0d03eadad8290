"""`Queue`: a first-in, first-out queue that tasks, actors and the driver share. It lives in an
async actor of its own.

The methods are those of `queue.Queue`, each also as a coroutine, and batches. `Full` and `Empty`
derive from the standard ones. A reference that is put by itself comes out as its value, as with
every argument of a call; inside a container it stays a reference.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterable, Mapping
from typing import Any

from syncline.core import api
from syncline.core.remote import remote


class Empty(queue.Empty):
    """Nothing was in the queue, or not within the timeout."""


class Full(queue.Full):
    """No room was in the queue, or not within the timeout."""


class _QueueActor:
    """Holds the items. Methods that may wait are coroutines, so that waiting producers and
    consumers do not block each other.
    """

    def __init__(self, maxsize: int) -> None:
        self._items: asyncio.Queue[Any] = asyncio.Queue(maxsize)

    async def qsize(self) -> int:
        return self._items.qsize()

    async def put(self, item: Any, timeout: float | None) -> None:
        try:
            await asyncio.wait_for(self._items.put(item), timeout)
        except asyncio.TimeoutError:
            raise Full(
                f"the queue had no room for {timeout} s: it holds {self._items.qsize()} items."
            ) from None

    async def get(self, timeout: float | None) -> Any:
        try:
            return await asyncio.wait_for(self._items.get(), timeout)
        except asyncio.TimeoutError:
            raise Empty(f"the queue was empty for {timeout} s.") from None

    async def put_nowait(self, item: Any) -> None:
        await self.put_nowait_batch([item])

    async def put_nowait_batch(self, items: list[Any]) -> None:
        room = self._items.maxsize - self._items.qsize()
        if self._items.maxsize > 0 and len(items) > room:
            raise Full(
                f"{len(items)} items were put at once but the queue has room for {room}: nothing was put."
            )
        for item in items:
            self._items.put_nowait(item)

    async def get_nowait_batch(self, num_items: int) -> list[Any]:
        if num_items > self._items.qsize():
            raise Empty(
                f"{num_items} items were asked for at once but the queue holds {self._items.qsize()}: nothing was taken."
            )
        return [self._items.get_nowait() for _ in range(num_items)]


class Queue:
    """A queue in an actor; pass it to tasks and actors like a handle.

    `maxsize`: items that fit, 0 for any number. `actor_options`: options of the actor behind it, as
    for `.options()`.
    """

    def __init__(self, maxsize: int = 0, actor_options: Mapping[str, Any] | None = None) -> None:
        self.maxsize = maxsize
        options = {"num_cpus": 0, "max_concurrency": 1000, **(actor_options or {})}
        self.actor: Any = remote(_QueueActor).options(**options).remote(maxsize)

    def __len__(self) -> int:
        return self.size()

    def size(self) -> int:
        """How many items are in the queue."""
        size: int = api.get(self.actor.qsize.remote())
        return size

    def qsize(self) -> int:
        """How many items are in the queue."""
        return self.size()

    def empty(self) -> bool:
        """Whether the queue holds nothing."""
        return self.size() == 0

    def full(self) -> bool:
        """Whether the queue has no room; never so for `maxsize` 0."""
        return 0 < self.maxsize <= self.size()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Append an item. Waits for room, for at most `timeout` seconds; without `block` not at
        all. Raises `Full`.
        """
        self._get(self._put_call(item, block, timeout))

    async def put_async(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """As `put`, for coroutines."""
        await self._await(self._put_call(item, block, timeout))

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take the oldest item. Waits for one, for at most `timeout` seconds; without `block` not
        at all. Raises `Empty`.
        """
        return self._get(self._get_call(block, timeout), batch=not block)

    async def get_async(self, block: bool = True, timeout: float | None = None) -> Any:
        """As `get`, for coroutines."""
        return await self._await(self._get_call(block, timeout), batch=not block)

    def put_nowait(self, item: Any) -> None:
        """Append an item if there is room. Raises `Full`."""
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        """Take the oldest item if there is one. Raises `Empty`."""
        return self.get(block=False)

    def put_nowait_batch(self, items: Iterable[Any]) -> None:
        """Append all items, or raise `Full` and append none."""
        if not isinstance(items, Iterable):
            raise TypeError(
                f"`put_nowait_batch` needs an iterable of items, but got {items!r}: use `put_nowait` for a single item."
            )
        self._get(self.actor.put_nowait_batch.remote(list(items)))

    def get_nowait_batch(self, num_items: int) -> list[Any]:
        """Take the `num_items` oldest items, or raise `Empty` and take none."""
        if isinstance(num_items, bool) or not isinstance(num_items, int):
            raise TypeError(f"`num_items` must be an int, not {num_items!r}.")
        if num_items < 0:
            raise ValueError(f"`num_items` is {num_items}, but nobody can take fewer than 0 items.")
        items: list[Any] = self._get(self.actor.get_nowait_batch.remote(num_items))
        return items

    def shutdown(self, force: bool = False, grace_period_s: float = 5) -> None:
        """End the actor; the items are lost. Calls under way get `grace_period_s` seconds to
        finish, none with `force`.
        """
        if self.actor is None:
            return
        if not force:
            api.wait([self.actor.__ray_terminate__.remote()], num_returns=1, timeout=grace_period_s)
        api.kill(self.actor, no_restart=True)
        self.actor = None

    def _put_call(self, item: Any, block: bool, timeout: float | None) -> Any:
        _check_timeout(timeout)
        if not block:
            return self.actor.put_nowait.remote(item)
        return self.actor.put.remote(item, timeout)

    def _get_call(self, block: bool, timeout: float | None) -> Any:
        _check_timeout(timeout)
        if not block:
            return self.actor.get_nowait_batch.remote(1)
        return self.actor.get.remote(timeout)

    @staticmethod
    def _get(ref: Any, *, batch: bool = False) -> Any:
        try:
            value = api.get(ref)
        except (Empty, Full) as error:
            raise _plain(error) from None
        return value[0] if batch else value

    @staticmethod
    async def _await(ref: Any, *, batch: bool = False) -> Any:
        try:
            value = await ref
        except (Empty, Full) as error:
            raise _plain(error) from None
        return value[0] if batch else value

    def __repr__(self) -> str:
        return f"Queue(maxsize={self.maxsize})"


def _plain(error: Empty | Full) -> Empty | Full:
    """An expected outcome, not a failure of the actor: the error without the actor's traceback."""
    cause = getattr(error, "cause", error)
    kind = Empty if isinstance(error, Empty) else Full
    return kind(*cause.args)


def _check_timeout(timeout: float | None) -> None:
    if timeout is not None and timeout < 0:
        raise ValueError(
            f"`timeout` is {timeout} s, but nobody can wait for less than 0 seconds: pass 0 or more, or None for ever."
        )
