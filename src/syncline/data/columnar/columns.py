"""One column: Python values or an ndarray to an Arrow array, and back.

Covered: the Arrow type of a list of values, nulls, promotion of int and float, tensors, arbitrary
objects, and the error for values that do not share a type. Not covered: whole tables (`block`),
DataFrames (`frames`), promotion between two columns (`schemas`).
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from syncline.data.columnar import tensors

Scalar: TypeAlias = Any
"""A Python value of a row, or an ndarray."""
Values: TypeAlias = Sequence[Scalar]

# Names of Python types that may share a column. The first matching base decides: bool before int.
_KINDS: tuple[tuple[tuple[type, ...], str], ...] = (
    ((bool, np.bool_), "bool"),
    ((int, np.integer), "int"),
    ((float, np.floating), "float"),
    ((decimal.Decimal,), "decimal"),
    ((str,), "str"),
    ((bytes, bytearray), "bytes"),
    ((datetime.date, np.datetime64), "date"),
    ((datetime.time,), "time"),
    ((datetime.timedelta, np.timedelta64), "timedelta"),
    ((np.ndarray,), "tensor"),
    ((list, tuple, set, frozenset), "list"),
    ((dict,), "dict"),
)
# Kinds that may share a column because one can hold the values of the other.
_SHARED = ({"int", "float"}, {"int", "decimal"})
_OBJECT = "object"


def from_values(name: str, values: Values, *, first_row: int = 0) -> pa.Array:
    """Build a column from Python values, None for null.

    int and float together become float; ndarrays and objects with `__array__`, such as torch
    tensors, become tensors; other objects without an Arrow type are pickled.

    Raises:
        TypeError: The values do not share a type; the text names the column, the rows (counted from
            `first_row`) and the types.
    """
    types = set(map(type, values))
    types.discard(type(None))
    if any(map(_offers_array, types)):
        values = [np.asarray(value) if _offers_array(type(value)) else value for value in values]
        types = set(map(type, values)) - {type(None)}
    if np.ndarray in types:
        values = [
            value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value
            for value in values
        ]
        types = set(map(type, values)) - {type(None)}
    kinds = {_kind(kind) for kind in types}
    if _OBJECT in kinds:
        return _pickled(name, values)
    if len(kinds) > 1 and kinds not in _SHARED:
        raise TypeError(_mixture(name, values, first_row))
    if kinds == {"tensor"}:
        return _from_ndarrays(name, values)
    if types in ({np.datetime64}, {np.timedelta64}):
        (time,) = types
        return tensors.flat_array(
            np.array([time("NaT") if value is None else value for value in values])
        )
    return _infer(name, values, kinds)


def from_array(name: str, values: np.ndarray) -> pa.Array:
    """Build a column from an ndarray `(n,)`, or a tensor column from `(n, *shape)`; numbers in C
    order are not copied.
    """
    if values.ndim == 0:
        raise ValueError(
            f"column {name!r} is a single value ({values[()]!r}), not one value per row: "
            "return an array of shape (rows, ...)"
        )
    if isinstance(values, np.ma.MaskedArray) and values.ndim > 1:
        values = values.filled(np.nan)
    if not tensors.fits_arrow(values.dtype):
        return from_values(name, list(values))
    return tensors.flat_array(values) if values.ndim == 1 else tensors.tensor_array(values)


def to_numpy(column: pa.ChunkedArray) -> np.ndarray:
    """Convert a column to an ndarray `(n,)`, or for tensors `(n, *shape)`; a view if it is one
    chunk without nulls in numpy's layout.

    Integers with nulls become float64 with NaN; strings, bytes, lists and structs become objects;
    dates and times become numpy's own types.
    """
    if column.num_chunks == 1:
        return _chunk_to_numpy(column.chunk(0))
    if not isinstance(column.type, pa.BaseExtensionType) and not pa.types.is_struct(column.type):
        values: np.ndarray = column.to_numpy(zero_copy_only=False)
        return values
    parts = [_chunk_to_numpy(chunk) for chunk in column.chunks] or [
        _chunk_to_numpy(pa.array([], column.type))
    ]
    if any(part.dtype == object for part in parts) or len({part.shape[1:] for part in parts}) > 1:
        return tensors.objects_to_ndarray([row for part in parts for row in part])
    return np.concatenate(parts)


def is_list(type_: pa.DataType) -> bool:
    """Return True for list types, of fixed size or not."""
    return bool(
        pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_fixed_size_list(type_)
    )


def is_text(type_: pa.DataType) -> bool:
    """Return True for types of strings."""
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def values_of(column: pa.ChunkedArray) -> list[Scalar]:
    """Return `to_pylist` of all chunks of a column."""
    return [value for chunk in column.chunks for value in to_pylist(chunk)]


def to_pylist(array: pa.Array) -> list[Scalar]:
    """Return one Python value per row, ndarrays for tensors, None for null; several times faster
    than Arrow's `to_pylist`.
    """
    type_ = array.type
    if isinstance(
        type_, pa.FixedShapeTensorType | tensors.RaggedTensorType | tensors.PythonObjectType
    ):
        return tensors.to_rows(array)
    if pa.types.is_dictionary(type_):
        return to_pylist(array.dictionary_decode())
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_):
        filled = (
            array.fill_null(False if pa.types.is_boolean(type_) else 0)
            if array.null_count
            else array
        )
        return _with_nulls(filled.to_numpy(zero_copy_only=False).tolist(), array)
    if (
        pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
    ):
        strings: list[Scalar] = array.to_numpy(zero_copy_only=False).tolist()
        return strings
    if pa.types.is_struct(type_):
        fields = [to_pylist(array.field(index)) for index in range(type_.num_fields)]
        names = [field.name for field in type_]
        structs = (
            [dict(zip(names, row, strict=True)) for row in zip(*fields, strict=True)]
            if fields
            else [{} for _ in range(len(array))]
        )
        return _with_nulls(structs, array)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        bounds = array.offsets.to_numpy()
        flat = to_pylist(array.values.slice(bounds[0], bounds[-1] - bounds[0]))
        bounds = (bounds - bounds[0]).tolist()
        return _with_nulls(
            [flat[start:end] for start, end in zip(bounds, bounds[1:], strict=False)], array
        )
    values: list[Scalar] = array.to_pylist()
    return values


def _kind(type_: type) -> str:
    for bases, kind in _KINDS:
        if issubclass(type_, bases):
            return kind
    return _OBJECT


def _offers_array(type_: type) -> bool:
    return hasattr(type_, "__array__") and not issubclass(type_, np.ndarray | np.generic)


def _mixture(name: str, values: Values, first_row: int) -> str:
    """Return the error message for a column with values of several kinds."""
    seen: dict[str, int] = {}
    for row, value in enumerate(values):
        if value is not None:
            seen.setdefault(_kind(type(value)), row)
    others = iter(seen.values())
    first = next(others)
    second = next(
        row
        for row in others
        if {_kind(type(values[first])), _kind(type(values[row]))} not in _SHARED
    )
    return (
        f"column {name!r} has {_described(values[first])} in row {first_row + first} and "
        f"{_described(values[second])} in row {first_row + second}, but a column holds one type: "
        "convert the values to one type, or use None for missing values"
    )


def _described(value: object) -> str:
    noun, text = type(value).__name__, repr(value)
    article = "an" if noun[0] in "aeiou" else "a"
    return f"{article} {noun} ({text if len(text) <= 40 else text[:37] + '...'})"


def _infer(name: str, values: Values, kinds: set[str]) -> pa.Array:
    """Build a plain column. Values of one kind that Arrow cannot hold, such as lists of mixed
    elements, are pickled.
    """
    try:
        array = pa.array(values)
    except OverflowError:
        return _big_integers(name, values)
    except pa.ArrowInvalid:
        if kinds == {"int", "float"}:  # an integer beyond 2**53 beside floats
            return pa.array(
                [None if value is None else float(value) for value in values], pa.float64()
            )
        return _mixed_dates(values) if kinds == {"date"} else _pickled(name, values)
    except (pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return _mixed_dates(values) if kinds == {"date"} else _pickled(name, values)
    if pa.types.is_date(array.type) and any(
        isinstance(value, datetime.datetime) for value in values
    ):
        # Arrow takes the type of the first value and would drop the time of the others.
        return pa.array([_with_time(value) for value in values], pa.timestamp("us"))
    return _in_nanoseconds(array, values)


def _in_nanoseconds(array: pa.Array, values: Values) -> pa.Array:
    """Return times of pandas that count nanoseconds in this unit; Arrow counts microseconds."""
    if not pa.types.is_timestamp(array.type) and not pa.types.is_duration(array.type):
        return array
    if array.type.unit == "ns" or all(getattr(value, "unit", None) != "ns" for value in values):
        return array
    exact = (
        pa.timestamp("ns", array.type.tz)
        if pa.types.is_timestamp(array.type)
        else pa.duration("ns")
    )
    try:
        return pa.array(values, exact)
    except (pa.ArrowInvalid, OverflowError):  # a date of another unit is out of the range
        return array


def _mixed_dates(values: Values) -> pa.Array:
    """Build a column from Python's and numpy's dates, which Arrow does not accept together."""
    return tensors.flat_array(np.array(values, dtype="datetime64[us]"))


def _with_time(value: Scalar) -> Scalar:
    plain_date = isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)
    return datetime.datetime.combine(value, datetime.time()) if plain_date else value


def _big_integers(name: str, values: Values) -> pa.Array:
    try:
        return pa.array(values, pa.uint64())
    except (OverflowError, pa.ArrowInvalid, pa.ArrowTypeError):
        return _pickled(name, values)


def _from_ndarrays(name: str, values: Sequence[np.ndarray | None]) -> pa.Array:
    """Build a column of tensors of one shape, or a ragged one."""
    present = [value for value in values if value is not None]
    if all(value.dtype == object and value.ndim == 1 for value in present):
        # A column of lists in a numpy batch; it becomes lists again.
        return from_values(name, [None if value is None else value.tolist() for value in values])
    if not all(tensors.fits_arrow(dtype) for dtype in {value.dtype for value in present}):
        return _pickled(name, values)
    try:
        dtype = np.result_type(*{value.dtype for value in present})
    except TypeError:
        dtype = np.dtype(object)
    if not tensors.fits_arrow(dtype) or len({value.dtype.kind in "US" for value in present}) > 1:
        names = sorted({str(value.dtype) for value in present})
        raise TypeError(
            f"column {name!r} has arrays of dtypes {' and '.join(names)}, "
            "which no single dtype can hold: convert them to one dtype"
        )
    if len({value.shape for value in present}) > 1 or dtype.kind in "US":
        return tensors.ragged_array(values)
    missing = np.fromiter((value is None for value in values), dtype=bool, count=len(values))
    if not missing.any():
        # Stack into C order, which a tensor column needs: `stack` alone would keep the order of
        # transposed images and copy twice.
        return tensors.tensor_array(
            np.stack(present, out=np.empty((len(values), *present[0].shape), dtype))
        )
    stacked = np.zeros((len(values), *present[0].shape), dtype)
    stacked[~missing] = np.stack(present)
    return tensors.tensor_array(stacked, missing=missing)


def _pickled(name: str, values: Values) -> pa.ExtensionArray:
    try:
        return tensors.object_array(values)
    except Exception as error:
        kinds = sorted({type(value).__name__ for value in values if value is not None})
        raise TypeError(
            f"column {name!r} holds {', '.join(kinds)}, which has no Arrow type and cannot be "
            "pickled "
            f"({error}): return plain values, arrays or picklable objects"
        ) from error


def _chunk_to_numpy(chunk: pa.Array) -> np.ndarray:
    if isinstance(
        chunk.type, pa.FixedShapeTensorType | tensors.RaggedTensorType | tensors.PythonObjectType
    ):
        return tensors.to_ndarray(chunk)
    if isinstance(chunk.type, pa.BaseExtensionType):
        return _chunk_to_numpy(chunk.storage)
    if pa.types.is_dictionary(chunk.type):
        return _chunk_to_numpy(chunk.dictionary_decode())
    if pa.types.is_struct(chunk.type):
        return tensors.objects_to_ndarray(
            to_pylist(chunk)
        )  # Arrow's own dicts would have NaN for null
    values: np.ndarray = chunk.to_numpy(zero_copy_only=False)
    return values


def _with_nulls(values: list[Scalar], array: pa.Array) -> list[Scalar]:
    if array.null_count:
        for row in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
            values[row] = None
    return values


def is_column(value: Scalar) -> bool:
    """Return True for a value that can be a column of a batch: an array or a sequence with one
    entry per row.
    """
    return isinstance(value, np.ndarray | pa.Array | pa.ChunkedArray) or (
        hasattr(value, "__len__")
        and hasattr(value, "__getitem__")
        and not isinstance(value, str | bytes | bytearray | Mapping)
    )
