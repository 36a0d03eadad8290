"""Where ranks meet: reports of the same number, and calls of `collective`. Pure: no clock, no I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from syncline.train.workers.messages import CheckpointPart, Reported, Uploaded


@dataclass(frozen=True, kw_only=True)
class CompleteReport:
    """What all ranks said in their report of one number."""

    index: int
    metrics: tuple[Mapping[str, Any] | None, ...]
    """By rank; None of a rank that was too far behind to be waited for (never with a checkpoint)."""
    parts: tuple[CheckpointPart, ...]
    """By rank, of the ranks that gave files; empty for metrics only."""


@dataclass(kw_only=True)
class _Open:
    """A report that some rank has made."""

    metrics: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    parts: dict[int, CheckpointPart] = field(default_factory=dict)
    uploading: set[int] = field(default_factory=set)

    @property
    def has_checkpoint(self) -> bool:
        return bool(self.parts or self.uploading)


class ReportGathering:
    """Gathers the ranks' reports by number and gives them out, in order, when all ranks have made them.

    Reports without a checkpoint are not waited for beyond `max_open` of them: a rank may run ahead with its metrics for ever.
    """

    def __init__(self, *, world_size: int, first_index: int, max_open: int = 4096) -> None:
        self._world_size = world_size
        self._max_open = max_open
        self._next = [first_index] * world_size
        self._open: OrderedDict[int, _Open] = OrderedDict()  # by number, in order; taken from the front in constant time
        self._checkpoints: set[int] = set()  # the open ones that have files
        self._given_up_below = first_index

    @property
    def next_indices(self) -> tuple[int, ...]:
        """By rank, the number of the report that it makes next."""
        return tuple(self._next)

    def reported(self, rank: int, message: Reported) -> list[CompleteReport]:
        """A rank has made its next report; what is complete now."""
        assert message.index == self._next[rank], f"rank {rank} made report {message.index}, expected {self._next[rank]}"
        self._next[rank] += 1
        late = message.index < self._given_up_below and message.index not in self._open
        if late and message.part is None and not message.uploading:
            return self._complete()
        entry = self._open.setdefault(message.index, _Open())
        if late:  # a checkpoint by a rank far behind: it takes its place in the order
            self._open = OrderedDict(sorted(self._open.items()))
        entry.metrics[rank] = message.metrics
        if message.part is not None:
            entry.parts[rank] = message.part
        if message.uploading:
            entry.uploading.add(rank)
        if entry.has_checkpoint:
            self._checkpoints.add(message.index)
        return self._complete()

    def uploaded(self, rank: int, message: Uploaded) -> list[CompleteReport]:
        """An upload that a report has announced is done; what is complete now."""
        entry = self._open[message.index]
        entry.uploading.discard(rank)
        entry.parts[rank] = message.part
        return self._complete()

    def waits_for(self) -> tuple[int, tuple[int, ...]] | None:
        """The oldest checkpoint that some rank has reported and others have not: (number, the ranks missing)."""
        index = min(self._checkpoints, default=None)
        if index is None:
            return None
        missing = tuple(rank for rank, position in enumerate(self._next) if position <= index)
        return (index, missing) if missing else None

    def waits_in_vain_for(self, ended: Collection[int]) -> tuple[int, tuple[int, ...]] | None:
        """As `waits_for`, with those ranks only that have ended: their reports will never come."""
        waiting = self.waits_for()
        if waiting is None:
            return None
        gone = tuple(rank for rank in waiting[1] if rank in ended)
        return (waiting[0], gone) if gone else None

    def rest(self) -> list[CompleteReport]:
        """At the end: reports of metrics that not every rank has made."""
        rest = [self._give_out(index) for index in list(self._open) if not self._open[index].has_checkpoint]
        self._open.clear()
        return rest

    def _complete(self) -> list[CompleteReport]:
        reached = min(self._next)
        complete: list[CompleteReport] = []
        while self._open:
            index = next(iter(self._open))
            if index >= reached or self._open[index].uploading:
                break
            complete.append(self._give_out(index))
        if len(self._open) > self._max_open:
            oldest = next((index for index, entry in self._open.items() if not entry.has_checkpoint), None)
            if oldest is not None:
                self._given_up_below = oldest + 1
                complete.append(self._give_out(oldest))
        return complete

    def _give_out(self, index: int) -> CompleteReport:
        entry = self._open[index]
        del self._open[index]
        self._checkpoints.discard(index)
        return CompleteReport(
            index=index,
            metrics=tuple(entry.metrics.get(rank) for rank in range(self._world_size)),
            parts=tuple(entry.parts[rank] for rank in sorted(entry.parts)),
        )


class CollectiveBarrier:
    """Lets the ranks through `collective.barrier` together, and carries rank 0's data."""

    def __init__(self, *, world_size: int) -> None:
        self._world_size = world_size
        self._waiting: set[int] = set()
        self._sequence = 0
        self._data: bytes | None = None

    @property
    def sequence(self) -> int:
        """The number of the meeting that is open."""
        return self._sequence

    @property
    def waiting(self) -> frozenset[int]:
        """The ranks that have arrived and wait."""
        return frozenset(self._waiting)

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks that the waiting ones wait for; empty when nobody waits."""
        return tuple(rank for rank in range(self._world_size) if rank not in self._waiting) if self._waiting else ()

    def reached(self, rank: int, sequence: int, data: bytes | None) -> bool:
        """A rank has arrived; True when it was the last, and all may go on with `take()`."""
        assert sequence == self._sequence, f"rank {rank} is at meeting {sequence}, the others at {self._sequence}"
        self._waiting.add(rank)
        if rank == 0:
            self._data = data
        return len(self._waiting) == self._world_size

    def take(self) -> tuple[int, bytes | None]:
        """Close the meeting: its number and rank 0's data."""
        closed = (self._sequence, self._data)
        self._sequence += 1
        self._waiting.clear()
        self._data = None
        return closed
