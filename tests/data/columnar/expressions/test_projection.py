"""Lists of expressions: projections, their schemas, filters."""

import numpy as np
import pyarrow as pa
import pytest

from syncline.data import DataType
from syncline.data.columnar import block
from syncline.data.columnar.expressions import (
    col,
    filter_rows,
    lit,
    project,
    projected_schema,
    star,
    udf,
    unnest,
)

TABLE = pa.table(
    {"a": [1, 2, None], "b": ["x", "y", "z"], "st": [{"p": 1, "q": "u"}, None, {"p": 3, "q": None}]}
)


def test_columns_come_in_the_order_of_the_expressions() -> None:
    found = project(TABLE, [col("b"), (col("a") + 1).alias("c"), col("a").alias("d")])
    assert found.to_pydict() == {"b": ["x", "y", "z"], "c": [2, 3, None], "d": [1, 2, None]}


def test_a_later_column_takes_the_place_of_an_earlier() -> None:
    found = project(TABLE, [star(), (col("a") * 10).alias("a"), lit(True).alias("new")])
    assert found.column_names == ["a", "b", "st", "new"]
    assert found["a"].to_pylist() == [10, 20, None]


def test_a_struct_becomes_a_column_for_each_field() -> None:
    found = project(TABLE, [unnest(col("st")), col("b")])
    assert found.to_pydict() == {"p": [1, None, 3], "q": ["u", None, None], "b": ["x", "y", "z"]}


def test_the_schema_is_known_without_computing() -> None:
    expressions = [star(), unnest(col("st")), (col("a") / 2).alias("half")]
    assert projected_schema(TABLE.schema, expressions) == project(TABLE, expressions).schema
    unknown = udf(DataType(object))(lambda x: x)(col("a")).alias("x")
    assert projected_schema(TABLE.schema, [star(), unknown]) is None
    with pytest.raises(KeyError, match="no column 'c'"):
        projected_schema(TABLE.schema, [col("c")])


def test_no_columns_still_have_rows() -> None:
    assert project(TABLE, []).num_rows == 3


def test_expressions_without_a_name_or_a_place_are_refused() -> None:
    with pytest.raises(
        ValueError, match="col\\('a'\\) \\+ 1 has no name for its column: add .alias"
    ):
        project(TABLE, [col("a") + 1])
    with pytest.raises(TypeError, match="only be one of the expressions of a projection"):
        (star() + 1).evaluate(TABLE)
    with pytest.raises(TypeError, match="only be one of the expressions of a projection"):
        unnest(col("st")).evaluate(TABLE)
    with pytest.raises(TypeError, match="cannot all be named 'x'"):
        unnest(col("st")).alias("x")
    with pytest.raises(TypeError, match="needs a struct, but col\\('a'\\) is int64"):
        project(TABLE, [unnest(col("a"))])
    with pytest.raises(TypeError, match="means several"):
        unnest(unnest(col("st")))
    with pytest.raises(TypeError, match="unnest takes an expression"):
        unnest("st")


def test_a_filter_drops_rows_where_it_is_null() -> None:
    assert filter_rows(TABLE, col("a") > 1)["b"].to_pylist() == ["y"]
    assert filter_rows(TABLE, ~(col("a") > 1))["b"].to_pylist() == ["x"]
    assert filter_rows(TABLE, col("a") == lit(None)).num_rows == 0
    assert filter_rows(TABLE, lit(None)).num_rows == 0
    assert filter_rows(TABLE, lit(True)).num_rows == 3


def test_a_filter_keeps_tensors_and_objects() -> None:
    table = block.from_rows(
        [{"i": i, "t": np.full(2, i), "r": np.zeros(i), "o": {i: i}} for i in range(5)]
    )
    kept = list(block.rows(filter_rows(table, col("i") % 2 == 0)))
    assert [(row["t"][0], len(row["r"]), row["o"]) for row in kept] == [
        (i, i, {i: i}) for i in (0, 2, 4)
    ]


def test_a_filter_needs_truth() -> None:
    with pytest.raises(TypeError, match="col\\('a'\\) is int64: compare it with a value"):
        filter_rows(TABLE, col("a"))
