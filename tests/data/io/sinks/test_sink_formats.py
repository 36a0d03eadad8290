"""Each sink and its source: values round-trip, on the local disk and through fsspec."""

import io
import json
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv as pyarrow_csv
from pyarrow import fs as pyarrow_fs

from syncline.data.columnar import block as blocks
from syncline.data.io.sinks.csv import CSVDatasink
from syncline.data.io.sinks.datasink import SaveMode
from syncline.data.io.sinks.file_datasink import FilenameProvider, split_extension
from syncline.data.io.sinks.images import ImageDatasink
from syncline.data.io.sinks.json import JSONDatasink
from syncline.data.io.sinks.numpy import NumpyDatasink
from syncline.data.io.sinks.orc import ORCDatasink
from syncline.data.io.sinks.parquet import ParquetDatasink
from syncline.data.io.sinks.tfrecords import TFRecordDatasink
from syncline.data.io.sinks.webdataset import WebDatasetDatasink
from syncline.data.io.sources.csv import CSVDatasource
from syncline.data.io.sources.images import ImageDatasource
from syncline.data.io.sources.json import JSONDatasource
from syncline.data.io.sources.numpy import NumpyDatasource
from syncline.data.io.sources.orc import ORCDatasource
from syncline.data.io.sources.parquet import ParquetDatasource
from syncline.data.io.sources.tfrecords import TFRecordDatasource
from syncline.data.io.sources.webdataset import WebDatasetDatasource

TABLES = [
    pa.table({"a": [1, 2, None], "b": ["x", "y", "z"]}),
    pa.table({"a": [4], "b": pa.array([None], pa.string())}),
]
ROWS = [row for table in TABLES for row in table.to_pylist()]


def files_of(place) -> dict[str, bytes]:
    infos = place.arrow.get_file_info(pyarrow_fs.FileSelector(f"{place.path}/out", recursive=True))
    paths = sorted(info.path for info in infos if info.is_file)
    return {
        path.rpartition("/out/")[2]: place.arrow.open_input_stream(path, compression=None).read()
        for path in paths
    }


@pytest.mark.parametrize(
    ("sink", "source"),
    [
        (ParquetDatasink, ParquetDatasource),
        (CSVDatasink, CSVDatasource),
        (JSONDatasink, JSONDatasource),
        (ORCDatasink, ORCDatasource),
    ],
)
def test_tables_round_trip(place, read_all, write_all, sink, source):
    write_all(sink(f"{place.path}/out", filesystem=place.filesystem), *TABLES)
    table = read_all(source(f"{place.path}/out", filesystem=place.filesystem))
    assert table.to_pylist() == ROWS
    assert len(files_of(place)) == 2


def test_arrays_round_trip(place, read_all, write_all):
    arrays = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    write_all(
        NumpyDatasink(f"{place.path}/out", "t", filesystem=place.filesystem),
        *(blocks.from_batch({"t": part}) for part in (arrays, arrays)),
    )
    table = read_all(NumpyDatasource(f"{place.path}/out", filesystem=place.filesystem))
    assert (blocks.to_batch(table)["data"] == np.concatenate([arrays, arrays])).all()
    with pytest.raises(ValueError, match="no column 'x'"):
        write_all(NumpyDatasink(f"{place.path}/other", "x", filesystem=place.filesystem), TABLES[0])


def test_images_round_trip_with_one_file_per_row(place, read_all, write_all):
    pytest.importorskip("PIL.Image")
    arrays = np.random.default_rng(0).integers(0, 255, (5, 4, 3, 3), dtype=np.uint8)
    write_all(
        ImageDatasink(f"{place.path}/out", "image", filesystem=place.filesystem),
        blocks.from_batch({"image": arrays}),
    )
    assert [name[-25:] for name in files_of(place)][:2] == [
        "_000000_000000_000000.png",
        "_000000_000000_000001.png",
    ]
    table = read_all(ImageDatasource(f"{place.path}/out", filesystem=place.filesystem))
    assert (blocks.to_batch(table)["image"] == arrays).all()


def test_values_that_are_no_images_and_unknown_formats_are_rejected(tmp_path, write_all):
    pytest.importorskip("PIL.Image")
    with pytest.raises(
        TypeError, match=r"column 'id' holds int64 arrays of shape \(\), which pillow cannot write"
    ):
        write_all(ImageDatasink(str(tmp_path), "id"), pa.table({"id": [1]}))
    with pytest.raises(ValueError, match=r"file_format='nope': pillow writes .*jpeg.*png"):
        ImageDatasink(str(tmp_path), "image", file_format="nope")


