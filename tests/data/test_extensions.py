"""Tensors and objects as columns of Arrow and pandas."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from syncline.data.extensions import (
    ArrowConversionError,
    ArrowPythonObjectArray,
    ArrowPythonObjectType,
    ArrowTensorArray,
    ArrowTensorType,
    ArrowTensorTypeV2,
    ArrowVariableShapedTensorArray,
    ArrowVariableShapedTensorType,
    TensorArray,
    TensorArrayElement,
    TensorDtype,
    column_needs_tensor_extension,
    create_arrow_fixed_shape_tensor_type,
    get_arrow_extension_tensor_types,
)
from syncline.data.from_memory import from_arrow, from_pandas

VALUES = np.arange(12, dtype=np.int64).reshape(3, 2, 2)
RAGGED = [np.zeros((1, 2)), np.ones((2, 2)), np.full((1, 3), 2.0)]


def test_arrow_types_are_those_of_datasets() -> None:
    ds = from_arrow(
        pa.table(
            {
                "x": ArrowTensorArray.from_numpy(VALUES),
                "r": ArrowVariableShapedTensorArray.from_numpy(RAGGED),
                "o": ArrowPythonObjectArray.from_objects([{1}, None, object]),
            }
        )
    )
    fixed, ragged, objects = ds.schema().types
    made: Any = [ArrowTensorType, ArrowTensorTypeV2, ArrowVariableShapedTensorType]
    assert fixed == made[0]((2, 2), pa.int64()) == made[1]((2, 2), np.int64)
    assert fixed == create_arrow_fixed_shape_tensor_type((2, 2), np.dtype("int64"))
    assert ragged == made[2](pa.float64(), 2)
    assert objects == ArrowPythonObjectType()
    assert isinstance(fixed, ArrowTensorType)
    assert isinstance(fixed, ArrowTensorTypeV2)
    assert not isinstance(ragged, ArrowTensorType)
    assert isinstance(ragged, ArrowVariableShapedTensorType)
    assert isinstance(objects, ArrowPythonObjectType)
    assert all(isinstance(each, get_arrow_extension_tensor_types()) for each in (fixed, ragged))
    row = ds.take(1)[0]
    assert row["o"] == {1}
    np.testing.assert_array_equal(row["x"], VALUES[0])
    np.testing.assert_array_equal(row["r"], RAGGED[0])


def test_arrays_that_arrow_cannot_hold_are_named() -> None:
    with pytest.raises(ArrowConversionError, match="column 'z'.*complex128"):
        ArrowTensorArray.from_numpy(np.zeros((2, 2), complex), "z")


@pytest.mark.parametrize("values", [VALUES, RAGGED], ids=["fixed", "ragged"])
def test_dataframes_with_tensors_become_datasets(values: list[np.ndarray]) -> None:
    frame = pd.DataFrame({"x": TensorArray(values), "y": [1, 2, 3]})
    rows = from_pandas(frame).take_all()
    assert [row["y"] for row in rows] == [1, 2, 3]
    for row, value in zip(rows, values, strict=True):
        np.testing.assert_array_equal(row["x"], value)


def test_tensors_are_columns_of_pandas() -> None:
    frame = pd.DataFrame({"x": TensorArray(VALUES.astype(float)), "y": [3, 2, 1]})
    assert frame["x"].dtype == TensorDtype((2, 2), np.float64)
    assert pd.api.types.pandas_dtype(str(frame["x"].dtype)) == frame["x"].dtype
    assert pd.concat([frame, frame])["x"].array.to_numpy().shape == (6, 2, 2)
    ordered = frame.sort_values("y")["x"]
    np.testing.assert_array_equal(np.asarray(ordered), VALUES[::-1])
    np.testing.assert_array_equal((frame["x"] * 2 + 1).array.to_numpy(), VALUES * 2 + 1)
    np.testing.assert_array_equal(np.asarray(frame["x"] > 3), VALUES > 3)
    np.testing.assert_array_equal(np.asarray(frame["x"].sum()), VALUES.sum(axis=0))
    np.testing.assert_array_equal(np.asarray(frame["x"].mean()), VALUES.mean(axis=0))
    element = frame["x"][1]
    assert isinstance(element, TensorArrayElement)
    assert element.numpy_shape == (2, 2)
    np.testing.assert_array_equal(element + np.ones((2, 2)), VALUES[1] + 1)
    np.testing.assert_array_equal(np.asarray(frame[frame["y"] > 1]["x"]), VALUES[:2])
    moved = frame.reindex([2, 5])["x"]
    assert moved.isna().tolist() == [False, True]
    frame.loc[0, "y"] = 9
    assert "[[0. 1.]" in repr(frame)
    assert TensorArray(RAGGED).dtype == TensorDtype((None, None), np.float64)
    assert TensorArray(RAGGED).dtype.is_variable_shaped


def test_columns_of_arrays_need_the_extension() -> None:
    assert column_needs_tensor_extension(pd.Series([np.zeros(2), np.ones(2)]))
    assert not column_needs_tensor_extension(pd.Series(["a"]))
    assert not column_needs_tensor_extension(pd.Series([], dtype=object))
