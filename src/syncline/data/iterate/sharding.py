"""Assignment of the rows of a sequence to ranks, and the order of rows within a rank.

Each round gives `chunks[0]` contiguous rows to rank 0, then `chunks[1]` to rank 1, and so on. With
chunks of one batch, all ranks together have consumed a prefix of the sequence whenever they have
taken the same number of batches, for any world size. `equal` decides about the last, partial round.
`Rounds` is the arithmetic, `Sharder` applies it to blocks as they arrive, and `ShuffleWindows` is
the local shuffle. Not covered: moving the rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import field
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from syncline.data.iterate.position import Position, Restart
from syncline.records import dataclass

Equal: TypeAlias = Literal[False, "drop", "pad"]

# A single rank takes all rows in one endless round.
_ENDLESS = 2**62


def equal_mode(equal: bool | str) -> Equal:
    """Validate an argument `equal=`; True means "drop". ValueError for unknown values."""
    for mode in (False, "drop", "pad"):
        if equal is mode or equal == mode:
            return mode
    if equal is True:
        return "drop"
    raise ValueError(
        f"equal={equal!r} is not known. Use False (all rows), True or 'drop' (drop rows so that "
        "all ranks get equally many) or 'pad' (repeat rows)."
    )


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """Assignment of rows to ranks. Rows of the sequence and of each rank are numbered from 0."""

    chunks: tuple[int, ...]
    """Rows per round of each rank."""
    equal: Equal = False
    """The last, partial round: False distributes its rows in chunks, "drop" gives each rank equally
    many rows and drops the rest, "pad" repeats rows of the round to the same end.
    """

    def __post_init__(self) -> None:
        if not self.chunks or min(self.chunks) < 1:
            raise ValueError(
                f"Each rank takes at least one row per round, but chunks={self.chunks}."
            )

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.chunks)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """The chunks; endless for a single rank."""
        return self.chunks if self.world_size > 1 else (_ENDLESS,)

    @cached_property
    def size(self) -> int:
        """Rows of a full round."""
        return sum(self.lengths)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Start of each rank's chunk in a round."""
        return tuple(sum(self.lengths[:rank]) for rank in range(self.world_size))

    @property
    def holds_back(self) -> bool:
        """True if rows are assigned only when their round is complete."""
        return self.equal is not False and self.world_size > 1

    def tail_share(self, rank: int, tail: int) -> int:
        """Return the number of rows of a rank in a last round of `tail` rows."""
        if not self.holds_back:
            return min(max(tail - self.offsets[rank], 0), self.lengths[rank])
        return tail // self.world_size if self.equal == "drop" else -(-tail // self.world_size)

    def share(self, rank: int, total: int) -> int:
        """Return the number of rows of a rank in a sequence of `total` rows."""
        full, tail = divmod(total, self.size)
        return full * self.lengths[rank] + self.tail_share(rank, tail)

    def rows(self, rank: int, own: np.ndarray, total: int | None) -> np.ndarray:
        """Map rows of a rank to rows of the sequence; int64 `(n,)` -> int64 `(n,)`.

        `total` may be None if no row is in the last round.
        """
        round_index, within = np.divmod(own, self.lengths[rank])
        rows: np.ndarray = round_index * self.size + self.offsets[rank] + within
        if total is None or not self.holds_back:
            return rows
        full, tail = divmod(total, self.size)
        late = own - full * self.lengths[rank]
        in_tail = rank * self.tail_share(rank, tail) + late
        return np.where(late < 0, rows, full * self.size + in_tail % max(tail, 1))

    def owner(self, row: int) -> tuple[int, int, int]:
        """Locate a row of a full round.

        Returns:
            The rank, the number of the row within the rank, and the rows left in the chunk.
        """
        round_index, within = divmod(row, self.size)
        rank = self.world_size - 1
        while self.offsets[rank] > within:
            rank -= 1
        done = within - self.offsets[rank]
        return rank, round_index * self.lengths[rank] + done, self.lengths[rank] - done


class ShardRange(NamedTuple):
    """Rows `start` to `stop` of a block, assigned to a rank."""

    rank: int
    block: Hashable
    start: int
    stop: int
    restart: Restart
    """Restart that produces these rows."""


@dataclass(frozen=True, kw_only=True)
class ShardingStatistics:
    """Statistics of a `Sharder`."""

    rows: tuple[int, ...]
    """Rows assigned to each rank, including repeats."""
    held_rows: int
    """Rows of the incomplete round."""
    dropped_rows: int
    """Rows of the last round without a rank."""
    padded_rows: int
    """Repeated rows of the last round."""


@dataclass(frozen=True, kw_only=True)
class _Run:
    """Contiguous remaining rows of a block within a round."""

    row: int  # number of the first row among the remaining rows
    block: Hashable
    start: int
    rows: int
    restart: Restart


