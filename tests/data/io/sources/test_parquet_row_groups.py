"""Parquet's own reader returns the rows of the scanner, and leaves some files to the scanner."""

import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from syncline.data.columnar.expressions import Expr, col
from syncline.data.io.sources import parquet_row_groups
from syncline.data.io.sources.parquet import ParquetDatasource

TABLE = pa.table(
    {
        "id": list(range(40)),
        "part": pa.array([None if n % 7 == 0 else n % 3 for n in range(40)], pa.int8()),
        "text": pa.array([f"t{n % 5}" for n in range(40)]).dictionary_encode(),
        "pair": [{"a": n, "b": [n] * (n % 3)} for n in range(40)],
        "ratio": [float("nan") if n % 9 == 0 else n / 4 for n in range(40)],
    }
)


@pytest.fixture
def path(tmp_path) -> str:
    pq.write_table(TABLE, tmp_path / "t.parquet", row_group_size=10)
    return str(tmp_path / "t.parquet")


def read(path: str, columns: list[str], predicate: Expr | None, groups=(0, 1, 2, 3)) -> pa.Table:
    file = parquet_row_groups.open_file(fs.LocalFileSystem(), path)
    assert parquet_row_groups.can_read(file, columns, predicate)
    made = parquet_row_groups.read(file, groups, columns, predicate, batch_rows=7)
    return pa.concat_tables(made).combine_chunks()


@pytest.mark.parametrize(
    "predicate",
    [
        None,
        col("part") < 2,
        (col("part") != 1) & (col("id") > 12),
        col("ratio") < 4,
        col("part").is_null() | (col("text") == "t3"),
        col("id") < 0,
    ],
    ids=repr,
)
def test_the_rows_are_those_of_the_scanner(path, predicate):
    columns = ["ratio", "id", "pair"]
    scanned = pds.dataset(path).to_table(
        columns=columns, filter=None if predicate is None else predicate.to_pyarrow()
    )
    made = read(path, columns, predicate)
    assert made.schema.equals(scanned.schema)
    # NaN is not equal to itself.
    assert made.drop_columns(["ratio"]).equals(scanned.drop_columns(["ratio"]).combine_chunks())
    assert str(made["ratio"].to_pylist()) == str(scanned["ratio"].to_pylist())


def test_only_the_chosen_row_groups_are_read(path):
    assert read(path, ["id"], None, (1, 3))["id"].to_pylist() == [*range(10, 20), *range(30, 40)]


def test_a_missing_row_group_is_an_index_error(path):
    file = parquet_row_groups.open_file(fs.LocalFileSystem(), path)
    with pytest.raises(IndexError, match="4 row groups"):
        next(parquet_row_groups.read(file, [4], ["id"], None, batch_rows=10))


@pytest.mark.parametrize(
    ("table", "columns", "predicate"),
    [
        (TABLE, [], None),
        (TABLE, ["id", "missing"], None),
        (TABLE, ["id"], col("missing") > 1),
        (pa.table({"a.b": [1], "a": [2]}), ["a"], None),
        (pa.table([[1], [2], [3]], names=["a", "b", "b"]), ["a"], None),
    ],
)
def test_other_files_are_left_to_the_scanner(tmp_path, table, columns, predicate):
    pq.write_table(table, tmp_path / "t.parquet")
    file = parquet_row_groups.open_file(fs.LocalFileSystem(), str(tmp_path / "t.parquet"))
    assert not parquet_row_groups.can_read(file, columns, predicate)


def test_a_source_reads_files_with_and_without_a_column_in_one_pass(tmp_path, read_all):
    pq.write_table(pa.table({"id": [1, 2], "a.b": [3, 4]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"id": [5, 6]}), tmp_path / "1.parquet")
    source = ParquetDatasource(str(tmp_path)).apply_predicate(col("id") > 1)
    assert read_all(source).to_pylist() == [
        {"id": 2, "a.b": 4},
        {"id": 5, "a.b": None},
        {"id": 6, "a.b": None},
    ]


def test_a_file_is_opened_once_if_its_path_has_a_column(tmp_path, read_all, monkeypatch):
    (tmp_path / "p=1").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "p=1" / "0.parquet")
    # The footer that this reads would be read again by the scanner.
    monkeypatch.delattr(parquet_row_groups, "open_file")
    source = ParquetDatasource(str(tmp_path))
    assert read_all(source).to_pylist() == [{"id": 1, "p": "1"}, {"id": 2, "p": "1"}]
    filtered = source.apply_projection(["id"]).apply_predicate(col("p") == "1")
    assert read_all(filtered).to_pylist() == [{"id": 1}, {"id": 2}]
