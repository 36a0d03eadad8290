"""Parts of the samples of an `IterableDataset`: positions in them, and how they are distributed
over loader processes and ranks.

An `IterableDataset` shards its samples itself: each loader process of each rank gets a stream. A
*part* names a stream by the rank and the worker that it was made for, and counts the samples that
were taken from it. Another process can continue it, in place of that rank and worker, so an epoch
can be completed with another number of ranks or loader processes.

Pure: no datasets and no processes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

Sharing = Literal["fixed", "split", "whole"]
"""How the ranks share the samples of an `IterableDataset`: by a rule of the program, so that no
other rank can continue; by rank, in a way that another rank can continue; not at all, as each rank
has all samples.
"""


@dataclass(frozen=True, kw_only=True)
class Share:
    """Every `of`-th sample from `start` on, beginning with `start + index`."""

    start: int
    index: int
    of: int


@dataclass(frozen=True, kw_only=True)
class StreamPart:
    """A stream, or a share of it, and the position in it."""

    rank: int
    """Rank that the stream was made for."""
    world_size: int
    """Number of ranks at that time."""
    worker: int
    """Loader process that the stream was made for."""
    workers: int
    """Number of loader processes at that time; 0 for the main process."""
    seed: int
    """Seed of the pass."""
    shares: tuple[Share, ...] = ()
    """Shares to take, each of the samples that the one before it leaves."""
    items: int = 0
    """Samples that were taken, after `shares`."""
    state: str | None = None
    """State of the dataset after these samples, pickled, in base64; None if it has none."""
    seen: tuple[int, ...] = ()
    """Samples that each of `shares` had seen at `state`."""
    order: Any = None
    """Facts of the library on the order of the samples; None before the first one."""

    def to_dict(self) -> dict[str, Any]:
        """Return the part in a form that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> StreamPart:
        """Return the part that `to_dict` has saved."""
        shares = tuple(Share(**share) for share in saved["shares"])
        return cls(**{**saved, "shares": shares, "seen": tuple(saved["seen"])})

    def share(self, index: int, of: int) -> StreamPart:
        """Return a share of the remaining samples."""
        return replace(
            self,
            shares=(*self.shares, Share(start=self.items, index=index, of=of)),
            seen=(*self.seen, self.items),
            items=0,
        )


@dataclass
class ShareCounter:
    """Counts samples through the shares of a part."""

    shares: tuple[Share, ...]
    seen: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.seen = self.seen or [0] * len(self.shares)

    def takes(self) -> bool:
        """Return True if the next sample of the stream belongs to the share."""
        for level, share in enumerate(self.shares):
            number = self.seen[level] - share.start
            self.seen[level] += 1
            if number < 0 or number % share.of != share.index:
                return False
        return True


def distribute(parts: Sequence[StreamPart], ranks: int) -> list[list[StreamPart]]:
    """Return the parts for each rank.

    Whole parts as long as there are enough for all ranks. The others are shared, so the ranks get
    numbers of samples that differ by one for each of them if the parts are equally long.
    """
    whole = len(parts) - len(parts) % ranks
    dealt: list[list[StreamPart]] = [[] for _ in range(ranks)]
    for number, part in enumerate(parts):
        if number < whole:
            dealt[number % ranks].append(part)
        else:
            for rank in range(ranks):
                dealt[rank].append(part.share(rank, ranks))
    return dealt


def slots(parts: Iterable[StreamPart], workers: int) -> list[tuple[StreamPart, ...]]:
    """Return the parts for each of a rank's loader processes, in the order in which they are
    read.
    """
    count = max(1, workers)
    dealt: list[list[StreamPart]] = [[] for _ in range(count)]
    for number, part in enumerate(parts):
        dealt[number % count].append(part)
    return [tuple(each) for each in dealt]


def in_turn(dealt: Sequence[tuple[StreamPart, ...]], first: int) -> Iterator[StreamPart]:
    """Yield the parts of all slots, beginning with slot `first`: the first of each, then the second
    of each, and so on.
    """
    ordered = [*dealt[first:], *dealt[:first]]
    for depth in range(max(map(len, ordered), default=0)):
        for slot in ordered:
            if depth < len(slot):
                yield slot[depth]
