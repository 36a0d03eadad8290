"""Avro, Zarr and audio: round trips through the libraries that write them, and errors."""

import datetime
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs as pyarrow_fs

from syncline import data

RECORD: dict[str, Any] = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "a", "type": "long"},
        {"name": "s", "type": ["null", "string"]},
        {"name": "l", "type": {"type": "array", "items": "double"}},
        {"name": "m", "type": {"type": "map", "values": "int"}},
        {"name": "d", "type": {"type": "int", "logicalType": "date"}},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}},
        {
            "name": "n",
            "type": {"type": "record", "name": "N", "fields": [{"name": "x", "type": "float"}]},
        },
        {
            "name": "dec",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
        },
        {"name": "again", "type": ["null", "N"]},
        {"name": "u", "type": ["int", "double"]},
    ],
}
TYPES = {
    "a": pa.int64(),
    "s": pa.string(),
    "l": pa.list_(pa.float64()),
    "m": pa.map_(pa.string(), pa.int32()),
    "d": pa.date32(),
    "t": pa.timestamp("us", "UTC"),
    "e": pa.string(),
    "f": pa.binary(2),
    "n": pa.struct([("x", pa.float32())]),
    "dec": pa.decimal128(5, 2),
    "again": pa.struct([("x", pa.float32())]),
    "u": pa.float64(),
}


def record(number: int) -> dict[str, Any]:
    return {
        "a": number,
        "s": "text" if number % 2 else None,
        "l": [1.0, float(number)],
        "m": {"k": number},
        "d": datetime.date(2024, 1, 1),
        "t": datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc),
        "e": "A",
        "f": b"ab",
        "n": {"x": 0.5},
        "dec": decimal.Decimal("1.25"),
        "again": {"x": 2.0} if number else None,
        "u": number,
    }


@pytest.fixture
def write_avro(tmp_path: Path) -> Callable[..., str]:
    fastavro = pytest.importorskip("fastavro")

    def write(schema: object, rows: list[Any], name: str = "x.avro") -> str:
        with open(tmp_path / name, "wb") as file:
            fastavro.writer(file, schema, rows)
        return str(tmp_path / name)

    return write


def test_avro_records_keep_their_types(write_avro: Callable[..., str]) -> None:
    rows = [record(number) for number in range(3)]
    ds = data.read_avro(write_avro(RECORD, rows))
    schema = ds.schema()
    assert dict(zip(schema.names, schema.types, strict=True)) == TYPES
    assert ds.take_all() == [{**row, "m": list(row["m"].items())} for row in rows]


def test_avro_without_records_has_its_columns(write_avro: Callable[..., str]) -> None:
    assert data.read_avro(write_avro(RECORD, [])).schema().names == list(TYPES)


def test_avro_types_without_an_arrow_type_of_their_own(write_avro: Callable[..., str]) -> None:
    several = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "a", "type": ["long", "string", "null"]}],
    }
    path = write_avro(several, [{"a": 1}, {"a": None}])
    assert data.read_avro(path).take_all() == [{"a": 1}, {"a": None}]
    tree = {
        "type": "record",
        "name": "T",
        "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "T"]}],
    }
    rows = [{"v": 1, "next": {"v": 2, "next": None}}]
    assert data.read_avro(write_avro(tree, rows)).take_all() == rows


def test_avro_mistakes_name_the_file(write_avro: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "no.avro").write_bytes(b"text")
    with pytest.raises(ValueError, match="no.avro cannot be read as Avro"):
        data.read_avro(str(tmp_path / "no.avro")).take_all()
    with pytest.raises(ValueError, match="its values are 'long', but rows need records"):
        data.read_avro(write_avro("long", [1, 2])).take_all()


# -- Zarr


