"""Blocks: the pieces of a dataset. A block is a `pyarrow.Table`; this file turns rows and batches
into blocks and back.

Covered: rows (dicts of plain Python values), batches (dict of ndarrays, DataFrame, table), putting
blocks together, taking rows, sizes. One column at a time: `columns`; tensors and objects:
`tensors`; types that have to meet: `schemas`; pandas: `frames`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from syncline.data.columnar import columns, frames, schemas
from syncline.data.columnar.schemas import SchemaMismatchError

if TYPE_CHECKING:
    import pandas as pd

    Batch: TypeAlias = Mapping[str, Any] | pd.DataFrame | pa.Table

Block: TypeAlias = pa.Table
BatchFormat: TypeAlias = Literal["default", "numpy", "pandas", "pyarrow"] | None

__all__ = [
    "BatchFormat",
    "Block",
    "SchemaMismatchError",
    "check_batch_format",
    "compact",
    "concat",
    "described",
    "empty",
    "from_batch",
    "from_columns",
    "from_rows",
    "row_list",
    "rows",
    "size_bytes",
    "take",
    "to_batch",
    "to_column",
]

# Ray's programs import these from here too; they build on this module, so they load when they are
# used.
_ELSEWHERE = {
    "BlockAccessor": "syncline.data.columnar.accessor",
    "BlockMetadata": "syncline.data.io.sources.datasource",
}

# Rows are turned into Python values in pieces, so that looking at the first ones does not convert
# them all.
_ROWS_AT_ONCE = 1024
# Rows of more columns are made by a loop.
_MOST_WRITTEN_OUT = 64
# Chunks that are smaller on average are copied into one when blocks are put together: each chunk
# costs several µs at every access.
_SMALL_CHUNK_BYTES = 256 * 1024
# Blocks below this size become one chunk before rows are taken from them; larger ones stay as they
# are.
_COMBINE_BELOW_BYTES = 256 * 1024 * 1024


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def from_rows(rows: Sequence[Mapping[str, Any]], *, first_row: int = 0) -> Block:
    """A block from dicts. Keys that a row lacks are null; int and float together become float.

    TypeError names the column, the rows (counted from `first_row`) and both types where values do
    not fit together.
    """
    if not rows:
        return pa.table({})
    names = list(rows[0])
    try:
        values = {name: [row[name] for row in rows] for name in names}
    except KeyError:
        return _from_uneven_rows(rows, first_row)
    if set(map(len, rows)) != {len(names)}:
        return _from_uneven_rows(rows, first_row)
    return from_columns(
        {
            name: columns.from_values(name, column, first_row=first_row)
            for name, column in values.items()
        },
        len(rows),
    )


def from_batch(batch: Batch) -> Block:
    """A block from what a function on batches may return: a mapping of columns, a DataFrame or a
    table.

    Columns are ndarrays `(rows, ...)`, lists, Series or Arrow arrays. ValueError for anything else,
    and for columns of unequal lengths.
    """
    if isinstance(batch, pa.Table):
        _check_unique(batch.column_names)
        return batch
    if isinstance(batch, pa.RecordBatch):
        return from_batch(pa.Table.from_batches([batch]))
    if frames.is_frame(batch):
        return frames.from_frame(batch)
    if not isinstance(batch, Mapping):
        raise ValueError(
            f"a batch is a dict of columns, a pandas.DataFrame or a pyarrow.Table, but this one is {described(batch)}: "
            "give the values a name, for example {'data': values}"
        )
    arrays = {name: to_column(name, value) for name, value in batch.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r}: {length}" for name, length in lengths.items())
        raise ValueError(
            f"the columns of a batch must be equally long, but have these numbers of rows: {listed}"
        )
    return from_columns(arrays, next(iter(lengths.values()), 0))


def rows(block: Block) -> Iterator[dict[str, Any]]:
    """The rows as dicts of plain Python values; tensors are ndarrays, nulls None."""
    if not block.num_columns:
        yield from row_list(block)  # a slice of no columns would not know its rows
        return
    for start in range(0, block.num_rows, _ROWS_AT_ONCE):
        yield from row_list(block.slice(start, _ROWS_AT_ONCE))


def row_list(block: Block) -> list[dict[str, Any]]:
    """What `rows` gives, all at once."""
    if not block.num_columns:
        return [{} for _ in range(block.num_rows)]
    values = [
        [value for chunk in column.chunks for value in columns.to_pylist(chunk)]
        for column in block.columns
    ]
    if len(values) > _MOST_WRITTEN_OUT:
        return [
            dict(zip(block.column_names, row, strict=True)) for row in zip(*values, strict=True)
        ]
    return _row_maker(tuple(block.column_names))(values)


def to_batch(block: Block, batch_format: BatchFormat = "default", *, writable: bool = False) -> Any:
    """The block as the batch that a function asks for.

    "default" and "numpy": a dict of ndarrays, `(rows,)` or `(rows, *shape)`, read-only views where
    the layout allows; with `writable` every array may be changed. "pandas": a DataFrame. "pyarrow"
    and None: the table itself.
    """
    check_batch_format(batch_format)
    if batch_format in ("pyarrow", None):
        return block
    if batch_format == "pandas":
        frame = frames.to_frame(block)
        return frame.copy() if writable else frame
    arrays = {
        name: columns.to_numpy(column)
        for name, column in zip(block.column_names, block.columns, strict=True)
    }
    return {name: _writable(array) for name, array in arrays.items()} if writable else arrays


def check_batch_format(batch_format: Any) -> None:
    """ValueError for a format that batches cannot have."""
    if batch_format not in ("default", "numpy", "pandas", "pyarrow", None):
        raise ValueError(
            f"batch_format={batch_format!r} is not known: choose 'default', 'numpy', 'pandas', 'pyarrow' or None"
        )


def concat(blocks: Sequence[Block]) -> Block:
    """The blocks' rows, one block after the other; small ones end in one chunk, large ones are not
    copied where types agree.

    Types that differ are widened, missing columns are null, differing tensor shapes become ragged;
    SchemaMismatchError otherwise.
    """
    if len(blocks) == 1:
        return blocks[0]
    if not blocks:
        return pa.table({})
    first = blocks[0].schema
    if not all(block.schema.equals(first) for block in blocks):
        schema = schemas.unify(block.schema for block in blocks)
        # A block without columns and rows knows nothing of the schema; one without rows still has a
        # say in the types.
        blocks = [
            schemas.conform(block, schema)
            for block in blocks
            if block.num_columns or block.num_rows
        ]
    whole = pa.concat_tables(blocks)
    if not whole.num_columns:
        return from_columns(
            {}, sum(block.num_rows for block in blocks)
        )  # Arrow would forget the rows
    return whole.combine_chunks() if whole.nbytes < _SMALL_CHUNK_BYTES * len(blocks) else whole


def take(block: Block, indices: np.ndarray | pa.Array | Sequence[int]) -> Block:
    """The rows at `indices`, in that order, in one chunk per column."""
    if not isinstance(indices, pa.Array):
        indices = pa.array(np.asarray(indices, dtype=np.int64))
    # Arrow's take is quadratic in the chunks for some types, and never faster on many than on one.
    return _combined(block).take(indices)


def compact(block: Block) -> Block:
    """The same rows in memory of their own, one chunk per column: a small slice then no longer
    holds (or sends) all it was cut from.
    """
    if block.get_total_buffer_size() <= 1.1 * block.nbytes + 4096:
        return _combined(block)
    return (
        block.take(pa.array(np.arange(block.num_rows, dtype=np.int64)))
        if block.num_columns
        else block
    )


def size_bytes(block: Block) -> int:
    """Bytes of the block's rows; of a slice only its own."""
    size: int = block.nbytes
    return size


