"""A pipeline without an executor and ranks without processes, for tests of dealing, batching and
cursors.

`SimulatedPipeline` produces a global sequence in blocks, from any of its restart points, with other
block bounds each time. `SimulatedRanks` deals it and lets the test pull batches from any rank at
any time. `expected_own_rows` says, the naive way, what each rank has to get.
"""

import json
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from syncline.data.iterate.batching import BatchOptions, CutBatch, RankRows, split_into_batches
from syncline.data.iterate.cursor import Cursor, PassStart
from syncline.data.iterate.position import Restart
from syncline.data.iterate.sharding import Rounds, Sharder, ShuffleWindows


@dataclass(kw_only=True)
class SimulatedPipeline:
    """Fragments of rows, a filter on them, and a shuffle for each epoch."""

    fragments: list[list[int]]
    keep_one_in: int = 1
    shuffle: str | None = None  # None, "fragments" or "rows"
    seed: int = 0
    reads: list[int] = field(default_factory=list)  # rows that were produced from each start on

    def units(self, epoch: int) -> list[list[int]]:
        """What is read whole: fragments after the filter, or partitions of a shuffle."""
        units = [
            [row for row in fragment if row % self.keep_one_in == 0] for fragment in self.fragments
        ]
        order = random.Random(f"{self.seed} {epoch}")
        if self.shuffle == "fragments":
            order.shuffle(units)
        if self.shuffle == "rows":
            rows = [row for unit in units for row in unit]
            order.shuffle(rows)
            units = [rows[part :: len(units)] for part in range(len(units))]
        return units

    def sequence(self, epoch: int) -> list[int]:
        return [row for unit in self.units(epoch) for row in unit]

    def blocks(
        self, epoch: int, restart: Restart, rng: random.Random
    ) -> Iterator[tuple[list[int], Restart]]:
        unit, skip = restart.point or (0, 0)
        index = restart.index
        self.reads.append(0)
        for number, rows in list(enumerate(self.units(epoch)))[unit:]:
            while skip < len(rows):
                block = rows[skip : skip + rng.randint(1, 7)]
                self.reads[-1] += len(block)
                yield block, Restart(index=index, point=[number, skip])
                index += len(block)
                skip += len(block)
            skip = 0


@dataclass(kw_only=True)
class SimulatedRanks:
    """All ranks of one pass."""

    pipeline: SimulatedPipeline
    pass_start: PassStart
    windows: Sequence[ShuffleWindows | None]
    rng: random.Random
    plan: str = "plan"
    drop_last: bool = False

    def __post_init__(self) -> None:
        begin = self.pass_start
        self.sharder = Sharder(rounds=begin.rounds, position=begin.position, skip=begin.settled)
        self.cursors = [
            begin.cursor(plan=self.plan, rank=rank, windows=self.windows[rank])
            for rank in range(begin.rounds.world_size)
        ]
        self.yielded: list[list[int]] = [[] for _ in self.cursors]
        self._blocks = self.pipeline.blocks(begin.epoch, begin.restart, self.rng)
        self._tables: dict[int, pa.Table] = {}
        self._queues: list[deque[RankRows]] = [deque() for _ in self.cursors]
        self._ended = False
        self._cuts = [self._cut(cursor) for cursor in self.cursors]

    def pull(self, rank: int) -> bool:
        """The rank's program asks for its next batch; False if there is none."""
        cut = next(self._cuts[rank], None)
        if cut is None:
            if not self.cursors[rank].ended:
                self.cursors[rank] = Cursor.from_dict(
                    {**self.cursors[rank].to_dict(), "ended": True}, plan=self.plan
                )
            return False
        self.yielded[rank] += cut.table["v"].to_pylist()
        self.cursors[rank] = self.cursors[rank].advanced(cut.update)
        return True

    def finish(self) -> None:
        for rank in range(len(self.cursors)):
            while self.pull(rank):
                pass

    def saved(self) -> list[Cursor]:
        """The cursors, through JSON, in any order."""
        states = [json.dumps(cursor.to_dict()) for cursor in self.cursors]
        self.rng.shuffle(states)
        return [Cursor.from_dict(json.loads(state), plan=self.plan) for state in states]

    def _cut(self, cursor: Cursor) -> Iterator[CutBatch]:
        options = BatchOptions(
            batch_size=cursor.rounds.chunks[cursor.rank], drop_last=self.drop_last
        )
        return split_into_batches(self._pieces(cursor.rank), cursor, options)

    def _pieces(self, rank: int) -> Iterator[RankRows]:
        queue = self._queues[rank]
        while True:
            while not queue and not self._ended:
                self._deal_next_block()
            if not queue:
                yield RankRows(
                    table=pa.table({"v": pa.array([], pa.int64())}),
                    restart=Restart(),
                    total=self.sharder.total,
                )
                return
            yield queue.popleft()

    def _deal_next_block(self) -> None:
        values, restart = next(self._blocks, (None, None))
        if values is None:
            shards, self._ended = self.sharder.end(), True
        else:
            self._tables[restart.index] = pa.table({"v": values})
            shards = self.sharder.add(restart.index, len(values), restart)
        for shard in shards:
            table = self._tables[shard.block].slice(shard.start, shard.stop - shard.start)
            self._queues[shard.rank].append(
                RankRows(table=table, restart=shard.restart, total=self.sharder.total)
            )
        kept = self.sharder.held
        self._tables = {block: table for block, table in self._tables.items() if block in kept}


def expected_own_rows(
    rows: list[int], rounds: Rounds, rank: int, windows: ShuffleWindows | None, epoch: int
) -> list[int]:
    """What a rank gets of `rows` without an interruption, in order."""
    queues: list[list[int]] = [[] for _ in rounds.chunks]
    left = list(rows)
    if len(queues) == 1:
        queues[0], left = left, []
    while left and (not rounds.equal or len(left) >= sum(rounds.chunks)):
        for queue, chunk in zip(queues, rounds.chunks, strict=True):
            queue += left[:chunk]
            left = left[chunk:]
    if left:
        each = len(left) // len(queues) if rounds.equal == "drop" else -(-len(left) // len(queues))
        padded = left * (len(queues) + 1)
        for number, queue in enumerate(queues):
            queue += padded[number * each : (number + 1) * each]
    own = queues[rank]
    if windows is None:
        return own
    shuffled = []
    for number, start in enumerate(range(0, len(own), windows.rows)):
        window = own[start : start + windows.rows]
        shuffled += [window[index] for index in windows.order(epoch, rank, number, len(window))]
    return shuffled
