"""Parquet: pushdown, exact metadata, and errors."""

import pickle
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from syncline.data.columnar import block as blocks
from syncline.data.columnar.expressions import col
from syncline.data.columnar.schemas import SchemaMismatchError, UnknownColumnError
from syncline.data.context import DataContext
from syncline.data.io.sources.datasource import ReadTask
from syncline.data.io.sources.parquet import FilePart, ParquetDatasource
from syncline.data.io.sources.partitioning import Partitioning


def put(place, name: str, table: pa.Table, **options) -> str:
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, **options)
    return place.write(name, buffer.getvalue().to_pybytes())


def source_of(place, **arguments) -> ParquetDatasource:
    return ParquetDatasource(place.path, filesystem=place.filesystem, **arguments)


def numbers(start: int, end: int) -> pa.Table:
    return pa.table(
        {
            "id": list(range(start, end)),
            "text": [f"row {n}" for n in range(start, end)],
            "half": [n / 2 for n in range(start, end)],
        }
    )


@pytest.fixture
def hundred(place) -> None:
    """100 rows in two files, in row groups of 10."""
    for index in range(2):
        put(place, f"{index}.parquet", numbers(index * 50, index * 50 + 50), row_group_size=10)


# A block size that makes every row group a separate task.
SMALL = DataContext(target_min_block_size=1)


def groups(tasks: list[ReadTask]) -> list[list[FilePart]]:
    return [cast("Any", task.read_fn).args[0] for task in tasks]


@pytest.mark.usefixtures("hundred")
def test_row_groups_are_tasks_with_exact_numbers_of_rows(place, read_all):
    source = source_of(place)
    assert source.num_rows() == 100
    assert source.schema() == numbers(0, 1).schema
    assert read_all(source).equals(numbers(0, 100))
    tasks = source.get_read_tasks(10, None, SMALL)
    assert [task.num_rows for task in tasks] == [10] * 10
    assert groups(source.get_read_tasks(10, None, SMALL)) == groups(tasks)
    (one,) = source.get_read_tasks(1)
    assert one.num_rows == 100


