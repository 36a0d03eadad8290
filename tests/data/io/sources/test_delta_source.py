"""Delta tables: round trips through `deltalake`, versions, partitions, pushdown, errors."""

import datetime
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from syncline import data
from syncline.data import UnknownColumnError
from syncline.data.expressions import col
from syncline.data.io.sources.delta import DeltaDatasource, open_table

deltalake = pytest.importorskip("deltalake")


@pytest.fixture
def evolved(tmp_path: Path) -> str:
    """Version 0 has the columns a, p; version 1 adds `new`, with nulls."""
    path = str(tmp_path / "t")
    first = pa.table({"a": [1, 2, 3], "p": ["x y", "x/ü", None]})
    deltalake.write_deltalake(path, first, partition_by=["p"])
    second = pa.table({"a": [4, None], "p": ["q", "q"], "new": [1.5, None]})
    deltalake.write_deltalake(path, second, mode="append", schema_mode="merge")
    return path


def numbers_in(ds: data.Dataset) -> list[int | None]:
    found = [row["a"] for row in ds.take_all()]
    return sorted(found, key=lambda number: (number is None, number))


def test_what_deltalake_wrote_is_read_with_the_columns_of_the_table(evolved: str) -> None:
    ds = data.read_delta(evolved)
    assert ds.schema().names == ["a", "p", "new"]
    assert ds.count() == 5
    rows = {row["a"]: row for row in ds.take_all()}
    assert rows[2] == {"a": 2, "p": "x/ü", "new": None}
    assert rows[3]["p"] is None
    assert rows[4] == {"a": 4, "p": "q", "new": 1.5}
    assert data.read_delta(evolved, version=0).schema().names == ["a", "p"]
    assert data.read_delta(evolved, columns=["p", "a"]).schema().names == ["p", "a"]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (col("new").is_null(), [1, 2, 3, None]),
        (~(col("new") > 1), []),
        (col("new") > 1, [4]),
        (col("a") > 2, [3, 4]),
        (col("a").is_null(), [None]),
        (col("p") == "q", [4, None]),
        (col("p").is_null(), [3]),
    ],
)
def test_predicates_find_the_same_rows_as_a_filter_of_all(
    evolved: str, condition: object, expected: list[int | None]
) -> None:
    ds = data.read_delta(evolved).filter(expr=condition)
    assert numbers_in(ds) == expected
    assert numbers_in(data.read_delta(evolved).materialize().filter(expr=condition)) == expected


def test_statistics_of_the_log_and_partitions_rule_out_files(evolved: str) -> None:
    source = DeltaDatasource(evolved, open_table(evolved))
    assert len(source.get_read_tasks(10)) == 4
    assert len(source.apply_predicate(col("a") == 2).get_read_tasks(10)) == 1
    assert len(source.apply_predicate(col("p") == "q").get_read_tasks(10)) == 1
    assert source.apply_predicate(col("a") > 100).get_read_tasks(10) == []


def test_tasks_read_the_version_of_the_call_in_other_processes(evolved: str) -> None:
    source = DeltaDatasource(evolved, open_table(evolved))
    tasks = pickle.loads(pickle.dumps(source.get_read_tasks(10)))
    data.from_items([{"a": 9, "p": "q"}]).write_delta(evolved, mode="overwrite")
    assert sum(table.num_rows for task in tasks for table in task()) == 5
    assert source.identity() != DeltaDatasource(evolved, open_table(evolved)).identity()
    assert source.identity() == DeltaDatasource(evolved, open_table(evolved, 1)).identity()


def test_rows_round_trip_in_order_and_deltalake_reads_them(tmp_path: Path) -> None:
    path = str(tmp_path / "new" / "t")
    data.range(100, override_num_blocks=7).write_delta(path, name="numbers")
    data.range(3).with_column("b", col("id") * 2).write_delta(path)
    table = deltalake.DeltaTable(path)
    assert (table.version(), table.metadata().name) == (2, "numbers")  # 1 adds the column
    assert table.to_pyarrow_table().num_rows == 103
    ds = data.read_delta(path)
    assert [row["id"] for row in ds.take_all()] == [*range(100), 0, 1, 2]
    assert ds.filter(expr=col("b") >= 2).take_all() == [{"id": 1, "b": 2}, {"id": 2, "b": 4}]
    data.range(2).write_delta(path, mode="overwrite")
    assert data.read_delta(path).take_all() == [{"id": 0}, {"id": 1}]
    assert data.read_delta(path, version=0).count() == 100
    data.range(9).write_delta(path, mode="ignore")
    assert data.read_delta(path).count() == 2


