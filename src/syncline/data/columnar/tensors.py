"""ndarrays and arbitrary objects as Arrow columns, and back.

Covered: `(n, *shape)` arrays as Arrow's canonical fixed-shape tensors; arrays whose shapes differ
from row to row as `RaggedTensorType`; values without an Arrow type as `PythonObjectType`, which
holds pickles. Reads are zero-copy if the layout allows (fixed shapes without nulls, except bool,
which Arrow packs into bits; each row of a ragged column). Not covered: plain columns (`columns`)
and tables (`block`).

Unpickling runs code, so `PythonObjectType` is not registered with Arrow: such a column of a foreign
Parquet or Arrow file is read as plain binary. `restore_objects` restores the type in files that the
library wrote itself.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa

_EXTENSION_NAME = b"ARROW:extension:name"
# Kinds of dtypes that have an Arrow type: bool, int, uint, float, datetime, timedelta, str, bytes.
_ARROW_KINDS = frozenset("biufMmUS")
# Units of datetime64 that Arrow has; other units become seconds.
_TIME_UNITS = frozenset({"s", "ms", "us", "ns"})


class RaggedTensorScalar(pa.ExtensionScalar):  # type: ignore[misc]
    """One row of a ragged column."""

    def as_py(self, **_: object) -> np.ndarray | None:
        """Return the row as an ndarray with its original shape, or None for null."""
        if self.value is None:
            return None
        shape: list[int] = self.value["shape"].as_py()
        return _values_to_numpy(self.value["data"].values).reshape(shape)


class RaggedTensorType(pa.ExtensionType):  # type: ignore[misc]
    """Rows that are ndarrays of one dtype and any shapes, stored as the elements in C order and the
    shape.
    """

    def __init__(self, value_type: pa.DataType) -> None:
        self._value_type = value_type
        # 64-bit offsets, since columns of images often exceed 2 GiB.
        super().__init__(
            pa.struct([("data", pa.large_list(value_type)), ("shape", pa.list_(pa.int32()))]),
            "syncline.ragged_tensor",
        )

    @property
    def value_type(self) -> pa.DataType:
        """Arrow type of one element."""
        return self._value_type

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(
        cls, storage_type: pa.DataType, serialized: bytes
    ) -> RaggedTensorType:
        return cls(storage_type.field("data").type.value_type)

    def __arrow_ext_scalar_class__(self) -> type[RaggedTensorScalar]:
        return RaggedTensorScalar

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return f"ragged_tensor<{self._value_type}>"


class PythonObjectScalar(pa.ExtensionScalar):  # type: ignore[misc]
    """One pickled value."""

    def as_py(self, **_: object) -> Any:
        """Return the value, or None for null."""
        return None if self.value is None else pickle.loads(self.value.as_buffer())


class PythonObjectType(pa.ExtensionType):  # type: ignore[misc]
    """Values without an Arrow type, pickled."""

    def __init__(self) -> None:
        super().__init__(pa.large_binary(), "syncline.python_object")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(
        cls, storage_type: pa.DataType, serialized: bytes
    ) -> PythonObjectType:
        return cls()

    def __arrow_ext_scalar_class__(self) -> type[PythonObjectScalar]:
        return PythonObjectScalar

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return "python_object"


pa.register_extension_type(RaggedTensorType(pa.float64()))


def is_tensor(type_: pa.DataType) -> bool:
    """Return True if rows of this type are read as ndarrays."""
    return isinstance(type_, pa.FixedShapeTensorType | RaggedTensorType)


def fits_arrow(dtype: np.dtype) -> bool:
    """Return True if Arrow has a type for elements of this dtype; complex numbers, records and
    objects have none.
    """
    return dtype.kind in _ARROW_KINDS and (dtype.kind != "f" or dtype.itemsize <= 8)


def flat_array(values: np.ndarray) -> pa.Array:
    """Build a plain column from a one-dimensional array whose dtype `fits_arrow`; zero-copy if
    numpy's layout is Arrow's.
    """
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    if values.dtype.kind in "Mm":
        unit = np.datetime_data(values.dtype)[0]
        if unit not in _TIME_UNITS and not (values.dtype.kind == "M" and unit == "D"):
            values = values.astype(f"{values.dtype.kind}8[s]")
    return pa.array(values)


def tensor_array(values: np.ndarray, *, missing: np.ndarray | None = None) -> pa.ExtensionArray:
    """Build a column of `n` tensors from an array `(n, *shape)` with a dtype that `fits_arrow` and
    at least one dimension per row.

    `missing`, bool `(n,)`, marks null rows. C-contiguous numbers are not copied.
    """
    shape = values.shape[1:]
    flat = flat_array(np.ascontiguousarray(values).reshape(-1))
    validity = None if missing is None else pa.array(~missing).buffers()[1]
    storage_type = pa.list_(flat.type, math.prod(shape))
    storage = pa.Array.from_buffers(storage_type, len(values), [validity], children=[flat])
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(flat.type, shape), storage)


def ragged_array(values: Sequence[np.ndarray | None]) -> pa.ExtensionArray:
    """Build a column from arrays of any shapes, None for null; their dtypes are promoted to one,
    which must fit Arrow.
    """
    missing = np.fromiter((value is None for value in values), dtype=bool, count=len(values))
    present = [value for value in values if value is not None]
    flat = flat_array(
        np.concatenate([value.reshape(-1) for value in present]) if present else np.zeros(0)
    )
    sizes = [0 if value is None else value.size for value in values]
    ranks = [0 if value is None else value.ndim for value in values]
    extents = np.fromiter(
        (extent for value in present for extent in value.shape), dtype=np.int32, count=sum(ranks)
    )
    return _ragged(
        flat,
        np.cumsum([0, *sizes]),
        pa.array(extents),
        np.cumsum([0, *ranks]),
        missing if missing.any() else None,
    )


def storage_of(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of an extension type as Arrow stores it: tensors of one shape as lists."""
    return pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)


