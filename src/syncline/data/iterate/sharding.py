"""Dealing the rows of a sequence to ranks, in rounds.

Each round takes `chunks[0]` contiguous rows for rank 0, then `chunks[1]` for rank 1, and so on.
With chunks of a batch each, the ranks together have consumed a prefix of the sequence whenever they
have taken equally many batches, whatever the world size. What the last, partial round becomes is
the choice `equal`. `Rounds` is the arithmetic, `Sharder` applies it to blocks as they come. Not
covered: moving the rows anywhere.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from syncline.data.iterate.position import Position, Restart

Equal: TypeAlias = Literal[False, "drop", "pad"]

# A single rank takes everything in one endless round.
_ENDLESS = 2**62


def equal_mode(equal: bool | str) -> Equal:
    """The choice that an argument `equal=` stands for: True means "drop". ValueError for others."""
    for mode in (False, "drop", "pad"):
        if equal is mode or equal == mode:
            return mode
    if equal is True:
        return "drop"
    raise ValueError(
        f"equal={equal!r} is not known: choose False (all rows), True or 'drop' (equally many, fewer rows) or 'pad' (repeats)"
    )


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """How a sequence is dealt. Own rows of a rank are numbered from 0, as are the rows of the
    sequence.
    """

    chunks: tuple[int, ...]
    """Rows that each rank takes in a round; as many entries as there are ranks."""
    equal: Equal = False
    """The last, partial round: False deals what is there, in chunks; "drop" gives every rank
    equally many and drops the rest; "pad" repeats rows of the round so that every rank gets equally
    many.
    """

    def __post_init__(self) -> None:
        if not self.chunks or min(self.chunks) < 1:
            raise ValueError(
                f"every rank takes at least one row in a round, but the chunks are {self.chunks}"
            )

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.chunks)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """The chunks as they are dealt: a single rank has one that never ends."""
        return self.chunks if self.world_size > 1 else (_ENDLESS,)

    @cached_property
    def size(self) -> int:
        """Rows of a full round."""
        return sum(self.lengths)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where the chunk of each rank begins in a round."""
        return tuple(sum(self.lengths[:rank]) for rank in range(self.world_size))

    @property
    def holds_back(self) -> bool:
        """Whether a round can only be dealt once it is full or the sequence has ended."""
        return self.equal is not False and self.world_size > 1

    def tail_share(self, rank: int, tail: int) -> int:
        """Rows of a rank in a last round of `tail` rows."""
        if not self.holds_back:
            return min(max(tail - self.offsets[rank], 0), self.lengths[rank])
        return tail // self.world_size if self.equal == "drop" else -(-tail // self.world_size)

    def share(self, rank: int, total: int) -> int:
        """Own rows of a rank where the sequence has `total` rows."""
        full, tail = divmod(total, self.size)
        return full * self.lengths[rank] + self.tail_share(rank, tail)

    def rows(self, rank: int, own: np.ndarray, total: int | None) -> np.ndarray:
        """Which rows of the sequence the own rows `own`, int64 `(n,)`, of a rank are: int64 `(n,)`.

        `total` may be None as long as none of them is in the last round.
        """
        turns, within = np.divmod(own, self.lengths[rank])
        rows: np.ndarray = turns * self.size + self.offsets[rank] + within
        if total is None or not self.holds_back:
            return rows
        full, tail = divmod(total, self.size)
        late = own - full * self.lengths[rank]
        in_tail = rank * self.tail_share(rank, tail) + late
        return np.where(late < 0, rows, full * self.size + in_tail % max(tail, 1))

    def owner(self, row: int) -> tuple[int, int, int]:
        """Of a row in a full round: its rank, its number among that rank's own rows, and the rows
        from it to the end of the chunk.
        """
        turn, within = divmod(row, self.size)
        rank = self.world_size - 1
        while self.offsets[rank] > within:
            rank -= 1
        done = within - self.offsets[rank]
        return rank, turn * self.lengths[rank] + done, self.lengths[rank] - done


