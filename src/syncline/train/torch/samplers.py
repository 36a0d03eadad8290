"""Samplers that yield a rank's share: torch's own for plain orders, a wrapper for samplers of the
program; and their epochs.

Items are assigned round robin: item `i` belongs to rank `i % world_size`, so that the ranks
together traverse the sequence in its order. Every rank gets the same number of items, since ranks
that take fewer steps would block the others: items from the beginning are added at the end. This is
the rule of torch's `DistributedSampler`, for any sequence, also endless ones.

The position of all ranks is therefore one number, the items that they have taken together. The
remaining items can be assigned to the same ranks or to another number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from itertools import chain, cycle, islice
from typing import Any, Generic, TypeVar, cast

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from syncline.train.torch.random_generators import isolated_draws

T = TypeVar("T")

DRAW_SIZE = 64
"""Items per rank in one isolated draw: exchanging the random states costs about 50 microseconds."""


def rank_share(
    items: Iterable[T], rank: int, world_size: int, *, start: int = 0, drop_last: bool = False
) -> Iterator[T]:
    """Yield the items of `rank`, without the first `start` of the sequence.

    Every rank gets `share_length(total - start, world_size)` items, or none if none remain. With
    `drop_last`, items at the end that do not suffice for all ranks are left out.
    """
    iterator = iter(items)
    first = list(islice(iterator, world_size))
    remaining = islice(chain(first, iterator), start, None)
    if world_size == 1:
        yield from remaining
        return
    group = list(islice(remaining, world_size))
    while len(group) == world_size:
        yield group[rank]
        group = list(islice(remaining, world_size))
    if group and not drop_last:
        yield [*group, *islice(cycle(first), world_size - len(group))][rank]


def share_length(total: int, world_size: int) -> int:
    """Return the number of items of each rank."""
    return -(-total // world_size)


class EpochSampler(DistributedSampler[T]):
    """torch's `DistributedSampler` that records calls of `set_epoch`."""

    epoch_was_set = False
    """True after a call of `set_epoch`; reset by `LoaderEpoch`."""

    def set_epoch(self, epoch: int) -> None:
        """Use the order of this epoch from the next pass on."""
        super().set_epoch(epoch)
        self.epoch_was_set = True


class ShardedSampler(Sampler[T], Generic[T]):
    """A rank's share of the items of another sampler: indices, or batches of indices.

    Every rank draws the full order and keeps its share, so all must draw the same. Draws from the
    global generators (torch, random, numpy) therefore come from a separate stream, seeded with
    `seed` and the epoch, which is equal on all ranks. As with torch's `DistributedSampler`, the
    order stays the same until another epoch is set. A sampler with its own generator must seed it
    equally on every rank.
    """

    def __init__(self, sampler: Iterable[T], *, rank: int, world_size: int, seed: int = 0) -> None:
        self.sampler = sampler
        self.rank = rank
        self.num_replicas = world_size
        self.seed = seed
        self.epoch = 0
        self.epoch_was_set = False
        """True after a call of `set_epoch`; reset by `LoaderEpoch`."""

    def set_epoch(self, epoch: int) -> None:
        """Use the order of this epoch from the next pass on. Also calls `set_epoch` of the wrapped
        samplers.
        """
        self.epoch = epoch
        self.epoch_was_set = True
        for inner in _inner_samplers(self):
            if callable(getattr(inner, "set_epoch", None)):
                inner.set_epoch(epoch)

    def __iter__(self) -> Iterator[T]:
        order = isolated_draws(
            self.sampler, [self.seed, self.epoch], size=DRAW_SIZE * self.num_replicas
        )
        return rank_share(order, self.rank, self.num_replicas)

    def __len__(self) -> int:
        return share_length(len(cast("Sized", self.sampler)), self.num_replicas)

    def __getattr__(self, name: str) -> Any:
        # While the object is being copied, there is no `sampler` yet.
        if name.startswith("__") or name == "sampler":
            raise AttributeError(name)
        return getattr(self.sampler, name)


