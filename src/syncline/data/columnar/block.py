"""Blocks: the pieces of a dataset. A block is a `pyarrow.Table`; this file converts rows and
batches to blocks and back.

Covered: rows (dicts of plain Python values), batches (dict of ndarrays, DataFrame, table),
concatenation, selection of rows, sizes, and `BlockAccessor`, which custom sinks use. Not covered:
single columns (`columns`), tensors and objects (`tensors`), type promotion (`schemas`), pandas
(`frames`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from syncline.data.columnar import columns, frames, schemas

if TYPE_CHECKING:
    import pandas as pd

    Batch: TypeAlias = Mapping[str, Any] | pd.DataFrame | pa.Table

Block: TypeAlias = pa.Table
Row: TypeAlias = dict[str, Any]
"""A row: plain Python values and ndarrays by column name."""
AnyBatch: TypeAlias = Any
"""A batch whose format is chosen at run time."""
RowMaker: TypeAlias = Callable[[list[list[object]]], list[Row]]
BatchFormat: TypeAlias = Literal["default", "numpy", "pandas", "pyarrow"] | None

# Rows are converted to Python values in slices, so that a reader of the first rows does not pay
# for all of them.
_ROWS_AT_ONCE = 1024
# Rows with more columns are built in a loop.
_MOST_WRITTEN_OUT = 64
# Chunks that are smaller on average are combined when blocks are concatenated: each chunk costs
# several µs at every access.
_SMALL_CHUNK_BYTES = 256 * 1024
# Blocks below this size are combined into one chunk before rows are taken from them.
_COMBINE_BELOW_BYTES = 256 * 1024 * 1024


def from_rows(rows: Sequence[Mapping[str, object]], *, first_row: int = 0) -> Block:
    """Build a block from dicts. Missing keys become null; int and float in one column become float.

    Raises:
        TypeError: Values of one column do not share a type; the text names the column, the rows
            (counted from `first_row`) and both types.
    """
    if not rows:
        return pa.table({})
    names = list(rows[0])
    try:
        values = {name: [row[name] for row in rows] for name in names}
        uneven = set(map(len, rows)) != {len(names)}
    except KeyError:
        uneven = True
    if uneven:
        every = dict.fromkeys(name for row in rows for name in row)
        values = {name: [row.get(name) for row in rows] for name in every}
    arrays = {
        name: columns.from_values(name, column, first_row=first_row)
        for name, column in values.items()
    }
    return from_columns(arrays, len(rows))


def from_row_stream(
    rows: Iterable[Mapping[str, object]], schema: pa.Schema | None, *, rows_per_block: int
) -> Iterator[Block]:
    """Yield blocks of up to `rows_per_block` rows, in the types of a schema; without one, each
    block is built by `from_rows`.
    """
    rows = iter(rows)
    first = 0
    while found := list(islice(rows, rows_per_block)):
        if schema is None:
            yield from_rows(found, first_row=first)
        else:
            yield pa.Table.from_pylist(found, schema)
        first += len(found)


def from_batch(batch: Batch) -> Block:
    """Build a block from the result of a batch function: a mapping of columns, a DataFrame or a
    table.

    Columns are ndarrays `(rows, ...)`, lists, Series or Arrow arrays.

    Raises:
        ValueError: `batch` is of another type, or its columns differ in length.
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
            f"a batch is a dict of columns, a pandas.DataFrame or a pyarrow.Table, "
            f"but this one is {described(batch)}: give the values a name, "
            "for example {'data': values}"
        )
    arrays = {name: to_column(name, value) for name, value in batch.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r}: {length}" for name, length in lengths.items())
        raise ValueError(
            f"the columns of a batch must be equally long, but have these numbers of rows: {listed}"
        )
    return from_columns(arrays, next(iter(lengths.values()), 0))


def rows(block: Block) -> Iterator[Row]:
    """Yield the rows as dicts of plain Python values; tensors are ndarrays, nulls None."""
    if not block.num_columns:
        yield from row_list(block)  # a slice without columns loses its number of rows
        return
    for start in range(0, block.num_rows, _ROWS_AT_ONCE):
        yield from row_list(block.slice(start, _ROWS_AT_ONCE))


