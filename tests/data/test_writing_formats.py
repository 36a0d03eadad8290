"""Writers: every format comes back as it was, modes and arguments mean what they say, and sinks are
called as their contract says.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import syncline
from syncline import data
from syncline.data.datasource import FilenameProvider, RowBasedFileDatasink
from syncline.data.io.sinks.datasink import Datasink, WriteResult


@pytest.fixture(autouse=True, scope="module")
def local_mode() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


@pytest.fixture
def dataset() -> data.Dataset:
    return data.range(10, override_num_blocks=3)


IDS = [{"id": number} for number in range(10)]


def by_id(dataset: data.Dataset) -> list[dict]:
    return sorted(dataset.take_all(), key=lambda row: row["id"])


def files_below(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*") if each.is_file())


@pytest.mark.parametrize("name", ["parquet", "csv", "json", "orc"])
def test_tables_come_back(dataset, tmp_path: Path, name: str):
    assert getattr(dataset, f"write_{name}")(str(tmp_path / "out")) is None
    assert getattr(data, f"read_{name}")(str(tmp_path / "out")).take_all() == IDS
    assert all(
        not file.startswith(".") and file.endswith(f".{name}")
        for file in files_below(tmp_path / "out")
    )


def test_numpy_comes_back(tmp_path: Path):
    data.range_tensor(5, shape=(2,)).write_numpy(str(tmp_path), column="data")
    assert np.stack(
        [row["data"] for row in data.read_numpy(str(tmp_path)).take_all()]
    ).tolist() == [[n, n] for n in range(5)]


def test_images_come_back(tmp_path: Path):
    pytest.importorskip("PIL")
    images = [{"image": np.full((2, 3), n, np.uint8)} for n in range(4)]
    data.from_items(images).write_images(str(tmp_path), "image")
    assert len(files_below(tmp_path)) == 4
    assert sorted(
        int(row["image"][0, 0]) for row in data.read_images(str(tmp_path)).take_all()
    ) == [0, 1, 2, 3]


def test_tfrecords_come_back(dataset, tmp_path: Path):
    pytest.importorskip("google.protobuf")
    dataset.write_tfrecords(str(tmp_path))
    assert by_id(data.read_tfrecords(str(tmp_path))) == IDS


def test_webdataset_comes_back(tmp_path: Path):
    rows = [{"__key__": f"{n}", "txt": f"text {n}"} for n in range(4)]
    data.from_items(rows).write_webdataset(str(tmp_path))
    assert sorted(row["txt"] for row in data.read_webdataset(str(tmp_path)).take_all()) == [
        row["txt"] for row in rows
    ]


def test_sql_comes_back(dataset, tmp_path: Path):
    path = str(tmp_path / "a.db")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (id INT)")
    dataset.write_sql("INSERT INTO t VALUES (?)", lambda: sqlite3.connect(path))
    assert by_id(data.read_sql("SELECT id FROM t", lambda: sqlite3.connect(path))) == IDS


def test_arguments_of_parquet(dataset, tmp_path: Path):
    import pyarrow.parquet as pq

    parts = dataset.map_batches(lambda batch: {"id": batch["id"], "part": batch["id"] % 2})
    parts.write_parquet(str(tmp_path / "a"), partition_cols=["part"], compression="gzip")
    assert {name.split("/")[0] for name in files_below(tmp_path / "a")} == {"part=0", "part=1"}
    (first, *_) = (tmp_path / "a").rglob("*.parquet")
    assert pq.ParquetFile(first).metadata.row_group(0).column(0).compression == "GZIP"

    dataset.write_parquet(str(tmp_path / "b"), min_rows_per_file=100)
    assert len(files_below(tmp_path / "b")) == 1
    dataset.write_parquet(str(tmp_path / "c"), num_rows_per_file=100, max_rows_per_file=100)
    assert len(files_below(tmp_path / "c")) == 1
    wide = dataset.repartition(10).add_column("wide", lambda frame: "x" * 1000)
    wide.write_parquet(str(tmp_path / "bytes"), min_bytes_per_file=4500)
    assert len(files_below(tmp_path / "bytes")) == 2
    with pytest.raises(ValueError, match="older name"):
        dataset.write_parquet(str(tmp_path / "d"), num_rows_per_file=1, min_rows_per_file=1)
    with pytest.raises(ValueError, match="catalog"):
        dataset.write_parquet(str(tmp_path / "d"), catalog=object())
    assert not (tmp_path / "d").exists()


def test_modes(dataset, tmp_path: Path):
    target = str(tmp_path / "out")
    dataset.write_parquet(target)
    dataset.write_parquet(target)
    assert data.read_parquet(target).count() == 20
    data.range(3).write_parquet(target, mode="ignore")
    assert data.read_parquet(target).count() == 20
    for mode in (data.SaveMode.CREATE, "error"):
        with pytest.raises(ValueError, match="already exists"):
            dataset.write_parquet(target, mode=mode)
    dataset.write_parquet(target, mode=data.SaveMode.OVERWRITE)
    assert by_id(data.read_parquet(target)) == IDS
    with pytest.raises(ValueError, match="upsert"):
        dataset.write_parquet(target, mode="upsert")


def test_a_dataset_may_overwrite_what_it_reads(dataset, tmp_path: Path):
    target = str(tmp_path / "out")
    dataset.write_parquet(target)
    data.read_parquet(target).filter(expr=data.expressions.col("id") > 4).write_parquet(
        target, mode="overwrite"
    )
    assert by_id(data.read_parquet(target)) == IDS[5:]


def test_a_failing_function_leaves_the_target_as_it_was(dataset, tmp_path: Path):
    target = str(tmp_path / "out")
    dataset.write_parquet(target)

    def fails(batch):
        if 9 in batch["id"]:
            raise KeyError("the last one")
        return batch

    with pytest.raises(KeyError, match="the last one"):
        dataset.map_batches(fails).write_parquet(target, mode="overwrite")
    assert by_id(data.read_parquet(target)) == IDS


def test_a_write_that_fails_at_once_leaves_nothing_behind(dataset, tmp_path: Path):
    def fails(batch):
        raise KeyError("each of them")

    with pytest.raises(KeyError, match="each of them"):
        dataset.map_batches(fails).write_parquet(str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


def test_unknown_arguments_are_refused_with_the_nearest_name(dataset, tmp_path: Path):
    with pytest.raises(
        TypeError, match="write_numpy takes no argument 'colum'. Did you mean 'column'"
    ):
        dataset.write_numpy(str(tmp_path / "out"), colum="id")
    with pytest.raises(ValueError, match="concurrency=0"):
        dataset.write_csv(str(tmp_path / "out"), concurrency=0)
    with pytest.raises(TypeError, match="write_datasink takes a Datasink, not str"):
        dataset.write_datasink("out")
    assert not (tmp_path / "out").exists()


class Names(FilenameProvider):
    def get_filename_for_task(self, write_uuid, task_index):
        return f"part-{task_index}.csv"


def test_names_of_files(dataset, tmp_path: Path):
    dataset.write_csv(str(tmp_path / "out"), filename_provider=Names(), concurrency=1)
    assert files_below(tmp_path / "out") == ["part-0.csv", "part-1.csv", "part-2.csv"]


class Lines(RowBasedFileDatasink):
    def write_row_to_file(self, row, file):
        file.write(str(row["id"]).encode())


def test_a_file_sink_of_the_programs_own(dataset, tmp_path: Path):
    dataset.write_datasink(Lines(str(tmp_path / "out"), file_format="txt"))
    assert sorted(int(path.read_text()) for path in (tmp_path / "out").iterdir()) == list(range(10))


class Counting(Datasink[int]):
    def __init__(self, log: Path) -> None:
        self.log = log

    def note(self, text: str) -> None:
        with self.log.open("a") as file:
            file.write(f"{text}\n")

    def on_write_start(self, schema=None):
        self.note(f"start {None if schema is None else schema.names}")

    def write(self, blocks, ctx):
        rows = sum(block.num_rows for block in blocks)
        self.note("write")
        return ctx.task_idx, rows

    def on_write_complete(self, write_result: WriteResult[int]) -> None:
        self.note(f"complete {write_result.num_rows} {sorted(write_result.write_returns)}")

    def on_write_failed(self, error):
        self.note(f"failed {error}")


def test_a_sink_of_the_programs_own_is_called_in_order(dataset, tmp_path: Path):
    dataset.write_datasink(Counting(tmp_path / "log"))
    assert (tmp_path / "log").read_text().splitlines() == [
        "start ['id']",
        *["write"] * 3,
        "complete 10 [(0, 3), (1, 3), (2, 4)]",
    ]


def test_a_sink_hears_of_failures(dataset, tmp_path: Path):
    class Failing(Counting):
        def write(self, blocks, ctx):
            raise OSError("disk is full")

    with pytest.raises(OSError, match="disk is full"):
        dataset.write_datasink(Failing(tmp_path / "log"))
    start, failed = (tmp_path / "log").read_text().split("\n", 1)
    assert start == "start ['id']"
    assert failed.startswith("failed ")
    assert "disk is full" in failed


def test_an_error_of_the_commit_fails_the_write(dataset, tmp_path: Path):
    class Failing(Counting):
        def on_write_complete(self, write_result):
            raise RuntimeError("no commit")

    with pytest.raises(RuntimeError, match="no commit"):
        dataset.write_datasink(Failing(tmp_path / "log"))
    assert "failed no commit" in (tmp_path / "log").read_text()


def test_statistics_of_a_write(dataset, tmp_path: Path):
    dataset.write_csv(str(tmp_path / "out"))
    assert "WriteCSV" in dataset.stats()


def test_writing_no_rows(tmp_path: Path):
    data.range(0).write_parquet(str(tmp_path / "out"))
    data.from_items([]).write_csv(str(tmp_path / "other"))
    assert list(tmp_path.iterdir()) == []
