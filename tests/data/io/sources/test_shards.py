"""MDS shards and LitData chunks, read from files that these libraries wrote (`../shards`)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from syncline.data.columnar import block as blocks
from syncline.data.io.sources.datasource import Datasource
from syncline.data.io.sources.file_listing import FileShuffleConfig
from syncline.data.io.sources.litdata import LitDataDatasource
from syncline.data.io.sources.litdata_nested import nested
from syncline.data.io.sources.mds import MDSDatasource
from tests.data.io.shards.write_shards import (
    FOLDER,
    MDS_COLUMNS,
    MDS_COMPRESSIONS,
    ROWS,
    arrow_row,
    litdata_row,
    mds_row,
)


def rows_of(source: Datasource, parallelism: int = 2) -> list[dict[str, Any]]:
    tasks = source.get_read_tasks(parallelism)
    tables = [list(task()) for task in tasks]
    for task, found in zip(tasks, tables, strict=True):
        assert task.num_rows == sum(table.num_rows for table in found)
    return [row for found in tables for table in found for row in blocks.row_list(table)]


def plain(value: Any) -> Any:
    """A written or read value in a form that can be compared."""
    if type(value).__module__.startswith("PIL."):
        return np.asarray(value).tolist()
    if type(value).__module__ == "torch":
        return value.numpy().tolist()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def mds(name: str = "mds", **options: Any) -> MDSDatasource:
    return MDSDatasource(str(FOLDER / name), **options)


def litdata(name: str = "litdata", **options: Any) -> LitDataDatasource:
    return LitDataDatasource(str(FOLDER / name), **options)


# -- MDS


def test_values_of_all_encodings() -> None:
    rows = rows_of(mds())
    expected = [plain(mds_row(index)) for index in range(ROWS)]
    assert [sorted(row) for row in rows] == [sorted(MDS_COLUMNS)] * ROWS
    assert plain(rows) == expected


def test_numbers_keep_their_types() -> None:
    (task,) = mds(columns=["uint8", "int32", "float16", "float64", "int"]).get_read_tasks(1)
    schema = next(task()).schema
    assert schema.types == [pa.uint8(), pa.int32(), pa.float16(), pa.float64(), pa.int64()]


@pytest.mark.parametrize("compression", MDS_COMPRESSIONS)
def test_compressed_shards(compression: str) -> None:
    rows = rows_of(mds(f"mds-{compression.partition(':')[0]}"))
    assert rows == [{"int": index - 3} for index in range(ROWS)]


def test_columns_are_read_in_the_order_of_the_call() -> None:
    rows = rows_of(mds(columns=["str", "int"]))
    assert [list(row) for row in rows] == [["str", "int"]] * ROWS
    assert rows_of(mds().apply_projection(["str"]))[0] == {"str": "row 0 \N{SNOWMAN}"}


def test_rows_are_counted_without_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MDSDatasource, "_content", None)
    assert mds().num_rows() == ROWS
    assert sum(task.num_rows or 0 for task in mds().get_read_tasks(9)) == ROWS


def test_shards_are_read_in_random_order() -> None:
    in_order = [row["int"] for row in rows_of(mds(columns=["int"]))]
    shuffled = [
        row["int"] for row in rows_of(mds(columns=["int"], shuffle=FileShuffleConfig(seed=3)))
    ]
    assert shuffled != in_order
    assert sorted(shuffled) == in_order


def test_several_folders_and_paths() -> None:
    source = MDSDatasource(
        [str(FOLDER / "mds-gz"), str(FOLDER / "mds-zstd")], include_paths=True, columns=["int"]
    )
    rows = rows_of(source)
    assert len(rows) == 2 * ROWS
    assert rows[0]["path"].endswith("mds-gz/shard.00000.mds.gz")


# -- LitData


@pytest.mark.parametrize("name", ["litdata", "litdata-chunk", "litdata-batch", "litdata-sample"])
def test_litdata_rows(name: str) -> None:
    expected = []
    for index in range(ROWS):
        row = plain(litdata_row(index))
        expected.append(row)
    assert plain(rows_of(litdata(name))) == expected


@pytest.mark.parametrize("name", ["litdata-arrow", "litdata-arrow-zstd"])
def test_litdata_rows_in_the_format_of_arrow(name: str) -> None:
    assert rows_of(litdata(name)) == [arrow_row(index) for index in range(ROWS)]
    assert rows_of(litdata(name, columns=["text"]))[1] == {"text": "row 1"}


def test_litdata_rows_that_are_no_dicts() -> None:
    assert rows_of(litdata("litdata-values")) == [{"item": index * 2} for index in range(ROWS)]
    assert rows_of(litdata("litdata-pairs")) == [
        {"0": index, "1": f"t{index}"} for index in range(ROWS)
    ]


def test_litdata_tokens() -> None:
    rows = rows_of(litdata("litdata-tokens", block_size=3))
    assert plain(rows) == [{"item": plain(litdata_row(index)["tokens"])} for index in range(ROWS)]
    with pytest.raises(ValueError, match="pass `block_size=`"):
        litdata("litdata-tokens")
    with pytest.raises(ValueError, match="block_size=-3: pass the number of tokens"):
        litdata("litdata-tokens", block_size=-3)


def test_litdata_columns() -> None:
    assert rows_of(litdata(columns=["text", "nested"]))[2] == {
        "text": "row 2 \N{SNOWMAN}",
        "nested": {"a": 2, "b": [2, "b2"]},
    }


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a": 1}', {"a": 1}),
        (bytes([2, 1, 0, 0, 0]) + (7).to_bytes(8, "little"), [7]),
        (bytes([4, 2, 0, 0, 0, 1, 0]), [True, False]),
        (bytes([11]), None),
        (bytes([5, 1, 0, 0, 0, 1, 0, 0, 0]) + b"k" + bytes([10, 1]), {"k": True}),
        (
            bytes([6, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0])
            + b"k"
            + bytes([0x14, 1, 0x11, 1, 0, 0, 0])
            + b"v",
            [{"k": True}, {"k": "v"}],
        ),
    ],
)
def test_nested_values(data: bytes, value: object) -> None:
    assert nested(data) == value


@pytest.mark.parametrize("data", [bytes([31]), bytes([7, 9, 0, 0, 0])])
def test_damaged_nested_values(data: bytes) -> None:
    with pytest.raises(ValueError, match="unknown tag|ends after"):
        nested(data)


# -- errors


@pytest.mark.parametrize(
    ("source", "name", "column"), [(mds, "mds-pickle", "int"), (litdata, "litdata-pickle", "value")]
)
def test_pickles_are_read_on_request_only(source: Any, name: str, column: str) -> None:
    with pytest.raises(ValueError, match="allow_pickle=True"):
        source(name)
    rows = rows_of(source(name, allow_pickle=True))
    assert rows[3][column] == (0 if source is mds else [3])  # Arrow has no sets


def test_folder_without_index(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"has no index.json: .*MDSWriter"):
        MDSDatasource(str(tmp_path))
    with pytest.raises(FileNotFoundError, match="litdata.optimize"):
        LitDataDatasource(str(tmp_path))


@pytest.mark.parametrize("kind", [MDSDatasource, LitDataDatasource])
@pytest.mark.parametrize("index", ["[]", "null", '{"version": 2}', '{"version": 2, "config": 1}'])
def test_an_index_of_another_library(tmp_path: Path, kind: Any, index: str) -> None:
    (tmp_path / "index.json").write_text(index)
    with pytest.raises(ValueError, match=r"index.json is not an index that .* `read_litdata`"):
        kind(str(tmp_path))


def test_unknown_column() -> None:
    with pytest.raises(ValueError, match=r"has no columns \['typo'\]"):
        mds(columns=["typo"])


def test_unknown_encodings(tmp_path: Path) -> None:
    for name, change in [
        ("mds-gz", lambda index: index["shards"][0].update(column_encodings=["new"])),
        ("litdata-values", lambda index: index["config"].update(data_format=["graph"])),
    ]:
        changed(tmp_path / name, name, change)
        kind = MDSDatasource if name == "mds-gz" else LitDataDatasource
        with pytest.raises(ValueError, match="of the kind '(new|graph)', which cannot be read"):
            kind(str(tmp_path / name))


def test_formats_of_other_readers(tmp_path: Path) -> None:
    for number, (name, change, message) in enumerate(
        [
            ("mds-gz", lambda index: index.update(version=1), "index of version 1"),
            ("mds-gz", lambda index: index["shards"][0].update(format="json"), "not MDS"),
            ("litdata", lambda index: index["config"].update(encryption={"a": 1}), "encrypted"),
            (
                "litdata",
                lambda index: index["config"].update(item_loader="ParquetLoader"),
                "read_parquet",
            ),
        ]
    ):
        changed(tmp_path / str(number), name, change)
        kind = MDSDatasource if name == "mds-gz" else LitDataDatasource
        with pytest.raises(ValueError, match=message):
            kind(str(tmp_path / str(number)))


@pytest.mark.parametrize(
    "name", ["mds", "mds-zstd", "litdata", "litdata-chunk", "litdata-batch", "litdata-arrow"]
)
@pytest.mark.parametrize("kept", [0, 3, 40, -1])
def test_shard_that_was_cut_off_is_named(name: str, kept: int, tmp_path: Path) -> None:
    shutil.copytree(FOLDER / name, tmp_path / name)
    shard = min(path for path in (tmp_path / name).iterdir() if path.name != "index.json")
    content = shard.read_bytes()
    shard.write_bytes(content[:kept])
    kind = MDSDatasource if name.startswith("mds") else LitDataDatasource
    with pytest.raises(ValueError, match=f"{shard.name} cannot be read"):
        rows_of(kind(str(tmp_path / name)))


def changed(folder: Path, name: str, change: Any) -> None:
    """Copy a folder of shards and change its index."""
    shutil.copytree(FOLDER / name, folder)
    index = json.loads((folder / "index.json").read_text())
    change(index)
    (folder / "index.json").write_text(json.dumps(index))