def as_ragged(array: pa.ExtensionArray, value_type: pa.DataType) -> pa.ExtensionArray:
    """Convert a tensor column to a ragged one with elements of `value_type`."""
    storage = array.storage
    if isinstance(array.type, RaggedTensorType):
        target = RaggedTensorType(value_type)
        return pa.ExtensionArray.from_storage(target, storage.cast(target.storage_type))
    rows, shape = len(array), array.type.shape
    step = storage.type.list_size
    flat = storage.values.slice(array.offset * step, rows * step).cast(value_type)
    extents = pa.array(np.tile(np.asarray(shape, dtype=np.int32), rows))
    missing = _missing(array)
    return _ragged(
        flat, np.arange(rows + 1) * step, extents, np.arange(rows + 1) * len(shape), missing
    )


def object_array(values: Iterable[object]) -> pa.ExtensionArray:
    """Build a column of pickled values, None for null."""
    pickles = [None if value is None else cloudpickle.dumps(value, protocol=5) for value in values]
    return pa.ExtensionArray.from_storage(PythonObjectType(), pa.array(pickles, pa.large_binary()))


def restore_objects(table: pa.Table) -> pa.Table:
    """Return the table with `PythonObjectType` where the metadata of an Arrow or Parquet file names
    it.

    Use it only for files that this library wrote and that others could not change: reads of such a
    column unpickle its values.
    """
    for index, field in enumerate(table.schema):
        if (field.metadata or {}).get(_EXTENSION_NAME) == b"syncline.python_object":
            kind = PythonObjectType()
            chunks = [
                pa.ExtensionArray.from_storage(kind, chunk.cast(kind.storage_type))
                for chunk in table.column(index).chunks
            ]
            table = table.set_column(
                index, pa.field(field.name, kind), pa.chunked_array(chunks, kind)
            )
    return table