def empty(schema: pa.Schema) -> Block:
    """A block without rows."""
    return pa.table({field.name: schemas.nulls(0, field.type) for field in schema}, schema=schema)


@functools.lru_cache(maxsize=256)
def _row_maker(names: tuple[str, ...]) -> Callable[[list[list[Any]]], list[dict[str, Any]]]:
    """From one list of values per column to one dict per row. Code that is written out for the
    names takes half the time of a loop.
    """
    values = [f"value_{number}" for number in range(len(names))]
    pairs = ", ".join(f"{name!r}: {value}" for name, value in zip(names, values, strict=True))
    maker: Callable[[list[list[Any]]], list[dict[str, Any]]] = eval(
        f"lambda columns: [{{{pairs}}} for {', '.join(values)}, in zip(*columns)]"
    )
    return maker


def _combined(block: Block) -> Block:
    if all(column.num_chunks <= 1 for column in block.columns):
        return block
    return block.combine_chunks() if block.nbytes < _COMBINE_BELOW_BYTES else block


def _from_uneven_rows(rows: Sequence[Mapping[str, Any]], first_row: int) -> Block:
    names = dict.fromkeys(name for row in rows for name in row)
    values = {name: [row.get(name) for row in rows] for name in names}
    return from_columns(
        {
            name: columns.from_values(name, column, first_row=first_row)
            for name, column in values.items()
        },
        len(rows),
    )


def to_column(name: Any, value: Any) -> pa.Array | pa.ChunkedArray:
    """A column of Arrow from an ndarray `(rows, ...)`, list, Series or Arrow array. ValueError for
    anything else.
    """
    if isinstance(value, np.ndarray):
        return columns.from_array(name, value)
    if isinstance(value, pa.Array | pa.ChunkedArray):
        return value
    if frames.is_series(value):
        return frames.from_series(name, value)
    if hasattr(value, "__array__") and not isinstance(value, np.generic):
        return columns.from_array(name, np.asarray(value))
    if columns.is_column(value):
        return columns.from_values(name, value if isinstance(value, list) else list(value))
    raise ValueError(
        f"column {name!r} of the batch is {described(value)}, not an array or list with one entry per row"
    )


def from_columns(arrays: Mapping[Any, pa.Array | pa.ChunkedArray], num_rows: int) -> Block:
    """A block from Arrow columns of `num_rows` rows each; a block without columns keeps its number
    of rows.
    """
    for name in arrays:
        if not isinstance(name, str):
            raise TypeError(
                f"column names are strings, but one is {name!r} ({type(name).__name__}): use str({name!r})"
            )
    # A table made of no columns would forget how many rows it has.
    return pa.table(dict(arrays)) if arrays else pa.table({"": pa.nulls(num_rows)}).select([])


def _check_unique(names: list[str]) -> None:
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(
            f"the table has several columns named {', '.join(map(repr, twice))}: rename them, since columns are told apart by name"
        )


def _writable(array: np.ndarray) -> np.ndarray:
    return array if array.flags.writeable else array.copy()


def described(value: Any) -> str:
    """A value and its type, shortened, for messages about what a program gave or returned."""
    text = repr(value)
    return f"{type(value).__name__} ({text if len(text) <= 60 else text[:57] + '...'})"
