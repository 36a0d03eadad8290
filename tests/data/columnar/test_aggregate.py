"""Aggregators: against pandas on random data, over any division into blocks, and on the odd
cases.
"""

import datetime
import decimal
import math
import pickle
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from syncline.data.columnar import block as blocks
from syncline.data.columnar.aggregate import (
    AbsMax,
    AggregateFn,
    AggregateFnV2,
    ApproximateQuantile,
    ApproximateTopK,
    AsList,
    Count,
    CountDistinct,
    Max,
    Mean,
    Min,
    MissingValuePercentage,
    Quantile,
    Std,
    Sum,
    Unique,
    ValueCounter,
    ZeroPercentage,
    phases,
)
from syncline.data.columnar.schemas import UnknownColumnError
from syncline.data.columnar.tensors import tensor_array


def in_blocks(
    table: pa.Table, keys: Any, aggregates: list[AggregateFn], sizes: list[int]
) -> pa.Table:
    """The aggregation as many blocks make it: pickled partials, merged two and two, then all."""
    starts = np.cumsum([0, *sizes])
    pieces = [table.slice(start, size) for start, size in zip(starts, sizes, strict=False)] + [
        table.slice(starts[-1])
    ]
    shipped = cloudpickle.loads(cloudpickle.dumps(aggregates))
    partials = [
        pickle.loads(pickle.dumps(phases.partial(piece, keys, shipped))) for piece in pieces
    ]
    pairs = [
        phases.merge(partials[index : index + 2], keys, shipped)
        for index in range(0, len(partials), 2)
    ]
    return phases.finalize(phases.merge([blocks.concat(pairs)], keys, shipped), keys, shipped)


