"""`ParallelIteratorWorker`: serves the items of one shard; base class of users' own sources.

A reader begins an iteration with a unique key, so that several readers may read one shard from its
beginning. Slices of an iteration share one pass over the items.
"""

from __future__ import annotations

import itertools
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

Items: TypeAlias = Iterator[Any]
"""Items of a program; each transformation knows their type."""

Transform = Callable[[Items], Iterable[Any]]
"""Makes an iterator of another one."""


class ParallelIteratorWorker:
    """Iterates over one shard in an actor.

    Args:
        item_generator: The items: an iterable, or a function that returns one.
        repeat: Begin again at the end, for ever.
    """

    def __init__(self, item_generator: Any, repeat: bool) -> None:
        self.item_generator = item_generator
        self.repeat = repeat
        self._iterations: dict[str, _Slices] = {}

    def par_iter_init(
        self, transforms: Sequence[Transform], key: str = "", slices: int = 1
    ) -> None:
        """Begin the iteration `key`, unless it has begun; its items are dealt to `slices`."""
        if not hasattr(self, "_iterations"):  # a subclass that has its own constructor
            self._iterations = {}
        if key not in self._iterations:
            items: Iterator[object] = self._items()
            for transform in transforms:
                items = iter(transform(items))
            self._iterations[key] = _Slices(items, slices)

    def par_iter_next(self, key: str = "", part: int = 0, batch_ms: float = 0) -> list[Any]:
        """Return the next items of a slice: one, or those of `batch_ms`; empty at the end."""
        slices = self._iterations.get(key)
        if slices is None:
            return []
        deadline = time.monotonic() + batch_ms / 1000
        found = list(itertools.islice(slices.part(part), 1))
        while found and time.monotonic() < deadline:
            more = list(itertools.islice(slices.part(part), 1))
            if not more:
                break
            found += more
        if not found and slices.ended(part):
            del self._iterations[key]
        return found

    def _items(self) -> Items:
        source = self.item_generator
        while True:
            yield from source() if callable(source) else source
            if not self.repeat:
                return


class _Slices:
    """Items that are dealt to several readers in turn."""

    def __init__(self, items: Iterator[object], count: int) -> None:
        self._items = items
        self._waiting: list[deque[object]] = [deque() for _ in range(count)]
        self._turns = itertools.cycle(range(count))
        self._unread = set(range(count))

    def part(self, index: int) -> Items:
        """Yield the items of one reader."""
        own = self._waiting[index]
        while True:
            while not own:
                try:
                    item = next(self._items)
                except StopIteration:
                    return
                self._waiting[next(self._turns)].append(item)
            yield own.popleft()

    def ended(self, index: int) -> bool:
        """Record that a reader is at the end; return True if all are."""
        self._unread.discard(index)
        return not self._unread


# -- transforms, of shards and of local iterators


def each(fn: Callable[[Any], object]) -> Transform:
    """Return the transform that applies `fn` to each item."""
    return lambda items: map(fn, items)


def kept(fn: Callable[[Any], bool]) -> Transform:
    """Return the transform that keeps the items for which `fn` is true."""
    return lambda items: filter(fn, items)


def batched(size: int) -> Transform:
    """Return the transform that makes lists of `size` items; the last may be shorter."""
    if size < 1:
        raise ValueError(f"A batch of {size} items is impossible: pass 1 or more.")

    def transform(items: Iterator[object]) -> Iterator[list[object]]:
        while batch := list(itertools.islice(items, size)):
            yield batch

    return transform


def flattened(items: Items) -> Items:
    """Yield the elements of the items."""
    return itertools.chain.from_iterable(items)


def shuffled(buffer_size: int, seed: int | None) -> Transform:
    """Return the transform that yields random items of a buffer, which it refills."""
    if buffer_size < 1:
        raise ValueError(f"`shuffle_buffer_size={buffer_size}` is below 1: pass 1 or more.")

    def transform(items: Iterator[object]) -> Items:
        generator = random.Random(seed)
        buffer: list[object] = []
        for item in items:
            buffer.append(item)
            if len(buffer) >= buffer_size:
                yield buffer.pop(generator.randrange(len(buffer)))
        while buffer:
            yield buffer.pop(generator.randrange(len(buffer)))

    return transform