@dataclass(kw_only=True)
class Sharder:
    """Assigns the rows of blocks to ranks as the blocks arrive. No threads, no I/O.

    Blocks arrive in order and without gaps, from `position.restart` or from a later restart that
    skips no needed row. With `equal`, rows are held until their round is complete or the sequence
    ends; `held` names their blocks.
    """

    rounds: Rounds
    position: Position = field(default_factory=Position)
    """Rows to assign."""
    skip: Sequence[int] = ()
    """Leading rows of each rank to leave out; none if empty."""
    total: int | None = field(default=None, init=False)
    """Number of assigned rows, including skipped ones; None until `end`."""

    _next: int | None = field(default=None, init=False)
    _row: int = field(default=0, init=False)
    _round: list[_Run] = field(default_factory=list, init=False)
    _sharded: list[int] = field(init=False)
    _dropped: int = field(default=0, init=False)
    _padded: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._sharded = [0] * self.rounds.world_size

    def add(self, block: Hashable, rows: int, restart: Restart) -> list[ShardRange]:
        """Assign the rows of the next block, which begins with the global row `restart.index`.

        Raises:
            ValueError: The block does not follow the previous one, or it is the first block and
                begins after the first needed row.
        """
        if self._next is None:
            self._begin(restart.index)
        elif restart.index != self._next:
            raise ValueError(
                f"block {block!r} begins at row {restart.index}, but the one before ended at row "
                f"{self._next}"
            )
        self._next = restart.index + rows
        shards: list[ShardRange] = []
        for start, stop in self.position.remaining_ranges(restart.index, self._next):
            shards.extend(
                self._add_range(block, start - restart.index, stop - restart.index, restart)
            )
        return shards

    def end(self) -> list[ShardRange]:
        """End the sequence and assign the held rows; sets `total`."""
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
        """Blocks that a later call may assign rows of."""
        return {run.block for run in self._round}

    def statistics(self) -> ShardingStatistics:
        """Return statistics."""
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
                f"the first block begins at row {index}, but rows from {self.position.prefix} on "
                "are still needed"
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

    def _shard_in_chunks(
        self, run: _Run, round_restart: Restart | None = None
    ) -> Iterator[ShardRange]:
        done = 0
        while done < run.rows:
            rank, own, left = self.rounds.owner(run.row + done)
            rows = min(left, run.rows - done)
            yield from self._shard(run, rank, own, run.start + done, rows, round_restart)
            done += rows

    def _shard_tail(self, held: list[_Run], rank: int, tail: int) -> Iterator[ShardRange]:
        """Assign a rank's share of the last round, which repeats its rows if necessary."""
        share = self.rounds.tail_share(rank, tail)
        first = self._row - tail
        own = first // self.rounds.size * self.rounds.lengths[rank]
        begin, end = rank * share, (rank + 1) * share
        for lap in range(begin // tail * tail, end, tail) if tail else ():
            for run in held:
                offset = first - run.row - lap  # from a row of the round to a row of the run
                start, stop = max(begin + offset, 0), min(end + offset, run.rows)
                if start < stop:
                    yield from self._shard(
                        run,
                        rank,
                        own + start - offset - begin,
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
            # Padding repeats the first rows of the round, so restart no later than there.
            pads = round_restart is not None and self.rounds.equal == "pad"
            yield ShardRange(rank, run.block, start, stop, (pads and round_restart) or run.restart)


_SEED_BITS = 2**64 - 1


@dataclass(frozen=True, kw_only=True)
class ShuffleWindows:
    """Local shuffle of a rank: a random order within windows of its rows.

    The order depends only on (seed, epoch, rank, window, length), so that a restart reproduces it.
    It consists of indices: a batch is one `take` from its window.
    """

    rows: int
    """Rows per window, a multiple of the batch size; the last window may be shorter."""
    seed: int

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ValueError(f"A shuffle window needs at least one row, but rows={self.rows}.")

    def order(self, epoch: int, rank: int, window: int, length: int) -> np.ndarray:
        """Return the order of a window: a permutation of `range(length)`, int64 `(length,)`."""
        # Of numpy's generators, only RandomState keeps its permutations across versions, and a
        # cursor may outlive a version.
        random = np.random.RandomState(
            np.random.PCG64([self.seed & _SEED_BITS, epoch, rank, window])
        )
        return random.permutation(length).astype(np.int64, copy=False)

    def settled(self, rows: int) -> int:
        """Return the number of rows in complete windows among the first `rows`."""
        return rows - rows % self.rows

    def to_dict(self) -> dict[str, int]:
        """Return a JSON form."""
        return {"rows": self.rows, "seed": self.seed}


def shuffle_windows(
    *, buffer_rows: int | None, batch_size: int | None, seed: int
) -> ShuffleWindows | None:
    """Return windows of at least `buffer_rows` rows in whole batches; None without a shuffle."""
    if buffer_rows is None:
        return None
    whole = batch_size or 1
    return ShuffleWindows(rows=-(-buffer_rows // whole) * whole, seed=seed)