@pytest.fixture(params=[2, 3])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of either version with `a` (10, 4) in chunks (4, 4) and `sub/b` (10,) in chunks
    (5,).
    """
    zarr = pytest.importorskip("zarr", minversion="3")
    group = zarr.open_group(str(tmp_path / "z"), mode="w", zarr_format=request.param)
    first = group.create_array("a", shape=(10, 4), chunks=(4, 4), dtype="f4")
    first[:] = np.arange(40).reshape(10, 4)
    second = group.create_array("sub/b", shape=(10,), chunks=(5,), dtype="i8")
    second[:] = np.arange(10)
    return str(tmp_path / "z")


def test_chunks_of_zarr_arrays_are_rows(store: str) -> None:
    ds = data.read_zarr(store, array_paths=["a", "sub/b"])
    rows = ds.take_all()
    assert ds.count() == len(rows) == 5
    assert [(row["array"], row["chunk_index"], row["chunk_slices"]) for row in rows] == [
        ("a", [0, 0], [[0, 4], [0, 4]]),
        ("a", [1, 0], [[4, 8], [0, 4]]),
        ("a", [2, 0], [[8, 10], [0, 4]]),
        ("sub/b", [0], [[0, 5]]),
        ("sub/b", [1], [[5, 10]]),
    ]
    assert rows[2]["chunk"].tolist() == [[32, 33, 34, 35], [36, 37, 38, 39]]
    assert rows[4]["chunk"].tolist() == [5, 6, 7, 8, 9]


def test_zarr_arrays_are_read_together_along_their_first_axis(store: str) -> None:
    ds = data.read_zarr(
        store, allow_full_metadata_scan=True, align_axis_0=True, chunk_shapes=[4], overlap=1
    )
    found = [
        (row["t_start"], row["t_stop"], row["a"].shape, row["sub/b"].tolist())
        for row in ds.take_all()
    ]
    assert found == [
        (0, 4, (5, 4), [0, 1, 2, 3, 4]),
        (4, 8, (5, 4), [4, 5, 6, 7, 8]),
        (8, 10, (2, 4), [8, 9]),
    ]


def test_zarr_stores_on_other_filesystems(store: str) -> None:
    filesystem = pyarrow_fs.SubTreeFileSystem(store, pyarrow_fs.LocalFileSystem())
    rows = data.read_zarr("/", filesystem=filesystem, array_paths=["sub/b"]).take_all()
    assert [row["chunk"].tolist() for row in rows] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_zarr_mistakes_say_what_to_do(store: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allow_full_metadata_scan=True"):
        data.read_zarr(store)
    with pytest.raises(ValueError, match=r"has no array 'c', only \['a', 'sub'\]"):
        data.read_zarr(store, array_paths=["c"])
    with pytest.raises(ValueError, match="'sub'.* are groups"):
        data.read_zarr(store, array_paths=["sub"])
    with pytest.raises(FileNotFoundError, match="no Zarr store at"):
        data.read_zarr(str(tmp_path / "none"))
    both = {"array_paths": ["a", "sub/b"]}
    with pytest.raises(ValueError, match="same length and chunk length"):
        data.read_zarr(store, align_axis_0=True, **both)
    with pytest.raises(ValueError, match="has 3 axes, but the array 'a' has the shape"):
        data.read_zarr(store, chunk_shapes=[1, 2, 3], array_paths=["a"])
    with pytest.raises(ValueError, match=r"names \['z'\], which are not read"):
        data.read_zarr(store, chunk_shapes={"z": [1]}, **both)
    with pytest.raises(TypeError, match=r"array_paths='a': pass a list, \['a'\]"):
        data.read_zarr(store, array_paths="a")
    with pytest.raises(TypeError, match=r"chunk_shapes=2: pass the lengths .*, \[2\]"):
        data.read_zarr(store, chunk_shapes=2, **both)
    with pytest.raises(ValueError, match="overlap=1: .*align_axis_0=True"):
        data.read_zarr(store, overlap=1, **both)


# -- audio


def test_audio_files_are_rows(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    wave = np.sin(np.arange(1600) / 10).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", np.stack([wave, -wave], axis=1), 16000)
    soundfile.write(tmp_path / "b.flac", wave, 8000)
    (tmp_path / "notes.txt").write_text("no audio")
    ds = data.read_audio(str(tmp_path), include_paths=True)
    first, second = ds.take_all()
    assert (first["amplitude"].shape, first["sample_rate"]) == ((2, 1600), 16000)
    assert (second["amplitude"].shape, second["sample_rate"]) == ((1, 1600), 8000)
    assert first["amplitude"].dtype == np.float32
    np.testing.assert_allclose(first["amplitude"], [wave, -wave], atol=1e-4)
    assert second["path"].endswith("b.flac")
    assert ds.count() == 2
    (tmp_path / "c.wav").write_bytes(b"RIFF")
    with pytest.raises(ValueError, match="c.wav cannot be read as audio: .* libsndfile reads WAV"):
        data.read_audio(str(tmp_path / "c.wav")).take_all()
