"""Which items of a sequence belong to which rank: pure functions, no torch.

Round robin: item `i` goes to rank `i % world_size`, so that the ranks together walk through the sequence in its order. Every rank
gets equally many items, because ranks that take unequally many steps wait for each other for ever: the end is filled with items from
the beginning. This is what torch's `DistributedSampler` does, here for any sequence, endless ones too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import cycle, islice
from typing import TypeVar

T = TypeVar("T")


def rank_share(items: Iterable[T], rank: int, world_size: int) -> Iterator[T]:
    """The items of `rank` in order, lazily; `share_length` of them. Nothing at all if there are no items."""
    iterator = iter(items)
    first = group = list(islice(iterator, world_size))
    while len(group) == world_size:
        yield group[rank]
        group = list(islice(iterator, world_size))
    if group:
        yield [*group, *islice(cycle(first), world_size - len(group))][rank]


def share_length(total: int, world_size: int) -> int:
    """How many of `total` items each rank gets."""
    return -(-total // world_size)
