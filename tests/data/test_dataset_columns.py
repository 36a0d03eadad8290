"""Columns of datasets: projections, their checks at the call, and what `add_column` does to a
batch.
"""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from syncline.data.columnar.block import add_column
from syncline.data.columnar.expressions import col, lit, unnest
from syncline.data.columnar.schemas import UnknownColumnError
from syncline.data.dataset import Dataset
from syncline.data.from_memory import from_arrow
from syncline.data.plan.nodes import MapBatches, Project
from syncline.exceptions import UserCodeException


@pytest.fixture
def ds() -> Dataset:
    return from_arrow(pa.table({"a": [1, 2], "b": [1.5, 2.5], "c": [{"x": 1, "y": 2}] * 2}))


def columns(ds: Dataset) -> list[str] | None:
    assert isinstance(ds._node, Project)
    return ds.columns(fetch_if_missing=False)


def test_projections_know_their_columns_without_running(ds: Dataset) -> None:
    assert columns(ds.select_columns("b")) == ["b"]
    assert columns(ds.select_columns(["b", "a"])) == ["b", "a"]
    assert columns(ds.select_columns([])) == []
    assert columns(ds.drop_columns(["a"])) == ["b", "c"]
    assert columns(ds.drop_columns([])) == ["a", "b", "c"]
    assert columns(ds.rename_columns({"a": "z"})) == ["z", "b", "c"]
    assert columns(ds.rename_columns(["x", "y", "z"])) == ["x", "y", "z"]
    assert columns(ds.rename_columns({"a": "b", "b": "a"})) == ["b", "a", "c"]
    assert columns(ds.with_column("d", col("a") * 2)) == ["a", "b", "c", "d"]
    assert columns(ds.with_column("a", lit("text"))) == ["a", "b", "c"]
    assert columns(ds.with_columns({"d": col("a"), "e": col("b")}, unnest(col("c")))) == [
        "a",
        "b",
        "c",
        "d",
        "e",
        "x",
        "y",
    ]


@pytest.mark.parametrize(
    "unknown",
    [
        lambda ds: ds.select_columns(["a", "bb"]),
        lambda ds: ds.drop_columns(["bb"]),
        lambda ds: ds.rename_columns({"bb": "z"}),
        lambda ds: ds.with_column("d", col("bb") + 1),
        lambda ds: ds.with_columns(unnest(col("bb"))),
    ],
)
def test_an_unknown_column_fails_at_the_call_and_names_the_nearest(
    ds: Dataset, unknown: Any
) -> None:
    with pytest.raises(UnknownColumnError, match="Did you mean 'b'"):
        unknown(ds)
    with pytest.raises(KeyError):
        unknown(ds)
    assert isinstance(
        unknown(ds.map(lambda row: row))._node, Project
    )  # behind a function nobody knows


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda ds: ds.select_columns(["a", "a"]), ValueError),
        (lambda ds: ds.select_columns(["a", 1]), ValueError),
        (lambda ds: ds.select_columns(5), TypeError),
        (lambda ds: ds.select_columns("a", concurrency=(1, 2)), ValueError),
        (lambda ds: ds.drop_columns(["a", "a"]), ValueError),
        (lambda ds: ds.rename_columns({}), ValueError),
        (lambda ds: ds.rename_columns({"a": "z", "b": "z"}), ValueError),
        (lambda ds: ds.rename_columns({"a": "b"}), ValueError),
        (lambda ds: ds.rename_columns(["x", "y"]), ValueError),
        (lambda ds: ds.rename_columns("x"), TypeError),
        (lambda ds: ds.with_column("d", 5), TypeError),
        (lambda ds: ds.with_column("", col("a")), ValueError),
        (lambda ds: ds.with_column(5, col("a")), TypeError),
        (lambda ds: ds.with_column("d", col("c") + 1), TypeError),
        (lambda ds: ds.with_columns([col("a")]), TypeError),
        (lambda ds: ds.add_column("d", 5), ValueError),
        (lambda ds: ds.add_column("d", len, batch_format="default"), ValueError),
    ],
)
def test_what_does_not_fit_fails_at_the_call(
    ds: Dataset, call: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        call(ds)


def test_no_new_columns_are_no_change(ds: Dataset) -> None:
    assert ds.with_columns()._node is ds._node
    assert ds.with_columns({})._node is ds._node


def test_with_columns_computes_from_the_columns_as_they_were(ds: Dataset) -> None:
    node = ds.with_columns({"a": col("a") + 1, "d": col("a")})._node
    assert isinstance(node, Project)
    assert [expr.name for expr in node.expressions[1:]] == ["a", "d"]


@pytest.mark.parametrize(
    ("batch", "values"),
    [
        ({"a": np.array([1, 2])}, np.array([2, 4])),
        (pd.DataFrame({"a": [1, 2]}, index=[5, 6]), pd.Series([2, 4])),
        (pa.table({"a": [1, 2]}), pa.array([2, 4])),
    ],
)
@pytest.mark.parametrize("name", ["a", "d"])
def test_add_column_adds_or_replaces_and_leaves_the_batch_alone(
    batch: Any, values: Any, name: str
) -> None:
    added = add_column(name, lambda given: values, batch)
    assert list(added[name].to_pylist() if isinstance(added, pa.Table) else added[name]) == [2, 4]
    before = batch["a"].to_pylist() if isinstance(batch, pa.Table) else list(batch["a"])
    assert before == [1, 2]
    assert set(added.column_names if isinstance(added, pa.Table) else added) == {"a", name}


def test_add_column_maps_batches_that_keep_their_rows(ds: Dataset) -> None:
    node = ds.add_column("d", len)._node
    assert isinstance(node, MapBatches)
    assert (node.batch_format, node.keeps_row_count, node.name) == (
        "pandas",
        True,
        "MapBatches(add_column)",
    )


def test_errors_of_expressions_are_those_of_an_execution(ds: Dataset) -> None:
    flat = from_arrow(pa.table({"items": [[1, 2], [3]]}))
    for error in (UserCodeException, TypeError):
        with pytest.raises(error, match="lists of lists"):
            flat.with_column("x", col("items").list.flatten())
    for call in (
        lambda: flat.filter(expr=col("items").list.len()),
        lambda: ds.with_column("x", col("bb")),
        lambda: ds.groupby("a").with_column("x", col("bb") + 1),
    ):
        with pytest.raises(UserCodeException):
            call()


@pytest.mark.parametrize(
    "unknown",
    [
        lambda ds: ds.select_columns(["bb"]),
        lambda ds: ds.drop_columns(["bb"]),
        lambda ds: ds.rename_columns({"bb": "c"}),
    ],
)
def test_unknown_columns_of_a_projection_are_errors_of_user_code(ds: Dataset, unknown: Any) -> None:
    for error in (UserCodeException, UnknownColumnError):
        with pytest.raises(error):
            unknown(ds)
