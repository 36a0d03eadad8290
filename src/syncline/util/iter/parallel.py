"""`ParallelIterator`: shards in actors, whose transforms run in those actors, and its sources."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from syncline.core import api
from syncline.core.refs import AnyRef
from syncline.util.iter.local import LocalIterator
from syncline.util.iter.shards import (
    Items,
    ParallelIteratorWorker,
    Transform,
    batched,
    each,
    flattened,
    kept,
    shuffled,
)

AHEAD = 2
"""Items that `gather_sync` requests ahead from each shard."""


class _Shard(NamedTuple):
    """An actor, and the transforms that it applies."""

    actor: Any
    transforms: tuple[Transform, ...] = ()


# -- sources


def from_items(
    items: Iterable[object], num_shards: int = 2, repeat: bool = False
) -> ParallelIterator:
    """Return an iterator over items, which are dealt to `num_shards` actors in turn."""
    items = list(items)
    shards = [items[start::num_shards] for start in range(_checked(num_shards))]
    name = f"from_items[{type(items[0]).__name__ if items else 'None'}, {len(items)}"
    return from_iterators(shards, repeat, f"{name}, shards={num_shards}{_endless(repeat)}]")


def from_range(n: int, num_shards: int = 2, repeat: bool = False) -> ParallelIterator:
    """Return an iterator over `range(n)` with a consecutive part in each shard."""
    share = n // _checked(num_shards)
    bounds = [share * i for i in range(num_shards)] + [n]
    parts = [range(start, end) for start, end in zip(bounds, bounds[1:], strict=False)]
    return from_iterators(parts, repeat, f"from_range[{n}, shards={num_shards}{_endless(repeat)}]")


def from_iterators(
    generators: Sequence[object], repeat: bool = False, name: str | None = None
) -> ParallelIterator:
    """Return an iterator with one shard per iterable, or function that returns one."""
    worker = api.remote(ParallelIteratorWorker).options(num_cpus=0)
    actors = [worker.remote(generator, repeat) for generator in generators]
    return from_actors(actors, name or f"from_iterators[shards={len(actors)}{_endless(repeat)}]")


def from_actors(actors: Sequence[object], name: str | None = None) -> ParallelIterator:
    """Return an iterator over actors whose classes derive from `ParallelIteratorWorker`."""
    shards = [_Shard(actor) for actor in actors]
    return ParallelIterator(shards, name or f"from_actors[shards={len(shards)}]")


# -- the iterator


class ParallelIterator:
    """Shards in actors. Transforms are lazy and run there; picklable.

    Read it with `gather_sync` or `gather_async`, or pass its `shards` to other actors.
    """

    def __init__(self, shards: Sequence[_Shard], name: str) -> None:
        self.name = name
        self._shards = list(shards)

    def __iter__(self) -> Items:
        raise TypeError(
            "A ParallelIterator has no order: call `gather_sync()` or `gather_async()` and iterate "
            "over the result."
        )

    def transform(self, fn: Transform) -> ParallelIterator:
        """Apply `fn(iterator)` in each shard."""
        return self._with(fn, "transform()")

    def for_each(
        self,
        fn: Callable[[Any], object],
        max_concurrency: int = 1,
        resources: Mapping[str, float] | None = None,
    ) -> ParallelIterator:
        """Apply `fn` to each item.

        Args:
            fn: The function.
            max_concurrency: Items of each shard that tasks handle at a time; 1: the shard's actor
                calls `fn` itself.
            resources: Options of these tasks, such as `{"num_cpus": 1}`.
        """
        if max_concurrency < 1:
            raise ValueError(f"`max_concurrency={max_concurrency}` is below 1: pass 1 or more.")
        if max_concurrency == 1:
            return self._with(each(fn), "for_each()")
        return self._with(_in_tasks(fn, max_concurrency, dict(resources or {})), "for_each()")

    def filter(self, fn: Callable[[Any], bool]) -> ParallelIterator:
        """Keep the items for which `fn` is true."""
        return self._with(kept(fn), "filter()")

    def batch(self, n: int) -> ParallelIterator:
        """Make lists of `n` items of a shard."""
        return self._with(batched(n), f"batch({n})")

    def flatten(self) -> ParallelIterator:
        """Yield the elements of the items."""
        return self._with(flattened, "flatten()")

    def combine(self, fn: Callable[[Any], Iterable[object]]) -> ParallelIterator:
        """Yield the elements of `fn(item)` for each item."""
        both = self.for_each(fn).flatten()
        return ParallelIterator(both._shards, f"{self.name}.combine()")

    def local_shuffle(self, shuffle_buffer_size: int, seed: int | None = None) -> ParallelIterator:
        """Yield random items of a buffer of `shuffle_buffer_size` items, in each shard."""
        return self._with(
            shuffled(shuffle_buffer_size, seed),
            f"local_shuffle(shuffle_buffer_size={shuffle_buffer_size}, seed={seed})",
        )

    def repartition(self, num_partitions: int, batch_ms: float = 0) -> ParallelIterator:
        """Deal the items of each shard to `num_partitions` new actors in turn."""
        key = uuid.uuid4().hex
        shards = self._shards

        def part(index: int) -> Callable[[], Items]:
            passes = [0]  # each pass over the parts is an iteration of its own

            def source() -> Items:
                passes[0] += 1
                return _in_turn(shards, f"{key}-{passes[0]}", num_partitions, index, batch_ms)

            return source

        parts = [part(index) for index in range(_checked(num_partitions))]
        return from_iterators(
            parts, name=f"{self.name}.repartition[num_partitions={num_partitions}]"
        )

    def union(self, other: ParallelIterator) -> ParallelIterator:
        """Return an iterator with the shards of both."""
        if not isinstance(other, ParallelIterator):
            raise TypeError(f"`union` got {other!r}: pass a ParallelIterator.")
        shards = [*self._shards, *other._shards]
        return ParallelIterator(shards, f"ParallelUnion[{self}, {other}]")

    def select_shards(self, shards_to_keep: Sequence[int]) -> ParallelIterator:
        """Return an iterator with the shards of these indices."""
        unknown = sorted(set(shards_to_keep) - set(range(len(self._shards))))
        if unknown or not shards_to_keep or len(set(shards_to_keep)) < len(shards_to_keep):
            raise ValueError(
                f"`shards_to_keep={list(shards_to_keep)}` is not a selection of the "
                f"{len(self._shards)} shards: pass one or more indices, each once."
            )
        return ParallelIterator(
            [self._shards[index] for index in shards_to_keep],
            f"{self}.select_shards({len(shards_to_keep)} total)",
        )

    # -- reading

    def gather_sync(self) -> LocalIterator:
        """Return an iterator over one item of each shard in turn."""
        shards = self._shards
        return LocalIterator(lambda: _in_turn(shards, uuid.uuid4().hex), f"{self}.gather_sync()")

    def batch_across_shards(self) -> LocalIterator:
        """Return an iterator over lists with one item of each shard, while shards have items."""
        shards = self._shards

        def source() -> Iterator[list[object]]:
            readers = [_reader(shard, uuid.uuid4().hex) for shard in shards]
            while readers:
                found = [(reader, list(next(reader, ()))) for reader in readers]
                readers = [reader for reader, items in found if items]
                if batch := [items[0] for _, items in found if items]:
                    yield batch

        return LocalIterator(source, f"{self}.batch_across_shards()")

    def gather_async(self, batch_ms: float = 0, num_async: int = 1) -> LocalIterator:
        """Return an iterator over items as shards have them.

        Args:
            batch_ms: Milliseconds during which a shard collects items for one message.
            num_async: Messages that are requested from each shard at a time.
        """
        if num_async < 1:
            raise ValueError(f"`num_async={num_async}` is below 1: pass 1 or more.")
        if batch_ms < 0:
            raise ValueError(f"`batch_ms={batch_ms}` is negative: pass 0 or more milliseconds.")
        shards = self._shards
        return LocalIterator(
            lambda: _as_ready(shards, batch_ms, num_async), f"{self}.gather_async()"
        )

    def take(self, n: int) -> list[Any]:
        """Return the first `n` items of `gather_sync`."""
        return self.gather_sync().take(n)

    def show(self, n: int = 20) -> None:
        """Print the first `n` items of `gather_sync`."""
        self.gather_sync().show(n)

    def num_shards(self) -> int:
        """Return the number of shards."""
        return len(self._shards)

    def shards(self) -> list[LocalIterator]:
        """Return an iterator for each shard, which other actors may read."""
        return [self.get_shard(index) for index in range(self.num_shards())]

    def get_shard(self, shard_index: int, batch_ms: float = 0, num_async: int = 1) -> LocalIterator:
        """Return an iterator over one shard; the other arguments are those of `gather_async`."""
        shard = self._shards[shard_index]
        return LocalIterator(
            lambda: _as_ready([shard], batch_ms, num_async), f"{self.name}.shard[{shard_index}]"
        )

    def _with(self, transform: Transform, name: str) -> ParallelIterator:
        shards = [_Shard(each.actor, (*each.transforms, transform)) for each in self._shards]
        return ParallelIterator(shards, f"{self.name}.{name}")

    def __repr__(self) -> str:
        return f"ParallelIterator[{self.name}]"


# -- readers


def _reader(
    shard: _Shard, key: str, slices: int = 1, part: int = 0, batch_ms: float = 0
) -> Iterator[list[object]]:
    """Return an iterator over lists of items of a slice of a shard; some are requested now."""
    requests = [shard.actor.par_iter_init.remote(shard.transforms, key, slices)]
    requests += [shard.actor.par_iter_next.remote(key, part, batch_ms) for _ in range(AHEAD)]

    def lists() -> Iterator[list[object]]:
        api.get(requests.pop(0))
        while items := api.get(requests.pop(0)):
            requests.append(shard.actor.par_iter_next.remote(key, part, batch_ms))
            yield items

    return lists()


def _in_turn(
    shards: Sequence[_Shard], key: str, slices: int = 1, part: int = 0, batch_ms: float = 0
) -> Iterator[object]:
    readers = [_reader(shard, key, slices, part, batch_ms) for shard in shards]
    while readers:
        remaining = []
        for reader in readers:
            items = next(reader, None)
            if items is not None:
                yield from items
                remaining.append(reader)
        readers = remaining


def _as_ready(shards: Sequence[_Shard], batch_ms: float, num_async: int) -> Iterator[object]:
    key = uuid.uuid4().hex
    initialized = [shard.actor.par_iter_init.remote(shard.transforms, key) for shard in shards]
    requests = {
        shard.actor.par_iter_next.remote(key, 0, batch_ms): shard
        for shard in shards
        for _ in range(num_async)
    }
    api.get(initialized)
    while requests:
        (ready, *_), _ = api.wait(list(requests), num_returns=1)
        shard = requests.pop(ready)
        items = api.get(ready)
        if items:
            requests[shard.actor.par_iter_next.remote(key, 0, batch_ms)] = shard
            yield from items


def _in_tasks(fn: Callable[[Any], object], most: int, options: Mapping[str, object]) -> Transform:
    def transform(items: Iterator[object]) -> Items:
        remote = api.remote(fn).options(**options) if options else api.remote(fn)
        running: list[AnyRef] = []
        for item in items:
            running.append(remote.remote(item))
            if len(running) >= most:
                yield api.get(running.pop(0))
        for ref in running:
            yield api.get(ref)

    return transform


def _checked(num_shards: int) -> int:
    if num_shards < 1:
        raise ValueError(f"{num_shards} shards are impossible: pass 1 or more.")
    return num_shards


def _endless(repeat: bool) -> str:
    return ", repeat=True" if repeat else ""
