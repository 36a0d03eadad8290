"""Executions without an executor, for tests of what is fed by them: blocks of a dataset in memory,
from any restart point.
"""

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from syncline.core import api
from syncline.data.context import DataContext
from syncline.data.iterate.position import Restart
from syncline.data.plan.nodes import Held, HeldBlock


@dataclass
class FakeBlock:
    value: pa.Table
    restart: Restart

    @property
    def num_rows(self) -> int:
        return self.value.num_rows

    @property
    def size_bytes(self) -> int:
        return int(self.value.nbytes)

    def table(self) -> pa.Table:
        return self.value

    def reference(self) -> Any:
        return api.put(self.value)


@dataclass
class FakeExecution:
    blocks: Iterator[FakeBlock]
    closed: threading.Event = field(default_factory=threading.Event)
    hold: threading.Event | None = None  # blocks come once it is set

    def __iter__(self) -> "FakeExecution":
        return self

    def __next__(self) -> FakeBlock:
        while True:
            block = self.next(0.05)
            if block is not None:
                return block

    def next(self, timeout_s: float) -> FakeBlock | None:
        if self.closed.is_set():
            raise StopIteration
        if self.hold is not None and not self.hold.wait(timeout_s):
            return None
        return next(self.blocks)

    def close(self) -> None:
        self.closed.set()

    def stats(self) -> str:
        return "fake statistics"


@dataclass(kw_only=True)
class FakeDataset:
    """Rows 0, 1, ... in blocks, in another order of blocks each epoch if `shuffled`."""

    block_rows: list[int]
    shuffled: bool = False
    fails_at: int | None = None
    name: str | None = None
    context: DataContext = field(default_factory=DataContext)
    runs: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        starts = [sum(self.block_rows[:number]) for number in range(len(self.block_rows))]
        self.tables = [
            pa.table({"v": range(start, start + rows)})
            for start, rows in zip(starts, self.block_rows, strict=True)
        ]
        held = [
            HeldBlock(value=t, num_rows=t.num_rows, size_bytes=t.nbytes, schema=t.schema)
            for t in self.tables
        ]
        self._node = Held(blocks=tuple(held))

    def schema(self) -> Any:
        return self.tables[0].schema

    def ordered(self, seed: int, epoch: int) -> list[pa.Table]:
        tables = list(self.tables)
        if self.shuffled:
            random.Random(f"{seed} {epoch}").shuffle(tables)
        return tables

    def rows(self, seed: int, epoch: int) -> list[int]:
        return [row for table in self.ordered(seed, epoch) for row in table["v"].to_pylist()]

    def run(
        self, node: Any, context: DataContext, *, seed: int, epoch: int, restart: Restart, name: str
    ) -> FakeExecution:
        self.runs.append({"seed": seed, "epoch": epoch, "restart": restart})
        return FakeExecution(blocks=self._blocks(self.ordered(seed, epoch), restart))

    def _blocks(self, tables: list[pa.Table], restart: Restart) -> Iterator[FakeBlock]:
        first, skip = restart.point or (0, 0)
        index = restart.index
        for number, table in list(enumerate(tables))[first:]:
            if number == self.fails_at:
                raise ValueError(f"block {number} is broken")
            for start in range(skip, table.num_rows, 5):
                part = table.slice(start, 5)
                yield FakeBlock(part, Restart(index=index, point=[number, start]))
                index += part.num_rows
            skip = 0


def make_dataset(blocks: Any, context: DataContext) -> Any:
    """Stands for the making of a materialized dataset."""
    return SimpleNamespace(blocks=blocks, context=context)
