"""Tensors as Arrow and pandas columns: the names of `ray.data.extensions.tensor_extension`.

The Arrow names create Arrow's fixed-shape tensors and the library's ragged ones, and
`isinstance(type, ArrowTensorType)` is true for them. `TensorArray` is a pandas column whose rows
are tensors; datasets accept it in DataFrames and return DataFrames with one ndarray per row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.extensions import ExtensionArray, ExtensionDtype, register_extension_dtype, take

from syncline.data.columnar import tensors
from syncline.data.columnar.tensors import RaggedTensorType

Shape: TypeAlias = tuple[int | None, ...]
FixedShapeTensorType = pa.FixedShapeTensorType


class ArrowConversionError(Exception):
    """Raised if values cannot become an Arrow column."""


# -- Arrow


class _TensorType(type):
    """Makes a class a constructor and a test of another one's instances."""

    made: type
    make: Callable[..., pa.DataType]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.make(*args, **kwargs)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.made)


def create_arrow_fixed_shape_tensor_type(
    shape: Sequence[int], dtype: pa.DataType | np.dtype | type
) -> pa.FixedShapeTensorType:
    """Return the Arrow type of tensors of one shape; `dtype` is one of Arrow's or numpy's."""
    return pa.fixed_shape_tensor(_arrow_dtype(dtype), tuple(shape))


def _ragged_type(dtype: pa.DataType | np.dtype | type, ndim: int | None = None) -> RaggedTensorType:
    return RaggedTensorType(_arrow_dtype(dtype))


class ArrowTensorType(metaclass=_TensorType):
    """`ArrowTensorType(shape, dtype)`: the Arrow type of tensors of one shape."""

    made = pa.FixedShapeTensorType
    make = staticmethod(create_arrow_fixed_shape_tensor_type)


class ArrowTensorTypeV2(metaclass=_TensorType):
    """The same as `ArrowTensorType`: Arrow's tensors have offsets of 64 bits."""

    made = pa.FixedShapeTensorType
    make = staticmethod(create_arrow_fixed_shape_tensor_type)


class ArrowVariableShapedTensorType(metaclass=_TensorType):
    """`ArrowVariableShapedTensorType(dtype, ndim)`: the Arrow type of tensors of any shapes."""

    made = RaggedTensorType
    make = staticmethod(_ragged_type)


class ArrowTensorArray:
    """Makes Arrow columns of tensors of one shape."""

    @staticmethod
    def from_numpy(
        arr: np.ndarray | Iterable[np.ndarray], column_name: str | None = None
    ) -> pa.ExtensionArray:
        """Return a column of the rows of an array, or of arrays; a ragged one if shapes differ."""
        return _arrow_tensors(_rows_of(arr), column_name)


class ArrowVariableShapedTensorArray:
    """Makes Arrow columns of tensors of any shapes."""

    @staticmethod
    def from_numpy(
        arr: np.ndarray | Iterable[np.ndarray], column_name: str | None = None
    ) -> pa.ExtensionArray:
        """Return a ragged column of arrays."""
        return tensors.ragged_array([np.asarray(row) for row in arr])


def get_arrow_extension_tensor_types() -> tuple[type, ...]:
    """Return the classes of the Arrow types of tensors."""
    return (pa.FixedShapeTensorType, RaggedTensorType)


def column_needs_tensor_extension(s: pd.Series[Any]) -> bool:
    """Return True if the rows of a Series are ndarrays or `TensorArrayElement`s."""
    return (
        s.dtype == object and len(s) > 0 and isinstance(s.iloc[0], np.ndarray | TensorArrayElement)
    )


def _arrow_dtype(dtype: pa.DataType | np.dtype | type) -> pa.DataType:
    return dtype if isinstance(dtype, pa.DataType) else pa.from_numpy_dtype(np.dtype(dtype))


def _arrow_tensors(rows: np.ndarray, name: str | None = None) -> pa.ExtensionArray:
    """Return the Arrow column of rows as `TensorArray` holds them."""
    try:
        if rows.dtype != object:
            return tensors.tensor_array(rows)
        return tensors.ragged_array(list(rows))
    except (pa.ArrowException, TypeError, ValueError) as error:
        column = "" if name is None else f"column {name!r}: "
        raise ArrowConversionError(
            f"{column}arrays of dtype {rows.dtype} cannot become an Arrow column: {error}"
        ) from error


# -- pandas


