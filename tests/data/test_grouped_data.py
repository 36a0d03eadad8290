"""`GroupedData`: a row for each group, functions on groups, columns within groups."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import syncline
from syncline.data.columnar.aggregate import Count, Max, Std, Sum
from syncline.data.columnar.expressions import col, random, udf
from syncline.data.columnar.schemas import UnknownColumnError
from syncline.data.dataset import Dataset
from syncline.data.from_memory import from_arrow
from syncline.data.plan.nodes import Aggregate, MapGroups


@pytest.fixture(autouse=True, scope="module")
def local_mode() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


@pytest.fixture
def ds() -> Dataset:
    return from_arrow(
        [
            pa.table({"k": ["b", "a", "b"], "v": [1, 2, 3], "w": [1.0, 2.0, None]}),
            pa.table({"k": ["a"], "v": [4], "w": [4.0]}),
        ]
    )


def test_each_group_is_a_row_in_order_of_the_keys(ds: Dataset) -> None:
    grouped = ds.groupby("k")
    assert grouped.count().take_all() == [{"k": "a", "count()": 2}, {"k": "b", "count()": 2}]
    assert grouped.sum("v").take_all() == [{"k": "a", "sum(v)": 6}, {"k": "b", "sum(v)": 4}]
    assert grouped.min(["v", "w"]).take_all() == [
        {"k": "a", "min(v)": 2, "min(w)": 2.0},
        {"k": "b", "min(v)": 1, "min(w)": 1.0},
    ]
    assert grouped.max("w", ignore_nulls=False).take_all() == [
        {"k": "a", "max(w)": 4.0},
        {"k": "b", "max(w)": None},
    ]
    assert grouped.mean("v").take_all() == [{"k": "a", "mean(v)": 3.0}, {"k": "b", "mean(v)": 2.0}]
    assert grouped.std("v", ddof=0).take_all() == [
        {"k": "a", "std(v)": 1.0},
        {"k": "b", "std(v)": 1.0},
    ]
    assert grouped.aggregate(Sum("v"), Count(alias_name="n")).take(1) == [
        {"k": "a", "sum(v)": 6, "n": 2}
    ]


def test_without_columns_all_but_the_keys_are_aggregated(ds: Dataset) -> None:
    assert ds.groupby("k").sum().columns() == ["k", "sum(v)", "sum(w)"]


def test_several_keys_and_none(ds: Dataset) -> None:
    assert ds.groupby(["k", "v"]).count().take(2) == [
        {"k": "a", "v": 2, "count()": 1},
        {"k": "a", "v": 4, "count()": 1},
    ]
    for key in (None, []):
        assert ds.groupby(key).count().take_all() == [{"count()": 4}]


def test_arguments_reach_the_node(ds: Dataset) -> None:
    aggregate = ds.groupby("k", num_partitions=5).aggregate(Max("v"))._node
    assert isinstance(aggregate, Aggregate)
    assert (aggregate.keys, aggregate.num_blocks) == (("k",), 5)
    mapped = (
        ds.groupby("k")
        .map_groups(
            lambda group: group,
            batch_format="pandas",
            zero_copy_batch=False,
            timeout_s=3,
            on_error="skip",
        )
        ._node
    )
    assert isinstance(mapped, MapGroups)
    assert (
        mapped.batch_format,
        mapped.zero_copy,
        mapped.function.timeout_s,
        mapped.function.on_error,
    ) == ("pandas", False, 3.0, "skip")


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda grouped: grouped.sum("vv"), UnknownColumnError),
        (lambda grouped: grouped.sum("k"), TypeError),
        (lambda grouped: grouped.sum([]), ValueError),
        (lambda grouped: grouped.aggregate(), ValueError),
        (lambda grouped: grouped.aggregate(5), TypeError),
        (lambda grouped: grouped.map_groups(5), TypeError),
        (lambda grouped: grouped.map_groups(len, batch_format="list"), ValueError),
        (lambda grouped: grouped.with_column("x", 5), TypeError),
        (lambda grouped: grouped.with_column("x", col("vv")), UnknownColumnError),
    ],
)
def test_what_does_not_fit_fails_at_the_call(
    ds: Dataset, call: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        call(ds.groupby("k"))


def test_a_function_gets_whole_groups(ds: Dataset) -> None:
    def spread(group: dict[str, np.ndarray]) -> dict[str, Any]:
        return {
            "k": group["k"][:1],
            "rows": [len(group["v"])],
            "spread": [group["v"].max() - group["v"].min()],
        }

    rows = ds.groupby("k").map_groups(spread).take_all()
    assert sorted(rows, key=lambda row: row["k"]) == [
        {"k": "a", "rows": 2, "spread": 2},
        {"k": "b", "rows": 2, "spread": 2},
    ]


def test_groups_have_every_format(ds: Dataset) -> None:
    def shares(group: pd.DataFrame) -> pd.DataFrame:
        return group.assign(share=group["v"] / group["v"].sum())

    rows = ds.groupby("k").map_groups(shares, batch_format="pandas").take_all()
    assert math.isclose(sum(row["share"] for row in rows if row["k"] == "a"), 1.0)
    tables = (
        ds.groupby("k")
        .map_groups(lambda table: table.slice(0, 1), batch_format="pyarrow")
        .take_all()
    )
    assert sorted(row["k"] for row in tables) == ["a", "b"]


def test_a_class_is_constructed_for_groups(ds: Dataset) -> None:
    class Add:
        def __init__(self, amount: int) -> None:
            self.amount = amount

        def __call__(self, group: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {"v": group["v"] + self.amount}

    rows = ds.groupby("k").map_groups(Add, fn_constructor_args=[10]).take_all()
    assert sorted(row["v"] for row in rows) == [11, 12, 13, 14]


def test_without_keys_all_rows_are_one_group(ds: Dataset) -> None:
    assert ds.groupby(None).map_groups(lambda group: {"rows": [len(group["v"])]}).take_all() == [
        {"rows": 4}
    ]


def test_with_column_keeps_all_rows(ds: Dataset) -> None:
    for key in ("k", None):
        rows = ds.groupby(key).with_column("twice", col("v") * 2).take_all()
        assert sorted((row["k"], row["v"], row["twice"]) for row in rows) == [
            ("a", 2, 4),
            ("a", 4, 8),
            ("b", 1, 2),
            ("b", 3, 6),
        ]


@udf(return_dtype=pa.float64())
def lowest(values: pa.Array) -> pa.Array:
    return pa.repeat(pa.scalar(pc.min(values).as_py(), pa.float64()), len(values))


@pytest.mark.parametrize("seed", range(12))
def test_groups_have_the_values_of_pandas(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 60))
    keys = rng.choice(np.array(["a", "b", "c", "d", None], dtype=object), (2, rows))
    frame = pd.DataFrame(
        {
            "k": keys[0],
            "l": keys[1],
            "v": rng.integers(-9, 9, rows).astype(float),
            "row": range(rows),
        }
    )
    cuts = sorted({0, rows, *rng.integers(0, rows, 3).tolist()})
    blocks = [
        pa.Table.from_pandas(frame[start:stop], preserve_index=False)
        for start, stop in zip(cuts[:-1], cuts[1:], strict=True)
    ]
    by = [["k"], ["k", "l"]][seed % 2]
    groups = from_arrow(blocks).groupby(by)
    expected = frame.groupby(by, dropna=False)["v"]

    computed = groups.with_column("low", lowest(col("v")) + 1).to_pandas().sort_values("row")
    np.testing.assert_array_equal(computed["low"], expected.transform("min") + 1)

    shifted = groups.map_groups(
        lambda group: group.assign(d=group["v"] - group["v"].max()), batch_format="pandas"
    )
    np.testing.assert_array_equal(
        shifted.to_pandas().sort_values("row")["d"], frame["v"] - expected.transform("max")
    )

    table = groups.aggregate(Count(), Sum("v"), Max("v"), Std("v")).to_pandas()
    of_pandas = pd.DataFrame(
        {
            "count()": expected.size(),
            "sum(v)": expected.sum(),
            "max(v)": expected.max(),
            "std(v)": expected.std(),
        }
    ).reset_index()
    ours, theirs = (
        each.fillna(dict.fromkeys(by, "none")).sort_values(by, ignore_index=True)
        for each in (table, of_pandas)
    )
    pd.testing.assert_frame_equal(ours, theirs, check_dtype=False)


def test_a_limit_does_not_cut_the_groups_of_a_function(ds: Dataset) -> None:
    rows = ds.groupby("k").with_column("low", lowest(col("v"))).limit(1).take_all()
    assert rows[0]["low"] == {"a": 2, "b": 1}[rows[0]["k"]]


def test_random_numbers_are_refused_beside_a_function_of_groups(ds: Dataset) -> None:
    with pytest.raises(ValueError, match="before `groupby`"):
        ds.groupby("k").with_column("x", lowest(col("v")) + random())


def test_repr_names_the_key(ds: Dataset) -> None:
    assert repr(ds.groupby(["k", "v"])).endswith("key=['k', 'v'])")
