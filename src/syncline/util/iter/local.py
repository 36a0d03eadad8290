"""`LocalIterator`: items in this process, gathered from shards, with transforms."""

from __future__ import annotations

import itertools
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from syncline.util.iter.shards import Items, Transform, batched, each, flattened, kept, shuffled

Source = Callable[[], Items]


class LocalIterator:
    """A lazy iterator. Transforms return another one; each `iter()` begins again.

    `next()` on the object itself continues one iteration.
    """

    def __init__(self, source: Source, name: str = "LocalIterator") -> None:
        """`source` returns the items from the beginning."""
        self.name = name
        self._source = source
        self._current: Iterator[object] | None = None

    def __iter__(self) -> Items:
        return self._source()

    def __next__(self) -> Any:
        if self._current is None:
            self._current = iter(self)
        return next(self._current)

    def transform(self, fn: Transform) -> LocalIterator:
        """Return `fn(iterator)` as an iterator."""
        return self._with(fn, "transform()")

    def for_each(self, fn: Callable[[Any], object]) -> LocalIterator:
        """Apply `fn` to each item."""
        return self._with(each(fn), "for_each()")

    def filter(self, fn: Callable[[Any], bool]) -> LocalIterator:
        """Keep the items for which `fn` is true."""
        return self._with(kept(fn), "filter()")

    def batch(self, n: int) -> LocalIterator:
        """Make lists of `n` items; the last may be shorter."""
        return self._with(batched(n), f"batch({n})")

    def flatten(self) -> LocalIterator:
        """Yield the elements of the items."""
        return self._with(flattened, "flatten()")

    def combine(self, fn: Callable[[Any], Iterable[object]]) -> LocalIterator:
        """Yield the elements of `fn(item)` for each item."""
        return LocalIterator(self.for_each(fn).flatten()._source, f"{self.name}.combine()")

    def shuffle(self, shuffle_buffer_size: int, seed: int | None = None) -> LocalIterator:
        """Yield random items of a buffer of `shuffle_buffer_size` items."""
        return self._with(shuffled(shuffle_buffer_size, seed), "shuffle()")

    def zip_with_source_actor(self) -> LocalIterator:
        """Raise NotImplementedError: gathered items do not say their actor."""
        raise NotImplementedError(
            "Gathered items do not say which actor they come from: yield `(actor, item)` pairs in "
            "the shards, or read `shards()` one by one."
        )

    def take(self, n: int) -> list[Any]:
        """Return the first `n` items."""
        return list(itertools.islice(self, n))

    def show(self, n: int = 20) -> None:
        """Print the first `n` items."""
        for item in self.take(n):
            print(item)

    def duplicate(self, n: int) -> list[LocalIterator]:
        """Return `n` iterators over the same items, which are computed once.

        Items wait in memory until the slowest iterator has read them.
        """
        if n < 2:
            raise ValueError(f"`duplicate({n})` makes no copies: pass 2 or more.")
        items, lock = iter(self), threading.Lock()
        waiting: list[deque[object]] = [deque() for _ in range(n)]

        def source(own: deque[object]) -> Items:
            while True:
                with lock:
                    if not own:
                        try:
                            item = next(items)
                        except StopIteration:
                            return
                        for each_queue in waiting:
                            each_queue.append(item)
                    item = own.popleft()
                yield item

        return [
            LocalIterator(partial(source, own), f"{self.name}.duplicate[{i}]")
            for i, own in enumerate(waiting)
        ]

    def union(
        self,
        *others: LocalIterator,
        deterministic: bool = False,
        round_robin_weights: Sequence[float | str] | None = None,
    ) -> LocalIterator:
        """Yield the items of several iterators.

        Args:
            others: The other iterators.
            deterministic: Yield one item of each in turn, instead of items as they are ready.
            round_robin_weights: Items of each iterator per turn; "*" for all that it has.

        Raises:
            ValueError: An argument is not a LocalIterator, or the number of weights does not match.
        """
        iterators = [self, *others]
        for other in others:
            if not isinstance(other, LocalIterator):
                raise ValueError(f"`union` got {other!r}: pass a LocalIterator.")
        weights = list(round_robin_weights or [1] * len(iterators))
        if len(weights) != len(iterators):
            raise ValueError(
                f"{len(weights)} weights do not fit {len(iterators)} iterators: pass one per "
                "iterator."
            )
        in_turn = deterministic or round_robin_weights is not None
        source = partial(_in_turn, iterators, weights) if in_turn else partial(_ready, iterators)
        return LocalIterator(source, f"LocalUnion[{', '.join(map(str, iterators))}]")

    def _with(self, transform: Transform, name: str) -> LocalIterator:
        return LocalIterator(lambda: iter(transform(iter(self))), f"{self.name}.{name}")

    def __repr__(self) -> str:
        return f"LocalIterator[{self.name}]"


def _in_turn(
    iterators: Sequence[LocalIterator], weights: Sequence[float | str]
) -> Iterator[object]:
    active = [(iter(each), weight) for each, weight in zip(iterators, weights, strict=True)]
    while active:
        remaining = []
        for items, weight in active:
            most = None if weight == "*" else max(1, int(weight))
            taken = 0
            for item in itertools.islice(items, most):
                taken += 1
                yield item
            if most is not None and taken == most:
                remaining.append((items, weight))
        active = remaining


_END = object()


def _ready(iterators: Sequence[LocalIterator]) -> Iterator[object]:
    """Yield items as they are ready; a thread reads each iterator, one item ahead."""
    ready: queue.Queue[tuple[object, BaseException | None]] = queue.Queue(len(iterators))
    is_abandoned = threading.Event()

    def put(item: object, error: BaseException | None = None) -> None:
        while not is_abandoned.is_set():
            try:
                ready.put((item, error), timeout=0.1)
                return
            except queue.Full:
                continue

    def read(items: LocalIterator) -> None:
        try:
            for item in items:
                put(item)
                if is_abandoned.is_set():
                    return
            put(_END)
        except BaseException as error:
            put(_END, error)

    for items in iterators:
        threading.Thread(target=read, args=(items,), name="syncline-union", daemon=True).start()
    remaining = len(iterators)
    try:
        while remaining:
            item, error = ready.get()
            if error is not None:
                raise error
            remaining -= item is _END
            if item is not _END:
                yield item
    finally:
        is_abandoned.set()
