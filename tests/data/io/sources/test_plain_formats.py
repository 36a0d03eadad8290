"""CSV, JSON, text, binary, numpy, ORC: content, types, errors that name the file."""

import gzip
import io

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as pyarrow_csv
from pyarrow import orc as pyarrow_orc

from syncline.data.context import DataContext
from syncline.data.io.sources import json as json_source
from syncline.data.io.sources import text as text_source
from syncline.data.io.sources.binary import BinaryDatasource
from syncline.data.io.sources.csv import CSVDatasource
from syncline.data.io.sources.datasource import Datasource
from syncline.data.io.sources.file_based_datasource import FileBasedDatasource
from syncline.data.io.sources.file_listing import FileShuffleConfig
from syncline.data.io.sources.json import JSONDatasource
from syncline.data.io.sources.numpy import NumpyDatasource
from syncline.data.io.sources.orc import ORCDatasource
from syncline.data.io.sources.partitioning import HIVE
from syncline.data.io.sources.text import TextDatasource
from syncline.storage.retries import RetryPolicy


def test_csv_with_partitions_and_paths_last(place, read_all):
    place.write("year=2023/a.csv", b"x,y\n1,a\n2,b\n")
    last = place.write("year=2024/b.csv", b"x,y\n3.5,c\n")
    source = CSVDatasource(
        place.path, filesystem=place.filesystem, partitioning=HIVE, include_paths=True
    )
    table = read_all(source)
    assert table.column_names == ["x", "y", "year", "path"]
    assert table["x"].to_pylist() == [1.0, 2.0, 3.5]
    assert table["year"].to_pylist() == ["2023", "2023", "2024"]
    assert table["path"].to_pylist()[-1].endswith(last)
    assert len(source.input_files()) == 2


def test_csv_is_decompressed_by_extension_and_takes_arrow_options(place, read_all):
    place.write("a.csv.gz", gzip.compress(b"1|2\n3|4\n"))
    arguments = {
        "parse_options": pyarrow_csv.ParseOptions(delimiter="|"),
        "read_options": pyarrow_csv.ReadOptions(column_names=["a", "b"]),
    }
    source = CSVDatasource(place.path, **arguments, filesystem=place.filesystem)
    assert read_all(source).to_pylist() == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]


def test_unreadable_csv_is_reported_with_file_and_remedy(place, read_all):
    place.write("a.csv", b"x\n" + b"1\n" * 1_000_000 * 5 + b"word\n")
    with pytest.raises(ValueError, match=r"a\.csv cannot be read as CSV.*column_types"):
        read_all(CSVDatasource(place.path, filesystem=place.filesystem))


def test_an_empty_csv_has_no_rows(place, read_all):
    place.write("a.csv", b"")
    place.write("b.csv", b"x,y\n")
    assert read_all(CSVDatasource(place.path, filesystem=place.filesystem)).num_rows == 0


def test_json_lines_in_chunks_keep_all_rows(place, read_all, monkeypatch):
    monkeypatch.setattr(json_source, "_CHUNK_BYTES", 50)
    rows = [{"a": index, "b": {"c": [index]}} for index in range(100)]
    place.write("a.jsonl", "\n".join(str(row).replace("'", '"') for row in rows).encode())
    assert read_all(JSONDatasource(place.path, filesystem=place.filesystem)).to_pylist() == rows


@pytest.mark.parametrize(
    "text",
    [
        '[{"a": 1}, {"a": 2, "b": null}]',
        '[\n {"a": 1},\n {"a": 2}\n]',
        '{"a": 1}\n{"a": 2}\n',
        '{\n "a":\n 1}\n{"a": 2}',
    ],
)
def test_json_documents_and_lines_give_the_same_rows(place, read_all, text):
    place.write("a.json", text.encode())
    assert read_all(JSONDatasource(place.path, filesystem=place.filesystem))["a"].to_pylist() == [
        1,
        2,
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[1, 2]\n[3]\n", [{"0": 1, "1": 2}, {"0": 3, "1": None}]),
        ('{"a": 1}\n\n{"a": "x"}', [{"a": 1}, {"a": "x"}]),
        ('{"a": {"b": 1}}\n{"a": [2]}\n{}', [{"a": {"b": 1}}, {"a": [2]}, {"a": None}]),
        ("1\n2\n", [{"0": 1}, {"0": 2}]),
    ],
)
def test_python_parses_lines_that_arrow_cannot(place, read_all, text, expected):
    place.write("a.jsonl", text.encode())
    source = JSONDatasource(place.path, lines=True, filesystem=place.filesystem)
    with pytest.warns(UserWarning, match=r"Arrow cannot parse .*a\.jsonl"):
        assert read_all(source).to_pylist() == expected


