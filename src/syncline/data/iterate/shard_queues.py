"""The rows of one pass of a split between dealing and fetching: a hand for each rank, without
threads or I/O.

Blocks are counted while a hand has rows of them, and let go with the last. Rows of ranks that have
left are dropped as they are dealt. `wants` says when to get the next block: whenever a rank has
little in its hand, unless others that do not fetch hold too much memory.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from syncline.data.iterate.cursor import PassStart
from syncline.data.iterate.position import Restart
from syncline.data.iterate.sharding import Sharder, ShardRange
from syncline.data.iterate.split_rendezvous import Fetched, Share

# What is ready for one rank before the next block is asked for; the executor has more of them
# ready.
_READY_BYTES = 8 * 1024 * 1024
# One answer carries no more than this, so that the blocks that consumers hold stay few.
_FETCH_BYTES = 32 * 1024 * 1024
_FETCH_SHARES = 256


@dataclass(kw_only=True)
class _QueuedBlock:
    """A block that rows are still needed of."""

    value: Any
    rows: int
    size_bytes: int
    uses: int = 0


@dataclass(kw_only=True)
class _ShardQueue:
    """What one rank has not fetched."""

    shards: deque[tuple[ShardRange, int | None]] = field(default_factory=deque)
    size_bytes: float = 0.0
    empty_since: float | None = None


@dataclass(frozen=True, kw_only=True)
class ShardQueueStatistics:
    """What `ShardQueues` holds."""

    blocks: int
    held_bytes: int
    waiting_shares: tuple[int, ...]
    """For each rank, shares that it has not fetched."""
    dropped_rows: int
    padded_rows: int


class ShardQueues:
    """The hands of all ranks.

    Args:
        beginning: What is dealt, and how. limit_bytes: Bytes of blocks above which a rank without
        rows waits for those that have some. patience_s: How long it waits: ranks that have stopped
        reading must not stop the others for ever.
    """

    def __init__(self, pass_start: PassStart, *, limit_bytes: int, patience_s: float) -> None:
        self._sharder = Sharder(
            rounds=pass_start.rounds, position=pass_start.position, skip=pass_start.settled
        )
        self._queues: list[_ShardQueue | None] = [_ShardQueue() for _ in pass_start.rounds.chunks]
        self._blocks: dict[int, _QueuedBlock] = {}
        self._added = 0
        self._ended = False
        self._limit_bytes = limit_bytes
        self._patience_s = patience_s
        self._total = pass_start.total
        self.held_bytes = 0
        """Bytes of the blocks that are held."""

    @property
    def present(self) -> list[int]:
        """The ranks that have not left."""
        return [rank for rank, queue in enumerate(self._queues) if queue is not None]

    def add(self, value: Any, *, rows: int, size_bytes: int, restart: Restart) -> None:
        """Deal the next block of the sequence."""
        number = self._added
        self._added += 1
        self._blocks[number] = _QueuedBlock(value=value, rows=rows, size_bytes=size_bytes)
        self.held_bytes += size_bytes
        self._shard(self._sharder.add(number, rows, restart), None)

    def end(self) -> None:
        """The sequence has ended."""
        shards = self._sharder.end()
        self._ended, self._total = True, self._sharder.total
        self._shard(shards, self._total)

    def fetch(self, rank: int, now: float) -> Fetched | None:
        """What a rank gets next; None where there is nothing yet. The end comes alone, after all
        rows.
        """
        queue = self._queues[rank]
        assert queue is not None, f"rank {rank} has left"
        shares: list[Share] = []
        size_bytes, last = 0, None
        while queue.shards and len(shares) < _FETCH_SHARES:
            shard, total = queue.shards[0]
            held = self._blocks[shard.block]  # type: ignore[index]
            if shard.block != last:
                size_bytes, last = size_bytes + held.size_bytes, shard.block
                if shares and size_bytes > _FETCH_BYTES:
                    break
            queue.shards.popleft()
            queue.size_bytes -= _part_bytes(held, shard)
            shares.append(Share(held.value, shard.start, shard.stop, shard.restart, total))
            self._release(shard)
        if shares:
            queue.empty_since = None
            return Fetched(shares=tuple(shares))
        if self._ended:
            return Fetched(
                ended=True, total=self._total, dropped_rows=self._sharder.statistics().dropped_rows
            )
        queue.empty_since = now if queue.empty_since is None else queue.empty_since
        return None

    def leave(self, rank: int) -> None:
        """A rank wants nothing more."""
        queue, self._queues[rank] = self._queues[rank], None
        for shard, _ in queue.shards if queue else ():
            self._release(shard)

    def wants(self, now: float) -> bool:
        """Whether the next block should be added now."""
        queues = [queue for queue in self._queues if queue is not None]
        if not any(queue.size_bytes < _READY_BYTES for queue in queues):
            return False
        if self.held_bytes < self._limit_bytes:
            return True
        empty = [
            queue.empty_since
            for queue in queues
            if not queue.shards and queue.empty_since is not None
        ]
        # Where nobody has rows, it is a round that is larger than the limit: it can only be dealt
        # when it is complete.
        return bool(empty) and (
            not any(queue.shards for queue in queues) or now - min(empty) > self._patience_s
        )

    def statistics(self) -> ShardQueueStatistics:
        """What is held now."""
        dealt = self._sharder.statistics()
        return ShardQueueStatistics(
            blocks=len(self._blocks),
            held_bytes=self.held_bytes,
            waiting_shares=tuple(0 if queue is None else len(queue.shards) for queue in self._queues),
            dropped_rows=dealt.dropped_rows,
            padded_rows=dealt.padded_rows,
        )

    def _shard(self, shards: list[ShardRange], total: int | None) -> None:
        for shard in shards:
            queue = self._queues[shard.rank]
            if queue is not None:
                held = self._blocks[shard.block]  # type: ignore[index]
                held.uses += 1
                queue.shards.append((shard, total))
                queue.size_bytes += _part_bytes(held, shard)
                queue.empty_since = None
        needed = self._sharder.held
        for number in [
            number
            for number, held in self._blocks.items()
            if not held.uses and number not in needed
        ]:
            self._drop(number)

    def _release(self, shard: ShardRange) -> None:
        held = self._blocks[shard.block]  # type: ignore[index]
        held.uses -= 1
        if not held.uses and shard.block not in self._sharder.held:
            self._drop(shard.block)  # type: ignore[arg-type]

    def _drop(self, number: int) -> None:
        self.held_bytes -= self._blocks.pop(number).size_bytes


def _part_bytes(held: _QueuedBlock, shard: ShardRange) -> float:
    return held.size_bytes * (shard.stop - shard.start) / max(held.rows, 1)
