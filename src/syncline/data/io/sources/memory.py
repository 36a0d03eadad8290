"""Read rows that are in memory: items, DataFrames, ndarrays, tables."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar import schemas
from syncline.data.io.sources.datasource import (
    BlockMetadata,
    Datasource,
    ReadTask,
    digest,
    slice_bounds,
)

if TYPE_CHECKING:
    from syncline.data.context import DataContext


class MemoryDatasource(Datasource):
    """Reads tables, one per task.

    Args:
        tables: The tables.
    """

    def __init__(self, tables: Iterable[pa.Table]) -> None:
        self._tables = [blocks.from_batch(table) for table in tables]

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """Return a task for each table; `parallelism` is ignored."""
        return [
            ReadTask(
                functools.partial(_selected, table, self._projection),
                BlockMetadata(table.num_rows, blocks.size_bytes(table)),
                table.schema
                if self._projection is None
                else table.select(list(self._projection)).schema,
                per_task_row_limit,
                fragment=f"table {index}",
            )
            for index, table in enumerate(self._tables)
        ]

    def estimate_inmemory_data_size(self) -> int:
        return sum(map(blocks.size_bytes, self._tables))

    def schema(self) -> pa.Schema | None:
        """Return the unified schema of all tables; None if there are no tables."""
        if not self._tables:
            return None
        unified = schemas.unify(table.schema for table in self._tables)
        return (
            unified
            if self._projection is None
            else pa.schema([unified.field(name) for name in self._projection])
        )

    def num_rows(self) -> int:
        return sum(table.num_rows for table in self._tables)

    def supports_projection_pushdown(self) -> bool:
        return True

    def identity(self) -> str:
        sink = pa.BufferOutputStream()
        for table in self._tables:
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
        return digest("Memory", sink.getvalue().to_pybytes(), self._projection)


def _selected(table: pa.Table, columns: Sequence[str] | None) -> list[pa.Table]:
    return [table if columns is None else table.select(list(columns))]


def tables_from_items(items: Sequence[Any], num_blocks: int) -> list[pa.Table]:
    """Convert items to at most `num_blocks` tables: mappings are rows, other items are values of
    the column `item`.
    """
    rows = [item if isinstance(item, Mapping) else {"item": item} for item in items]
    return [
        blocks.from_rows(rows[start:end], first_row=start)
        for start, end in slice_bounds(len(rows), num_blocks)
    ]


def tables_from_pandas(frames: object) -> list[pa.Table]:
    """Convert a DataFrame or a list of DataFrames to tables."""
    return [blocks.from_batch(frame) for frame in _listed(frames)]


def tables_from_numpy(arrays: np.ndarray | Sequence[np.ndarray]) -> list[pa.Table]:
    """Convert an array `(rows, ...)` or a list of arrays to tables with the column `data`."""
    given = [arrays] if isinstance(arrays, np.ndarray) else list(arrays)
    return [blocks.from_batch({"data": np.asarray(array)}) for array in given]


def tables_from_arrow(tables: object) -> list[pa.Table]:
    """Convert a table or a list of tables; bytes are tables in Arrow's IPC stream format."""
    return [
        pa.ipc.open_stream(table).read_all()
        if isinstance(table, bytes)
        else blocks.from_batch(table)
        for table in _listed(tables)
    ]


def split_tables(tables: Sequence[pa.Table], num_blocks: int) -> list[pa.Table]:
    """Split the rows into at most `num_blocks` tables in the same order, without copying."""
    rows = sum(table.num_rows for table in tables)
    return [
        blocks.concat(list(_between(tables, start, end)))
        for start, end in slice_bounds(rows, num_blocks)
    ]


def _between(tables: Sequence[pa.Table], start: int, end: int) -> Iterator[pa.Table]:
    first = 0
    for table in tables:
        low, high = max(start, first), min(end, first + table.num_rows)
        if low < high:
            yield table.slice(low - first, high - low)
        first += table.num_rows


def _listed(values: Any) -> list[Any]:
    return list(values) if isinstance(values, list | tuple) else [values]
