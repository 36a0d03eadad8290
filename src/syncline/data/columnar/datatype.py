"""`DataType`: the type of a column over Arrow types, numpy dtypes and Python classes.

Covered: factories (`DataType.int64()`, `DataType.list(...)`), conversions, and predicates.
Functions that accept a `DataType` accept an Arrow type too: `as_arrow` converts both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from syncline.data.columnar import columns
from syncline.data.columnar.tensors import RaggedTensorType, is_tensor
from syncline.records import dataclass

# `DataType` has factories of these names.
_List: TypeAlias = list
_Bool: TypeAlias = bool
_Dtype: TypeAlias = "np.dtype[Any]"
_TIME_CLASSES: dict[str, Callable[[str, str | None], pa.DataType]] = {
    "timestamp": lambda unit, tz: pa.timestamp(unit, tz=tz),
    "date32": lambda unit, tz: pa.date32(),
    "date64": lambda unit, tz: pa.date64(),
    "time32": lambda unit, tz: pa.time32(unit),
    "time64": lambda unit, tz: pa.time64(unit),
    "duration": lambda unit, tz: pa.duration(unit),
}


def _factory(type_: pa.DataType) -> Any:
    def make(cls: type[DataType]) -> DataType:
        return cls(type_)

    make.__doc__ = f"Return the Arrow type {type_}."
    return classmethod(make)


@dataclass(frozen=True)
class DataType:
    """Type of a column: an Arrow type, a numpy dtype, or a Python class whose Arrow type depends on
    the values.
    """

    physical: pa.DataType | _Dtype | type

    int8 = _factory(pa.int8())
    int16 = _factory(pa.int16())
    int32 = _factory(pa.int32())
    int64 = _factory(pa.int64())
    uint8 = _factory(pa.uint8())
    uint16 = _factory(pa.uint16())
    uint32 = _factory(pa.uint32())
    uint64 = _factory(pa.uint64())
    float16 = _factory(pa.float16())
    float32 = _factory(pa.float32())
    float64 = _factory(pa.float64())
    string = _factory(pa.string())
    binary = _factory(pa.binary())
    bool = _factory(pa.bool_())

    def __post_init__(self) -> None:
        if not isinstance(self.physical, pa.DataType | np.dtype | type):
            raise TypeError(
                "a DataType wraps a pyarrow type, a numpy dtype or a Python class, "
                f"not {self.physical!r}"
            )

    def __repr__(self) -> str:
        if isinstance(self.physical, pa.DataType):
            return f"DataType(arrow:{self.physical})"
        if isinstance(self.physical, np.dtype):
            return f"DataType(numpy:{self.physical})"
        return f"DataType(python:{self.physical.__name__})"

    @classmethod
    def from_arrow(cls, arrow_type: pa.DataType) -> DataType:
        """Return the type of an Arrow type."""
        return cls(arrow_type)

    @classmethod
    def from_numpy(cls, numpy_dtype: _Dtype | str) -> DataType:
        """Return the type of a numpy dtype or of its name."""
        return cls(np.dtype(numpy_dtype))

    @classmethod
    def infer_dtype(cls, value: object) -> DataType:
        """Return the type of one value: that of an Arrow or numpy value, otherwise that of a column
        with this value.
        """
        if isinstance(value, pa.Scalar):
            return cls(value.type)
        if isinstance(value, np.ndarray | np.generic):
            return cls(value.dtype)
        return cls(columns.from_values("value", [value]).type)

    @classmethod
    def list(cls, value_type: DataType) -> DataType:
        """Return the type of lists of any length."""
        return cls(pa.list_(as_arrow(value_type)))

    @classmethod
    def large_list(cls, value_type: DataType) -> DataType:
        """Return the type of lists of any length with 64-bit offsets."""
        return cls(pa.large_list(as_arrow(value_type)))

    @classmethod
    def fixed_size_list(cls, value_type: DataType, list_size: int) -> DataType:
        """Return the type of lists with `list_size` elements."""
        return cls(pa.list_(as_arrow(value_type), list_size))

    @classmethod
    def struct(cls, fields: _List[tuple[str, DataType]]) -> DataType:
        """Return the type of structs with these named fields."""
        return cls(pa.struct([(name, as_arrow(type_)) for name, type_ in fields]))

    @classmethod
    def map(cls, key_type: DataType, value_type: DataType) -> DataType:
        """Return the type of maps, whose keys may differ from row to row."""
        return cls(pa.map_(as_arrow(key_type), as_arrow(value_type)))

    @classmethod
    def tensor(cls, shape: Sequence[int], dtype: DataType) -> DataType:
        """Return the type of ndarrays of one shape."""
        return cls(pa.fixed_shape_tensor(as_arrow(dtype), tuple(shape)))

    @classmethod
    def variable_shaped_tensor(cls, dtype: DataType, ndim: int = 2) -> DataType:
        """Return the type of ndarrays of any shape. `ndim` is accepted for compatibility; the
        number of dimensions may differ from row to row.
        """
        return cls(RaggedTensorType(as_arrow(dtype)))

    @classmethod
    def temporal(
        cls,
        temporal_type: Literal["timestamp", "date32", "date64", "time32", "time64", "duration"],
        unit: Literal["s", "ms", "us", "ns"] = "us",
        tz: str | None = None,
    ) -> DataType:
        """Return a type of dates, times, timestamps (`tz` is an IANA name) or durations. Raise
        ValueError for a unit that the type does not have.
        """
        if temporal_type not in _TIME_CLASSES:
            raise ValueError(
                f"temporal_type={temporal_type!r} is not known: "
                f"choose one of {', '.join(_TIME_CLASSES)}"
            )
        return cls(_TIME_CLASSES[temporal_type](unit, tz))

    def is_arrow_type(self) -> _Bool:
        """Return True if the type wraps an Arrow type."""
        return isinstance(self.physical, pa.DataType)

    def is_numpy_type(self) -> _Bool:
        """Return True if the type wraps a numpy dtype."""
        return isinstance(self.physical, np.dtype)

    def is_python_type(self) -> _Bool:
        """Return True if the type wraps a Python class."""
        return isinstance(self.physical, type)

    def to_arrow_dtype(self, values: _List[object] | None = None) -> pa.DataType:
        """Return the Arrow type. Raise ValueError for a Python class without `values`."""
        if isinstance(self.physical, pa.DataType):
            return self.physical
        if isinstance(self.physical, np.dtype):
            return pa.from_numpy_dtype(self.physical)
        if not values:
            raise ValueError(
                f"{self!r} has no Arrow type: use a type such as DataType.int64() or "
                "DataType.string()"
            )
        return columns.from_values("values", values).type

    def to_numpy_dtype(self) -> _Dtype:
        """Return the numpy dtype of such a column in a batch; object if numpy has none."""
        if isinstance(self.physical, np.dtype):
            dtype: _Dtype = self.physical
            return dtype
        if isinstance(self.physical, pa.DataType):
            try:
                found: _Dtype = np.dtype(self.physical.to_pandas_dtype())
                return found
            except (TypeError, NotImplementedError):
                return np.dtype(object)
        return np.dtype(object)

    def to_python_type(self) -> type:
        """Return the Python class. Raise ValueError for a type that wraps something else."""
        if isinstance(self.physical, type):
            return self.physical
        raise ValueError(
            f"{self!r} does not wrap a Python class: use to_arrow_dtype() or to_numpy_dtype()"
        )

    def is_list_type(self) -> _Bool:
        """Return True for lists, of fixed size or not."""
        return self._arrow_is(columns.is_list) or self.physical is list

    def is_tensor_type(self) -> _Bool:
        """Return True for ndarrays."""
        return isinstance(self.physical, pa.DataType) and is_tensor(self.physical)

    def is_struct_type(self) -> _Bool:
        """Return True for structs."""
        return self._arrow_is(pa.types.is_struct) or self.physical is dict

    def is_map_type(self) -> _Bool:
        """Return True for maps."""
        return self._arrow_is(pa.types.is_map)

    def is_nested_type(self) -> _Bool:
        """Return True for lists, structs and maps."""
        return self.is_list_type() or self.is_struct_type() or self.is_map_type()

    def is_boolean_type(self) -> _Bool:
        """Return True for booleans."""
        return self._arrow_is(pa.types.is_boolean) or self._numpy_kind("b") or self.physical is bool

    def is_integer_type(self) -> _Bool:
        """Return True for integers."""
        return self._arrow_is(pa.types.is_integer) or self._numpy_kind("iu") or self.physical is int

    def is_floating_type(self) -> _Bool:
        """Return True for floating-point numbers."""
        return (
            self._arrow_is(pa.types.is_floating) or self._numpy_kind("f") or self.physical is float
        )

    def is_numerical_type(self) -> _Bool:
        """Return True for integers, floats, decimals and complex numbers."""
        return (
            self.is_integer_type()
            or self.is_floating_type()
            or self._arrow_is(pa.types.is_decimal)
            or self._numpy_kind("c")
        )

    def is_string_type(self) -> _Bool:
        """Return True for strings."""
        return (
            self._arrow_is(pa.types.is_string, pa.types.is_large_string)
            or self._numpy_kind("U")
            or self.physical is str
        )

    def is_binary_type(self) -> _Bool:
        """Return True for bytes."""
        binary = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
        return self._arrow_is(*binary) or self._numpy_kind("S") or self.physical is bytes

    def is_temporal_type(self) -> _Bool:
        """Return True for dates, times, timestamps and durations."""
        return self._arrow_is(pa.types.is_temporal) or self._numpy_kind("Mm")

    def _arrow_is(self, *checks: Callable[[pa.DataType], _Bool]) -> _Bool:
        return isinstance(self.physical, pa.DataType) and any(
            check(self.physical) for check in checks
        )

    def _numpy_kind(self, kinds: str) -> _Bool:
        return isinstance(self.physical, np.dtype) and self.physical.kind in kinds


def as_arrow(type_: DataType | pa.DataType) -> pa.DataType:
    """Return the Arrow type of a `DataType` or an Arrow type. Raise TypeError for other values."""
    if isinstance(type_, pa.DataType):
        return type_
    if isinstance(type_, DataType):
        return type_.to_arrow_dtype()
    raise TypeError(
        "a type is a DataType such as DataType.int64(), or a pyarrow type such as pyarrow.int64(), "
        f"not {type_!r}"
    )
