"""`DataType`: factories, conversions, questions."""

import numpy as np
import pyarrow as pa
import pytest

from syncline.data.columnar.datatype import DataType, as_arrow


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (DataType.int8(), pa.int8()),
        (DataType.float64(), pa.float64()),
        (DataType.string(), pa.string()),
        (DataType.bool(), pa.bool_()),
        (DataType.binary(), pa.binary()),
        (DataType.from_numpy("float32"), pa.float32()),
        (DataType.list(DataType.int32()), pa.list_(pa.int32())),
        (DataType.large_list(DataType.int32()), pa.large_list(pa.int32())),
        (DataType.fixed_size_list(DataType.int32(), 3), pa.list_(pa.int32(), 3)),
        (DataType.struct([("a", DataType.int8())]), pa.struct([("a", pa.int8())])),
        (DataType.map(DataType.string(), DataType.int8()), pa.map_(pa.string(), pa.int8())),
        (DataType.tensor((2, 3), DataType.uint8()), pa.fixed_shape_tensor(pa.uint8(), (2, 3))),
        (DataType.temporal("timestamp", unit="ms", tz="UTC"), pa.timestamp("ms", "UTC")),
        (DataType.temporal("date32"), pa.date32()),
        (DataType.infer_dtype(1.5), pa.float64()),
        (DataType.infer_dtype([1]), pa.list_(pa.int64())),
    ],
)
def test_types_become_arrows(type_: DataType, expected: pa.DataType) -> None:
    assert type_.to_arrow_dtype() == expected
    assert as_arrow(type_) == as_arrow(expected) == expected


def test_a_python_class_needs_values() -> None:
    with pytest.raises(ValueError, match="DataType\\(python:int\\) has no Arrow type"):
        DataType(int).to_arrow_dtype()
    assert DataType(int).to_arrow_dtype([1, None]) == pa.int64()
    assert DataType(int).to_python_type() is int
    with pytest.raises(ValueError, match="does not wrap a Python class"):
        DataType.int8().to_python_type()


def test_numpy_dtypes() -> None:
    assert DataType.int16().to_numpy_dtype() == np.dtype("int16")
    assert DataType.temporal("timestamp", unit="us").to_numpy_dtype() == np.dtype("M8[us]")
    assert DataType(str).to_numpy_dtype() == np.dtype(object)


def test_questions_about_the_kind() -> None:
    assert DataType.list(DataType.int8()).is_list_type()
    assert DataType.list(DataType.int8()).is_nested_type()
    assert DataType.tensor((2,), DataType.int8()).is_tensor_type()
    assert DataType.variable_shaped_tensor(DataType.int8()).is_tensor_type()
    assert DataType(int).is_integer_type()
    assert DataType.from_numpy("complex64").is_numerical_type()
    assert DataType.bool().is_boolean_type()
    assert not DataType.bool().is_numerical_type()
    assert DataType.temporal("duration").is_temporal_type()
    assert DataType.string().is_string_type()
    assert not DataType.string().is_binary_type()


def test_equality_and_repr() -> None:
    assert DataType.int8() == DataType(pa.int8())
    assert DataType.int8() != DataType.from_numpy("int8")
    assert repr(DataType.int8()) == "DataType(arrow:int8)"
    assert repr(DataType.from_numpy("int8")) == "DataType(numpy:int8)"


def test_what_is_no_type_is_refused() -> None:
    with pytest.raises(TypeError, match="not 'int64'"):
        DataType("int64")
    with pytest.raises(TypeError, match="a type is a DataType"):
        as_arrow(int)
    with pytest.raises(ValueError, match="temporal_type='week'"):
        DataType.temporal("week")
