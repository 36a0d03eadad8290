"""Queues of the rows that are assigned to ranks and not fetched. No threads, no I/O.

A block is held as long as a queue has rows of it. Rows of ranks that have left are dropped.
`needs_block` asks for the next block whenever a rank has few rows, unless queues of ranks that do
not fetch hold too much memory.
"""

from __future__ import annotations

from collections import deque
from dataclasses import field

from syncline.data.execute.block_store import BlockValue
from syncline.data.iterate.cursor import PassStart
from syncline.data.iterate.position import Restart
from syncline.data.iterate.sharding import Sharder, ShardRange
from syncline.data.iterate.split_rendezvous import Fetched, Share
from syncline.records import dataclass

# Bytes queued for a rank below which the next block is needed; the executor has more blocks ready.
_READY_BYTES = 8 * 1024 * 1024
# Limits of one reply, so that consumers hold few blocks.
_FETCH_BYTES = 32 * 1024 * 1024
_FETCH_SHARES = 256


@dataclass(kw_only=True)
class _QueuedBlock:
    """A block with queued rows."""

    value: BlockValue
    rows: int
    size_bytes: int
    uses: int = 0


@dataclass(kw_only=True)
class _ShardQueue:
    """Rows of one rank."""

    shards: deque[tuple[ShardRange, int | None]] = field(default_factory=deque)
    size_bytes: float = 0.0
    empty_since: float | None = None


@dataclass(frozen=True, kw_only=True)
class ShardQueueStatistics:
    """Statistics of `ShardQueues`."""

    blocks: int
    held_bytes: int


class ShardQueues:
    """The queues of all ranks.

    Args:
        pass_start: Rows to assign, and their assignment.
        limit_bytes: Bytes of blocks above which a rank without rows waits for the others.
        patience_s: Maximum duration of this wait: ranks that have stopped reading must not block
            the others forever.
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
        """Bytes of the held blocks."""

    @property
    def present(self) -> list[int]:
        """Ranks that have not left."""
        return [rank for rank, queue in enumerate(self._queues) if queue is not None]

    def add(self, value: BlockValue, *, rows: int, size_bytes: int, restart: Restart) -> None:
        """Assign the rows of the next block."""
        number = self._added
        self._added += 1
        self._blocks[number] = _QueuedBlock(value=value, rows=rows, size_bytes=size_bytes)
        self.held_bytes += size_bytes
        self._enqueue(self._sharder.add(number, rows, restart), None)

    def end(self) -> None:
        """End the sequence."""
        shards = self._sharder.end()
        self._ended, self._total = True, self._sharder.total
        self._enqueue(shards, self._total)

    def fetch(self, rank: int, now: float) -> Fetched | None:
        """Return the next rows of a rank, or the end after all rows; None if nothing is ready."""
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
            queue.size_bytes -= _share_bytes(held, shard)
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
        """Drop the rows of a rank that has left."""
        queue, self._queues[rank] = self._queues[rank], None
        for shard, _ in queue.shards if queue else ():
            self._release(shard)

    def needs_block(self, now: float) -> bool:
        """Return True if the next block should be added now."""
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
        # If all queues are empty, a round exceeds the limit and cannot be assigned until it is
        # complete.
        return bool(empty) and (
            not any(queue.shards for queue in queues) or now - min(empty) > self._patience_s
        )

    def statistics(self) -> ShardQueueStatistics:
        """Return statistics."""
        return ShardQueueStatistics(blocks=len(self._blocks), held_bytes=self.held_bytes)

    def _enqueue(self, shards: list[ShardRange], total: int | None) -> None:
        for shard in shards:
            queue = self._queues[shard.rank]
            if queue is not None:
                held = self._blocks[shard.block]  # type: ignore[index]
                held.uses += 1
                queue.shards.append((shard, total))
                queue.size_bytes += _share_bytes(held, shard)
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


def _share_bytes(held: _QueuedBlock, shard: ShardRange) -> float:
    return held.size_bytes * (shard.stop - shard.start) / max(held.rows, 1)
