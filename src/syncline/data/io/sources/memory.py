"""Rows that are in memory already: items, DataFrames, ndarrays, tables."""

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
    """Reads tables, one a task.

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
        """A task for each table, whatever `parallelism` is."""
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
        """Exact."""
        return sum(map(blocks.size_bytes, self._tables))

    def schema(self) -> pa.Schema | None:
        """The schema that holds all tables, None if there is none."""
        if not self._tables:
            return None
        unified = schemas.unify(table.schema for table in self._tables)
        return (
            unified
            if self._projection is None
            else pa.schema([unified.field(name) for name in self._projection])
        )

    def num_rows(self) -> int:
        """Exact."""
        return sum(table.num_rows for table in self._tables)

    def supports_projection_pushdown(self) -> bool:
        """Other columns do not travel."""
        return True

    def identity(self) -> str:
        """Of the tables' content."""
        sink = pa.BufferOutputStream()
        for table in self._tables:
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
        return digest("Memory", sink.getvalue().to_pybytes(), self._projection)


def _selected(table: pa.Table, columns: Sequence[str] | None) -> list[pa.Table]:
    return [table if columns is None else table.select(list(columns))]


def tables_from_items(items: Sequence[Any], num_blocks: int) -> list[pa.Table]:
    """At most `num_blocks` tables: mappings are rows, anything else is the value of a column
    `item`.
    """
    rows = [item if isinstance(item, Mapping) else {"item": item} for item in items]
    return [
        blocks.from_rows(rows[start:end], first_row=start)
        for start, end in slice_bounds(len(rows), num_blocks)
    ]


def tables_from_pandas(frames: Any) -> list[pa.Table]:
    """A table for each DataFrame; one or a list of them."""
    return [blocks.from_batch(frame) for frame in _listed(frames)]


def tables_from_numpy(arrays: np.ndarray | Sequence[np.ndarray]) -> list[pa.Table]:
    """A table with the column `data` for each array `(rows, ...)`; one or a list of them."""
    given = [arrays] if isinstance(arrays, np.ndarray) else list(arrays)
    return [blocks.from_batch({"data": np.asarray(array)}) for array in given]


def tables_from_arrow(tables: Any) -> list[pa.Table]:
    """The tables; one or a list of them. Bytes are tables in Arrow's IPC stream format."""
    return [
        pa.ipc.open_stream(table).read_all()
        if isinstance(table, bytes)
        else blocks.from_batch(table)
        for table in _listed(tables)
    ]


def split_tables(tables: Sequence[pa.Table], num_blocks: int) -> list[pa.Table]:
    """The same rows in the same order in `num_blocks` tables (fewer if there are fewer rows), cut
    without a copy.
    """
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