def is_distributed(sampler: object) -> bool:
    """Return True if a sampler yields one rank's share: torch's own, or one with its attributes."""
    return isinstance(sampler, DistributedSampler) or (
        hasattr(sampler, "num_replicas") and hasattr(sampler, "rank")
    )


def draws_eagerly(sampler: object) -> bool:
    """Return True if a sampler is known to draw from the global generators only before its first
    item: plain sequences and torch's samplers.
    """
    if type(sampler) is BatchSampler:
        return draws_eagerly(sampler.sampler)
    return type(sampler) in {
        list,
        tuple,
        range,
        SequentialSampler,
        RandomSampler,
        SubsetRandomSampler,
        WeightedRandomSampler,
    }


def shard_sampler(sampler: Iterable[Any], *, rank: int, world_size: int) -> Sampler[Any]:
    """Return a sampler of a rank's share: a `DistributedSampler` for a plain sequential or shuffled
    order, otherwise a `ShardedSampler`.
    """
    if type(sampler) is SequentialSampler:
        return _distributed(sampler.data_source, rank, world_size, shuffle=False)
    if (
        type(sampler) is RandomSampler
        and not sampler.replacement
        and sampler.num_samples == len(sampler.data_source)
    ):
        return _distributed(sampler.data_source, rank, world_size, shuffle=True)
    if type(sampler) is DistributedSampler:
        return _distributed(
            cast("Sized", sampler.dataset),
            rank,
            world_size,
            shuffle=sampler.shuffle,
            seed=sampler.seed,
        )
    return ShardedSampler(sampler, rank=rank, world_size=world_size)


def _distributed(
    source: Sized, rank: int, world_size: int, *, shuffle: bool, seed: int = 0
) -> EpochSampler[Any]:
    # `source` is that of the sampler, which may be shorter than the loader's dataset. Only the
    # length is used.
    return EpochSampler(
        cast("Any", source), num_replicas=world_size, rank=rank, shuffle=shuffle, seed=seed
    )


class LoaderEpoch:
    """Epoch of the samplers of a loader."""

    def __init__(self, loader: DataLoader[object]) -> None:
        outer = _unique([loader.sampler, loader.batch_sampler])
        samplers = _unique(
            [each for sampler in outer for each in (sampler, *_inner_samplers(sampler))]
        )
        self._samplers = [each for each in samplers if callable(getattr(each, "set_epoch", None))]
        wrapped = [
            id(inner)
            for each in self._samplers
            if isinstance(each, ShardedSampler)
            for inner in _inner_samplers(each)
        ]
        # A `ShardedSampler` sets the epoch of the samplers that it wraps.
        self._outermost = [each for each in self._samplers if id(each) not in wrapped]
        self._current = 0

    def requested(self) -> int | None:
        """Return the epoch that the program has set since the last call of `set`; None if it has
        not. Samplers start in epoch 0.

        For samplers of other libraries, only a changed attribute `epoch` is noticed.
        """
        epochs = [
            sampler.epoch
            for sampler in self._samplers
            if getattr(sampler, "epoch_was_set", False) is True
        ]
        epochs += [
            epoch
            for sampler in self._samplers
            if (epoch := _epoch(sampler)) not in (None, self._current)
        ]
        return epochs[0] if epochs else None

    def set(self, epoch: int) -> None:
        """Call `set_epoch` of the samplers that are in another epoch."""
        for sampler in self._outermost:
            if _epoch(sampler) != epoch:
                sampler.set_epoch(epoch)
        for sampler in self._samplers:
            if isinstance(sampler, (EpochSampler, ShardedSampler)):
                sampler.epoch_was_set = False
        self._current = epoch


def _inner_samplers(sampler: object) -> list[Any]:
    """Return the samplers that a sampler draws from, two levels deep: a batch sampler has one, and
    may itself be wrapped.
    """
    inner = getattr(sampler, "sampler", None)
    return [each for each in (inner, getattr(inner, "sampler", None)) if each is not None]


def _unique(samplers: list[Any]) -> list[Any]:
    return list({id(each): each for each in samplers if each is not None}.values())


def _epoch(sampler: object) -> int | None:
    epoch = getattr(sampler, "epoch", None)
    return epoch if isinstance(epoch, int) else None
