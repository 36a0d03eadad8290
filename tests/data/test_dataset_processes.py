"""Datasets on worker processes: where functions run, and handles that travel."""

import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import syncline
from syncline.data.columnar.expressions import col
from syncline.data.dataset import Dataset
from syncline.data.from_memory import from_items
from syncline.data.read import range as numbers

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True, scope="module")
def engine() -> Iterator[None]:
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()


@pytest.mark.promise
def test_functions_run_elsewhere_and_the_order_is_kept() -> None:
    def where(batch: dict[str, np.ndarray]) -> dict[str, Any]:
        return {"id": batch["id"], "pid": [os.getpid()] * len(batch["id"])}

    rows = numbers(1000, override_num_blocks=8).map_batches(where).take_all()
    assert [row["id"] for row in rows] == list(range(1000))
    assert os.getpid() not in {row["pid"] for row in rows}


def test_a_class_is_constructed_once_per_actor() -> None:
    class Constructed:
        def __init__(self) -> None:
            self.token = os.urandom(8).hex()

        def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, Any]:
            return {"token": [self.token] * len(batch["id"])}

    assert (
        len(
            numbers(1000, override_num_blocks=10)
            .map_batches(Constructed, concurrency=1, num_cpus=0)
            .unique("token")
        )
        == 1
    )


def test_handles_travel_to_tasks() -> None:
    @syncline.remote(num_cpus=0)
    def total(ds: Dataset) -> int:
        result: int = ds.sum("id")
        return result

    lazy = numbers(100).filter(col("id") >= 50)
    materialized = lazy.map(lambda row: row).materialize()
    assert syncline.get([total.remote(lazy), total.remote(materialized)], timeout=60) == [
        3725,
        3725,
    ]


def test_an_error_is_the_original_one_and_shows_the_line() -> None:
    def fails(row: dict[str, int]) -> dict[str, int]:
        raise LookupError(f"no place for {row['id']}")

    with pytest.raises(LookupError, match="no place for") as caught:
        numbers(10).map(fails).materialize()
    assert 'raise LookupError(f"no place' in str(caught.value)


def test_rows_that_take_too_long_may_be_left_out() -> None:
    def stuck(row: dict[str, int]) -> dict[str, int]:
        if row["id"] == 3:
            time.sleep(600)
        return row

    ds = from_items([{"id": n} for n in range(6)], override_num_blocks=1).map(
        stuck, timeout_s=2, on_error="skip"
    )
    assert [row["id"] for row in ds.take_all()] == [0, 1, 2, 4, 5]
    assert "left out" in ds.stats()


def test_parts_of_a_split_hold_their_rows() -> None:
    ds = numbers(1000, override_num_blocks=4).map_batches(lambda batch: batch)
    parts = ds.split_at_indices([100, 999])
    del ds
    assert [part.count() for part in parts] == [100, 899, 1]
    assert [part.sum("id") for part in parts] == [4950, 499500 - 4950 - 999, 999]


def test_groups_are_mapped_elsewhere() -> None:
    ds = numbers(1000).map_batches(lambda batch: {"key": batch["id"] % 7, "value": batch["id"]})
    rows = (
        ds.groupby("key")
        .map_groups(lambda group: {"key": group["key"][:1], "rows": [len(group["key"])]})
        .take_all()
    )
    assert sorted(row["key"] for row in rows) == list(range(7))
    assert sum(row["rows"] for row in rows) == 1000
    assert ds.groupby("key").count().sum("count()") == 1000
