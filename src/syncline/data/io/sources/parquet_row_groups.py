"""Read row groups of one Parquet file with Parquet's own reader.

It takes half the CPU time of a scan by `pyarrow.dataset`: it decodes all columns before one
kernel filters them. Covered: files that hold every needed column, without dots in the names. Not
covered: constants of the path, other schemas, options of a scan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import fs as pyarrow_fs

from syncline.data.columnar.expressions import Expr, filter_rows

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile


def open_file(filesystem: pyarrow_fs.FileSystem, path: str) -> ParquetFile:
    """Open a file and read its footer. Reads of column chunks are combined to few large ones."""
    return import_module("pyarrow.parquet").ParquetFile(
        filesystem.open_input_file(path), pre_buffer=True
    )


def can_read(file: ParquetFile, columns: Sequence[str], predicate: Expr | None) -> bool:
    """Return True if `read` can read the columns and evaluate the predicate."""
    names = file.schema_arrow.names
    return (
        bool(columns)
        and set(needed(columns, predicate)) <= set(names)
        and len(set(names)) == len(names)
        # Parquet's reader takes a dot for a path to a nested column.
        and not any("." in name for name in names)
    )


def read(
    file: ParquetFile,
    row_groups: Sequence[int],
    columns: Sequence[str],
    predicate: Expr | None,
    *,
    batch_rows: int,
    use_threads: bool = False,
) -> Iterator[pa.Table]:
    """Yield the rows of some row groups for which the predicate is true; close the file at the end.

    Args:
        file: The file.
        row_groups: Indices of the row groups.
        columns: Columns of the tables, in this order.
        predicate: Condition on columns of the file; None for all rows.
        batch_rows: Most rows of a table before the filter.
        use_threads: Decode several columns in parallel.

    Raises:
        IndexError: The file has fewer row groups.
    """
    with file:
        if max(row_groups, default=-1) >= file.num_row_groups:
            raise IndexError(f"it has {file.num_row_groups} row groups")
        for batch in file.iter_batches(
            batch_rows,
            row_groups=list(row_groups),
            columns=needed(columns, predicate),
            use_threads=use_threads,
        ):
            table = pa.Table.from_batches([batch])
            if predicate is not None:
                table = filter_rows(table, predicate)
            yield table.select(list(columns))


def needed(columns: Sequence[str], predicate: Expr | None) -> list[str]:
    """Return the columns to read: those of the tables, then those of the predicate alone."""
    filtered = () if predicate is None else sorted(predicate.columns())
    return [*dict.fromkeys([*columns, *filtered])]
