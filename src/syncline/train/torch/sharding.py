"""Which items of a sequence belong to which rank: pure functions, no torch.

Round robin: item `i` goes to rank `i % world_size`, so that the ranks together walk through the
sequence in its order. Every rank gets equally many items, because ranks that take unequally many
steps wait for each other for ever: the end is filled with items from the beginning. This is what
torch's `DistributedSampler` does, here for any sequence, endless ones too.

Where the ranks are is therefore one number, that of the items which all of them have taken: what
remains can be dealt to the same ranks as if nothing had happened, or to any other number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, cycle, islice
from typing import TypeVar

T = TypeVar("T")


def rank_share(
    items: Iterable[T], rank: int, world_size: int, *, start: int = 0, drop_last: bool = False
) -> Iterator[T]:
    """The items of `rank` in order, lazily, of those that remain after the first `start`.

    Every rank gets `share_length(total - start, world_size)` of them; nothing at all if there are
    none. With `drop_last` the end is left out where there is not an item for every rank, instead of
    being filled.
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
    """How many of `total` items each rank gets."""
    return -(-total // world_size)