def test_one_object_over_several_lines_is_a_row(place, read_all):
    place.write("a.json", b'{\n  "a": 1,\n  "b": [\n    1,\n    2\n  ]\n}\n')
    assert read_all(JSONDatasource(place.path, filesystem=place.filesystem)).to_pylist() == [
        {"a": 1, "b": [1, 2]}
    ]


def test_broken_json_names_the_file(place, read_all):
    place.write("a.json", b'{"a": 1}\n{"a": \n')
    with pytest.raises(ValueError, match=r"a\.json cannot be read as JSON"):
        read_all(JSONDatasource(place.path, filesystem=place.filesystem))
    with pytest.raises(ValueError, match=r"a\.json cannot be read as JSON"):
        read_all(JSONDatasource(place.path, lines=True, filesystem=place.filesystem))
    place.write("a.json", b"[1, 2]")
    with pytest.raises(ValueError, match="rows must be objects"):
        read_all(JSONDatasource(place.path, filesystem=place.filesystem))


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_text_lines_do_not_depend_on_chunks(place, read_all, monkeypatch, chunk, encoding):
    monkeypatch.setattr(text_source, "_CHUNK_BYTES", chunk)
    place.write("a.txt", "eins\r\nzwei äöü\n\n \nfünf".encode(encoding))
    source = TextDatasource(place.path, encoding=encoding, filesystem=place.filesystem)
    assert read_all(source)["text"].to_pylist() == ["eins", "zwei äöü", "", " ", "fünf"]
    source = TextDatasource(
        place.path, encoding=encoding, drop_empty_lines=True, filesystem=place.filesystem
    )
    assert read_all(source)["text"].to_pylist() == ["eins", "zwei äöü", "fünf"]


def test_text_in_another_encoding_names_the_file(place, read_all):
    place.write("a.txt", b"\xff\xfe\xfd")
    with pytest.raises(ValueError, match=r"a\.txt is not 'utf-8' text"):
        read_all(TextDatasource(place.path, filesystem=place.filesystem))
    with pytest.raises(LookupError, match="klingon"):
        TextDatasource(place.path, encoding="klingon", filesystem=place.filesystem)


def test_binary_files_are_a_row_each_with_exact_counts(place, read_all):
    for index in range(10):
        place.write(f"label={index % 2}/{index}.bin", bytes([index]) * index)
    source = BinaryDatasource(
        place.path, filesystem=place.filesystem, partitioning=HIVE, include_paths=True
    )
    table = read_all(source)
    assert sorted(map(len, table["bytes"].to_pylist())) == list(range(10))
    assert table["label"].to_pylist() == ["0"] * 5 + ["1"] * 5
    assert all(
        path.endswith(f"{len(content)}.bin")
        for content, path in zip(table["bytes"].to_pylist(), table["path"].to_pylist(), strict=True)
    )
    assert source.num_rows() == 10
    assert sum(task.num_rows for task in source.get_read_tasks(3)) == 10
    assert [len(task.read_fn.args[0]) for task in source.get_read_tasks(2, 1)] == [1, 1]


def test_numpy_rows_are_those_of_the_arrays(place, read_all):
    for index in range(2):
        buffer = io.BytesIO()
        np.save(buffer, np.full((3, 2), index, np.float32))
        place.write(f"{index}.npy", buffer.getvalue())
    table = read_all(NumpyDatasource(place.path, filesystem=place.filesystem))
    array = table["data"].combine_chunks().to_numpy_ndarray()
    assert array.shape == (6, 2)
    assert array.dtype == np.float32
    assert array[:, 0].tolist() == [0, 0, 0, 1, 1, 1]


def test_arrays_of_objects_need_allow_pickle(place, read_all):
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    place.write("a.npy", buffer.getvalue())
    with pytest.raises(ValueError, match=r"a\.npy.*allow_pickle=True if you trust"):
        read_all(NumpyDatasource(place.path, filesystem=place.filesystem))
    assert (
        read_all(
            NumpyDatasource(place.path, allow_pickle=True, filesystem=place.filesystem)
        ).num_rows
        == 1
    )
    place.write("a.npy", b"nonsense")
    with pytest.raises(ValueError, match=r"a\.npy cannot be read"):
        read_all(NumpyDatasource(place.path, filesystem=place.filesystem))