def test_tfrecords_round_trip(place, read_all, write_all):
    pytest.importorskip("google.protobuf")
    write_all(
        TFRecordDatasink(f"{place.path}/out", filesystem=place.filesystem),
        pa.table({"a": [1, 2], "v": [[0.5], [1.5, 2.5]]}),
    )
    table = read_all(TFRecordDatasource(f"{place.path}/out", filesystem=place.filesystem))
    assert table.select(["a", "v"]).to_pylist() == [{"a": 1, "v": [0.5]}, {"a": 2, "v": [1.5, 2.5]}]


def test_webdataset_rows_round_trip(place, read_all, write_all):
    rows = [
        {
            "__key__": f"k{index}",
            "cls": index,
            "txt": f"t{index}",
            "json": {"n": index},
            "npy": np.full(2, index),
        }
        for index in range(3)
    ]
    write_all(
        WebDatasetDatasink(f"{place.path}/out", filesystem=place.filesystem), blocks.from_rows(rows)
    )
    back = list(
        blocks.rows(
            read_all(WebDatasetDatasource(f"{place.path}/out", filesystem=place.filesystem))
        )
    )
    for one, other in zip(rows, back, strict=True):
        assert {name: one[name] for name in ("__key__", "cls", "txt", "json")} == {
            name: other[name] for name in ("__key__", "cls", "txt", "json")
        }
        assert (one["npy"] == other["npy"]).all()


def test_webdataset_rejects_values_without_an_encoding(place, write_all):
    with pytest.raises(TypeError, match=r"\.n is of type int.*pass an encoder"):
        write_all(
            WebDatasetDatasink(f"{place.path}/other", filesystem=place.filesystem),
            pa.table({"n": [1]}),
        )
    write_all(
        WebDatasetDatasink(
            f"{place.path}/out",
            encoder=lambda row: {"n": str(row["n"])},
            filesystem=place.filesystem,
        ),
        pa.table({"n": [1]}),
    )
    (content,) = files_of(place).values()
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        (member,) = tar.getmembers()
        assert member.name.endswith(".n")


def test_partition_columns_become_directories_and_are_read_as_strings(place, read_all, write_all):
    table = pa.table({"year": [2023, 2024, 2023], "x": [1, 2, 3]})
    write_all(
        ParquetDatasink(f"{place.path}/out", partition_cols=["year"], filesystem=place.filesystem),
        table,
        table,
    )
    assert [name.split("/")[0] for name in files_of(place)] == ["year=2023"] * 2 + ["year=2024"] * 2
    back = read_all(ParquetDatasource(f"{place.path}/out", filesystem=place.filesystem))
    assert sorted(zip(back["year"].to_pylist(), back["x"].to_pylist(), strict=True)) == [
        ("2023", 1), ("2023", 1), ("2023", 3), ("2023", 3), ("2024", 2), ("2024", 2),
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"\['month'\] is not among"):
        write_all(
            ParquetDatasink(
                f"{place.path}/other", partition_cols=["month"], filesystem=place.filesystem
            ),
            table,
        )


def test_max_rows_per_file_splits_files(place, write_all):
    write_all(
        ParquetDatasink(f"{place.path}/out", max_rows_per_file=40, filesystem=place.filesystem),
        pa.table({"x": list(range(100))}),
    )
    files = [pq.ParquetFile(pa.BufferReader(content)) for content in files_of(place).values()]
    assert [file.metadata.num_rows for file in files] == [40, 40, 20]
    assert [value for file in files for value in file.read()["x"].to_pylist()] == list(range(100))


def test_contradicting_limits_are_rejected(tmp_path):
    for arguments, message in (
        ({"min_rows_per_file": 5, "max_rows_per_file": 3}, "more than"),
        ({"max_rows_per_file": 0}, "at least 1"),
        ({"min_bytes_per_file": 5, "max_rows_per_file": 3}, "cannot be combined"),
    ):
        with pytest.raises(ValueError, match=message):
            ParquetDatasink(str(tmp_path), **arguments)
    assert ParquetDatasink(str(tmp_path), min_rows_per_file=7).min_rows_per_write == 7
    assert CSVDatasink(str(tmp_path), min_rows_per_file=7).min_rows_per_write == 7


def test_writers_get_fixed_arguments_and_those_of_the_function(place, write_all):
    sink = ParquetDatasink(
        f"{place.path}/out",
        writer_args={"compression": "zstd", "row_group_size": 10},
        writer_args_fn=lambda: {"compression": "gzip"},
        filesystem=place.filesystem,
    )
    write_all(sink, pa.table({"x": list(range(30))}))
    (content,) = files_of(place).values()
    metadata = pq.ParquetFile(pa.BufferReader(content)).metadata
    assert metadata.num_row_groups == 3
    assert metadata.row_group(0).column(0).compression == "GZIP"


