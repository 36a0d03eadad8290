"""`Queue`: a first-in, first-out queue that tasks, actors and the driver share.

An async actor holds the items. The methods are those of `queue.Queue`, each also as a coroutine,
plus batches. `Full` and `Empty` derive from the standard errors. A reference that is put alone
comes out as its value, as with every argument of a call; inside a container it stays a reference.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterable, Mapping
from typing import Any

from syncline.core import api
from syncline.core.refs import AnyRef
from syncline.core.remote import remote


class Empty(queue.Empty):
    """The queue was empty, or stayed empty during the timeout."""


class Full(queue.Full):
    """The queue was full, or stayed full during the timeout."""


class _QueueActor:
    """Holds the items. Methods that may wait are coroutines, so that they do not block others."""

    def __init__(self, maxsize: int) -> None:
        self._items: asyncio.Queue[object] = asyncio.Queue(maxsize)

    async def qsize(self) -> int:
        return self._items.qsize()

    async def empty(self) -> bool:
        return self._items.empty()

    async def full(self) -> bool:
        return self._items.full()

    async def put(self, item: object, timeout: float | None) -> None:
        try:
            await asyncio.wait_for(self._items.put(item), timeout)
        except asyncio.TimeoutError:
            raise Full(
                f"The queue stayed full for {timeout} s: it holds {self._items.qsize()} items."
            ) from None

    async def get(self, timeout: float | None) -> object:
        try:
            return await asyncio.wait_for(self._items.get(), timeout)
        except asyncio.TimeoutError:
            raise Empty(f"The queue stayed empty for {timeout} s.") from None

    async def get_nowait(self) -> object:
        return (await self.get_nowait_batch(1))[0]

    async def put_nowait(self, item: object) -> None:
        await self.put_nowait_batch([item])

    async def put_nowait_batch(self, items: list[object]) -> None:
        room = self._items.maxsize - self._items.qsize()
        if self._items.maxsize > 0 and len(items) > room:
            raise Full(
                f"A batch of {len(items)} items does not fit: the queue has room for {room}. "
                "No item was put."
            )
        for item in items:
            self._items.put_nowait(item)

    async def get_nowait_batch(self, num_items: int) -> list[object]:
        if num_items > self._items.qsize():
            raise Empty(
                f"A batch of {num_items} items was requested but the queue holds "
                f"{self._items.qsize()}. No item was taken."
            )
        return [self._items.get_nowait() for _ in range(num_items)]


class Queue:
    """A queue in an actor; pass it to tasks and actors like a handle.

    Args:
        maxsize: Largest number of items; 0 for no limit.
        actor_options: Options of the actor behind the queue, as for `.options()`.
    """

    def __init__(self, maxsize: int = 0, actor_options: Mapping[str, object] | None = None) -> None:
        self.maxsize = maxsize
        options = {"num_cpus": 0, "max_concurrency": 1000, **(actor_options or {})}
        self.actor: Any = remote(_QueueActor).options(**options).remote(maxsize)

    def __len__(self) -> int:
        return self.size()

    def size(self) -> int:
        """Return the number of items in the queue."""
        size: int = api.get(self.actor.qsize.remote())
        return size

    def qsize(self) -> int:
        """Return the number of items in the queue."""
        return self.size()

    def empty(self) -> bool:
        """Return True if the queue is empty."""
        return self.size() == 0

    def full(self) -> bool:
        """Return True if the queue is full; always False for `maxsize` 0."""
        return 0 < self.maxsize <= self.size()

    def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:
        """Append an item. Wait for room up to `timeout` seconds, or not at all without `block`.

        Raises:
            Full: There was no room in time.
        """
        self._get(self._put_call(item, block, timeout))

    async def put_async(
        self, item: object, block: bool = True, timeout: float | None = None
    ) -> None:
        """Append an item like `put`, as a coroutine."""
        await self._await(self._put_call(item, block, timeout))

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take the oldest item. Wait up to `timeout` seconds, or not at all without `block`.

        Raises:
            Empty: There was no item in time.
        """
        return self._get(self._get_call(block, timeout))

    async def get_async(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take the oldest item like `get`, as a coroutine."""
        return await self._await(self._get_call(block, timeout))

    def put_nowait(self, item: object) -> None:
        """Append an item without waiting. Raises `Full`."""
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        """Take the oldest item without waiting. Raises `Empty`."""
        return self.get(block=False)

    def put_nowait_batch(self, items: Iterable[object]) -> None:
        """Append all items, or raise `Full` and append none."""
        if not isinstance(items, Iterable):
            raise TypeError(
                f"`put_nowait_batch` needs an iterable of items, but got {items!r}: use "
                "`put_nowait` for a single item."
            )
        self._get(self.actor.put_nowait_batch.remote(list(items)))

    def get_nowait_batch(self, num_items: int) -> list[Any]:
        """Take the `num_items` oldest items, or raise `Empty` and take none."""
        if isinstance(num_items, bool) or not isinstance(num_items, int):
            raise TypeError(f"`num_items` must be an int, not {num_items!r}.")
        if num_items < 0:
            raise ValueError(f"`num_items={num_items}` is negative: pass 0 or more.")
        items: list[Any] = self._get(self.actor.get_nowait_batch.remote(num_items))
        return items

    def shutdown(self, force: bool = False, grace_period_s: float = 5) -> None:
        """End the actor and drop its items.

        Running calls get `grace_period_s` seconds to finish; with `force`, none.
        """
        if self.actor is None:
            return
        if not force:
            api.wait([self.actor.__ray_terminate__.remote()], num_returns=1, timeout=grace_period_s)
        api.kill(self.actor, no_restart=True)
        self.actor = None

    def _put_call(self, item: object, block: bool, timeout: float | None) -> Any:
        _check_timeout(timeout)
        if not block:
            return self.actor.put_nowait.remote(item)
        return self.actor.put.remote(item, timeout)

    def _get_call(self, block: bool, timeout: float | None) -> Any:
        _check_timeout(timeout)
        if not block:
            return self.actor.get_nowait.remote()
        return self.actor.get.remote(timeout)

    @staticmethod
    def _get(ref: AnyRef) -> Any:
        try:
            return api.get(ref)
        except (Empty, Full) as error:
            raise _plain(error) from None

    @staticmethod
    async def _await(ref: AnyRef) -> Any:
        try:
            return await ref
        except (Empty, Full) as error:
            raise _plain(error) from None

    def __repr__(self) -> str:
        return f"Queue(maxsize={self.maxsize})"


def _plain(error: Empty | Full) -> Empty | Full:
    """Return the error without the actor's traceback, because it is an expected outcome."""
    cause = getattr(error, "cause", error)
    kind = Empty if isinstance(error, Empty) else Full
    return kind(*cause.args)


def _check_timeout(timeout: float | None) -> None:
    if timeout is not None and timeout < 0:
        raise ValueError(
            f"`timeout={timeout}` is negative: pass 0 or more seconds, or None to wait forever."
        )