def test_orc_reads_only_projected_columns_in_their_order(place, read_all):
    buffer = pa.BufferOutputStream()
    pyarrow_orc.write_table(pa.table({"a": [1, 2], "b": ["x", "y"]}), buffer)
    place.write("part=7/a.orc", buffer.getvalue().to_pybytes())
    source = ORCDatasource(place.path, filesystem=place.filesystem, partitioning=HIVE)
    assert source.schema().names == ["a", "b", "part"]
    assert read_all(source).to_pylist() == [
        {"a": 1, "b": "x", "part": "7"},
        {"a": 2, "b": "y", "part": "7"},
    ]
    narrow = source.apply_projection(["part", "b"])
    assert read_all(narrow).to_pylist() == [{"part": "7", "b": "x"}, {"part": "7", "b": "y"}]
    assert narrow.schema().names == ["part", "b"]
    place.write("part=7/a.orc", b"nonsense")
    with pytest.raises(ValueError, match=r"a\.orc cannot be read as ORC"):
        ORCDatasource(place.path, filesystem=place.filesystem)


class UsersDatasource(FileBasedDatasource):
    """A custom format, as users of Ray write it."""

    def _read_stream(self, f, path):
        for byte in f.read():
            yield {"value": [byte]}


def test_custom_formats_read_streams(place, read_all):
    place.write("a", bytes([1, 2]))
    place.write("b.gz", gzip.compress(bytes([3])))
    assert read_all(UsersDatasource(place.path, filesystem=place.filesystem))[
        "value"
    ].to_pylist() == [1, 2, 3]


def test_a_transient_error_in_the_middle_of_a_file_repeats_no_row(place, read_all, monkeypatch):
    monkeypatch.setattr(
        "syncline.data.io.filesystem.RETRIES", RetryPolicy(attempts=10, first_pause_s=0.0)
    )
    failures = iter([ConnectionResetError("gone")])

    class Flaky(UsersDatasource):
        def _read_stream(self, f, path):
            for index, row in enumerate(super()._read_stream(f, path)):
                if index == 2:
                    for error in failures:
                        raise error
                yield row

    place.write("a", bytes(range(5)))
    (task,) = Flaky(place.path, filesystem=place.filesystem).get_read_tasks(1)
    assert [value for table in task() for value in table["value"].to_pylist()] == list(range(5))


def test_shuffled_files_follow_the_seed_and_the_epoch(place, read_all):
    for index in range(20):
        place.write(f"{index:02}.txt", str(index).encode())

    def order(source: Datasource, epoch: int, seed: int = 0) -> list[str]:
        context = DataContext(_execution_idx=epoch, _execution_seed=seed)
        return [
            text
            for task in source.get_read_tasks(4, None, context)
            for table in task()
            for text in table["text"].to_pylist()
        ]

    source = TextDatasource(
        place.path, filesystem=place.filesystem, shuffle=FileShuffleConfig(seed=1)
    )
    same = TextDatasource(
        place.path, filesystem=place.filesystem, shuffle=FileShuffleConfig(seed=1)
    )
    assert order(source, 0) == order(same, 0) != order(source, 1)
    assert sorted(order(source, 1), key=int) == [str(index) for index in range(20)]
    drawn, again = (
        TextDatasource(place.path, filesystem=place.filesystem, shuffle="files") for _ in range(2)
    )
    assert drawn.identity() == again.identity() != source.identity()
    assert order(drawn, 3, seed=1) == order(again, 3, seed=1) != order(drawn, 4, seed=1)
    assert order(drawn, 3, seed=1) != order(drawn, 3, seed=2)
    fixed = FileShuffleConfig(reseed_after_execution=False)
    one, other = (
        TextDatasource(place.path, filesystem=place.filesystem, shuffle=fixed) for _ in range(2)
    )
    assert order(one, 3, seed=1) == order(one, 4, seed=2) != order(other, 3, seed=1)
    assert one.identity() != other.identity()
    with pytest.raises(ValueError, match="shuffle='rows'"):
        TextDatasource(place.path, filesystem=place.filesystem, shuffle="rows")


def test_identity_changes_with_the_files_and_with_what_is_read(place):
    def identity(**arguments) -> str:
        return TextDatasource(place.path, filesystem=place.filesystem, **arguments).identity()

    place.write("a.txt", b"x")
    first = identity()
    assert identity() == first
    assert identity(include_paths=True) != first
    assert identity(drop_empty_lines=True) != first
    place.write("a.txt", b"xy")
    assert identity() != first


def test_tasks_are_pickled_without_the_list_of_all_files(place):
    for index in range(50):
        place.write(f"{index:02}.txt", b"x")
    (task, *_) = TextDatasource(place.path, filesystem=place.filesystem).get_read_tasks(50)
    assert task.read_fn.func.__self__._files == []