def test_csv_takes_write_options_and_rejects_nested_columns(place, write_all):
    options = pyarrow_csv.WriteOptions(include_header=False, delimiter="|")
    write_all(
        CSVDatasink(
            f"{place.path}/out", writer_args={"write_options": options}, filesystem=place.filesystem
        ),
        pa.table({"a": [1], "b": [2]}),
    )
    assert list(files_of(place).values()) == [b"1|2\n"]
    with pytest.raises(ValueError, match="'t' .*Drop or convert"):
        write_all(
            CSVDatasink(f"{place.path}/other", filesystem=place.filesystem),
            blocks.from_batch({"t": np.zeros((2, 2))}),
        )


def test_json_has_one_object_per_line_with_nested_values(place, write_all):
    write_all(
        JSONDatasink(f"{place.path}/out", filesystem=place.filesystem),
        pa.table({"a": [[1, 2]], "b": [{"c": None}]}),
        pa.table({"a": [[3]]}),
    )
    lines = [
        json.loads(line) for content in files_of(place).values() for line in content.splitlines()
    ]
    assert lines == [{"a": [1, 2], "b": {"c": None}}, {"a": [3]}]


def test_open_stream_args_compress_files(place, read_all, write_all):
    sink = CSVDatasink(
        f"{place.path}/out",
        file_format="csv.gz",
        open_stream_args={"compression": "gzip"},
        filesystem=place.filesystem,
    )
    write_all(sink, TABLES[0])
    (content,) = files_of(place).values()
    assert content[:2] == b"\x1f\x8b"
    assert read_all(CSVDatasource(f"{place.path}/out", filesystem=place.filesystem)).num_rows == 3
    with pytest.raises(ValueError, match=r"ORC has no type.*'n' \(null\)"):
        write_all(
            ORCDatasink(f"{place.path}/other", filesystem=place.filesystem), pa.table({"n": [None]})
        )
    with pytest.raises(ValueError, match="compression=… to write_orc"):
        ORCDatasink(
            f"{place.path}/out",
            open_stream_args={"compression": "gzip"},
            filesystem=place.filesystem,
        )


class Named(FilenameProvider):
    def get_filename_for_task(self, write_uuid, task_index):
        return f"part-{task_index}.{self.file_format}"


class RowNamed(FilenameProvider):
    def get_filename_for_row(self, row, write_uuid, task_index, block_index, row_index):
        return f"{row['name']}.png"


def test_filename_provider_names_files(place, write_all):
    write_all(
        CSVDatasink(
            f"{place.path}/out",
            filename_provider=Named(file_format="csv"),
            filesystem=place.filesystem,
        ),
        *TABLES,
    )
    assert list(files_of(place)) == ["part-0.csv", "part-1.csv"]
    sink = ParquetDatasink(
        f"{place.path}/out",
        filename_provider=Named(file_format="parquet"),
        mode="overwrite",
        filesystem=place.filesystem,
    )
    write_all(sink, *TABLES)
    assert list(files_of(place)) == ["part-0-0.parquet", "part-1-0.parquet"]


def test_filename_provider_names_rows(place, write_all):
    pytest.importorskip("PIL.Image")
    rows = blocks.from_rows(
        [{"name": name, "image": np.zeros((2, 2), np.uint8)} for name in ("cat", "dog")]
    )
    write_all(
        ImageDatasink(
            f"{place.path}/out", "image", filename_provider=RowNamed(), filesystem=place.filesystem
        ),
        rows,
    )
    assert list(files_of(place)) == ["cat.png", "dog.png"]


def test_default_names_contain_job_and_position(tmp_path):
    provider = FilenameProvider(dataset_uuid="set", file_format="csv")
    assert provider.get_filename_for_task("job", 7) == "set_job_000007.csv"
    assert provider.get_filename_for_row({}, "job", 7, 0, 3) == "set_job_000007_000000_000003.csv"
    assert split_extension("a.b.c") == ("a.b", ".c")
    assert split_extension("a") == ("a", "")
    with pytest.raises(ValueError, match="upsert"):
        CSVDatasink(str(tmp_path), mode=SaveMode.UPSERT)


def test_unknown_modes_and_a_file_as_target_are_rejected(tmp_path, write_all):
    with pytest.raises(ValueError, match="^mode='overwritten': choose one of 'append', 'create'"):
        CSVDatasink(str(tmp_path), mode="overwritten")
    (tmp_path / "a.csv").write_text("x")
    with pytest.raises(NotADirectoryError, match=r"a\.csv' is a file, but results are directories"):
        write_all(CSVDatasink(str(tmp_path / "a.csv")), TABLES[0])
    assert (tmp_path / "a.csv").read_text() == "x"