def row_list(block: Block) -> list[Row]:
    """Return the rows of `rows` as a list."""
    if not block.num_columns:
        return [{} for _ in range(block.num_rows)]
    values = [columns.values_of(column) for column in block.columns]
    if len(values) > _MOST_WRITTEN_OUT:
        return [
            dict(zip(block.column_names, row, strict=True)) for row in zip(*values, strict=True)
        ]
    return _row_maker(tuple(block.column_names))(values)


def to_batch(
    block: Block, batch_format: BatchFormat = "default", *, writable: bool = False
) -> AnyBatch:
    """Convert a block to a batch.

    "default" and "numpy" give a dict of ndarrays `(rows,)` or `(rows, *shape)`, read-only views if
    the layout allows, writable copies with `writable`. "pandas" gives a DataFrame; "pyarrow" and
    None give the table itself.
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


def check_batch_format(batch_format: object) -> None:
    """Raise ValueError for an unknown batch format."""
    if batch_format not in ("default", "numpy", "pandas", "pyarrow", None):
        raise ValueError(
            f"batch_format={batch_format!r} is not known: "
            "choose 'default', 'numpy', 'pandas', 'pyarrow' or None"
        )


def concat(blocks: Sequence[Block]) -> Block:
    """Concatenate blocks. Small blocks end in one chunk; large blocks of equal types are not
    copied.

    Differing types are promoted, missing columns become null, differing tensor shapes become
    ragged.

    Raises:
        SchemaMismatchError: Types that cannot be promoted to one.
    """
    if len(blocks) == 1:
        return blocks[0]
    if not blocks:
        return pa.table({})
    first = blocks[0].schema
    if not all(block.schema.equals(first) for block in blocks):
        schema = schemas.unify(block.schema for block in blocks)
        # A block without columns and rows has no schema; one with columns but no rows counts.
        blocks = [
            schemas.conform(block, schema)
            for block in blocks
            if block.num_columns or block.num_rows
        ]
    whole = pa.concat_tables(blocks)
    if not whole.num_columns:
        return from_columns(
            {}, sum(block.num_rows for block in blocks)
        )  # Arrow would drop the number of rows
    return whole.combine_chunks() if whole.nbytes < _SMALL_CHUNK_BYTES * len(blocks) else whole


def take(block: Block, indices: np.ndarray | pa.Array | Sequence[int]) -> Block:
    """Return the rows at `indices`, in that order, in one chunk per column."""
    if not isinstance(indices, pa.Array):
        indices = pa.array(np.asarray(indices, dtype=np.int64))
    # Arrow's take is quadratic in the number of chunks for some types, and never faster on many.
    return _combined(block).take(indices)


def compact(block: Block) -> Block:
    """Copy the rows into memory of their own, one chunk per column, so that a small slice does not
    keep (or send) the whole table.
    """
    if block.get_total_buffer_size() <= 1.1 * block.nbytes + 4096:
        return _combined(block)
    return (
        block.take(pa.array(np.arange(block.num_rows, dtype=np.int64)))
        if block.num_columns
        else block
    )


def size_bytes(block: Block) -> int:
    """Return the bytes of the rows; for a slice only its own rows."""
    size: int = block.nbytes
    return size


def empty(schema: pa.Schema) -> Block:
    """Return a block without rows."""
    return pa.table({field.name: schemas.nulls(0, field.type) for field in schema}, schema=schema)


@functools.lru_cache(maxsize=256)
def _row_maker(names: tuple[str, ...]) -> RowMaker:
    """Return a function from one list of values per column to one dict per row. Generated code
    takes half the time of a loop.
    """
    values = [f"value_{number}" for number in range(len(names))]
    pairs = ", ".join(f"{name!r}: {value}" for name, value in zip(names, values, strict=True))
    maker: RowMaker = eval(
        f"lambda columns: [{{{pairs}}} for {', '.join(values)}, in zip(*columns)]"
    )
    return maker


def _combined(block: Block) -> Block:
    if all(column.num_chunks <= 1 for column in block.columns):
        return block
    return block.combine_chunks() if block.nbytes < _COMBINE_BELOW_BYTES else block


def to_column(name: str, value: columns.Scalar) -> pa.Array | pa.ChunkedArray:
    """Convert an ndarray `(rows, ...)`, list, Series or Arrow array to an Arrow column. Raise
    ValueError for other types.
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
        f"column {name!r} of the batch is {described(value)}, "
        "not an array or list with one entry per row"
    )


