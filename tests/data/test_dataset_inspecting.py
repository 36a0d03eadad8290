"""Schema, count, sizes, files, statistics: from metadata where it tells, executed and remembered
where it does not.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import syncline
from syncline.data.dataset import Dataset, Schema
from syncline.data.from_memory import from_arrow, from_items
from syncline.data.read import range as numbers
from syncline.data.read import read_parquet


@pytest.fixture(autouse=True, scope="module")
def local_mode() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


class Calls:
    """A function that counts the rows that it saw."""

    def __init__(self) -> None:
        self.rows = 0

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        self.rows += len(batch["id"])
        return batch


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def mapped(calls: Calls) -> Dataset:
    return numbers(1000, override_num_blocks=10).map_batches(lambda batch: calls(batch))


def test_the_schema_is_found_out_with_the_first_block_and_remembered(
    mapped: Dataset, calls: Calls
) -> None:
    assert mapped.schema(fetch_if_missing=False) is None
    assert mapped.columns(fetch_if_missing=False) is None
    assert mapped.schema() == Schema(pa.schema([("id", pa.int64())]))
    assert 0 < calls.rows < 1000
    seen = calls.rows
    assert mapped.columns() == ["id"]
    assert mapped.schema(fetch_if_missing=False) is not None
    assert calls.rows == seen


def test_the_count_is_found_out_once(mapped: Dataset, calls: Calls) -> None:
    assert mapped.count() == 1000
    assert calls.rows == 1000
    assert mapped.count() == 1000
    assert calls.rows == 1000


def test_a_count_that_metadata_tells_runs_nothing() -> None:
    def never(row: Any) -> Any:
        raise AssertionError("this must not run")

    assert numbers(10).map(never).limit(4).count() == 4


def test_counts_of_what_is_not_there() -> None:
    assert numbers(5).filter(lambda row: False).count() == 0
    assert from_items([]).count() == 0


def test_the_schema_of_no_rows() -> None:
    assert numbers(5).filter(lambda row: False).columns() == ["id"]
    assert from_items([]).schema() is None


def test_a_schema_has_names_and_types() -> None:
    schema = Schema(pa.schema([("id", pa.int64()), ("longer name", pa.string())]))
    assert (schema.names, schema.types) == (["id", "longer name"], [pa.int64(), pa.string()])
    assert repr(schema).splitlines() == [
        "Column       Type",
        "------       ----",
        "id           int64",
        "longer name  string",
    ]
    assert schema != Schema(pa.schema([("id", pa.int32()), ("longer name", pa.string())]))


def test_sizes_and_files_come_from_metadata(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": list(range(100))}), tmp_path / "a.parquet")
    ds = read_parquet(str(tmp_path))
    assert ds.input_files() == [str(tmp_path / "a.parquet")]
    assert ds.materialize().input_files() == [str(tmp_path / "a.parquet")]
    assert ds.map(lambda row: row).input_files() == [str(tmp_path / "a.parquet")]
    assert ds.count() == 100
    assert from_arrow(pa.table({"a": [1, 2]})).size_bytes() == 16


def test_the_size_of_what_functions_make_is_found_out_once(mapped: Dataset, calls: Calls) -> None:
    assert mapped.size_bytes() == 8000
    assert mapped.size_bytes() == 8000
    assert calls.rows == 1000


def test_stats_are_those_of_the_last_execution(mapped: Dataset) -> None:
    assert mapped.stats() == ""
    mapped.materialize()
    assert "MapBatches" in mapped.stats()
    assert "1,000 rows" in mapped.stats()
    mapped.take(5)
    assert "1,000 rows" not in mapped.stats()
    list(mapped.iter_batches(batch_size=100))
    assert "10 batches" in mapped.stats()


def test_what_was_materialized_tells_how_it_was_made(mapped: Dataset) -> None:
    assert "MapBatches" in mapped.materialize().stats()


def test_explain_prints_the_plan(mapped: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    mapped.limit(3).explain()
    printed = capsys.readouterr().out
    assert "Limit(3)" in printed
    assert "MapBatches(<lambda>)" in printed
    assert "ReadRange" in printed


def test_headroom_names_the_limiting_operator_and_keeps_the_epoch(calls):
    ds = numbers(1000, override_num_blocks=4).map_batches(calls)
    ds.materialize()
    before = ds._query.observations.executions
    found = ds.headroom(1.0, duration_s=60.0)
    assert (calls.rows, found.rows) == (2000, 1000)
    assert "Calls" in str(found.operator)
    assert found.ratio == found.rows_per_s > 1.0
    assert ds._query.observations.executions == before == 1


def test_headroom_checks_its_arguments_before_it_runs(calls):
    ds = numbers(10).map_batches(calls)
    with pytest.raises(ValueError, match="above 0"):
        ds.headroom(0)
    assert calls.rows == 0
