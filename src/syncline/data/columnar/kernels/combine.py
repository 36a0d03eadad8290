"""Tables side by side, rows in random order, rows without repeats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar.kernels import group, partition
from syncline.data.columnar.kernels import keys as key_columns


def zip_tables(left: pa.Table, right: pa.Table) -> pa.Table:
    """The columns of both; a column of the right whose name is taken gets `_1`, or the next number
    that is free.

    ValueError where they have different numbers of rows.
    """
    if left.num_rows != right.num_rows:
        raise ValueError(
            f"zip puts tables of equally many rows side by side, but these have {left.num_rows} and {right.num_rows} rows"
        )
    columns = dict(zip(left.column_names, left.columns, strict=True))
    for name, column in zip(right.column_names, right.columns, strict=True):
        columns[free_name(name, columns)] = column
    return blocks.from_columns(columns, left.num_rows)


def free_name(name: str, taken: Sequence[str] | dict[str, pa.ChunkedArray], first: int = 1) -> str:
    """The name, or with the first suffix `_1`, `_2`, … that makes it one that is not taken."""
    number, free = first, name
    while free in taken:
        free = f"{name}_{number}"
        number += 1
    return free


def permute(table: pa.Table, seed: int | Sequence[int]) -> pa.Table:
    """The rows in random order, the same for the same seed in every process and version."""
    if not table.num_columns:
        return table
    return blocks.take(
        table, partition.random_state(seed).permutation(table.num_rows).astype(np.int64, copy=False)
    )


def distinct(table: pa.Table, keys: str | Sequence[str] | None = None) -> pa.Table:
    """The first row of each combination of the keys' values, in the order of the rows; all columns
    are keys if None.
    """
    names = table.column_names if keys is None else key_columns.names_of(keys)
    if not names:
        return table
    rows = pa.chunked_array([pa.array(np.arange(table.num_rows))])
    _, (first,) = group.measure(table, names, [(rows, "min", None)], with_rows=False)
    return blocks.take(table, np.sort(first.to_numpy()))
