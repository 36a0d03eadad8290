"""Readers of files: arguments reach the sources, and mistakes are errors at the call."""

import importlib.util
import sqlite3
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq
import pytest

from syncline import data
from syncline.data.columnar import block as blocks
from syncline.data.columnar.schemas import UnknownColumnError
from syncline.data.io.sources.datasource import Datasource, ReadTask
from syncline.data.plan.nodes import Read

READERS = [
    data.read_parquet,
    data.read_csv,
    data.read_json,
    data.read_text,
    data.read_binary_files,
    data.read_numpy,
    data.read_images,
    data.read_orc,
    data.read_tfrecords,
    data.read_webdataset,
]
named = pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)


def node_of(dataset) -> Read:
    assert isinstance(dataset._node, Read)
    return dataset._node


def rows_of(dataset) -> list[dict]:
    """What the source of a dataset reads, without an execution."""
    tasks = node_of(dataset).source.get_read_tasks(2)
    return list(blocks.rows(blocks.concat([table for task in tasks for table in task()])))


@named
def test_a_missing_path_fails_at_the_call_with_the_path(reader, tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="no-such-file"):
        reader(str(tmp_path / "no-such-file"))


@named
def test_an_unknown_keyword_fails_with_the_nearest_name(reader, tmp_path: Path):
    with pytest.raises(
        TypeError, match="takes no argument 'include_path'. Did you mean 'include_paths'"
    ):
        reader(str(tmp_path), include_path=True)


@pytest.fixture
def text(tmp_path: Path) -> str:
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    return str(tmp_path / "a.txt")


def test_numbers_of_tasks_and_what_they_hold_reach_the_plan(text: str):
    node = node_of(
        data.read_text(
            text,
            override_num_blocks=7,
            concurrency=2,
            num_cpus=0.5,
            resources={"disk": 1},
            ray_remote_args={"num_cpus": 3, "max_calls": 4},
        )
    )
    assert (node.parallelism, node.concurrency) == (7, 2)
    assert node.resources.num_cpus == 0.5
    assert node.resources.options == {"resources": {"disk": 1}, "max_calls": 4}


def test_options_that_no_task_has_are_refused(text: str):
    with pytest.raises(ValueError, match="num_cpu"):
        data.read_text(text, ray_remote_args={"num_cpu": 1})
    with pytest.raises(ValueError, match="num_gpus"):
        data.read_text(text, num_gpus=-1)


def test_parallelism_is_the_older_name_of_override_num_blocks(text: str):
    assert node_of(data.read_text(text, parallelism=5)).parallelism == 5
    assert node_of(data.read_text(text, parallelism=-1)).parallelism is None
    assert node_of(data.read_text(text, parallelism=5, override_num_blocks=3)).parallelism == 3


@pytest.mark.parametrize("name", ["override_num_blocks", "concurrency", "parallelism"])
def test_fewer_than_one_is_refused(text: str, name: str):
    with pytest.raises(ValueError, match=f"{name}=0 is too small"):
        data.read_text(text, **{name: 0})
    with pytest.raises(TypeError, match=f"{name}='many'"):
        data.read_text(text, **{name: "many"})


def test_the_context_is_copied(text: str):
    dataset = data.read_text(text)
    assert dataset.context is not data.DataContext.get_current()


def test_text(text: str):
    assert rows_of(data.read_text(text)) == [{"text": "one"}, {"text": "two"}]
    assert len(rows_of(data.read_text(text, drop_empty_lines=False))) == 3


def test_binary_files_with_paths(text: str):
    assert rows_of(data.read_binary_files(text, include_paths=True)) == [
        {"bytes": b"one\n\ntwo\n", "path": text}
    ]


@pytest.fixture
def partitioned(tmp_path: Path) -> str:
    table = pa.table({"x": [1, 2]})
    for year in ("2023", "2024"):
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(table, tmp_path / f"year={year}" / "part.parquet")
        pa_csv.write_csv(table, tmp_path / f"year={year}" / "part.csv")
    return str(tmp_path)


def test_parquet_reads_hive_partitions_and_skips_other_files(partitioned: str):
    assert rows_of(data.read_parquet(partitioned))[-1] == {"x": 2, "year": "2024"}
    assert rows_of(data.read_parquet(partitioned, partitioning=None))[-1] == {"x": 2}


def test_csv_reads_hive_partitions_and_options_of_arrow(partitioned: str):
    dataset = data.read_csv(
        partitioned,
        file_extensions=["csv"],
        convert_options=pa_csv.ConvertOptions(column_types={"x": pa.float32()}),
    )
    assert rows_of(dataset)[0] == {"x": 1.0, "year": "2023"}