def value(table: pa.Table, aggregate: AggregateFn) -> Any:
    """The result over all rows; in one piece and in several it has to be the same."""
    whole = phases.aggregate(table, [], [aggregate])
    assert whole.num_rows == 1
    cut = in_blocks(table, [], [aggregate], [0, table.num_rows // 3, 1])
    assert repr(cut.to_pydict()) == repr(whole.to_pydict())
    return whole.column(0)[0].as_py()


def random_table(seed: int, rows: int = 500) -> pa.Table:
    rng = np.random.default_rng(seed)
    missing = rng.random(rows) < 0.2
    return pa.table(
        {
            "k": rng.integers(0, 12, rows),
            "s": pa.array(rng.choice(["x", "y", ""], rows), mask=rng.random(rows) < 0.1),
            "i": pa.array(rng.integers(-5, 6, rows), mask=missing),
            "f": pa.array(rng.normal(1000.0, 0.5, rows), mask=missing),
            "b": pa.array(rng.random(rows) < 0.5, mask=missing),
            "t": pa.array(
                np.datetime64("2024-01-01", "us")
                + rng.integers(0, 10**12, rows).astype("timedelta64[us]"),
                mask=missing,
            ),
            "w": pa.array(rng.choice(["ape", "bee", "cat", "dog"], rows), mask=missing),
        }
    )


def same(ours: Any, theirs: Any) -> bool:
    if ours is None or pd.isna(ours):
        return bool(pd.isna(theirs))
    if isinstance(ours, float):
        return math.isclose(ours, float(theirs), rel_tol=1e-9, abs_tol=1e-9)
    return bool(ours == theirs)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("keys", [["k"], ["k", "s"]])
def test_groups_agree_with_pandas(seed: int, keys: list[str]) -> None:
    table = random_table(seed)
    rng = np.random.default_rng(seed)
    wanted = {
        "sum(i)": (Sum("i"), "i", lambda g: g.sum(min_count=1)),
        "sum(f)": (Sum("f"), "f", lambda g: g.sum(min_count=1)),
        "sum(b)": (Sum("b"), "b", lambda g: g.sum(min_count=1)),
        "mean(f)": (Mean("f"), "f", lambda g: g.mean()),
        "mean(i)": (Mean("i"), "i", lambda g: g.mean()),
        "std(f)": (Std("f"), "f", lambda g: g.std()),
        "std(i)": (Std("i"), "i", lambda g: g.std()),
        "p": (Std("f", ddof=0, alias_name="p"), "f", lambda g: g.std(ddof=0)),
        "min(w)": (Min("w"), "w", lambda g: g.agg(lambda x: min(x.dropna(), default=None))),
        "max(w)": (Max("w"), "w", lambda g: g.agg(lambda x: max(x.dropna(), default=None))),
        "min(t)": (Min("t"), "t", lambda g: g.min()),
        "max(t)": (Max("t"), "t", lambda g: g.max()),
        "max(b)": (Max("b"), "b", lambda g: g.max()),
        "min(i)": (Min("i"), "i", lambda g: g.min()),
        "abs_max(i)": (AbsMax("i"), "i", lambda g: g.agg(lambda x: x.abs().max())),
        "count(f)": (Count("f", ignore_nulls=True), "f", lambda g: g.count()),
        "count()": (Count(), "k", lambda g: g.size()),
        "quantile(f)": (Quantile("f", q=0.3), "f", lambda g: g.quantile(0.3)),
        "count_distinct(w)": (CountDistinct("w"), "w", lambda g: g.nunique()),
        "missing_pct(f)": (
            MissingValuePercentage("f"),
            "f",
            lambda g: g.agg(lambda x: 100 * x.isna().mean()),
        ),
        "zero_pct(i)": (
            ZeroPercentage("i"),
            "i",
            lambda g: g.agg(lambda x: 100 * (x.dropna() == 0).mean()),
        ),
        "list(i)": (
            AsList("i"),
            "i",
            lambda g: g.agg(lambda x: [None if pd.isna(v) else v for v in x]),
        ),
        "unique(w)": (
            Unique("w"),
            "w",
            lambda g: g.agg(lambda x: [None if pd.isna(v) else v for v in x.unique()]),
        ),
    }
    sizes = [int(size) for size in rng.integers(0, 120, 5)]
    result = in_blocks(table, keys, [aggregate for aggregate, _, _ in wanted.values()], sizes)
    assert result.column_names == [*keys, *wanted]
    frame = table.to_pandas(
        types_mapper={pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}.get
    )
    frame["s"] = frame["s"].astype(object).where(frame["s"].notna(), None)
    grouping = frame.groupby(keys, dropna=False, sort=False)
    groups = [tuple(row[key] for key in keys) for row in result.select(keys).to_pylist()]
    for name, (_, column, function) in wanted.items():
        expected = {
            tuple(
                None if pd.isna(part) else part
                for part in (key if isinstance(key, tuple) else (key,))
            ): item
            for key, item in function(grouping[column]).items()
        }
        assert len(expected) == len(groups)
        for key, ours in zip(groups, result.column(name).to_pylist(), strict=True):
            theirs = expected[key]
            assert ours == theirs if isinstance(theirs, list) else same(ours, theirs), (
                name,
                key,
                ours,
                theirs,
            )


def test_results_come_in_order_of_the_keys_with_null_last() -> None:
    table = pa.table({"k": [3, 1, 3, 2, None, 1]})
    assert in_blocks(table, "k", [Count()], [2, 2]).to_pydict() == {
        "k": [1, 2, 3, None],
        "count()": [2, 1, 2, 1],
    }


EMPTY = pa.table({"v": pa.array([], pa.int64())})
NULLS = pa.table({"v": pa.array([None, None], pa.int64())})


@pytest.mark.parametrize(
    ("aggregate", "of_empty", "of_nulls"),
    [
        (Count(), 0, 2),
        (Count("v"), 0, 2),
        (Count("v", ignore_nulls=True), 0, 0),
        (Sum("v"), None, None),
        (Min("v"), None, None),
        (Max("v"), None, None),
        (Mean("v"), None, None),
        (Std("v"), None, None),
        (AbsMax("v"), None, None),
        (Quantile("v"), None, None),
        (Unique("v"), [], [None]),
        (Unique("v", ignore_nulls=True), [], []),
        (CountDistinct("v"), 0, 0),
        (CountDistinct("v", ignore_nulls=False), 0, 1),
        (ValueCounter("v"), None, {"values": [None], "counts": [2]}),
        (AsList("v"), [], [None, None]),
        (AsList("v", ignore_nulls=True), [], []),
        (MissingValuePercentage("v"), None, 100.0),
        (ZeroPercentage("v"), None, None),
        (ZeroPercentage("v", ignore_nulls=False), None, 0.0),
        (ApproximateQuantile("v", [0.5]), None, None),
        (ApproximateTopK("v", 2), None, []),
    ],
    ids=lambda item: item.name if isinstance(item, AggregateFn) else "",
)
def test_no_rows_and_no_values(aggregate: AggregateFn, of_empty: Any, of_nulls: Any) -> None:
    assert value(EMPTY, aggregate) == of_empty
    assert value(NULLS, aggregate) == of_nulls
    assert value(pa.table({"v": pa.nulls(2)}), aggregate) == of_nulls
    grouped = phases.aggregate(EMPTY.append_column("k", EMPTY["v"]), "k", [aggregate])
    assert (grouped.num_rows, grouped.column_names) == (0, ["k", aggregate.name])


@pytest.mark.parametrize("kind", [Sum, Min, Max, Mean, Std, AbsMax, Quantile])
def test_a_null_makes_the_result_null_unless_ignored(kind: Any) -> None:
    table = pa.table({"v": [1.0, None, 3.0, 2.0, 4.0]})
    assert value(table, kind("v", ignore_nulls=False)) is None
    assert value(table, kind("v")) is not None
    assert value(table.slice(2), kind("v", ignore_nulls=False)) is not None


def test_nan_is_a_value() -> None:
    table = pa.table({"v": [1.0, math.nan, None, 0.0, math.nan]})
    assert math.isnan(value(table, Sum("v")))
    assert math.isnan(value(table, Mean("v")))
    assert math.isnan(value(table, Std("v")))
    assert (value(table, Min("v")), value(table, Max("v"))) == (0.0, 1.0)
    assert value(table, Quantile("v")) == 0.5
    assert value(table, CountDistinct("v")) == 3
    assert value(table, MissingValuePercentage("v")) == 60.0
    assert value(table, ZeroPercentage("v")) == 25.0
    assert value(table, Count("v", ignore_nulls=True)) == 4


def test_sums_of_integers_are_exact_or_an_error() -> None:
    large = pa.table({"v": [2**62, 2**62, -(2**62), 5]})
    assert value(large, Sum("v")) == 2**62 + 5  # although the sum in between does not fit
    assert value(pa.table({"v": pa.array([200, 100, 255], pa.uint8())}), Sum("v")) == 555
    assert value(pa.table({"v": pa.array([-128, 127], pa.int8())}), AbsMax("v")) == 128
    for too_large in (pa.table({"v": [2**62, 2**62, 1]}), pa.table({"v": [2**62] * 4})):
        for sizes in ([3], [1, 1]):
            with pytest.raises(OverflowError, match=r"sum\(v\) is about .*int64.*cast column 'v'"):
                in_blocks(too_large, [], [Sum("v")], sizes)


def test_deviation_keeps_its_digits_beside_a_large_mean() -> None:
    values = np.array([4.0, 7.0, 13.0, 16.0] * 25) + 1e9
    for sizes in ([], [3, 0, 50], [1] * 99):
        result = in_blocks(pa.table({"v": values}), [], [Std("v")], sizes).column(0)[0].as_py()
        assert math.isclose(result, float(np.std(values, ddof=1)), rel_tol=1e-9)
    assert math.isnan(value(pa.table({"v": [3.0]}), Std("v")))
    assert value(pa.table({"v": [3.0]}), Std("v", ddof=0)) == 0.0


def test_decimals_times_and_dictionaries() -> None:
    day = datetime.timedelta(days=1)
    table = pa.table(
        {
            "d": [decimal.Decimal("1.10"), decimal.Decimal("2.25"), None],
            "e": pa.array([day, 3 * day, None], pa.duration("s")),
            "c": pa.array(["b", "a", None]).dictionary_encode(),
            "h": pa.array(np.array([1.5, -2.5, 0.0], np.float16)),
        }
    )
    assert value(table, Sum("d")) == decimal.Decimal("3.35")
    assert value(table, Max("d")) == decimal.Decimal("2.25")
    assert math.isclose(value(table, Mean("d")), 1.675)
    assert (value(table, Sum("e")), value(table, Min("e")), value(table, Max("e"))) == (
        4 * day,
        day,
        3 * day,
    )
    assert (value(table, Min("c")), value(table, CountDistinct("c"))) == ("a", 2)
    assert (value(table, Sum("h")), value(table, Max("h")), value(table, AbsMax("h"))) == (
        -1.0,
        1.5,
        2.5,
    )


def test_blocks_of_different_types_meet() -> None:
    aggregates = [Sum("v"), Min("v"), Mean("v"), AsList("v"), Std("v"), CountDistinct("v")]
    pieces = [
        pa.table({"v": [1, 2]}),
        pa.table({"v": [2.5]}),
        pa.table({"v": pa.nulls(1)}),
        pa.table({}),
    ]
    result = phases.finalize(
        phases.merge([phases.partial(piece, [], aggregates) for piece in pieces], [], aggregates),
        [],
        aggregates,
    )
    assert result.to_pylist()[0] | {"std(v)": 0} == {
        "sum(v)": 5.5,
        "min(v)": 1.0,
        "mean(v)": 5.5 / 3,
        "list(v)": [1.0, 2.0, 2.5, None],
        "std(v)": 0,
        "count_distinct(v)": 3,
    }


def test_counted_and_listed_values() -> None:
    table = pa.table({"v": ["x", "y", None, "x", "x", None]})
    assert value(table, ValueCounter("v")) == {"values": ["x", "y", None], "counts": [3, 1, 2]}
    lists = pa.table({"v": [[1, 2], [1, 2], [2, 3], None]})
    assert value(lists, Unique("v")) == [[1, 2], [2, 3], None]
    assert value(lists, Unique("v", ignore_nulls=True, encode_lists=True)) == [1, 2, 3]
    hashes = value(lists, Unique("v", ignore_nulls=True, encode_lists=Unique.ListEncodingMode.HASH))
    assert [type(item) for item in hashes] == [int, int]


def test_tensors_are_counted_listed_and_told_apart() -> None:
    table = pa.table(
        {"k": [1, 1, 2, 1], "v": tensor_array(np.array([[1, 2], [3, 4], [5, 6], [1, 2]]))}
    )
    result = in_blocks(
        table, "k", [AsList("v"), CountDistinct("v"), Count("v", ignore_nulls=True)], [1, 2]
    )
    assert [np.asarray(item).tolist() for item in result["list(v)"].to_pylist()] == [
        [[1, 2], [3, 4], [1, 2]],
        [[5, 6]],
    ]
    assert result["count_distinct(v)"].to_pylist() == [2, 1]
    assert result["count(v)"].to_pylist() == [3, 1]


def test_approximate_quantiles_are_exact_while_few_and_near_when_many() -> None:
    few = np.random.default_rng(0).normal(size=300)
    assert np.allclose(
        value(pa.table({"v": few}), ApproximateQuantile("v", [0.0, 0.1, 0.5, 1.0])),
        np.quantile(few, [0, 0.1, 0.5, 1]),
    )
    many = np.random.default_rng(1).exponential(size=20_000)
    quantiles = [0.0, 0.01, 0.25, 0.5, 0.9, 0.999, 1.0]
    table = pa.table({"v": many, "k": np.arange(20_000) % 2})
    result = in_blocks(table, "k", [ApproximateQuantile("v", quantiles)], [3000] * 6)
    for parity, ours in enumerate(result.column(1).to_pylist()):
        own = np.sort(many[parity::2])
        ranks = np.searchsorted(own, ours) / len(own)
        assert np.abs(ranks - quantiles).max() < 0.004
        assert (ours[0], ours[-1]) == (own[0], own[-1])


def test_most_frequent_values_are_exact_while_they_fit_and_bounded_beyond() -> None:
    words = ["a"] * 5 + ["b"] * 7 + ["c"] * 2 + [None] * 9
    assert value(pa.table({"w": words}), ApproximateTopK("w", 2)) == [
        {"w": "b", "count": 7},
        {"w": "a", "count": 5},
    ]
    rng = np.random.default_rng(0)
    numbers = np.concatenate([np.repeat([-1, -2], [4000, 3000]), rng.integers(0, 100_000, 8000)])
    rng.shuffle(numbers)
    result = (
        in_blocks(
            pa.table({"v": numbers}), [], [ApproximateTopK("v", 2, log_capacity=8)], [2500] * 5
        )
        .column(0)[0]
        .as_py()
    )
    assert [item["v"] for item in result] == [-1, -2]
    for item, true in zip(result, [4000, 3000], strict=True):
        assert true <= item["count"] <= true + len(numbers) / 2**8
    assert value(
        pa.table({"l": [["x", "y"], ["x"]]}), ApproximateTopK("l", 1, encode_lists=True)
    ) == [{"l": "x", "count": 2}]


class Span(AggregateFnV2[list[float], float]):
    """Greatest less least value: a subclass as programs write it."""

    def __init__(self, on: str, ignore_nulls: bool = True) -> None:
        super().__init__("span", lambda: [math.inf, -math.inf], on=on, ignore_nulls=ignore_nulls)

    def aggregate_block(self, block: pa.Table) -> Any:
        column = block.column(self._target_col_name).drop_null()
        return [min(column.to_pylist()), max(column.to_pylist())] if len(column) else None

    def combine(self, current_accumulator: list[float], new: list[float]) -> list[float]:
        return [min(current_accumulator[0], new[0]), max(current_accumulator[1], new[1])]

    def finalize(self, accumulator: list[float]) -> float:
        return accumulator[1] - accumulator[0]


def test_subclasses_of_programs_run_beside_built_in_ones() -> None:
    table = pa.table({"k": ["a", "b", "a", "c", "b"], "v": [1.0, 5.0, 4.0, None, 7.5]})
    result = in_blocks(table, ["k"], [Span("v"), Sum("v")], [2, 1])
    assert result.to_pydict() == {
        "k": ["a", "b", "c"],
        "span": [3.0, 2.5, None],
        "sum(v)": [5.0, 12.5, None],
    }
    assert value(table.slice(0, 0), Span("v")) is None
    assert value(table, Span("v", ignore_nulls=False)) in (None, 6.5)


def test_functions_of_programs_run_by_row_and_by_block() -> None:
    seen: list[Any] = []

    def init(key: Any) -> int:
        seen.append(key)
        return 0

    by_row = AggregateFn(
        init,
        lambda a, b: a + b,
        "rows",
        accumulate_row=lambda a, row: a + row["v"],
        finalize=lambda a: -a,
    )
    by_block = AggregateFn(
        lambda key: 0,
        lambda a, b: a + b,
        "blocks",
        accumulate_block=lambda a, block: a + block.num_rows,
    )
    table = pa.table({"k": [1, 2, 1], "m": ["x", "y", "x"], "v": [10, 20, 30]})
    assert phases.aggregate(table, ["k", "m"], [by_row, by_block]).to_pydict() == {
        "k": [1, 2],
        "m": ["x", "y"],
        "rows": [-40, -20],
        "blocks": [2, 1],
    }
    phases.aggregate(table, "k", [by_row])
    phases.aggregate(table, [], [by_row])
    assert seen == [(1, "x"), (2, "y"), 1, 2, None]
    assert value(table.slice(0, 0), by_block) == 0


def test_a_subclass_of_a_built_in_has_the_last_word() -> None:
    class Rounded(Mean):
        def finalize(self, accumulator: Any) -> Any:
            mean = super().finalize(accumulator)
            return None if mean is None else round(mean)

    assert in_blocks(
        pa.table({"k": [1, 1, 2], "v": [1.0, 1.8, 7.7]}), "k", [Rounded("v")], [1]
    ).column(1).to_pylist() == [1, 8]
    assert value(pa.table({"v": [1.0, 1.8, 7.7]}), Rounded("v")) == 4


def test_names_and_aliases() -> None:
    assert [a.name for a in (Count(), Sum("b"), Mean("b"), Std("b", alias_name="dev"))] == [
        "count()",
        "sum(b)",
        "mean(b)",
        "dev",
    ]
    assert (Sum("b").get_target_column(), Sum("b").get_agg_name(), Count().get_target_column()) == (
        "b",
        "sum(b)",
        None,
    )
    table = pa.table({"k": [1], "b": [2]})
    assert phases.aggregate(
        table, "k", [Sum("b"), Sum("b"), Max("b", alias_name="k")]
    ).column_names == ["k", "sum(b)", "sum(b)_2", "k_2"]


def test_wrong_columns_and_types_are_named() -> None:
    schema = pa.schema(
        [("price", pa.float64()), ("word", pa.string()), ("l", pa.list_(pa.int64()))]
    )
    phases.check(schema, "word", [Sum("price"), Count()])
    with pytest.raises(UnknownColumnError, match="Did you mean 'price'"):
        phases.check(schema, [], [Sum("prise")])
    with pytest.raises(UnknownColumnError, match="Did you mean 'word'"):
        phases.check(schema, "words", [Count()])
    with pytest.raises(
        TypeError, match=r"mean\(word\) needs numbers, but column 'word' is of type string"
    ):
        phases.check(schema, [], [Mean("word")])
    with pytest.raises(
        TypeError, match=r"min\(l\) needs values with an order, but column 'l' is of type list"
    ):
        phases.check(schema, [], [Min("l")])
    with pytest.raises(TypeError, match="cannot group by column 'l' of type list"):
        phases.check(schema, "l", [Count()])
    with pytest.raises(ValueError, match="needs a column"):
        phases.check(schema, [], [Sum()])
    with pytest.raises(ValueError, match="q=2 is not a quantile"):
        Quantile("price", q=2)
    with pytest.raises(ValueError, match="accumulate_row or accumulate_block"):
        AggregateFn(lambda key: 0, max, "none")
