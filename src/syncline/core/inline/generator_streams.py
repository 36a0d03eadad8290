"""Generators, item by item: one runs only as far as somebody has asked.

A generator function runs in the thread that asks; an asynchronous generator on the event loop of
its actor.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Protocol

from syncline.core.inline.inline_objects import Entry, ObjectTable
from syncline.core.refs import Hold

Keep = Callable[[Any], int]
"""Stores an item and returns its id."""


class Stream(Protocol):
    """The items of a generator call."""

    items: Items

    def advance(self, index: int) -> None:
        """Run until item `index` exists or the end is reached."""

    def advance_later(self, index: int, then: Callable[[], None]) -> None:
        """The same without waiting; `then` is called afterwards."""

    def close(self, error: BaseException | None) -> None:
        """End it here; an `error` is its last item."""


class Items:
    """What a generator has given so far. `end` is settled when it has ended."""

    def __init__(self, table: ObjectTable, end: Entry, *, keep: bool = False) -> None:
        """`keep`: items stay as long as the stream, otherwise until they have been handed out."""
        self._table = table
        self._end = end
        self._keep = keep
        self._ids: list[int] = []
        self._holds: dict[int, Hold] = {}

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ended(self) -> bool:
        """Whether no more items will come."""
        return not self._end.is_pending

    def add(self, value: Any, failure: Callable[[BaseException], BaseException]) -> None:
        """The next item; one that cannot be pickled becomes its error, made with `failure`."""
        entry = self._new()
        try:
            self._table.settle(entry, value)
        except TypeError as error:
            self._table.fail(entry, failure(error))

    def add_error(self, error: BaseException) -> None:
        """An error as the last item."""
        if not self.ended:
            self._table.fail(self._new(), error)
            self.finish()

    def finish(self) -> None:
        """The end."""
        self._table.settle(self._end, None)

    def hand_out(self, index: int) -> int | None:
        """The id of an item, for a reference that is made at once; None past the end."""
        if index >= len(self._ids):
            return None
        return self._ids[index]

    def handed_out(self, index: int) -> None:
        """The reference exists: whoever has it keeps the item alive now."""
        if not self._keep:
            self._holds.pop(index, None)

    def _new(self) -> Entry:
        entry = self._table.create()
        self._holds[len(self._ids)] = Hold(entry.id)
        self._ids.append(entry.id)
        return entry


class SyncStream:
    """A generator that runs in the thread that asks for its items."""

    def __init__(
        self,
        items: Items,
        start: Callable[[], Iterator[Any]],
        run: Callable[[Callable[[], Any]], Any],
        failure: Callable[[BaseException], BaseException],
    ) -> None:
        """`start` makes the generator; `run` calls a function in the surroundings of the task;
        `failure` wraps an error of user code.
        """
        self.items = items
        self._start = start
        self._run = run
        self._failure = failure
        self._iterator: Iterator[Any] | None = None
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
                pass  # nobody asks for the items any more, so nobody could be told
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
            self.items.add_error(self._failure(error))
        else:
            self.items.add(value, self._failure)


class AsyncStream:
    """An asynchronous generator on an event loop of its own thread."""

    def __init__(
        self,
        items: Items,
        start: Callable[[], Coroutine[Any, Any, AsyncIterator[Any]]],
        spawn: Callable[[Callable[[], Coroutine[Any, Any, None]], Callable[[], None] | None], None],
        failure: Callable[[BaseException], BaseException],
    ) -> None:
        """`start` makes the generator, on the loop; `spawn` runs a coroutine on the loop and calls
        back; `failure` as in `SyncStream`.
        """
        self.items = items
        self._start = start
        self._spawn = spawn
        self._failure = failure
        self._iterator: AsyncIterator[Any] | None = None
        self._turn = asyncio.Lock()

    def advance(self, index: int) -> None:
        done = threading.Event()
        self._spawn(lambda: self._advance(index), done.set)
        done.wait()

    def advance_later(self, index: int, then: Callable[[], None]) -> None:
        self._spawn(lambda: self._advance(index), then)

    def close(self, error: BaseException | None) -> None:
        if error is not None:
            self.items.add_error(error)
        elif not self.items.ended:
            self.items.finish()
        self._spawn(self._stop, None)

    async def _advance(self, index: int) -> None:
        async with self._turn:
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
            self.items.add_error(self._failure(error))
        else:
            if not self.items.ended:
                self.items.add(value, self._failure)

    async def _stop(self) -> None:
        async with self._turn:
            iterator, self._iterator = self._iterator, None
            close = getattr(iterator, "aclose", None)
            if close is not None:
                try:
                    await close()
                except Exception:
                    pass  # as in `SyncStream.close`


class EndedStream:
    """Items that exist already."""

    def __init__(self, items: Items) -> None:
        self.items = items

    def advance(self, index: int) -> None:
        return

    def advance_later(self, index: int, then: Callable[[], None]) -> None:
        then()

    def close(self, error: BaseException | None) -> None:
        return