def to_ndarray(array: pa.ExtensionArray) -> np.ndarray:
    """Convert a tensor or object column to `(n, *shape)`, or to an object array `(n,)` if shapes
    differ or values are not tensors.

    Null rows of numeric tensors become NaN (integers become float64), as in plain columns; other
    nulls are None in an object array.
    """
    if isinstance(array.type, PythonObjectType):
        return objects_to_ndarray([scalar.as_py() for scalar in array])
    if isinstance(array.type, RaggedTensorType):
        return objects_to_ndarray(_ragged_rows(array))
    values = _fixed_to_ndarray(array)
    missing = _missing(array)
    if missing is None:
        return values
    if values.dtype.kind in "iuf":
        values = values.astype(values.dtype if values.dtype.kind == "f" else np.float64)
        values[missing] = np.nan
        return values
    return objects_to_ndarray(
        [None if gone else row for row, gone in zip(values, missing, strict=True)]
    )


def to_rows(array: pa.ExtensionArray) -> list[Any]:
    """Convert a tensor or object column to a list of ndarrays or values, None for null."""
    if not isinstance(array.type, pa.FixedShapeTensorType):
        return list(to_ndarray(array))
    values, missing = _fixed_to_ndarray(array), _missing(array)
    if missing is None:
        return list(values)
    return [None if gone else row for row, gone in zip(values, missing, strict=True)]


def objects_to_ndarray(values: Sequence[object]) -> np.ndarray:
    """Return an object array `(n,)` of the values; equal shapes are not stacked."""
    return np.fromiter(values, dtype=object, count=len(values))


def _fixed_to_ndarray(array: pa.ExtensionArray) -> np.ndarray:
    """Return `(n, *shape)`; the values of null rows are undefined."""
    storage, type_ = array.storage, array.type
    step = storage.type.list_size
    flat = _values_to_numpy(storage.values.slice(array.offset * step, len(array) * step))
    values = flat.reshape(len(array), *type_.shape)
    # Files from other writers may store the dimensions in another order than the logical one.
    return (
        values
        if type_.permutation is None
        else values.transpose(0, *(axis + 1 for axis in type_.permutation))
    )


def _ragged_rows(array: pa.ExtensionArray) -> list[np.ndarray | None]:
    data, shape = array.storage.field("data"), array.storage.field("shape")
    values = _values_to_numpy(data.values)
    bounds = data.offsets.to_numpy().tolist()
    extents = shape.values.to_numpy().tolist()
    ranks = shape.offsets.to_numpy().tolist()
    missing = _missing(array)
    present = range(len(array)) if missing is None else np.flatnonzero(~missing).tolist()
    rows: list[np.ndarray | None] = [None] * len(array)
    for row in present:
        rows[row] = values[bounds[row] : bounds[row + 1]].reshape(
            extents[ranks[row] : ranks[row + 1]]
        )
    return rows


def _ragged(
    flat: pa.Array,
    bounds: np.ndarray,
    extents: pa.Array,
    ranks: np.ndarray,
    missing: np.ndarray | None,
) -> pa.ExtensionArray:
    """Build a ragged column: row `i` has the elements `bounds[i]:bounds[i + 1]` of `flat` and the
    shape `ranks[i]:ranks[i + 1]` of `extents`.
    """
    data = pa.LargeListArray.from_arrays(pa.array(bounds, pa.int64()), flat)
    shape = pa.ListArray.from_arrays(pa.array(ranks, pa.int32()), extents.cast(pa.int32()))
    mask = None if missing is None else pa.array(missing)
    storage = pa.StructArray.from_arrays([data, shape], names=["data", "shape"], mask=mask)
    return pa.ExtensionArray.from_storage(RaggedTensorType(flat.type), storage)


def _values_to_numpy(values: pa.Array) -> np.ndarray:
    """Return the elements of tensors as a flat array; strings become numpy strings."""
    flat: np.ndarray = values.to_numpy(zero_copy_only=False)
    return flat.astype(str) if flat.dtype == object and pa.types.is_string(values.type) else flat


def _missing(array: pa.Array) -> np.ndarray | None:
    """Return bool `(n,)`, true for null rows; None without nulls."""
    if not array.null_count:
        return None
    missing: np.ndarray = array.is_null().to_numpy(zero_copy_only=False)
    return missing
