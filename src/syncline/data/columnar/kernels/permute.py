"""Permutation of rows of a fixed size: each row is copied once, from its chunk to its new place.

Covered: numbers, times and tensors of one shape, without nulls. `blocks.take` does the same for
every type, but combines the chunks first, which is a second copy.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar import columns, tensors
from syncline.data.columnar.block import Block
from syncline.data.columnar.kernels.mapped_memory import populate


def can_permute(table: Block) -> bool:
    """Return True if `permuted` can move every column."""
    return bool(table.num_columns) and all(map(_has_fixed_rows, table.columns))


def permuted(table: Block, order: np.ndarray) -> Block:
    """Return the rows `order` of the table, in one chunk per column.

    Args:
        table: Table for which `can_permute` is true.
        order: A permutation of all rows, int64 `(rows,)`.
    """
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    moved = {
        name: _scattered(column, places)
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return blocks.from_columns(moved, table.num_rows)


def _has_fixed_rows(column: pa.ChunkedArray) -> bool:
    kind = column.type
    if isinstance(kind, pa.FixedShapeTensorType):
        fixed = kind.permutation is None and _is_number(kind.value_type)
    else:
        fixed = _is_number(kind) or pa.types.is_timestamp(kind) or pa.types.is_duration(kind)
    return fixed and column.num_chunks > 0 and not column.null_count


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _scattered(column: pa.ChunkedArray, places: np.ndarray) -> pa.Array:
    """Return the column with row `i` at `places[i]`."""
    parts = [columns.to_numpy(pa.chunked_array([chunk])) for chunk in column.chunks]
    shape, dtype = parts[0].shape[1:], parts[0].dtype
    # Arrow's pool reuses its memory, and the first access to new memory takes longer than the copy.
    memory = pa.allocate_buffer(len(column) * dtype.itemsize * math.prod(shape))
    rows = np.frombuffer(memory, dtype).reshape(len(column), *shape)
    first = 0
    for part in parts:
        populate(part)
        _rowwise(rows)[places[first : first + len(part)]] = _rowwise(part)
        first += len(part)
    if isinstance(column.type, pa.FixedShapeTensorType):
        return tensors.tensor_array(rows)
    return pa.array(rows, column.type)


def _rowwise(values: np.ndarray) -> np.ndarray:
    """Return a view `(rows,)` whose elements are whole rows, which numpy moves fastest."""
    if values.ndim == 1 or not values.size:
        return values
    row_bytes = values.itemsize * math.prod(values.shape[1:])
    return values.reshape(len(values), -1).view(f"V{row_bytes}")[:, 0]
