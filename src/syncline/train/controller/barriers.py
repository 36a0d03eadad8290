"""Where ranks meet: reports of the same number, and calls of `collective`. Pure: no clock, no
I/O.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from syncline.train.workers.messages import CheckpointPart, Reported, Uploaded


@dataclass(frozen=True, kw_only=True)
class CompleteReport:
    """What all ranks said in their report of one number."""

    index: int
    metrics: tuple[Mapping[str, Any] | None, ...]
    """By rank; None of a rank that was too far behind to be waited for (never with a
    checkpoint).
    """
    parts: tuple[CheckpointPart, ...]
    """By rank, of the ranks that gave files; empty for metrics only."""
    states: Mapping[int, bytes] = field(default_factory=dict)
    """By rank, `Reported.states` of those that gave none, if others did."""


@dataclass(kw_only=True)
class _Open:
    """A report that some rank has made."""

    arrived: int = 0
    """Ranks that have made it."""
    metrics: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    parts: dict[int, CheckpointPart] = field(default_factory=dict)
    uploading: set[int] = field(default_factory=set)
    states: dict[int, bytes] = field(default_factory=dict)

    @property
    def has_checkpoint(self) -> bool:
        return bool(self.parts or self.uploading)


class ReportGathering:
    """Gathers the ranks' reports by number and gives them out, in order, when all ranks have made
    them.

    Reports without a checkpoint are not waited for beyond `max_open` of them: a rank may run ahead
    with its metrics for ever. A message costs the same however many ranks there are.
    """

    def __init__(self, *, world_size: int, first_index: int, max_open: int = 4096) -> None:
        self._world_size = world_size
        self._max_open = max_open
        self._next = [first_index] * world_size
        self._excused: set[int] = set()
        self._open: OrderedDict[int, _Open] = (
            OrderedDict()
        )  # by number, in order; taken from the front in constant time
        self._checkpoints: set[int] = set()  # the open ones that have files
        self._given_up_below = first_index

    def past(self, index: int) -> tuple[int, ...]:
        """The ranks that have made this report."""
        return tuple(rank for rank, position in enumerate(self._next) if position > index)

    def missing(self, index: int) -> tuple[int, ...]:
        """The ranks that have not made this report and are waited for."""
        return tuple(
            rank
            for rank, position in enumerate(self._next)
            if position <= index and rank not in self._excused
        )

    def reported(self, rank: int, message: Reported) -> list[CompleteReport]:
        """A rank has made its next report; what is complete now."""
        assert message.index == self._next[rank], (
            f"rank {rank} made report {message.index}, expected {self._next[rank]}"
        )
        self._next[rank] += 1
        entry = self._open.get(message.index) or self._opened(message)
        if entry is None:
            return []
        entry.arrived += 1
        entry.metrics[rank] = message.metrics
        if message.part is not None:
            entry.parts[rank] = message.part
        if message.uploading:
            entry.uploading.add(rank)
        if message.states is not None:
            entry.states[rank] = message.states
        if entry.has_checkpoint:
            self._checkpoints.add(message.index)
        elif entry.arrived == self._world_size:
            entry.states.clear()
        return self._complete()

    def uploaded(self, rank: int, message: Uploaded) -> list[CompleteReport]:
        """An upload that a report has announced is done; what is complete now."""
        entry = self._open[message.index]
        entry.uploading.discard(rank)
        entry.parts[rank] = message.part
        return self._complete()

    def excuse(self, rank: int) -> list[CompleteReport]:
        """A rank has ended, and nobody waits for its reports any more; what is complete now."""
        self._excused.add(rank)
        return self._complete()

    def waits_for(self) -> int | None:
        """The oldest checkpoint that some rank has reported and others, `missing`, have not."""
        index = min(self._checkpoints, default=None)
        return None if index is None or self._has_all(index) else index

    def rest(self) -> list[CompleteReport]:
        """At the end: reports of metrics that not every rank has made."""
        rest = [
            self._give_out(index)
            for index in list(self._open)
            if not self._open[index].has_checkpoint
        ]
        self._open.clear()
        return rest

    def _opened(self, message: Reported) -> _Open | None:
        """A new entry for a report; None for metrics that nobody waits for any more."""
        entry = _Open()
        if message.index >= self._given_up_below:
            self._open[message.index] = entry
            return entry
        if message.part is None and not message.uploading:
            return None
        # A checkpoint by a rank far behind takes its place in the order; those ahead have passed
        # it.
        entry.arrived = len(self.past(message.index)) - 1
        self._open = OrderedDict(sorted([*self._open.items(), (message.index, entry)]))
        return entry

    def _has_all(self, index: int) -> bool:
        arrived = self._open[index].arrived
        return (
            arrived + sum(self._next[rank] <= index for rank in self._excused) >= self._world_size
        )

    def _complete(self) -> list[CompleteReport]:
        complete: list[CompleteReport] = []
        while self._open:
            index = next(iter(self._open))
            if self._open[index].uploading or not self._has_all(index):
                break
            complete.append(self._give_out(index))
        if len(self._open) > self._max_open:
            oldest = next(
                (index for index, entry in self._open.items() if not entry.has_checkpoint), None
            )
            if oldest is not None:
                self._given_up_below = oldest + 1
                complete.append(self._give_out(oldest))
        return complete

    def _give_out(self, index: int) -> CompleteReport:
        entry = self._open.pop(index)
        self._checkpoints.discard(index)
        return CompleteReport(
            index=index,
            metrics=tuple(entry.metrics.get(rank) for rank in range(self._world_size)),
            parts=tuple(entry.parts[rank] for rank in sorted(entry.parts)),
            states=entry.states if entry.parts else {},
        )


class CollectiveBarrier:
    """Lets the ranks through `collective.barrier` together, and carries rank 0's data."""

    def __init__(self, *, world_size: int) -> None:
        self._world_size = world_size
        self._waiting: set[int] = set()
        self._excused: set[int] = set()
        self._sequence = 0
        self._data: bytes | None = None

    @property
    def sequence(self) -> int:
        """The number of the meeting that is open."""
        return self._sequence

    @property
    def is_open(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    @property
    def waiting(self) -> frozenset[int]:
        """The ranks that have arrived and wait."""
        return frozenset(self._waiting)

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks that the waiting ones wait for; empty when nobody waits."""
        if not self._waiting:
            return ()
        return tuple(
            rank
            for rank in range(self._world_size)
            if rank not in self._waiting and rank not in self._excused
        )

    def excuse(self, rank: int) -> bool:
        """A rank has ended, and nobody waits for it any more; True when those who wait may go on
        with `take()`.
        """
        self._excused.add(rank)
        return bool(self._waiting) and self._all_there

    def reached(self, rank: int, sequence: int, data: bytes | None) -> bool:
        """A rank has arrived; True when it was the last, and all may go on with `take()`."""
        assert sequence == self._sequence, (
            f"rank {rank} is at meeting {sequence}, the others at {self._sequence}"
        )
        self._waiting.add(rank)
        if rank == 0:
            self._data = data
        return self._all_there

    def take(self) -> tuple[int, bytes | None]:
        """Close the meeting: its number and rank 0's data."""
        closed = (self._sequence, self._data)
        self._sequence += 1
        self._waiting.clear()
        self._data = None
        return closed

    @property
    def _all_there(self) -> bool:
        return len(self._waiting) + len(self._excused - self._waiting) == self._world_size
