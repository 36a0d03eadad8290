"""Blocks that exist: made of what an execution delivers, fetched, and cut where a dataset is
split.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from syncline.core import api
from syncline.core.refs import ObjectRef
from syncline.data.columnar import block as blocks
from syncline.data.plan.nodes import HeldBlock

if TYPE_CHECKING:
    from syncline.data.execute.execution import OutputBlock


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