@register_extension_dtype
class TensorDtype(ExtensionDtype):
    """Type of a pandas column of tensors.

    Args:
        shape: Shape of a row; None for a dimension that differs from row to row.
        dtype: numpy's dtype of the elements.
    """

    _metadata = ("element_shape", "element_dtype")
    _PATTERN: ClassVar[re.Pattern[str]] = re.compile(
        r"numpy\.ndarray\(shape=\((?P<shape>[^)]*)\), dtype=(?P<dtype>[^)]+)\)"
    )

    def __init__(self, shape: Sequence[int | None], dtype: np.dtype | type | str) -> None:
        self.element_shape: Shape = tuple(shape)
        self.element_dtype = np.dtype(dtype)

    @property
    def type(self) -> Any:  # type: ignore[override]  # pandas-stubs declare an attribute
        """Class of a row."""
        return TensorArrayElement

    @property
    def name(self) -> str:  # type: ignore[override]
        """Text such as `numpy.ndarray(shape=(2, 3), dtype=float32)`."""
        return f"numpy.ndarray(shape={self.element_shape}, dtype={self.element_dtype})"

    @property
    def is_variable_shaped(self) -> bool:
        """True if the shapes of rows differ."""
        return None in self.element_shape

    @classmethod
    def construct_array_type(cls) -> Any:
        """Return the class of columns of this type."""
        return TensorArray

    @classmethod
    def construct_from_string(cls, string: str) -> TensorDtype:
        """Return the type with this name. Raise TypeError for other texts."""
        if not isinstance(string, str):
            raise TypeError(f"{string!r} is not a string")
        found = cls._PATTERN.fullmatch(string)
        if found is None:
            raise TypeError(f"{string!r} is not the name of a TensorDtype")
        extents = [each.strip() for each in found["shape"].split(",") if each.strip()]
        return cls([None if each == "None" else int(each) for each in extents], found["dtype"])


