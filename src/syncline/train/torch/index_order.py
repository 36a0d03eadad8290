"""Order in which the passes of a loader take their indices, from the beginning or the middle of an
epoch.

An order is a sequence of items, samples or whole batches, that all ranks traverse together (see
`samplers`). There are four kinds:

    own      drawn by the program's sampler from the random states at the start of the pass; not
             shared among the ranks
    shared   drawn by epoch alone, so that all ranks draw the same, and sharded over them
    foreign  sharded by a distributed sampler of the program, so that only this rank's shard is
             known
    stream   the order of an `IterableDataset`, which has no indices
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Literal, TypeVar

from torch.utils.data import BatchSampler, DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler

from syncline.train.torch.random_generators import isolated_draws
from syncline.train.torch.samplers import (
    DRAW_SIZE,
    draws_eagerly,
    is_distributed,
    rank_share,
    shard_sampler,
)
from syncline.train.torch.stream_parts import Sharing

T = TypeVar("T")


Kind = Literal["own", "shared", "foreign", "stream"]


@dataclass(frozen=True, kw_only=True)
class Order:
    """Order of a loader's passes for one rank."""

    kind: Kind
    """Kind of passes that begin in this attempt; a pass of an earlier attempt keeps its kind."""
    sampler: Any
    """Iterable that yields the items in the program's loader."""
    batch_size: int | None
    """Items per batch; None if each item is a batch."""
    drop_last: bool
    """Leave out a smaller last batch."""
    drop_uneven: bool
    """Leave out items at the end that do not suffice for all ranks. Otherwise items from the
    beginning are added.
    """
    rank: int
    """This rank, among the ranks that share the order."""
    ranks: int
    """Number of ranks that share the order; 1 if each has all items."""
    stream: Sharing = "fixed"
    """How the ranks share the samples of a stream."""

    @property
    def items_per_step(self) -> int:
        """Items that all ranks together take with one batch."""
        return self.ranks * (self.batch_size or 1)

    def indices(self, plain: Iterable[object], *, seed: int) -> Iterator[object]:
        """Return the indices of a whole pass.

        Args:
            plain: Iterable from which torch would take them.
            seed: Seed of the pass.
        """
        if self.kind == "own" and not draws_eagerly(plain):
            return self._batched(self._own(seed))
        return iter(plain)

    def remaining(
        self,
        plain: Iterable[object],
        *,
        kind: Kind,
        epoch: int,
        seed: int,
        items: int,
        batches: int,
    ) -> Iterator[object]:
        """Return the remaining indices of a pass of a `kind`, of which all ranks together have
        taken `items`, and this rank `batches`.
        """
        if kind == "stream":
            return iter(plain)
        if kind == "foreign":
            return islice(iter(plain), batches, None)
        whole = self._own(seed) if kind == "own" else self._shared(epoch)
        return self._batched(
            rank_share(whole, self.rank, self.ranks, start=items, drop_last=self.drop_uneven)
        )

    def _own(self, seed: int) -> Iterator[object]:
        if draws_eagerly(self.sampler):
            return iter(self.sampler)
        # It may draw during the pass, between draws of the program, which differ when the pass is
        # resumed.
        return isolated_draws(self.sampler, [seed], size=DRAW_SIZE)

    def _shared(self, epoch: int) -> Iterator[object]:
        sampler: Any = shard_sampler(self.sampler, rank=0, world_size=1)
        sampler.set_epoch(epoch)
        return iter(sampler)

    def _batched(self, items: Iterator[Any]) -> Iterator[object]:
        if self.batch_size is None:
            return items
        return iter(BatchSampler(items, self.batch_size, self.drop_last))


def order_of(
    loader: DataLoader[object], *, rank: int, world_size: int, stream: Sharing = "fixed"
) -> Order:
    """Return the order of the program's loader, shared among `world_size` ranks."""
    sampler, batch_size, drop_last = _items(loader)
    inner: Any = sampler if is_distributed(sampler) else getattr(sampler, "sampler", None)
    drop_uneven = False
    if isinstance(loader.dataset, IterableDataset):
        kind: Kind = "stream"
        rank, world_size = 0, 1
    elif is_distributed(inner):
        kind = "shared" if type(sampler) is DistributedSampler else "foreign"
        rank, world_size = inner.rank, inner.num_replicas
        drop_uneven = bool(getattr(inner, "drop_last", False))
    else:
        kind = "shared" if world_size > 1 else "own"
    return Order(
        kind=kind,
        sampler=sampler,
        batch_size=batch_size,
        drop_last=drop_last,
        drop_uneven=drop_uneven,
        rank=rank,
        ranks=world_size,
        stream=stream,
    )


def _items(loader: DataLoader[object]) -> tuple[object, int | None, bool]:
    """Return the sampler of a loader's items, the batch size and `drop_last`."""
    batches = loader.batch_sampler
    if type(batches) is not BatchSampler:
        return (loader.sampler if batches is None else batches), None, False
    if loader.batch_size is None and not is_distributed(batches.sampler):
        return batches, None, False  # the program's batch sampler, whose batches are the items
    return batches.sampler, batches.batch_size, batches.drop_last


def drawn_first(items: Iterator[T]) -> Iterator[T]:
    """Return the same items with the first one drawn now, so that samplers draw from the global
    generators here and not between the steps of the program.
    """
    return chain(list(islice(items, 1)), items)


class IndexSampler:
    """Sampler that torch uses for a prepared loader: the indices of the latest pass."""

    def __init__(self, plain: Any) -> None:
        self.plain = plain
        """Sampler of the loader without preparation."""
        self.current: Iterator[object] = iter(())

    def __iter__(self) -> Iterator[object]:
        # With worker processes torch calls this twice at the start of a pass and uses the second
        # result.
        return self.current

    def __len__(self) -> int:
        return len(self.plain)
