"""Iceberg tables in a local catalog: round trips, snapshots, pushdown, errors."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from syncline import data
from syncline.data import UnknownColumnError
from syncline.data.expressions import col
from syncline.data.io.sources.iceberg import IcebergDatasource

catalogs = pytest.importorskip("pyiceberg.catalog")


class Tables:
    """A catalog in a directory with the table `db.t`."""

    def __init__(self, directory: Path) -> None:
        self.catalog_kwargs = {
            "name": "local",
            "type": "sql",
            "uri": f"sqlite:///{directory}/catalog.db",
            "warehouse": f"file://{directory}/warehouse",
        }
        self.catalog = catalogs.load_catalog(**self.catalog_kwargs)
        self.catalog.create_namespace("db")
        schema = pa.schema([("a", pa.int64()), ("s", pa.string())])
        self.catalog.create_table("db.t", schema=schema)

    def read(self, **options: Any) -> data.Dataset:
        return data.read_iceberg(
            table_identifier="db.t", catalog_kwargs=self.catalog_kwargs, **options
        )

    def write(self, ds: data.Dataset, **options: Any) -> None:
        ds.write_iceberg("db.t", self.catalog_kwargs, **options)

    def snapshots(self) -> list[int]:
        return [each.snapshot_id for each in self.catalog.load_table("db.t").snapshots()]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """A table that tests only read."""
    return filled(tmp_path_factory.mktemp("tables"))


@pytest.fixture
def own_tables(tmp_path: Path) -> Tables:
    """A table that the test may change."""
    return filled(tmp_path)


def filled(directory: Path) -> Tables:
    found = Tables(directory)
    rows = [{"a": number, "s": f"s{number}"} for number in range(6)]
    found.write(data.from_items(rows, override_num_blocks=3))
    found.write(data.from_items([{"a": 100, "s": "z", "n": 1.5}]))
    return found


def test_rows_round_trip_in_order_and_new_columns_are_added(tables: Tables) -> None:
    ds = tables.read()
    assert [row["a"] for row in ds.take_all()] == [0, 1, 2, 3, 4, 5, 100]
    assert ds.take(1) == [{"a": 0, "s": "s0", "n": None}]
    assert ds.count() == 7
    assert ds.schema().types == [pa.int64(), pa.string(), pa.float64()]
    assert tables.catalog.load_table("db.t").scan().to_arrow().num_rows == 7


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (col("a") > 3, [4, 5, 100]),
        (col("a") >= 4, [4, 5, 100]),
        ((col("a") < 2) | (col("s") == "z"), [0, 1, 100]),
        (~(col("a") > 3), [0, 1, 2, 3]),
        (col("a").is_in([1, 100]), [1, 100]),
        (col("a").not_in([1, 100]), [0, 2, 3, 4, 5]),
        (col("n").is_null(), [0, 1, 2, 3, 4, 5]),
        (col("n").is_not_null(), [100]),
        ((col("a") != 1) & (col("n") != 2), [100]),
        (col("a") + 1 > 5, [5, 100]),
    ],
)
def test_predicates_find_the_same_rows_as_a_filter_of_all(
    tables: Tables, condition: object, expected: list[int]
) -> None:
    found = tables.read().filter(expr=condition).select_columns(["a"]).take_all()
    assert [row["a"] for row in found] == expected


def test_manifests_rule_out_files_and_columns_are_not_read(
    tables: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    source = IcebergDatasource("db.t", catalog_kwargs=tables.catalog_kwargs)
    assert len(source.input_files()) == 4
    assert len(source.apply_predicate(col("a") > 50).input_files()) == 1
    tables.read().filter(expr=col("a") > 3).select_columns(["s"]).explain()
    assert "ReadIceberg[columns=['s'], where col('a') > 3]" in capsys.readouterr().out


def test_columns_are_known_without_files(tables: Tables) -> None:
    none = tables.read().filter(expr=col("a") > 1000).select_columns(["s"])
    assert none.materialize().schema().names == ["s"]
    assert none.take_all() == []


def test_tasks_read_the_snapshot_of_the_call_in_other_processes(own_tables: Tables) -> None:
    source = IcebergDatasource("db.t", catalog_kwargs=own_tables.catalog_kwargs)
    tasks = pickle.loads(pickle.dumps(source.get_read_tasks(10)))
    first, *_ = own_tables.snapshots()
    own_tables.write(data.from_items([{"a": 7, "s": "new"}]), mode="overwrite")
    assert sum(table.num_rows for task in tasks for table in task()) == 7
    assert own_tables.read(snapshot_id=first).count() == 6
    assert own_tables.read().take_all() == [{"a": 7, "s": "new", "n": None}]
    again = IcebergDatasource("db.t", catalog_kwargs=own_tables.catalog_kwargs)
    assert source.identity() != again.identity()


def test_an_upsert_replaces_rows_with_equal_keys(own_tables: Tables) -> None:
    rows = [{"a": 2, "s": "NEW", "n": 9.0}, {"a": 50, "s": "added", "n": None}]
    own_tables.write(data.from_items(rows), mode="upsert", upsert_kwargs={"join_cols": ["a"]})
    found = {row["a"]: row["s"] for row in own_tables.read().take_all()}
    assert found == {0: "s0", 1: "s1", 2: "NEW", 3: "s3", 4: "s4", 5: "s5", 100: "z", 50: "added"}


def test_an_overwrite_replaces_the_rows_of_its_condition(own_tables: Tables) -> None:
    own_tables.write(
        data.from_items([{"a": 7, "s": "new"}]), mode="overwrite", overwrite_filter=col("a") >= 3
    )
    assert sorted(row["a"] for row in own_tables.read().take_all()) == [0, 1, 2, 7]


def test_options_of_the_scan(tables: Tables) -> None:
    assert [row["a"] for row in tables.read(row_filter="a > 4").take_all()] == [5, 100]
    assert tables.read(scan_kwargs={"limit": 2}).count() == 2
    assert tables.read(selected_fields=("s",)).take(1) == [{"s": "s0"}]


def test_a_partitioned_table_is_written_and_read(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    with tables.catalog.load_table("db.t").update_spec() as spec:
        spec.add_identity("s")
    tables.write(data.from_items([{"a": number, "s": "ab"[number % 2]} for number in range(6)]))
    assert sorted(row["a"] for row in tables.read().filter(expr=col("s") == "a").take_all()) == [
        0,
        2,
        4,
    ]


def test_a_table_without_rows_has_its_columns(tmp_path: Path) -> None:
    ds = Tables(tmp_path).read()
    assert (ds.count(), ds.take_all(), ds.schema().names) == (0, [], ["a", "s"])


def test_mistakes_say_what_to_do(tables: Tables) -> None:
    def other(name: str) -> None:
        data.read_iceberg(table_identifier=name, catalog_kwargs=tables.catalog_kwargs)

    with pytest.raises(ValueError, match=r"no Iceberg table 'db.tt'; its namespace has \['db.t'\]"):
        other("db.tt")
    with pytest.raises(ValueError, match=r"no namespace 'nix', only \['db'\]"):
        other("nix.t")
    with pytest.raises(ValueError, match="has no snapshot 3: its snapshots are"):
        tables.read(snapshot_id=3)
    with pytest.raises(UnknownColumnError, match="'b' among 'a', 's', 'n'"):
        tables.read(selected_fields=("b",))
    with pytest.raises(ValueError, match="column 'a' is string, but int64"):
        tables.write(data.from_items([{"a": "x", "s": "s"}]))
    shapes = [{"a": 1, "r": np.zeros(shape)} for shape in (2, 3)]
    with pytest.raises(ValueError, match="column 'r' is ragged_tensor.*, which Iceberg tables"):
        tables.write(data.from_items(shapes))
    with pytest.raises(ValueError, match="'append', 'overwrite' and 'upsert', not 'create'"):
        tables.write(data.range(2), mode="create")
    with pytest.raises(ValueError, match="is not a condition that Iceberg knows"):
        tables.write(data.range(2), mode="overwrite", overwrite_filter=col("a") + 1 > 2)
    with pytest.raises(ValueError, match="upsert_kwargs={'join_cols'"):
        tables.write(data.from_items([{"a": 1}]), mode="upsert")
    with pytest.raises(ValueError, match="upsert_kwargs is for mode='upsert'"):
        tables.write(data.from_items([{"a": 1}]), upsert_kwargs={"join_cols": ["a"]})