class TensorArrayElement(np.lib.mixins.NDArrayOperatorsMixin):
    """One row of a `TensorArray`; numpy's operators and functions take it as an ndarray."""

    def __init__(self, values: np.ndarray) -> None:
        self._tensor = np.asarray(values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return _as_ndarray(self._tensor, dtype, copy)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return getattr(ufunc, method)(*map(_plain, inputs), **kwargs)

    def __len__(self) -> int:
        return len(self._tensor)

    def __getitem__(self, key: Any) -> Any:
        return self._tensor[key]

    def __repr__(self) -> str:
        return repr(self._tensor)

    def __str__(self) -> str:
        return str(self._tensor)

    @property
    def numpy_dtype(self) -> np.dtype:
        """Dtype of the elements."""
        return self._tensor.dtype

    @property
    def numpy_ndim(self) -> int:
        """Number of dimensions."""
        return self._tensor.ndim

    @property
    def numpy_shape(self) -> tuple[int, ...]:
        """Shape."""
        return self._tensor.shape

    @property
    def numpy_size(self) -> int:
        """Number of elements."""
        return self._tensor.size

    def to_numpy(self) -> np.ndarray:
        """Return the ndarray."""
        return np.asarray(self._tensor)


class TensorArray(ExtensionArray, np.lib.mixins.NDArrayOperatorsMixin):
    """A pandas column whose rows are tensors.

    Args:
        values: An array `(rows, ...)`, or a sequence of arrays, one per row.
    """

    def __init__(self, values: Any) -> None:
        self._tensor = _rows_of(values)

    @classmethod
    def _from_sequence(cls, scalars: Any, *, dtype: Any = None, copy: bool = False) -> TensorArray:
        if isinstance(dtype, TensorDtype) and not len(scalars):
            shape = [extent or 0 for extent in dtype.element_shape]
            return cls(np.empty((0, *shape), dtype.element_dtype))
        return cls(scalars)

    @classmethod
    def _from_factorized(cls, values: Any, original: Any) -> TensorArray:
        raise TypeError("tensors cannot be factorized: group by a column of plain values")

    @classmethod
    def _concat_same_type(cls, to_concat: Sequence[TensorArray]) -> TensorArray:
        return cls([row for part in to_concat for row in part._tensor])

    @property
    def dtype(self) -> TensorDtype:
        """Type of the column."""
        rows = self._tensor
        if rows.dtype != object:
            return TensorDtype(rows.shape[1:], rows.dtype)
        dims = {row.ndim for row in rows}
        count = dims.pop() if len(dims) == 1 else 0
        return TensorDtype((None,) * count, np.result_type(*{row.dtype for row in rows}))

    @property
    def is_variable_shaped(self) -> bool:
        """True if the shapes of rows differ."""
        return bool(self._tensor.dtype == object)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        rows = self._tensor
        return sum(row.nbytes for row in rows) if self.is_variable_shaped else rows.nbytes

    @property
    def numpy_shape(self) -> Any:
        """Shape `(rows, ...)`; a list of shapes if they differ."""
        return (
            [row.shape for row in self._tensor] if self.is_variable_shaped else self._tensor.shape
        )

    def __len__(self) -> int:
        return len(self._tensor)

    def __getitem__(self, item: Any) -> Any:
        item = pd.api.indexers.check_array_indexer(self, item)
        found = self._tensor[item]
        if isinstance(item, int | np.integer):
            return TensorArrayElement(found)
        return TensorArray(found)

    def __setitem__(self, key: Any, value: Any) -> None:
        key = pd.api.indexers.check_array_indexer(self, key)
        self._tensor[key] = _plain(value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if dtype is not None and np.dtype(dtype) == object:
            return tensors.objects_to_ndarray(list(self._tensor))
        return _as_ndarray(self._tensor, dtype, copy)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        result = getattr(ufunc, method)(*map(_plain, inputs), **kwargs)
        return TensorArray(result) if np.ndim(result) else result

    def __arrow_array__(self, type: pa.DataType | None = None) -> pa.ExtensionArray:
        return _arrow_tensors(self._tensor)

    def _reduce(
        self, name: str, *, skipna: bool = True, keepdims: bool = False, **kwargs: Any
    ) -> Any:
        if name not in ("sum", "mean", "min", "max", "any", "all", "prod", "median", "std", "var"):
            raise TypeError(f"a column of tensors has no {name}: use to_numpy() and numpy")
        reduced = getattr(np, name)(self._tensor, axis=0, keepdims=keepdims)
        return TensorArray(reduced) if keepdims else TensorArrayElement(reduced)

    def isna(self) -> np.ndarray:
        """Return bool `(rows,)`: True for rows whose elements are all NaN."""
        rows = self._tensor
        if self.is_variable_shaped:
            return np.array([row.dtype.kind == "f" and bool(np.isnan(row).all()) for row in rows])
        if rows.dtype.kind != "f" or not rows.size:
            return np.zeros(len(rows), bool)
        return np.isnan(rows).reshape(len(rows), -1).all(axis=1)  # type: ignore[no-any-return]

    def take(
        self, indices: Any, *, allow_fill: bool = False, fill_value: Any = None
    ) -> TensorArray:
        """Return the rows at these positions; with `allow_fill`, -1 selects a row of NaN."""
        if not allow_fill or not (np.asarray(indices) < 0).any():
            return TensorArray(self._tensor[np.asarray(indices, np.intp)])
        fill = np.nan if fill_value is None else _plain(fill_value)
        return TensorArray(take(self._tensor, indices, allow_fill=True, fill_value=fill))

    def copy(self) -> TensorArray:
        """Return a copy."""
        return TensorArray(self._tensor.copy())

    def to_numpy(self, dtype: Any = None, copy: bool = False, na_value: Any = None) -> np.ndarray:
        """Return `(rows, ...)`, or an array of objects if shapes differ."""
        return self.__array__(dtype, copy)

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        """Convert the elements; `object` gives one ndarray per row and `str` their texts."""
        if isinstance(dtype, TensorDtype):
            return TensorArray(self._tensor.astype(dtype.element_dtype, copy=copy))
        if pd.api.types.is_object_dtype(dtype):
            return tensors.objects_to_ndarray(list(self._tensor))
        if pd.api.types.is_string_dtype(dtype):
            return np.array([str(row) for row in self._tensor], object)
        return self._tensor.astype(dtype, copy=copy)

    def _formatter(self, boxed: bool = False) -> Callable[[Any], str]:
        return str


def _as_ndarray(values: np.ndarray, dtype: Any, copy: bool | None) -> np.ndarray:
    converted = np.asarray(values, dtype)
    return converted.copy() if copy and converted is values else converted


def _plain(value: Any) -> Any:
    return value._tensor if isinstance(value, TensorArray | TensorArrayElement) else value


def _rows_of(values: Any) -> np.ndarray:
    """Return an array `(rows, ...)`, or an array `(rows,)` of arrays if their shapes differ."""
    values = _plain(values)
    if isinstance(values, np.ndarray) and values.dtype != object:
        if values.ndim == 0:
            raise TypeError(f"{values!r} is one value: pass an array (rows, ...)")
        return values
    if isinstance(values, pd.Series):
        values = values.array
    if hasattr(values, "__array__") and not isinstance(values, np.ndarray | ExtensionArray):
        return _rows_of(np.asarray(values))  # a tensor of another library
    rows = [np.asarray(_plain(row)) for row in values]
    if not rows:
        return np.empty(0)
    if len({row.shape for row in rows}) == 1:
        return np.stack(rows)
    return tensors.objects_to_ndarray(rows)


__all__ = [
    "ArrowConversionError",
    "ArrowTensorArray",
    "ArrowTensorType",
    "ArrowTensorTypeV2",
    "ArrowVariableShapedTensorArray",
    "ArrowVariableShapedTensorType",
    "FixedShapeTensorType",
    "TensorArray",
    "TensorArrayElement",
    "TensorDtype",
    "column_needs_tensor_extension",
    "create_arrow_fixed_shape_tensor_type",
    "get_arrow_extension_tensor_types",
]
