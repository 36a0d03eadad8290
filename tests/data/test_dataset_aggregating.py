"""Numbers of all rows: single values, dicts, summaries."""

import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import syncline
from syncline.data.columnar.aggregate import Count, Mean, Sum
from syncline.data.columnar.datatype import DataType
from syncline.data.columnar.expressions import lit
from syncline.data.columnar.schemas import UnknownColumnError
from syncline.data.dataset import Dataset
from syncline.data.from_memory import from_arrow


@pytest.fixture(autouse=True, scope="module")
def local_mode() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


@pytest.fixture
def ds() -> Dataset:
    return from_arrow(
        [pa.table({"a": [1, 2], "b": [1.0, None]}), pa.table({"a": [2, 5], "b": [4.0, 7.0]})]
    )


def test_one_column_gives_a_value_and_several_a_dict(ds: Dataset) -> None:
    assert ds.sum("a") == 10
    assert ds.sum(["a", "b"]) == {"sum(a)": 10, "sum(b)": 12.0}
    assert ds.sum() == {"sum(a)": 10, "sum(b)": 12.0}
    assert (ds.min("b"), ds.max("b"), ds.mean("b")) == (1.0, 7.0, 4.0)
    assert ds.std("b") == 3.0
    assert math.isclose(ds.std("b", ddof=0), math.sqrt(6))
    assert ds.unique("a") == [1, 2, 5]
    assert ds.unique("b") == [1.0, None, 4.0, 7.0]
    assert ds.unique("b", ignore_nulls=True) == [1.0, 4.0, 7.0]


def test_a_null_may_make_the_result_none(ds: Dataset) -> None:
    for method in (ds.sum, ds.min, ds.max, ds.mean, ds.std):
        assert method("b", ignore_nulls=False) is None


def test_aggregate_gives_a_dict_by_name(ds: Dataset) -> None:
    assert ds.aggregate(Sum("a"), Mean("b", alias_name="average")) == {"sum(a)": 10, "average": 4.0}
    assert ds.aggregate(Count()) == {"count()": 4}


def test_no_rows_have_no_sum(ds: Dataset) -> None:
    nothing = ds.filter(lambda row: False)
    assert nothing.sum("a") is None
    assert nothing.unique("a") == []
    assert nothing.aggregate(Sum("a"), Count()) == {"sum(a)": None, "count()": 0}


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda ds: ds.sum("aa"), UnknownColumnError),
        (lambda ds: ds.unique("aa"), UnknownColumnError),
        (lambda ds: ds.summary(["aa"]), UnknownColumnError),
        (lambda ds: ds.sum([]), ValueError),
        (lambda ds: ds.sum(5), TypeError),
        (lambda ds: ds.aggregate(), ValueError),
        (lambda ds: ds.aggregate("sum"), TypeError),
        (lambda ds: ds.groupby("aa"), ValueError),
        (lambda ds: ds.groupby("aa"), KeyError),
        (lambda ds: ds.groupby(5), ValueError),
        (lambda ds: ds.groupby(lambda row: row["a"] % 2), ValueError),
        (lambda ds: ds.groupby("a", num_partitions=0), ValueError),
        (lambda ds: ds.with_column("text", lit("x")).mean("text"), TypeError),
    ],
)
def test_what_does_not_fit_fails_before_anything_runs(
    ds: Dataset, call: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        call(ds)
    assert ds.stats() == ""


def test_a_summary_suits_the_types() -> None:
    ds = from_arrow(pa.table({"age": [20, 40, None, 0], "name": ["x", "y", "x", "x"]}))
    summary = ds.summary()
    frame = summary.to_pandas().set_index("statistic")
    assert list(frame.columns) == ["age", "name"]
    assert frame.loc["count"].tolist() == [4, 4]
    assert frame.loc["missing_pct", "age"] == 25.0
    assert (frame.loc["min", "age"], frame.loc["max", "age"], frame.loc["mean", "age"]) == (
        0,
        40,
        20.0,
    )
    assert frame.loc["approx_topk[0]", "name"] == {"name": "x", "count": 3}
    assert "mean" not in summary.get_column_stats("name")["statistic"].tolist()
    with pytest.raises(ValueError, match="'age'"):
        summary.get_column_stats("nme")


def test_a_summary_may_have_other_aggregators_for_a_type() -> None:
    ds = from_arrow(pa.table({"age": [20, 40], "name": ["x", "y"]}))
    summary = ds.summary(
        ["age"], override_dtype_agg_mapping={DataType.int64(): lambda name: [Sum(name)]}
    )
    assert summary.columns == ["age"]
    assert summary.get_column_stats("age").to_dict("list") == {"statistic": ["sum"], "value": [60]}
