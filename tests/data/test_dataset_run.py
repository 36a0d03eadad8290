"""What the methods of datasets make of rows, end to end in this process."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import syncline
from syncline.data.columnar.expressions import col, lit, unnest
from syncline.data.dataset import Dataset
from syncline.data.from_memory import from_arrow, from_items
from syncline.data.plan.build import MixStoppingCondition
from syncline.data.read import range as numbers


@pytest.fixture(autouse=True, scope="module")
def local_mode() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


def ids(ds: Dataset) -> list[int]:
    return [row["id"] for row in ds.take_all()]


@pytest.fixture
def ds() -> Dataset:
    return numbers(10, override_num_blocks=3)


def test_functions_on_rows(ds: Dataset) -> None:
    assert ds.map(lambda row, add: {"id": row["id"] + add}, fn_args=[5]).take(2) == [
        {"id": 5},
        {"id": 6},
    ]
    assert ids(ds.filter(lambda row, least: row["id"] >= least, fn_kwargs={"least": 8})) == [8, 9]
    assert ids(ds.flat_map(lambda row: [row] * row["id"]).limit(4)) == [1, 2, 2, 3]


def test_functions_on_batches(ds: Dataset) -> None:
    assert ids(ds.map_batches(lambda batch: {"id": -batch["id"]}))[-1] == -9
    assert ids(ds.map_batches(lambda frame: frame[frame["id"] > 7], batch_format="pandas")) == [
        8,
        9,
    ]
    sizes = ds.map_batches(lambda batch: {"id": [len(batch["id"])]}, batch_size=4).take_all()
    assert sum(row["id"] for row in sizes) == 10
    assert max(row["id"] for row in sizes) == 4


def test_a_class_keeps_its_state(ds: Dataset) -> None:
    class Add:
        def __init__(self, amount: int) -> None:
            self.amount = amount

        def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {"id": batch["id"] + self.amount}

    assert ids(ds.map_batches(Add, fn_constructor_kwargs={"amount": 100}, concurrency=1))[:2] == [
        100,
        101,
    ]


def test_failing_rows_may_be_left_out_and_are_counted(ds: Dataset) -> None:
    kept = ds.map(lambda row: {"id": 10 // (row["id"] - 3)}, on_error="skip").materialize()
    assert kept.count() == 9
    with pytest.raises(ZeroDivisionError):
        ds.map(lambda row: {"id": 10 // (row["id"] - 3)}).materialize()


def test_columns() -> None:
    ds = from_items([{"a": 1, "b": 2.0, "c": {"x": 3}}])
    assert ds.select_columns(["b", "a"]).take_all() == [{"b": 2.0, "a": 1}]
    assert ds.select_columns([]).count() == 1
    assert ds.drop_columns(["a", "c"]).take_all() == [{"b": 2.0}]
    assert ds.rename_columns({"a": "z"}).drop_columns(["c"]).take_all() == [{"z": 1, "b": 2.0}]
    assert ds.map(lambda row: row).rename_columns(["x", "y", "z"]).columns() == ["x", "y", "z"]
    assert ds.with_columns({"a": col("a") + 1, "d": col("a")}, unnest(col("c"))).drop_columns(
        ["c"]
    ).take_all() == [{"a": 2, "b": 2.0, "d": 1, "x": 3}]
    added = ds.add_column("d", lambda frame: pd.Series([9], index=[77])).add_column(
        "e", lambda batch: batch["a"] * 2, batch_format="numpy"
    )
    assert {name: added.take(1)[0][name] for name in "de"} == {"d": 9, "e": 2}
    with pytest.raises(KeyError):
        ds.map(lambda row: row).select_columns("nothing").take_all()


def test_rows_without_columns_are_still_rows(ds: Dataset) -> None:
    bare = ds.drop_columns(["id"])
    assert bare.count() == 10
    assert bare.materialize().count() == 10
    assert bare.take_all() == [{}] * 10
    assert bare.filter(expr=lit(True)).limit(3).count() == 3
    assert bare.union(bare).repartition(3).count() == 20
    assert bare.with_column("one", lit(1)).sum("one") == 10


def test_orders(ds: Dataset) -> None:
    assert ids(ds.sort("id", descending=True)) == list(range(9, -1, -1))
    shuffled = ds.random_shuffle(seed=1)
    assert sorted(ids(shuffled)) == list(range(10))
    assert ids(shuffled) == ids(shuffled)
    assert sorted(ids(ds.randomize_block_order(seed=1))) == list(range(10))
    assert ds.sort("id", boundaries=[4, 8]).materialize().num_blocks() == 3
    sampled = ids(numbers(1000).random_sample(0.5, seed=1))
    assert 400 < len(sampled) < 600
    assert ids(numbers(1000).random_sample(0.5, seed=1)) == sampled
    assert (ids(ds.random_sample(0)), ids(ds.random_sample(1.0))) == ([], list(range(10)))


def test_blocks(ds: Dataset) -> None:
    assert ids(ds.repartition(4)) == list(range(10))
    assert ds.repartition(4).materialize().num_blocks() == 4
    assert [
        block.num_rows for block in blocks(ds.repartition(target_num_rows_per_block=4, strict=True))
    ] == [4, 4, 2]
    assert max(block.num_rows for block in blocks(ds.repartition(target_num_rows_per_block=2))) == 2
    assert sorted(ids(ds.repartition(4, shuffle=True))) == list(range(10))
    few = numbers(3).repartition(3, shuffle=True)
    assert [block.num_rows for block in blocks(few)] == [1, 1, 1]
    keyed = ds.map(lambda row: {"id": row["id"], "even": row["id"] % 2 == 0}).repartition(
        2, keys=["even"], sort=True
    )
    found = [block.to_pydict() for block in blocks(keyed)]
    assert (
        sum(True in block["even"] for block in found)
        == sum(False in block["even"] for block in found)
        == 1
    )
    assert all(block["even"] == sorted(block["even"]) for block in found)


def test_several_datasets(ds: Dataset) -> None:
    assert ids(ds.limit(2).union(ds.limit(1), ds)) == [0, 1, 0, *range(10)]
    assert ds.limit(2).zip(from_items(["x", "y"])).take_all() == [
        {"id": 0, "item": "x"},
        {"id": 1, "item": "y"},
    ]
    with pytest.raises(ValueError, match="has 3 rows"):
        ds.map(lambda row: row).zip(numbers(3)).take_all()
    mixed = numbers(30, override_num_blocks=30).mix(
        numbers(10, override_num_blocks=10), weights=[3, 1]
    )
    assert sorted(ids(mixed)) == sorted([*range(30), *range(10)])
    shortest = numbers(30).mix(
        numbers(10), stopping_condition=MixStoppingCondition.STOP_ON_SHORTEST
    )
    assert shortest.count() < 40
    right = from_arrow(pa.table({"key": [1, 2, 2], "text": ["a", "b", "c"]}))
    joined: list[dict[str, Any]] = ds.join(
        right, "inner", 2, on=("id",), right_on=("key",)
    ).take_all()
    assert sorted((row["id"], row["text"]) for row in joined) == [(1, "a"), (2, "b"), (2, "c")]
    assert ds.join(right, "left_anti", 2, on=("id",), right_on=("key",)).count() == 8


def blocks(ds: Dataset) -> list[pa.Table]:
    return syncline.get(ds.get_internal_block_refs())
