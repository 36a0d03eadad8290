"""Tensor and object columns: layouts, copies, how they travel, and that pickles in files are not
trusted.
"""

import io
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from syncline.data.columnar import tensors
from syncline.data.columnar.tensors import PythonObjectType, RaggedTensorType


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def shared(ragged: pa.ExtensionArray) -> np.ndarray:
    values: np.ndarray = ragged.storage.field("data").values.to_numpy()
    return values


@pytest.mark.parametrize("dtype", ["u1", "i2", "i8", "u8", "f2", "f4", "f8", "M8[ns]", "m8[s]"])
@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 2, 2)])
def test_fixed_shapes_go_both_ways_without_a_copy(dtype: str, shape: tuple[int, ...]) -> None:
    values = np.arange(4 * np.prod(shape)).astype(dtype).reshape(4, *shape)
    array = tensors.tensor_array(values)
    assert array.type.shape == list(shape)
    back = tensors.to_ndarray(array)
    assert back.dtype == values.dtype
    assert np.array_equal(back, values)
    assert address(back) == address(values)
    assert address(tensors.to_ndarray(array.slice(1, 2))) == address(values[1:])


def test_bool_tensors_are_packed_and_unpacked() -> None:
    values = np.random.default_rng(0).random((5, 3, 3)) < 0.5
    array = tensors.tensor_array(values)
    assert array.nbytes < 8
    assert np.array_equal(tensors.to_ndarray(array), values)
    assert np.array_equal(tensors.to_ndarray(array.slice(1, 3)), values[1:4])


def test_tensors_are_the_canonical_type_that_others_read() -> None:
    values = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    assert np.array_equal(tensors.tensor_array(values).to_numpy_ndarray(), values)
    others = pa.FixedShapeTensorArray.from_numpy_ndarray(values)
    assert others.type == tensors.tensor_array(values).type
    assert np.array_equal(tensors.to_ndarray(others), values)


def test_tensors_with_permuted_dimensions_are_read_in_logical_order() -> None:
    values = np.arange(12).reshape(2, 2, 3).transpose(0, 2, 1)
    others = pa.FixedShapeTensorArray.from_numpy_ndarray(values)
    assert np.array_equal(tensors.to_ndarray(others), others.to_numpy_ndarray())


def test_null_rows_of_fixed_shapes() -> None:
    missing = np.array([False, True, False])
    floats = tensors.tensor_array(np.ones((3, 2), np.float32), missing=missing)
    assert floats.null_count == 1
    assert tensors.to_ndarray(floats).dtype == np.float32
    assert np.isnan(tensors.to_ndarray(floats)[1]).all()
    assert tensors.to_rows(floats)[1] is None
    bools = tensors.to_ndarray(tensors.tensor_array(np.ones((3, 2), bool), missing=missing))
    assert bools.dtype == object
    assert bools[1] is None


def test_rows_of_a_ragged_column_share_its_memory() -> None:
    values = [np.arange(3.0), np.arange(6.0).reshape(2, 3), None, np.zeros((0, 4)), np.array([7.0])]
    array = tensors.ragged_array(values)
    rows = tensors.to_ndarray(array)
    assert [None if row is None else row.shape for row in rows] == [
        (3,),
        (2, 3),
        None,
        (0, 4),
        (1,),
    ]
    assert address(rows[1]) == address(shared(array)[3:])
    assert np.array_equal(tensors.to_ndarray(array.slice(4))[0], [7.0])
    assert [scalar.as_py() is None for scalar in array] == [False, False, True, False, False]
    assert np.array_equal(array[1].as_py(), values[1])


def test_dtypes_of_a_ragged_column_are_promoted() -> None:
    assert tensors.ragged_array(
        [np.zeros(1, np.int8), np.zeros(2, np.float32)]
    ).type == RaggedTensorType(pa.float32())


def test_fixed_shapes_become_ragged_without_copying_their_elements() -> None:
    values = np.arange(12.0).reshape(3, 2, 2)
    ragged = tensors.as_ragged(tensors.tensor_array(values).slice(1), pa.float64())
    assert [row.tolist() for row in tensors.to_ndarray(ragged)] == values[1:].tolist()
    assert address(shared(ragged)) == address(values[1:])


def test_extension_columns_travel_by_pickle_and_by_file() -> None:
    table = pa.table(
        {
            "fixed": tensors.tensor_array(np.arange(4).reshape(2, 2)),
            "ragged": tensors.ragged_array([np.zeros(1), np.ones((2, 2))]),
            "objects": tensors.object_array([{1: 2}, None]),
        }
    )
    assert pickle.loads(pickle.dumps(table)).schema == table.schema
    sink = io.BytesIO()
    pq.write_table(table.drop_columns("objects"), sink)
    again = pq.read_table(io.BytesIO(sink.getvalue()))
    assert again.schema.types == table.schema.types[:2]
    assert np.array_equal(again["ragged"][1].as_py(), np.ones((2, 2)))


class Bomb:
    """Reading its pickle has an effect."""

    exploded: list[int] = []

    def __reduce__(self) -> Any:
        return (Bomb.exploded.append, (1,))


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_pickles_in_a_file_are_bytes_until_the_library_vouches_for_it(form: str) -> None:
    table = pa.table({"x": tensors.object_array([{1: 2}, None]), "y": [1, 2]})
    sink = io.BytesIO()
    if form == "parquet":
        pq.write_table(table, sink)
        again = pq.read_table(io.BytesIO(sink.getvalue()))
    else:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        again = pa.ipc.open_stream(sink.getvalue()).read_all()
    assert again["x"].type == pa.large_binary()
    restored = tensors.restore_objects(again)
    assert restored.schema.types == table.schema.types
    assert restored["x"].to_pylist() == [{1: 2}, None]
    assert restored.column_names == ["x", "y"]


def test_objects_are_unpickled_only_when_read() -> None:
    array = tensors.object_array([Bomb()])
    array.take(pa.array([0])).slice(0, 1)
    assert Bomb.exploded == []


def test_types_say_what_they_are() -> None:
    assert str(RaggedTensorType(pa.int8())) == "ragged_tensor<int8>"
    assert str(PythonObjectType()) == "python_object"
    assert tensors.is_tensor(RaggedTensorType(pa.int8()))
    assert tensors.is_tensor(pa.fixed_shape_tensor(pa.int8(), (2,)))
    assert not tensors.is_tensor(pa.list_(pa.int8()))
    assert RaggedTensorType(pa.int8()) != RaggedTensorType(pa.int16())
