"""Generators, item by item: one runs only as far as items are requested.

A generator function runs in the requesting thread; an asynchronous generator runs on the event loop
of its actor.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, Protocol

from syncline.core.inline.inline_objects import InlineObjects, pack_value, result_id
from syncline.core.refs import AnyRef, Hold, ObjectRef

Failure = Callable[[BaseException], BaseException]
"""Wraps an error of user code."""
Retry = Callable[[BaseException, int], bool]
"""Returns True if the generator starts again after its n-th error; it then repeats its items."""


class Stream(Protocol):
    """The items of a generator call."""

    items: Items

    def advance(self, index: int) -> None:
        """Run until item `index` exists or the end is reached."""

    def advance_later(self, index: int, then: Callable[[], None]) -> None:
        """Start to advance without waiting; call `then` afterwards."""

    def close(self, error: BaseException | None) -> None:
        """End the generator; an `error` becomes its last item."""


class Items:
    """The items of a generator so far. The object `end` gets its value when the generator ends."""

    def __init__(self, objects: InlineObjects, end: int) -> None:
        self._objects = objects
        self._end = end
        self._holds: list[Hold | None] = []
        self.ended = False

    def __len__(self) -> int:
        return len(self._holds)

    def add(self, value: object, failure: Failure) -> None:
        """Add an item; one that cannot be pickled becomes its error."""
        id = self._new()
        try:
            self._objects.settle(id, pack_value(value, "an item of the generator"))
        except TypeError as error:
            self._objects.fail(id, failure(error))

    def add_error(self, error: BaseException) -> None:
        """Add an error as the last item."""
        if not self.ended:
            self._objects.fail(self._new(), error)
            self.finish()

    def finish(self) -> None:
        """End the stream."""
        self.ended = True
        self._objects.settle(self._end, pack_value(None))

    def hand_out(self, index: int) -> AnyRef | None:
        """Return a reference to an item, which then holds it; None past the end."""
        if index >= len(self._holds):
            return None
        hold = self._holds[index]
        assert hold is not None, f"item {index} was handed out twice"
        ref: AnyRef = ObjectRef(hold.id)
        self._holds[index] = None
        return ref

    def _new(self) -> int:
        id = self._objects.create(result_id(self._end, len(self._holds) + 1))
        self._holds.append(Hold(id))
        return id


class SyncStream:
    """A generator that runs in the thread that requests its items."""

    def __init__(
        self,
        items: Items,
        start: Callable[[], Iterator[object]],
        run: Callable[[Callable[[], Any]], Any],
        failure: Failure,
        retry: Retry,
    ) -> None:
        """`start` makes the generator; `run` calls a function in the context of the task."""
        self.items = items
        self._start = start
        self._run = run
        self._failure = failure
        self._retry = retry
        self._failures = 0
        self._position = 0  # of the iterator
        self._iterator: Iterator[object] | None = None
        self._lock = threading.RLock()

    def advance(self, index: int) -> None:
        with self._lock:
            while len(self.items) <= index and not self.items.ended:
                self._step()

    def advance_later(self, index: int, then: Callable[[], None]) -> None:
        self.advance(index)
        then()

    def close(self, error: BaseException | None) -> None:
        with self._lock:
            iterator, self._iterator = self._iterator, None
            if self.items.ended:
                return
            try:
                if iterator is not None and hasattr(iterator, "close"):
                    self._run(iterator.close)
            except Exception:
                pass  # no reference to the items is left that could report it
            if error is not None:
                self.items.add_error(error)
            else:
                self.items.finish()

    def _step(self) -> None:
        try:
            if self._iterator is None:
                self._iterator = iter(self._run(self._start))
            value = self._run(self._iterator.__next__)
        except StopIteration:
            self.items.finish()
        except (Exception, SystemExit) as error:
            self._failures += 1
            if self._retry(error, self._failures):
                self._iterator, self._position = None, 0
            else:
                self.items.add_error(self._failure(error))
        else:
            self._position += 1
            if self._position > len(self.items):
                self.items.add(value, self._failure)


class AsyncStream:
    """An asynchronous generator on the event loop of an actor."""

    def __init__(
        self,
        items: Items,
        start: Callable[[], Awaitable[AsyncIterator[object]]],
        spawn: Callable[[Callable[[], Coroutine[object, None, None]], Callable[[], None]], None],
        failure: Failure,
        retry: Retry,
    ) -> None:
        """`start` makes the generator; `spawn` runs a coroutine on the loop, then a callback."""
        self.items = items
        self._start = start
        self._spawn = spawn
        self._failure = failure
        self._retry = retry
        self._failures = 0
        self._position = 0  # of the iterator
        self._iterator: AsyncIterator[object] | None = None
        self._lock = asyncio.Lock()

    def advance(self, index: int) -> None:
        done = threading.Event()
        self.advance_later(index, done.set)
        done.wait()

    def advance_later(self, index: int, then: Callable[[], None]) -> None:
        self._spawn(lambda: self._advance(index), then)

    def close(self, error: BaseException | None) -> None:
        if error is not None:
            self.items.add_error(error)
        elif not self.items.ended:
            self.items.finish()
        self._spawn(self._stop, lambda: None)

    async def _advance(self, index: int) -> None:
        async with self._lock:
            while len(self.items) <= index and not self.items.ended:
                await self._step()

    async def _step(self) -> None:
        try:
            if self._iterator is None:
                self._iterator = await self._start()
            value = await self._iterator.__anext__()
        except StopAsyncIteration:
            if not self.items.ended:
                self.items.finish()
        except (Exception, SystemExit) as error:
            self._failures += 1
            if self._retry(error, self._failures):
                self._iterator, self._position = None, 0
            else:
                self.items.add_error(self._failure(error))
        else:
            self._position += 1
            if self._position > len(self.items) and not self.items.ended:
                self.items.add(value, self._failure)

    async def _stop(self) -> None:
        async with self._lock:
            iterator, self._iterator = self._iterator, None
            close = getattr(iterator, "aclose", None)
            if close is not None:
                try:
                    await close()
                except Exception:
                    pass  # no reference to the items is left that could report it
