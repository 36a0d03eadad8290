"""User functions in expressions: functions, classes, what they may return, how they travel."""

import pickle
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from syncline.data import DataType
from syncline.data.columnar.expressions import UDFExpr, col, project, pyarrow_udf, udf, unnest

TABLE = pa.table({"a": pa.chunked_array([[1, 2], [3]]), "b": [10, 20, None]})


@udf(return_dtype=DataType.int64())
def plus(values: pa.Array, amount: int = 1) -> pa.Array:
    """Adds an amount."""
    assert isinstance(values, pa.Array)
    return pc.add(values, amount)


@udf(return_dtype=DataType.int64())
class Scale:
    made = 0

    def __init__(self, factor: int) -> None:
        type(self).made += 1
        self.factor = factor

    def __call__(self, values: pa.Array) -> pa.Array:
        return pc.multiply(values, self.factor)


@udf(return_dtype=pa.int64())
class Later:
    async def __call__(self, values: pa.Array) -> pa.Array:
        return pc.negate(values)


def test_a_function_of_columns_and_constants() -> None:
    assert plus(col("a")).evaluate(TABLE).to_pylist() == [2, 3, 4]
    assert plus(col("a") * 2, amount=5).evaluate(TABLE).to_pylist() == [7, 9, 11]
    assert (plus(col("b"), 3) + 1).evaluate(TABLE).to_pylist() == [14, 24, None]
    assert repr(plus(col("a"), amount=5)) == "plus(col('a'), amount=5)"
    assert plus.__name__ == "plus"
    assert plus.__doc__ == "Adds an amount."


def test_columns_inside_are_known_and_replaced() -> None:
    expr = plus(col("a"), amount=col("b"))
    assert expr.columns() == {"a", "b"}
    assert repr(expr.renamed({"b": "c"})) == "plus(col('a'), amount=col('c'))"
    assert expr.structurally_equals(plus(col("a"), amount=col("b")))
    assert not expr.structurally_equals(plus(col("a"), col("b")))
    assert expr.get_type(TABLE.schema) == pa.int64()


def test_the_type_is_told_without_running_the_function() -> None:
    @udf(return_dtype=DataType.struct([("x", DataType.int8())]))
    def never(values: pa.Array) -> pa.Array:
        raise AssertionError

    assert never(col("a")).struct["x"].get_type(TABLE.schema) == pa.int8()
    assert udf(DataType(object))(lambda x: x)(col("a")).get_type(TABLE.schema) is None
    with pytest.raises(KeyError, match="no column 'c'"):
        never(col("c")).get_type(TABLE.schema)


def test_a_class_is_made_once_where_it_is_used() -> None:
    scale = Scale(3)
    expr = scale(col("a")) + scale(col("b"))
    assert isinstance(expr.left, UDFExpr)
    assert expr.left.is_class
    before = expr.left.fn.cls.made  # type: ignore[attr-defined]
    assert expr.evaluate(TABLE).to_pylist() == [33, 66, None]
    assert expr.evaluate(TABLE).to_pylist() == [33, 66, None]
    assert expr.left.fn.cls.made == before + 1  # type: ignore[attr-defined]
    assert expr.left.structurally_equals(scale(col("a")))
    assert not expr.left.structurally_equals(Scale(3)(col("a")))
    assert repr(expr.left) == "Scale(col('a'))"


def test_an_unpickled_class_meets_its_instance_again() -> None:
    expr = Scale(4)(col("a"))
    parcel = cloudpickle.dumps(expr)
    first, second = pickle.loads(parcel), pickle.loads(parcel)
    assert first.evaluate(TABLE).to_pylist() == second.evaluate(TABLE).to_pylist() == [4, 8, 12]
    assert first.fn.key == second.fn.key == expr.fn.key


def test_a_class_may_be_async() -> None:
    later: Any = Later()
    assert later(col("a")).evaluate(TABLE).to_pylist() == [-1, -2, -3]


def test_a_function_travels_by_cloudpickle() -> None:
    expr = pickle.loads(cloudpickle.dumps((plus(col("a")) > 2).alias("x")))
    assert expr.evaluate(TABLE).to_pylist() == [False, True, True]


@pytest.mark.parametrize(
    "result",
    [
        pa.array([1, 2, 3]),
        pa.chunked_array([[1], [2, 3]]),
        np.array([1, 2, 3]),
        np.array([1, 2, 3], np.int8),
        [1, 2, 3],
        pd.Series([1, 2, 3]),
        pa.array([1.0, 2.0, 3.0]),
    ],
)
def test_any_column_may_be_returned_and_gets_the_declared_type(result: Any) -> None:
    found = pyarrow_udf(DataType.int64())(lambda _: result)(col("a")).evaluate(TABLE)
    assert found.type == pa.int64()
    assert found.to_pylist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        (5, TypeError, "returned int"),
        ("abc", TypeError, "returned str"),
        ([1, 2], ValueError, "returned 2 values for 3 rows"),
        (["a", "b", "c"], TypeError, "returned string, which cannot be cast to the declared int64"),
        ([1.5, 2.0, 3.0], TypeError, "returned double"),
    ],
)
def test_what_is_no_such_column_is_refused(
    result: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        udf(DataType.int64())(lambda _: result)(col("a")).evaluate(TABLE)


def test_tensors_may_be_returned() -> None:
    make = udf(DataType.tensor((2,), DataType.float64()))(lambda values: np.zeros((len(values), 2)))
    assert make(col("a")).evaluate(TABLE).type == make(col("a")).get_type(TABLE.schema)


def test_errors_of_the_function_arrive_as_they_are() -> None:
    def fail(values: pa.Array) -> pa.Array:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="^'?mine'?$"):
        udf(DataType.int64())(fail)(col("a")).evaluate(TABLE)


def test_a_class_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match="the class Nothing has no __call__"):

        @udf(return_dtype=DataType.int64())
        class Nothing:
            pass


def test_functions_on_structs_of_functions_receive_arrays() -> None:
    pair = pa.struct([("x", pa.int64()), ("y", pa.int64())])

    @udf(return_dtype=pair)
    def doubled(values: pa.Array) -> pa.Array:
        assert isinstance(values, pa.Array)
        return pa.StructArray.from_arrays([values, pc.multiply(values, 2)], ["x", "y"])

    @udf(return_dtype=pair)
    def swapped(pairs: pa.Array) -> pa.Array:
        assert isinstance(pairs, pa.StructArray)
        return pa.StructArray.from_arrays([pairs.field("y"), pairs.field("x")], ["x", "y"])

    found = project(TABLE, [unnest(swapped(doubled(col("a"))))])
    assert found.to_pydict() == {"x": [2, 4, 6], "y": [1, 2, 3]}
    chunked = project(TABLE, [doubled(col("a")).alias("s")])
    chunked = pa.concat_tables([chunked, chunked])
    assert project(chunked, [unnest(swapped(col("s")))])["x"].to_pylist() == [2, 4, 6, 2, 4, 6]