def test_parquet_columns_filter_and_skipped_paths(partitioned: str):
    assert rows_of(data.read_parquet(partitioned, columns=["year"]))[0] == {"year": "2023"}
    assert len(rows_of(data.read_parquet(partitioned, filter=pa.compute.field("x") > 1))) == 2
    skipped = f"{partitioned}/year=2023/part.parquet"
    assert {row["year"] for row in rows_of(data.read_parquet(partitioned, skip_paths=skipped))} == {
        "2024"
    }
    keeps = data.datasource.PathPartitionFilter.of(lambda values: values["year"] == "2024")
    assert {
        row["year"]
        for row in rows_of(
            data.read_parquet(partitioned, skip_paths=["/none"], partition_filter=keeps)
        )
    } == {"2024"}


def test_an_unknown_column_fails_at_the_call_with_the_nearest_name(partitioned: str):
    with pytest.raises(UnknownColumnError, match="Did you mean 'year'"):
        data.read_parquet(partitioned, columns=["yaer"])


def test_what_is_not_offered_is_refused(partitioned: str):
    with pytest.raises(ValueError, match="include_row_hash=True is not offered"):
        data.read_parquet(partitioned, include_row_hash=True)
    with pytest.raises(ValueError, match="catalog"):
        data.read_parquet(partitioned, catalog=object())


def test_a_file_that_is_no_parquet_fails_at_the_call_with_its_path(tmp_path: Path):
    (tmp_path / "bad.parquet").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="bad.parquet cannot be read as Parquet"):
        data.read_parquet(str(tmp_path))


def test_json(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n{"x": 2}\n')
    assert rows_of(data.read_json(str(tmp_path))) == [{"x": 1}, {"x": 2}]
    assert rows_of(data.read_json(tmp_path, lines=True)) == [{"x": 1}, {"x": 2}]


def test_numpy(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.arange(6).reshape(3, 2))
    (first, *_) = rows_of(data.read_numpy(str(tmp_path)))
    assert first["data"].tolist() == [0, 1]
    np.save(tmp_path / "b.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    assert rows_of(data.read_numpy(str(tmp_path / "b.npy"), allow_pickle=True))[0]["data"] == {
        "a": 1
    }


def test_images(tmp_path: Path):
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.zeros((4, 6, 3), np.uint8)).save(tmp_path / "a.png")
    (row,) = rows_of(data.read_images(str(tmp_path), size=(2, 3), mode="L"))
    assert row["image"].shape == (2, 3)


def test_orc(tmp_path: Path):
    pa_orc.write_table(pa.table({"x": [1, 2]}), str(tmp_path / "a.orc"))
    assert rows_of(data.read_orc(str(tmp_path))) == [{"x": 1}, {"x": 2}]


def test_sql(tmp_path: Path):
    path = str(tmp_path / "a.db")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x INT)")
        connection.executemany("INSERT INTO t VALUES (?)", [(1,), (2,)])
    dataset = data.read_sql(
        "SELECT x FROM t WHERE x > ?", lambda: sqlite3.connect(path), sql_params=(1,)
    )
    assert rows_of(dataset) == [{"x": 2}]


def test_range_and_range_tensor():
    assert rows_of(data.range(3, override_num_blocks=2)) == [{"id": 0}, {"id": 1}, {"id": 2}]
    assert rows_of(data.range_tensor(2, shape=(2, 2)))[1]["data"].tolist() == [[1, 1], [1, 1]]
    with pytest.raises(ValueError, match="range"):
        data.range(-1)


class Letters(Datasource):
    def get_read_tasks(self, parallelism, per_task_row_limit=None, data_context=None):
        metadata = data.datasource.BlockMetadata(num_rows=2, size_bytes=2)
        return [ReadTask(lambda: [{"letter": ["a", "b"]}], metadata)]


def test_a_source_of_the_programs_own():
    dataset = data.read_datasource(Letters(), compute=data.TaskPoolStrategy(3))
    assert rows_of(dataset) == [{"letter": "a"}, {"letter": "b"}]
    assert node_of(dataset).concurrency == 3
    assert (
        node_of(
            data.read_datasource(Letters(), compute=data.ActorPoolStrategy(size=4), concurrency=2)
        ).concurrency
        == 2
    )


def test_what_no_source_takes_is_refused():
    with pytest.raises(TypeError, match="Letters has no create_reader"):
        data.read_datasource(Letters(), depth=3)
    with pytest.raises(TypeError, match="takes a Datasource, not list"):
        data.read_datasource([1])


def test_a_source_that_makes_readers_gets_further_keywords():
    class Library:
        def create_reader(self, depth):
            assert depth == 3
            return Letters()

    assert len(rows_of(data.read_datasource(Library(), depth=3))) == 2


@pytest.mark.skipif(importlib.util.find_spec("lance") is not None, reason="Lance is installed")
def test_lance_without_the_library_says_what_to_install():
    with pytest.raises(ImportError, match="pylance"):
        data.read_lance("nowhere")