def test_a_loop_resumes_at_the_exact_row_although_the_table_has_changed(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    data.range(1000, override_num_blocks=5).write_delta(path)
    first = data.read_delta(path, override_num_blocks=4).iterator()
    seen: list[int] = []
    for batch in first.iter_batches(batch_size=64):
        seen += batch["id"].tolist()
        if len(seen) == 320:
            state = first.state_dict()
            break
    data.range(7).write_delta(path)
    second = data.read_delta(path, version=0, override_num_blocks=4).iterator()
    second.load_state_dict(state)
    for batch in second.iter_batches(batch_size=64):
        seen += batch["id"].tolist()
    assert seen == list(range(1000))


def test_partitions_and_their_types_round_trip(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    rows = [
        {"a": number, "p": ["x y", "ü/1", None][number % 3], "d": day, "flag": number > 2}
        for number in range(7)
        for day in (datetime.date(2024, 1, 1), datetime.date(2024, 12, 31))
    ]
    data.from_items(rows).write_delta(path, partition_by=["p", "d", "flag"])
    found = data.read_delta(path).take_all()
    assert sorted(map(str, found)) == sorted(map(str, rows))
    assert deltalake.DeltaTable(path).to_pyarrow_table().num_rows == 14
    day = data.read_delta(path).filter(expr=col("d") == datetime.date(2024, 12, 31))
    assert day.count() == 7


def test_tensors_become_lists(tmp_path: Path) -> None:
    data.range_tensor(2, shape=(2, 2)).write_delta(str(tmp_path))
    row = data.read_delta(str(tmp_path)).take_all()[1]
    assert np.array(row["data"]).tolist() == [1, 1, 1, 1]


def test_paths_may_be_of_pathlib(tmp_path: Path) -> None:
    data.range(2).write_delta(tmp_path / "t")
    assert data.read_delta(tmp_path / "t").count() == 2


def test_a_table_without_files_has_its_columns(tmp_path: Path) -> None:
    schema = deltalake.Schema.from_arrow(pa.schema([("a", pa.int64())]))
    deltalake.DeltaTable.create(str(tmp_path / "t"), schema=schema)
    ds = data.read_delta(str(tmp_path / "t"))
    assert (ds.count(), ds.schema().names) == (0, ["a"])
    with pytest.raises(UnknownColumnError, match="Did you mean 'a'"):
        data.read_delta(str(tmp_path / "t"), columns=["aa"])


def test_mistakes_say_what_to_do(evolved: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no Delta table at .*read_parquet"):
        data.read_delta(str(tmp_path / "none"))
    with pytest.raises(ValueError, match="version=9 .* The newest version is 1"):
        data.read_delta(evolved, version=9)
    with pytest.raises(ValueError, match="version=-1: pass the number of a version"):
        data.read_delta(evolved, version=-1)
    with pytest.raises(ValueError, match=r"one table, not \['a', 'b'\]"):
        data.read_delta(["a", "b"])
    with pytest.raises(UnknownColumnError, match="Did you mean 'new'"):
        data.read_delta(evolved, columns=["neww"])
    rows = data.from_items([{"a": 1, "p": "x", "other": 1}])
    with pytest.raises(ValueError, match=r"\['other'\].*schema_mode='merge'"):
        rows.write_delta(evolved, schema_mode="error")
    with pytest.raises(ValueError, match="already a Delta table"):
        rows.write_delta(evolved, mode="create")
    with pytest.raises(ValueError, match="column 'a' is string, but int64"):
        data.from_items([{"a": "text", "p": "x"}]).write_delta(evolved)
    with pytest.raises(ValueError, match=r"lack \['p'\]"):
        data.from_items([{"a": 1}]).write_delta(evolved)
    with pytest.raises(ValueError, match=r"is partitioned by \['p'\]"):
        rows.write_delta(evolved, partition_by=["a"])
    with pytest.raises(ValueError, match="does not support the mode 'upsert'"):
        rows.write_delta(evolved, mode="upsert")
    assert data.read_delta(evolved).count() == 5