def from_columns(arrays: Mapping[str, pa.Array | pa.ChunkedArray], num_rows: int) -> Block:
    """Build a block from Arrow columns of `num_rows` rows; a block without columns keeps its number
    of rows.
    """
    for name in arrays:
        if not isinstance(name, str):
            raise TypeError(
                f"column names are strings, but one is {name!r} of type {type(name).__name__}: "
                f"use str({name!r})"
            )
    # A table that is created without columns has no rows.
    return pa.table(dict(arrays)) if arrays else pa.table({"": pa.nulls(num_rows)}).select([])


def add_column(
    name: str, function: Callable[[AnyBatch], columns.Scalar], batch: AnyBatch
) -> AnyBatch:
    """Return a batch with the column that `function` computes from it; `batch` stays unchanged."""
    values = function(batch)
    if isinstance(batch, pa.Table):
        added = to_column(name, values)
        index = batch.schema.get_field_index(name)
        if index < 0:
            return batch.append_column(name, added)
        return batch.set_column(index, name, added)
    if frames.is_frame(batch):
        # Assigned by position: a new Series has its own index.
        return batch.assign(
            **{name: values.set_axis(batch.index) if frames.is_series(values) else values}
        )
    return {**batch, name: values}


def _check_unique(names: list[str]) -> None:
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(
            f"the table has several columns named {', '.join(map(repr, twice))}: "
            "rename them, since column names must be unique"
        )


def _writable(array: np.ndarray) -> np.ndarray:
    return array if array.flags.writeable else array.copy()


def described(value: object) -> str:
    """Return the type and the shortened repr of a value, for error messages."""
    text = repr(value)
    return f"{type(value).__name__} ({text if len(text) <= 60 else text[:57] + '...'})"


class BlockAccessor:
    """One block in any format, for custom sinks. `for_block` takes a table, a DataFrame or a
    mapping of columns.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    @staticmethod
    def for_block(block: Batch) -> BlockAccessor:
        """Return an accessor for any batch."""
        return BlockAccessor(from_batch(block))

    def to_arrow(self) -> pa.Table:
        """Return the block."""
        return self._table

    def to_block(self) -> pa.Table:
        """Return the block."""
        return self._table

    def to_pandas(self) -> pd.DataFrame:
        """Return a DataFrame."""
        frame: pd.DataFrame = to_batch(self._table, "pandas")
        return frame

    def to_numpy(
        self, columns: str | Sequence[str] | None = None
    ) -> np.ndarray | dict[str, np.ndarray]:
        """Return one column as an array `(rows, ...)`, or several (None for all) as a dict of
        arrays.
        """
        if isinstance(columns, str):
            array: np.ndarray = to_batch(self._table.select([columns]), "numpy")[columns]
            return array
        chosen = self._table if columns is None else self._table.select(list(columns))
        arrays: dict[str, np.ndarray] = to_batch(chosen, "numpy")
        return arrays

    def to_batch_format(self, batch_format: BatchFormat) -> AnyBatch:
        """Return the block as a batch of the given format."""
        return to_batch(self._table, batch_format)

    def iter_rows(self, public_row_format: bool = True) -> Iterator[Row]:
        """Yield the rows as dicts."""
        return rows(self._table)

    def slice(self, start: int, end: int, copy: bool = False) -> pa.Table:
        """Return the rows from `start` up to `end`."""
        piece = self._table.slice(start, max(0, end - start))
        return compact(piece) if copy else piece

    def num_rows(self) -> int:
        """Return the number of rows."""
        return int(self._table.num_rows)

    def size_bytes(self) -> int:
        """Return the bytes of the rows."""
        return size_bytes(self._table)

    def schema(self) -> pa.Schema:
        """Return the Arrow schema."""
        return self._table.schema

    def column_names(self) -> list[str]:
        """Return the names of the columns."""
        return list(self._table.column_names)