class ShardRange(NamedTuple):
    """Rows `start` to `stop` of a block for a rank."""

    rank: int
    block: Hashable
    start: int
    stop: int
    restart: Restart
    """Where the pipeline may start again for the sake of these rows."""


@dataclass(frozen=True, kw_only=True)
class ShardingStatistics:
    """What a `Sharder` has done."""

    rows: tuple[int, ...]
    """Rows dealt to each rank, repeats included."""
    held_rows: int
    """Rows of the round that is not full yet."""
    dropped_rows: int
    """Rows of the last round that no rank got."""
    padded_rows: int
    """Rows of the last round that were dealt twice."""


@dataclass(frozen=True, kw_only=True)
class _Run:
    """Contiguous remaining rows of one block, within one round."""

    row: int  # number of the first among the remaining rows
    block: Hashable
    start: int
    rows: int
    restart: Restart


@dataclass(kw_only=True)
class Sharder:
    """Deals blocks to ranks as they come: an object without threads or I/O.

    Blocks come in the order of the sequence, without gaps, from `position.restart` or any later
    restart that leaves out no needed row. With `equal` a round is held back until it is full or the
    sequence ends; its blocks are in `held` that long.
    """

    rounds: Rounds
    """How to deal."""
    position: Position = field(default_factory=Position)
    """The rows from which on, and the holes in them, that are not dealt."""
    skip: Sequence[int] = ()
    """Own rows of each rank that it does not need any more; none if empty."""
    total: int | None = field(default=None, init=False)
    """Number of rows of the dealt sequence, skipped ones included; None until `end`."""

    _next: int | None = field(default=None, init=False)
    _row: int = field(default=0, init=False)
    _round: list[_Run] = field(default_factory=list, init=False)
    _sharded: list[int] = field(init=False)
    _dropped: int = field(default=0, init=False)
    _padded: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._sharded = [0] * self.rounds.world_size

    def add(self, block: Hashable, rows: int, restart: Restart) -> list[ShardRange]:
        """Deal the next block: `rows` rows, of which the first has the global index
        `restart.index`.

        ValueError if it does not follow the block before, or if it is the first one and begins
        after the first needed row.
        """
        if self._next is None:
            self._begin(restart.index)
        elif restart.index != self._next:
            raise ValueError(
                f"block {block!r} begins at row {restart.index}, but the one before ended at row {self._next}"
            )
        self._next = restart.index + rows
        shards: list[ShardRange] = []
        for start, stop in self.position.remaining_ranges(restart.index, self._next):
            shards.extend(
                self._add_range(block, start - restart.index, stop - restart.index, restart)
            )
        return shards

    def end(self) -> list[ShardRange]:
        """The sequence has ended: deal what was held back. `total` is known from now on."""
        self.total = self._row
        held, self._round = self._round, []
        if not self.rounds.holds_back:
            return []
        tail = self.total % self.rounds.size
        shares = sum(self.rounds.tail_share(rank, tail) for rank in range(self.rounds.world_size))
        self._dropped, self._padded = max(tail - shares, 0), max(shares - tail, 0)
        return [
            shard
            for rank in range(self.rounds.world_size)
            for shard in self._shard_tail(held, rank, tail)
        ]

    @property
    def held(self) -> set[Hashable]:
        """Blocks that a later call may still deal from."""
        return {run.block for run in self._round}

    def statistics(self) -> ShardingStatistics:
        """What was dealt so far."""
        held = sum(run.rows for run in self._round)
        return ShardingStatistics(
            rows=tuple(self._sharded),
            held_rows=held,
            dropped_rows=self._dropped,
            padded_rows=self._padded,
        )

    def _begin(self, index: int) -> None:
        self._row = self.position.remaining_before(index)
        if not self.skip and self._row > 0:
            raise ValueError(
                f"the first block begins at row {index}, but rows from {self.position.prefix} on are still needed"
            )

    def _add_range(
        self, block: Hashable, start: int, stop: int, restart: Restart
    ) -> Iterator[ShardRange]:
        if not self.rounds.holds_back:
            yield from self._shard_in_chunks(
                _Run(row=self._row, block=block, start=start, rows=stop - start, restart=restart)
            )
            self._row += stop - start
            return
        while start < stop:
            rows = min(stop - start, self.rounds.size - self._row % self.rounds.size)
            self._round.append(
                _Run(row=self._row, block=block, start=start, rows=rows, restart=restart)
            )
            self._row += rows
            start += rows
            if self._row % self.rounds.size == 0:
                full, self._round = self._round, []
                for run in full:
                    yield from self._shard_in_chunks(run, full[0].restart)

    def _shard_in_chunks(self, run: _Run, round_restart: Restart | None = None) -> Iterator[ShardRange]:
        done = 0
        while done < run.rows:
            rank, own, left = self.rounds.owner(run.row + done)
            rows = min(left, run.rows - done)
            yield from self._shard(run, rank, own, run.start + done, rows, round_restart)
            done += rows

    def _shard_tail(self, held: list[_Run], rank: int, tail: int) -> Iterator[ShardRange]:
        """What a rank gets of the last round: its share of the rows, which begin again from the
        first after the last.
        """
        share = self.rounds.tail_share(rank, tail)
        first = self._row - tail
        own = first // self.rounds.size * self.rounds.lengths[rank]
        begin, end = rank * share, (rank + 1) * share
        for lap in range(begin // tail * tail, end, tail) if tail else ():
            for run in held:
                at = first - run.row - lap  # what turns a number in the round into one in the run
                start, stop = max(begin + at, 0), min(end + at, run.rows)
                if start < stop:
                    yield from self._shard(
                        run,
                        rank,
                        own + start - at - begin,
                        run.start + start,
                        stop - start,
                        held[0].restart,
                    )

    def _shard(
        self, run: _Run, rank: int, own: int, start: int, rows: int, round_restart: Restart | None
    ) -> Iterator[ShardRange]:
        stop = start + rows
        if self.skip:
            start += min(max(self.skip[rank] - own, 0), rows)
        if start < stop:
            self._sharded[rank] += stop - start
            # Padding needs the round's first rows again, so a restart within a round must not begin
            # after them.
            pads = round_restart is not None and self.rounds.equal == "pad"
            yield ShardRange(rank, run.block, start, stop, (pads and round_restart) or run.restart)


_SEED_BITS = 2**64 - 1


@dataclass(frozen=True, kw_only=True)
class ShuffleWindows:
    """How a rank shuffles its rows."""

    rows: int
    """Rows of a window; a multiple of the batch size, so that no batch lies in two windows. The
    last window may be shorter.
    """
    seed: int
    """Seed of the orders."""

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ValueError(f"a shuffle window has at least one row, not {self.rows}")

    def order(self, epoch: int, rank: int, window: int, length: int) -> np.ndarray:
        """The rows of a window in the order in which they are yielded: int64 `(length,)`, a
        permutation of `range(length)`.
        """
        # Of numpy's generators only RandomState promises the same permutations in every version,
        # and a cursor may outlive a version.
        random = np.random.RandomState(
            np.random.PCG64([self.seed & _SEED_BITS, epoch, rank, window])
        )
        return random.permutation(length).astype(np.int64, copy=False)

    def settled(self, rows: int) -> int:
        """Of the first `rows` rows yielded, those in windows that are over."""
        return rows - rows % self.rows

    def to_dict(self) -> dict[str, Any]:
        """A form for JSON."""
        return {"rows": self.rows, "seed": self.seed}


def shuffle_windows(*, buffer_rows: int | None, batch_size: int | None, seed: int) -> ShuffleWindows | None:
    """Windows of at least `buffer_rows` rows, rounded up to whole batches; None without a local
    shuffle.
    """
    if buffer_rows is None:
        return None
    whole = batch_size or 1
    return ShuffleWindows(rows=-(-buffer_rows // whole) * whole, seed=seed)
