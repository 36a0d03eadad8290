"""Key columns: the check that a column can be compared, the plain Arrow form in which kernels
compare it, and row hashes.

A row hash has 64 bits. It is the same in every process, and equal for equal values of different
types: blocks of one dataset may hold a column as int32, int64 or float, strings small or large,
times in various units, and rows of equal keys must go to one partition. Integers are mixed with the
finalizer of SplitMix64 (Steele, Lea, Flood 2014), strings eight bytes at a time. Not for secrets.

Not covered: lists, structs, tensors and objects, which have no order and no hash in Arrow; they
raise TypeError.
"""

from __future__ import annotations

import decimal
import hashlib
from collections.abc import Sequence
from typing import Literal

import numpy as np
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
# By name, since older versions of Arrow lack these types.
_VIEWS = {"string_view": pa.large_string(), "binary_view": pa.large_binary()}


def names_of(keys: str | Sequence[str]) -> list[str]:
    """Return key names as a list."""
    return [keys] if isinstance(keys, str) else list(keys)


def plain_type(type_: pa.DataType) -> pa.DataType | None:
    """Return the type in which values are compared: their own for numbers, strings and times, the
    values' type for dictionaries, None for others.
    """
    if pa.types.is_dictionary(type_):
        return plain_type(type_.value_type)
    if any(check(type_) for check in _PLAIN):
        return type_
    return _VIEWS.get(str(type_))


def key_table(table: pa.Table, names: Sequence[str], purpose: Purpose) -> pa.Table:
    """Return the key columns in comparable form. Raise TypeError for other columns."""
    schemas.require_columns(names, table.column_names)
    return pa.table({name: plain(name, table.column(name), purpose) for name in names})


def plain(name: str, column: pa.ChunkedArray, purpose: Purpose) -> pa.ChunkedArray:
    """Return one column in comparable form."""
    type_ = plain_type(column.type)
    if type_ is None:
        raise TypeError(
            f"cannot {purpose} column {name!r} of type {column.type}: keys are numbers, "
            "booleans, strings, "
            "bytes, dates and times; add a column with such values and use it"
        )
    return column if column.type == type_ else column.cast(type_)


