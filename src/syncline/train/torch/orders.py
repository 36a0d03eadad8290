"""The order in which a loader's passes take their indices, from the beginning of an epoch or from
any place in it.

An order is a sequence of items, samples or whole batches of them, that all ranks walk through
together (see `sharding`). There are four kinds of them:

    own      drawn by the user's sampler from the random states in which the pass began; not shared out
    shared   drawn by epoch alone, so that all ranks draw the same, and dealt to them
    foreign  dealt by a distributed sampler of the user's, of which only this rank's share is known
    stream   that of an `IterableDataset`: there are no indices
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Literal, TypeVar

from torch.utils.data import BatchSampler, DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler

from syncline.train.torch.samplers import READ_AHEAD, draws_at_once, is_distributed, shard_sampler
from syncline.train.torch.sharding import rank_share
from syncline.train.torch.streams import drawn_apart

T = TypeVar("T")


Kind = Literal["own", "shared", "foreign", "stream"]


@dataclass(frozen=True, kw_only=True)
class Order:
    """The order of a loader's passes, for one rank."""

    kind: Kind
    """Of passes that begin an epoch here; one that was begun by other ranks keeps the kind that it
    has.
    """
    sampler: Any
    """What yields the items in the user's loader."""
    batch_size: int | None
    """Items of a batch; None where an item is a batch."""
    drop_last: bool
    """Whether a last batch with fewer items is left out."""
    even: bool
    """Whether items are left out at the end where there is not one for every rank; else it is
    filled up from the beginning.
    """
    rank: int
    """This rank, among those that share the order."""
    ranks: int
    """How many do; 1 where each has all of it."""

    @property
    def step(self) -> int:
        """Items that all ranks together take with one batch."""
        return self.ranks * (self.batch_size or 1)

    def indices(self, plain: Iterable[Any], *, seed: int) -> Iterator[Any]:
        """Those of a whole pass. `plain` is what torch would take them from; `seed` is that of the
        pass.
        """
        if self.kind == "own" and not draws_at_once(plain):
            return self._batched(self._own(seed))
        return iter(plain)

    def remaining(
        self, plain: Iterable[Any], *, kind: Kind, epoch: int, seed: int, items: int, batches: int
    ) -> Iterator[Any]:
        """Those that remain of a pass of a `kind` of which all ranks have taken `items`, and this
        one `batches`.
        """
        if kind == "stream":
            return iter(plain)
        if kind == "foreign":
            return islice(iter(plain), batches, None)
        whole = self._own(seed) if kind == "own" else self._shared(epoch)
        return self._batched(
            rank_share(whole, self.rank, self.ranks, start=items, drop_last=self.even)
        )

    def _own(self, seed: int) -> Iterator[Any]:
        if draws_at_once(self.sampler):
            return iter(self.sampler)
        # It may draw as it goes, in between the program's own draws, which will be others when the
        # pass is continued.
        return drawn_apart(self.sampler, [seed], ahead=READ_AHEAD)

    def _shared(self, epoch: int) -> Iterator[Any]:
        sampler: Any = shard_sampler(self.sampler, rank=0, world_size=1)
        sampler.set_epoch(epoch)
        return iter(sampler)

    def _batched(self, items: Iterator[Any]) -> Iterator[Any]:
        return (
            items
            if self.batch_size is None
            else iter(BatchSampler(items, self.batch_size, self.drop_last))
        )


def order_of(loader: DataLoader[Any], *, rank: int, world_size: int) -> Order:
    """The order of a user's loader if it is shared out among `world_size` ranks; 1: every rank has
    all of it.
    """
    sampler, batch_size, drop_last = _items(loader)
    inner: Any = sampler if is_distributed(sampler) else getattr(sampler, "sampler", None)
    even = False
    if isinstance(loader.dataset, IterableDataset):
        kind: Kind = "stream"
        rank, world_size = 0, 1
    elif is_distributed(inner):
        kind = "shared" if type(sampler) is DistributedSampler else "foreign"
        rank, world_size, even = (
            inner.rank,
            inner.num_replicas,
            bool(getattr(inner, "drop_last", False)),
        )
    else:
        kind = "shared" if world_size > 1 else "own"
    return Order(
        kind=kind,
        sampler=sampler,
        batch_size=batch_size,
        drop_last=drop_last,
        even=even,
        rank=rank,
        ranks=world_size,
    )


def _items(loader: DataLoader[Any]) -> tuple[Any, int | None, bool]:
    """What yields the items of a loader's order, how many of them make a batch, and whether a
    smaller last batch is left out.
    """
    batches = loader.batch_sampler
    if type(batches) is not BatchSampler:
        return (loader.sampler if batches is None else batches), None, False
    if loader.batch_size is None and not is_distributed(batches.sampler):
        return (
            batches,
            None,
            False,
        )  # a batch sampler of the user's, whose batches are dealt as they are
    return batches.sampler, batches.batch_size, batches.drop_last


def primed(items: Iterator[T]) -> Iterator[T]:
    """The same items, the first of which is drawn now: samplers draw from the global generators
    here, not between the program's steps.
    """
    return chain(list(islice(items, 1)), items)


class Indices:
    """What torch takes for the sampler of a prepared loader: the indices of the pass that began
    last.
    """

    def __init__(self, plain: Any) -> None:
        self.plain = plain
        """What yields them without a preparation."""
        self.current: Iterator[Any] = iter(())

    def __iter__(self) -> Iterator[Any]:
        # With worker processes torch asks twice at the begin of a pass, and uses the second answer.
        return self.current

    def __len__(self) -> int:
        return len(self.plain)