@pytest.mark.usefixtures("hundred")
def test_tasks_have_at_most_the_size_of_a_block(place):
    source = source_of(place)
    whole = source.estimate_inmemory_data_size()
    tasks = source.get_read_tasks(
        1, None, DataContext(target_max_block_size=whole // 4, target_min_block_size=1)
    )
    assert 4 <= len(tasks) <= 6
    assert sum(task.num_rows for task in tasks) == 100


@pytest.mark.usefixtures("hundred")
def test_columns_are_projected_by_the_call_and_by_the_plan(place, read_all):
    assert read_all(source_of(place, columns=["half", "id"])).column_names == ["half", "id"]
    narrow = source_of(place).apply_projection(["text"])
    assert read_all(narrow).column_names == ["text"]
    assert narrow.schema().names == ["text"]
    assert narrow.estimate_inmemory_data_size() < source_of(place).estimate_inmemory_data_size()
    with pytest.raises(UnknownColumnError, match="'halv'.*'half'"):
        source_of(place, columns=["halv"])


@pytest.mark.usefixtures("hundred")
def test_a_projection_by_the_plan_keeps_the_estimate_and_reads_no_footer_again(place, monkeypatch):
    source = source_of(place)
    monkeypatch.setattr(
        ParquetDatasource, "_footer", lambda self, path: pytest.fail(f"{path} is read again")
    )
    whole, narrow = (
        source.estimate_inmemory_data_size(),
        source.apply_projection(["id"]).estimate_inmemory_data_size(),
    )
    assert 0 < narrow < whole
    assert source.apply_projection(["id"]).num_rows() == 100


@pytest.mark.usefixtures("hundred")
def test_projection_to_no_columns_keeps_the_row_count(place):
    tables = [
        table
        for task in source_of(place)
        .apply_projection([])
        .apply_predicate(col("id") >= 95)
        .get_read_tasks(1)
        for table in task()
    ]
    assert sum(table.num_rows for table in tables) == 5


@pytest.mark.usefixtures("hundred")
def test_predicate_skips_row_groups_and_rows(place, read_all):
    source = source_of(place).apply_predicate(col("id") > 44).apply_predicate(col("id") <= 61)
    assert read_all(source)["id"].to_pylist() == list(range(45, 62))
    tasks = source.get_read_tasks(10, None, SMALL)
    assert len(tasks) == 3
    assert all(task.num_rows is None for task in tasks)
    assert source.num_rows() is None
    assert read_all(source.apply_projection(["text"])).column_names == ["text"]
    assert source_of(place).apply_predicate(col("id") > 1000).get_read_tasks(4) == []


@pytest.mark.usefixtures("hundred")
def test_limit_skips_later_footers(place):
    source = source_of(place).apply_limit(25)
    assert [task.num_rows for task in source.get_read_tasks(10, None, SMALL)] == [10, 10, 10]
    filtered = source.apply_predicate(col("id") >= 90)
    assert [
        row["id"]
        for task in filtered.get_read_tasks(1)
        for table in task()
        for row in table.to_pylist()
    ] == list(range(90, 100))


def test_partition_columns_are_last_strings_and_skip_files(place, read_all):
    for year in (2023, 2024):
        put(place, f"year={year}/a.parquet", pa.table({"x": [year, year + 1]}))
    place.write("year=2025/broken.parquet", b"nonsense")
    source = ParquetDatasource(
        [f"{place.path}/year=2023", f"{place.path}/year=2024"],
        filesystem=place.filesystem,
        include_paths=True,
    )
    table = read_all(source)
    assert table.column_names == ["x", "year", "path"]
    assert table["year"].to_pylist() == ["2023", "2023", "2024", "2024"]
    assert table["path"].to_pylist()[3].endswith("year=2024/a.parquet")
    assert table.schema == source.schema()
    (task,) = source.apply_predicate(col("year") == "2024").get_read_tasks(5)
    assert [table.to_pydict()["x"] for table in task()] == [[2024, 2025]]
    assert read_all(source.apply_predicate(col("year") != "2024").apply_projection(["x"]))[
        "x"
    ].to_pylist() == [2023, 2024]
    assert read_all(source.apply_projection(["year"]))["year"].to_pylist() == [
        "2023",
        "2023",
        "2024",
        "2024",
    ]
    typed = ParquetDatasource(
        f"{place.path}/year=2023",
        filesystem=place.filesystem,
        partitioning=Partitioning("hive", field_types={"year": int}),
    )
    assert read_all(typed)["year"].to_pylist() == [2023, 2023]
    assert read_all(
        ParquetDatasource(f"{place.path}/year=2023", filesystem=place.filesystem, partitioning=None)
    ).column_names == ["x"]


def test_a_null_partition_is_null(place, read_all):
    put(place, "k=__HIVE_DEFAULT_PARTITION__/a.parquet", pa.table({"x": [1]}))
    put(place, "k=a/a.parquet", pa.table({"x": [2]}))
    source = source_of(place)
    assert read_all(source)["k"].to_pylist() == [None, "a"]
    assert read_all(source.apply_predicate(col("k") == "a"))["x"].to_pylist() == [2]


def test_column_of_the_file_has_priority_over_the_path(place, read_all):
    put(place, "year=2024/a.parquet", pa.table({"x": [1], "year": [7]}))
    assert read_all(source_of(place)).to_pylist() == [{"x": 1, "year": 7}]


def test_different_schemas_are_unified(place, read_all):
    put(place, "a.parquet", pa.table({"x": pa.array([1], pa.int32()), "y": ["a"]}))
    put(place, "b.parquet", pa.table({"z": [True], "x": [2.5]}))
    source = source_of(place)
    assert read_all(source).to_pylist() == [
        {"x": 1.0, "y": "a", "z": None},
        {"x": 2.5, "y": None, "z": True},
    ]
    assert read_all(source.apply_predicate(col("x") > 2)).to_pylist() == [
        {"x": 2.5, "y": None, "z": True}
    ]
    put(place, "c.parquet", pa.table({"x": ["word"]}))
    with pytest.raises(SchemaMismatchError, match=r"c\.parquet does not match.*'x'"):
        source_of(place)


def test_tensors_round_trip_with_their_shapes(place, read_all):
    fixed = blocks.from_batch({"t": np.arange(12, dtype=np.float32).reshape(3, 2, 2)})
    put(place, "a.parquet", fixed)
    assert read_all(source_of(place)).schema.field("t").type == fixed.schema.field("t").type
    ragged = blocks.from_rows(
        [{"t": np.zeros((1, 2), np.float32)}, {"t": np.ones((3, 1), np.float32)}]
    )
    put(place, "b.parquet", ragged)
    rows = list(blocks.rows(read_all(source_of(place))))
    assert [row["t"].shape for row in rows] == [(2, 2)] * 3 + [(1, 2), (3, 1)]
    assert rows[2]["t"].tolist() == [[8, 9], [10, 11]]


def test_tensor_column_schema_decodes_bytes(place, read_all):
    arrays = np.arange(12, dtype=np.int16).reshape(3, 2, 2)
    put(place, "a.parquet", pa.table({"t": [array.tobytes() for array in arrays]}))
    source = source_of(place, tensor_column_schema={"t": (np.int16, (2, 2))})
    table = read_all(source)
    assert table.schema == source.schema()
    assert (table["t"].combine_chunks().to_numpy_ndarray() == arrays).all()
    with pytest.raises(ValueError, match=r"a\.parquet.*'t'.*18 bytes each.*8"):
        read_all(source_of(place, tensor_column_schema={"t": (np.int16, (3, 3))}))


def test_files_that_are_no_parquet_fail_at_construction_with_their_path(place):
    put(place, "a.parquet", numbers(0, 3))
    place.write("b.parquet", b"nonsense" * 10)
    with pytest.raises((ValueError, OSError), match=r"b\.parquet cannot be read as Parquet"):
        source_of(place)


def test_corrupt_row_groups_are_reported_with_file_and_row_group(place, read_all):
    path = put(place, "a.parquet", numbers(0, 50_000))
    content = bytearray(place.arrow.open_input_stream(path).read())
    content[200:20_000] = b"\x55" * 19_800
    place.write("a.parquet", bytes(content))
    source = source_of(place)
    with pytest.raises((ValueError, OSError), match=r"a\.parquet cannot be read as Parquet"):
        read_all(source)


@pytest.mark.usefixtures("hundred")
def test_arrow_arguments_are_applied_and_unknown_ones_rejected(place, read_all):
    assert read_all(source_of(place, arrow_parquet_args={"filter": pc.field("id") < 5}))[
        "id"
    ].to_pylist() == list(range(5))
    both = source_of(place, arrow_parquet_args={"filter": pc.field("id") < 5}).apply_predicate(
        col("id") > 2
    )
    assert read_all(both)["id"].to_pylist() == [3, 4]
    schema = pa.schema([("id", pa.float64()), ("new", pa.string())])
    assert read_all(source_of(place, arrow_parquet_args={"schema": schema})).schema == schema
    with pytest.raises(TypeError, match="nonsense"):
        source_of(place, arrow_parquet_args={"nonsense": 1})


@pytest.mark.usefixtures("hundred")
def test_a_pickled_source_plans_the_same_tasks(place):
    source = source_of(place).apply_predicate(col("id") > 44)
    again = pickle.loads(pickle.dumps(source))
    assert again._fragments == {}
    assert groups(again.get_read_tasks(5)) == groups(source.get_read_tasks(5))
    assert again.identity() == source.identity() != source_of(place).identity()


def test_a_large_row_group_is_streamed(place):
    put(place, "a.parquet", numbers(0, 1000))
    source = source_of(place)
    context = DataContext(
        target_max_block_size=source.estimate_inmemory_data_size() // 8, target_min_block_size=1
    )
    (task,) = source.get_read_tasks(1, None, context)
    (piece,) = task.read_fn.args[0]
    batches = list(source._batches_of(piece, context.target_max_block_size))
    assert 7 <= len(batches) <= 10