def same_floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return floats with one zero and one NaN, so that equal values have equal bits; other columns
    unchanged.
    """
    if not (pa.types.is_float32(column.type) or pa.types.is_float64(column.type)):
        return column
    nan: pa.Scalar = pa.scalar(float("nan"), column.type)
    unsigned = pc.add(column, pa.scalar(0.0, column.type))
    return (
        pc.if_else(pc.is_nan(unsigned), nan, unsigned)
        if pc.any(pc.is_nan(unsigned)).as_py()
        else unsigned
    )


# -- hashes

_NULL_HASH = np.uint64(0x9E3779B97F4A7C15)
_COMBINE = np.uint64(0x9FB21C651E98DF25)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_WORD = 8
# Longer strings are hashed one by one: word by word they would need many passes over few rows.
_LONGEST_IN_WORDS = 128
_MICROSECONDS = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}


def row_hashes(table: pa.Table, names: list[str]) -> np.ndarray:
    """Return hashes of the rows by the named columns: uint64 `(rows,)`. Raise TypeError for a
    column that cannot be a key.
    """
    columns = key_table(table, names, "partition by")
    hashes = np.zeros(table.num_rows, np.uint64)
    for column in columns.columns:
        hashes = _mixed(hashes * _COMBINE + _column_hashes(column.combine_chunks()))
    return hashes


def _column_hashes(array: pa.Array) -> np.ndarray:
    if pa.types.is_null(array.type):
        return np.full(len(array), _NULL_HASH)
    hashes = _value_hashes(array)
    if array.null_count:
        hashes[array.is_null().to_numpy(zero_copy_only=False)] = _NULL_HASH
    return hashes


def _value_hashes(array: pa.Array) -> np.ndarray:
    """Return hashes of values; those of nulls are undefined."""
    type_ = array.type
    if pa.types.is_boolean(type_):
        return _mixed(array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint64))
    if pa.types.is_integer(type_):
        return _mixed(_numbers(array, 0).astype(np.int64, copy=False).view(np.uint64))
    if pa.types.is_floating(type_):
        return _float_hashes(_numbers(array, 0.0).astype(np.float64, copy=False))
    if pa.types.is_decimal(type_):
        return _decimal_hashes(array)
    if pa.types.is_temporal(type_):
        return _mixed(_microseconds(array).view(np.uint64))
    return _bytes_hashes(array.cast(pa.large_binary()))


def _numbers(array: pa.Array, filler: float) -> np.ndarray:
    filled = array.fill_null(pa.scalar(filler, array.type)) if array.null_count else array
    numbers: np.ndarray = filled.to_numpy(zero_copy_only=False)
    return numbers


def _float_hashes(values: np.ndarray) -> np.ndarray:
    """Hash floats; whole floats like the integers that they equal."""
    whole = (np.abs(values) < 2.0**63) & (np.floor(values) == values)
    bits = np.where(np.isnan(values), np.nan, values).view(np.uint64)
    integers = np.where(whole, values, 0.0).astype(np.int64).view(np.uint64)
    return _mixed(np.where(whole, integers, bits))


def _decimal_hashes(array: pa.Array) -> np.ndarray:
    """Hash decimals like the integer or float that they equal, whatever their scale; each distinct
    value once.
    """
    encoded = array.dictionary_encode()
    values = [
        decimal.Decimal(0) if value is None else value for value in encoded.dictionary.to_pylist()
    ]
    distinct: np.ndarray = np.array(
        [_decimal_hash(value) for value in values or [decimal.Decimal(0)]], dtype=np.uint64
    )
    hashes: np.ndarray = distinct[_numbers(encoded.indices, 0)]
    return hashes


def _decimal_hash(value: decimal.Decimal) -> int:
    whole = int(value)
    if value == whole and -(2**63) <= whole < 2**63:
        return int(_mixed(np.array([whole], np.int64).view(np.uint64))[0])
    return int(_float_hashes(np.array([float(value)]))[0])


def _microseconds(array: pa.Array) -> np.ndarray:
    """Return dates, times and durations on one scale."""
    if pa.types.is_date(array.type):
        array = array.cast(pa.timestamp("ms"))
    factor, divisor = _MICROSECONDS[array.type.unit]
    counts = _numbers(
        array.view(pa.int32() if array.type.bit_width == 32 else pa.int64()), 0
    ).astype(np.int64)
    return counts * factor // divisor


def _bytes_hashes(array: pa.LargeBinaryArray) -> np.ndarray:
    """Hash byte strings, eight bytes of every row at a time."""
    offsets = (
        np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
        if len(array)
        else np.zeros(1, np.int64)
    )
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = _mixed(lengths.astype(np.uint64))
    if not len(array) or offsets[-1] == offsets[0]:
        return hashes
    content = np.frombuffer(array.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    starts = starts - offsets[0]
    padded = np.concatenate([content, np.zeros(_WORD, np.uint8)])
    # A word starts at every byte, so that indexing finds a row's words wherever the row starts.
    words: np.ndarray = np.ndarray((len(content) + 1,), "<u8", padded, strides=(1,))
    rows = np.flatnonzero((lengths > 0) & (lengths <= _LONGEST_IN_WORDS))
    done = 0
    while len(rows):
        word = words[starts[rows] + done]
        missing = np.maximum(done + _WORD - lengths[rows], 0).astype(np.uint64) * np.uint64(8)
        word = (word << missing) >> missing
        hashes[rows] = _mixed(hashes[rows] * _COMBINE + word)
        done += _WORD
        rows = rows[lengths[rows] > done]
    for row in np.flatnonzero(lengths > _LONGEST_IN_WORDS).tolist():
        digest = hashlib.blake2b(
            content[starts[row] : starts[row] + lengths[row]].tobytes(), digest_size=8
        ).digest()
        hashes[row] = np.uint64(int.from_bytes(digest, "little"))
    return hashes


def _mixed(values: np.ndarray) -> np.ndarray:
    """Apply the finalizer of SplitMix64: each input bit changes about half of the output bits."""
    values = values + _NULL_HASH
    values ^= values >> np.uint64(30)
    values *= _FIRST
    values ^= values >> np.uint64(27)
    values *= _SECOND
    values ^= values >> np.uint64(31)
    return values
