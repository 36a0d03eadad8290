"""Key columns: the check that a column can be compared, and the plain Arrow form in which kernels
compare it.

Not covered: lists, structs, tensors and objects, which have no order and no hash in Arrow; they end
in a TypeError with the type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from syncline.data.columnar import schemas

Purpose = Literal["sort by", "group by", "partition by", "join on"]

_PLAIN = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_duration,
)
# By name, since older versions of Arrow have no such types.
_VIEWS = {"string_view": pa.large_string(), "binary_view": pa.large_binary()}


def names_of(keys: str | Sequence[str]) -> list[str]:
    """Key names as a list."""
    return [keys] if isinstance(keys, str) else list(keys)


def plain_type(type_: pa.DataType) -> pa.DataType | None:
    """The type in which values are compared: its own for numbers, strings and times; the values'
    for dictionaries; None for the rest.
    """
    if pa.types.is_dictionary(type_):
        return plain_type(type_.value_type)
    if any(check(type_) for check in _PLAIN):
        return type_
    return _VIEWS.get(str(type_))


def key_table(table: pa.Table, names: Sequence[str], purpose: Purpose) -> pa.Table:
    """The key columns alone, in the form in which they are compared. TypeError for a column that
    cannot be a key.
    """
    schemas.require_columns(names, table.column_names)
    return pa.table({name: plain(name, table.column(name), purpose) for name in names})


def plain(name: str, column: pa.ChunkedArray, purpose: Purpose) -> pa.ChunkedArray:
    """One column in the form in which it is compared."""
    type_ = plain_type(column.type)
    if type_ is None:
        raise TypeError(
            f"cannot {purpose} column {name!r} of type {column.type}: keys are numbers, booleans, strings, bytes, dates and times; "
            "add a column that holds such a value and use that one"
        )
    return column if column.type == type_ else column.cast(type_)


def same_floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats with one zero and one NaN, so that what is equal has equal bits; other columns as they
    are.
    """
    if not (pa.types.is_float32(column.type) or pa.types.is_float64(column.type)):
        return column
    nan: Any = pa.scalar(float("nan"), column.type)
    unsigned = pc.add(column, pa.scalar(0.0, column.type))
    return (
        pc.if_else(pc.is_nan(unsigned), nan, unsigned)
        if pc.any(pc.is_nan(unsigned)).as_py()
        else unsigned
    )
