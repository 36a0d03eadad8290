"""Blocks of an execution: the driver's store, the delivered blocks, and the blocks that a dataset
holds.

A block is a table of this process, a reference into the object store, or both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import TypeAlias

import pyarrow as pa

from syncline.core import api
from syncline.core.refs import ObjectRef
from syncline.data.columnar import block as blocks
from syncline.data.iterate.position import Restart
from syncline.data.plan.nodes import HeldBlock
from syncline.exceptions import ObjectLostError
from syncline.records import dataclass

TableRef: TypeAlias = ObjectRef[pa.Table]
BlockValue: TypeAlias = pa.Table | TableRef


class StoredBlock:
    """A block in the driver's store. Holding this object keeps the block in memory."""

    __slots__ = ("made_at", "reference", "rows", "size_bytes", "table")

    def __init__(self, value: BlockValue, rows: int, size_bytes: int) -> None:
        is_reference = isinstance(value, ObjectRef)
        self.table: pa.Table | None = None if is_reference else value
        self.reference: TableRef | None = value if is_reference else None
        self.rows = rows
        self.size_bytes = size_bytes
        self.made_at = time.monotonic()

    @property
    def value(self) -> BlockValue:
        """The table if this process has it, else the reference."""
        return self.table if self.table is not None else self.reference

    def in_store(self) -> TableRef:
        """Return a reference; put the table into the object store on the first call."""
        if self.reference is None:
            self.reference = api.put(blocks.compact(self.table))
        return self.reference


class BlockStore:
    """Blocks of an execution by number. Used by the driver's thread only."""

    def __init__(self, held: Sequence[HeldBlock]) -> None:
        self._held = [StoredBlock(block.value, block.num_rows, block.size_bytes) for block in held]
        self._blocks: dict[int, StoredBlock] = {}
        self._last = 0

    def add(self, value: BlockValue, rows: int, size_bytes: int) -> int:
        """Add a block and return its number."""
        self._last += 1
        self._blocks[self._last] = StoredBlock(value, rows, size_bytes)
        return self._last

    def __getitem__(self, number: int) -> StoredBlock:
        """Return a block; negative numbers are those of `SourceBlocks` stages."""
        return self._held[number] if number < 0 else self._blocks[number]

    def drop(self, number: int) -> None:
        """Release a block."""
        if number >= 0:
            del self._blocks[number]

    def clear(self) -> None:
        """Release all blocks."""
        self._blocks.clear()
        self._held.clear()

    def __len__(self) -> int:
        return len(self._blocks)


RecomputeRows: TypeAlias = Callable[[Restart, int, ObjectLostError], pa.Table]
"""(restart, number of rows, cause) -> the first rows from the restart on."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OutputBlock:
    """Rows delivered by an execution."""

    num_rows: int
    size_bytes: int
    restart: Restart
    """Point from which an execution delivers the output from this block on; `restart.index` is the
    number of the first row.
    """
    _stored: StoredBlock = field(repr=False)
    _start: int = field(repr=False)
    _recompute: RecomputeRows | None = field(default=None, repr=False)
    """Recomputes the rows if they are lost."""

    def table(self) -> pa.Table:
        """Return the rows, from the object store without a copy where the engine supports it.

        Rows lost with a node of a cluster are recomputed.

        Raises:
            ObjectLostError: The rows are lost and cannot be recomputed.
        """
        stored = self._stored
        try:
            table: pa.Table = (
                stored.table if stored.table is not None else api.get(stored.in_store())
            )
        except ObjectLostError as error:
            if self._recompute is None:
                raise
            return self._recompute(self.restart, self.num_rows, error)
        return table if self.num_rows == stored.rows else table.slice(self._start, self.num_rows)

    def reference(self) -> TableRef:
        """Return a reference to the rows; put them into the object store if necessary."""
        if self.num_rows == self._stored.rows:
            return self._stored.in_store()
        return api.put(blocks.compact(self.table()))


def to_held_block(output: OutputBlock, input_files: tuple[str, ...]) -> HeldBlock:
    """Return a delivered block as a held block in the object store."""
    return HeldBlock(
        value=output.reference(),
        num_rows=output.num_rows,
        size_bytes=output.size_bytes,
        schema=output.table().schema,
        input_files=input_files,
    )


def held_block_of(table: pa.Table, *, in_store: bool = False) -> HeldBlock:
    """Return a held block for a table of this process, or for a copy of it in the object store."""
    return HeldBlock(
        value=api.put(blocks.compact(table)) if in_store else table,
        num_rows=table.num_rows,
        size_bytes=blocks.size_bytes(table),
        schema=table.schema,
    )


def table_of(block: HeldBlock) -> pa.Table:
    """Return the rows of a held block; memory-mapped where the engine supports it."""
    return api.get(block.value) if isinstance(block.value, ObjectRef) else block.value


def reference_to(block: HeldBlock) -> TableRef:
    """Return a reference to the rows of a held block."""
    return (
        block.value if isinstance(block.value, ObjectRef) else api.put(blocks.compact(block.value))
    )


def split_before(held: Sequence[HeldBlock], indices: Iterable[int]) -> list[tuple[HeldBlock, ...]]:
    """Split blocks before the rows with the given indices, which are in ascending order.

    Indices past the end yield empty parts. Only blocks that contain an index are fetched. An empty
    part is one empty block, so that the schema is known.
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
    held = held_block_of(piece, in_store=isinstance(block.value, ObjectRef) and start < stop)
    return replace(held, schema=block.schema, input_files=block.input_files)
