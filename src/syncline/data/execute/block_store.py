"""The blocks of an execution by number: tables in this process, references to the object store, or
both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from syncline.core import api
from syncline.core.refs import ObjectRef
from syncline.data.columnar import block as blocks
from syncline.data.iterate.position import Restart
from syncline.data.plan.nodes import HeldBlock
from syncline.exceptions import ObjectLostError

Value: TypeAlias = pa.Table | ObjectRef[Any]


class Stored:
    """One block. Whoever holds this object holds the block's memory."""

    __slots__ = ("made_at", "reference", "rows", "size_bytes", "table")

    def __init__(self, value: Value, rows: int, size_bytes: int) -> None:
        is_reference = isinstance(value, ObjectRef)
        self.table: pa.Table | None = None if is_reference else value
        self.reference: ObjectRef[Any] | None = value if is_reference else None
        self.rows = rows
        self.size_bytes = size_bytes
        self.made_at = time.monotonic()

    @property
    def value(self) -> Value:
        """The cheapest form for this process."""
        return self.table if self.table is not None else self.reference

    def in_store(self) -> ObjectRef[Any]:
        """A reference; a table is put into the object store, once."""
        if self.reference is None:
            self.reference = api.put(blocks.compact(self.table))
        return self.reference


class BlockStore:
    """The blocks that exist. For the driver's thread."""

    def __init__(self, held: Sequence[HeldBlock]) -> None:
        self._held = [Stored(block.value, block.num_rows, block.size_bytes) for block in held]
        self._blocks: dict[int, Stored] = {}
        self._last = 0

    def add(self, value: Value, rows: int, size_bytes: int) -> int:
        """A new block; its number."""
        self._last += 1
        self._blocks[self._last] = Stored(value, rows, size_bytes)
        return self._last

    def __getitem__(self, number: int) -> Stored:
        """A block; negative numbers are those of `SourceBlocks` stages."""
        return self._held[number] if number < 0 else self._blocks[number]

    def drop(self, number: int) -> None:
        """Let go of a block."""
        if number >= 0:
            del self._blocks[number]

    def clear(self) -> None:
        """Let go of all."""
        self._blocks.clear()
        self._held.clear()

    def __len__(self) -> int:
        return len(self._blocks)


MadeAgain: TypeAlias = Callable[[Restart, int, ObjectLostError], pa.Table]
"""(where to start, rows, how they were lost) -> the rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OutputBlock:
    """The next rows of an execution's output."""

    num_rows: int
    size_bytes: int
    restart: Restart
    """Where an execution may start to deliver exactly what comes from this block on;
    `restart.index` is the number of its first row.
    """
    _stored: Stored = field(repr=False)
    _start: int = field(repr=False)
    _again: MadeAgain | None = field(default=None, repr=False)
    """Makes the rows again when they are lost."""

    def table(self) -> pa.Table:
        """The rows, in this process; from the object store without a copy where the engine can.

        Rows that a cluster has lost with one of its nodes are made again. ObjectLostError where
        that is not possible.
        """
        stored = self._stored
        try:
            table: pa.Table = (
                stored.table if stored.table is not None else api.get(stored.in_store())
            )
        except ObjectLostError as error:
            if self._again is None:
                raise
            return self._again(self.restart, self.num_rows, error)
        return table if self.num_rows == stored.rows else table.slice(self._start, self.num_rows)

    def reference(self) -> ObjectRef[Any]:
        """The rows in the object store; put there if they are not yet."""
        if self.num_rows == self._stored.rows:
            return self._stored.in_store()
        return api.put(blocks.compact(self.table()))


def kept(output: OutputBlock, input_files: tuple[str, ...]) -> HeldBlock:
    """What an execution delivered, in the object store."""
    return HeldBlock(
        value=output.reference(),
        num_rows=output.num_rows,
        size_bytes=output.size_bytes,
        schema=output.table().schema,
        input_files=input_files,
    )


def of_table(table: pa.Table) -> HeldBlock:
    """Rows in this process."""
    return HeldBlock(
        value=table,
        num_rows=table.num_rows,
        size_bytes=blocks.size_bytes(table),
        schema=table.schema,
    )


def table_of(block: HeldBlock) -> pa.Table:
    """The rows, in this process; mapped, not copied, where the engine can."""
    return api.get(block.value) if isinstance(block.value, ObjectRef) else block.value


def reference_to(block: HeldBlock) -> ObjectRef[pa.Table]:
    """The rows in the object store."""
    return (
        block.value if isinstance(block.value, ObjectRef) else api.put(blocks.compact(block.value))
    )


def cut(held: Sequence[HeldBlock], indices: Iterable[int]) -> list[tuple[HeldBlock, ...]]:
    """The rows up to the first index, those from there up to the second, …, and the rest. Indices
    grow; beyond the end is nothing.

    Only blocks that an index falls into are touched. A part without rows is one empty block, so
    that its schema is known.
    """
    rows = sum(block.num_rows for block in held)
    bounds = [0, *(min(index, rows) for index in indices), rows]
    parts = [
        tuple(_between(held, start, stop))
        for start, stop in zip(bounds[:-1], bounds[1:], strict=True)
    ]
    return [part or tuple(_piece(block, 0, 0) for block in held[:1]) for part in parts]


def _between(held: Sequence[HeldBlock], start: int, stop: int) -> Iterator[HeldBlock]:
    first = 0
    for block in held:
        low, high = max(start, first) - first, min(stop, first + block.num_rows) - first
        if low < high:
            yield block if high - low == block.num_rows else _piece(block, low, high)
        first += block.num_rows


def _piece(block: HeldBlock, start: int, stop: int) -> HeldBlock:
    piece = (
        blocks.empty(block.schema) if start == stop else table_of(block).slice(start, stop - start)
    )
    in_store = isinstance(block.value, ObjectRef) and start < stop
    return HeldBlock(
        value=api.put(blocks.compact(piece)) if in_store else piece,
        num_rows=piece.num_rows,
        size_bytes=blocks.size_bytes(piece),
        schema=block.schema,
        input_files=block.input_files,
    )
