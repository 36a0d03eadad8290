"""WebDataset shards: rows, decoders, selection, and invalid archives."""

import io
import json
import pickle
import tarfile

import numpy as np
import pytest

from syncline.data.columnar import block as blocks
from syncline.data.io.sources.webdataset import WebDatasetDatasource


def archive(files: dict[str, bytes] | list[tuple[str, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items() if isinstance(files, dict) else files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def read_rows(place, content: bytes, **arguments) -> list[dict]:
    place.write("a.tar", content)
    (task,) = WebDatasetDatasource(
        place.path, filesystem=place.filesystem, **arguments
    ).get_read_tasks(1)
    return [row for table in task() for row in blocks.rows(table)]


def test_adjacent_files_with_one_key_form_a_decoded_row(place):
    files = {}
    for index in range(600):
        files[f"d/{index:03}.cls"] = str(index).encode()
        files[f"d/{index:03}.txt"] = f"text {index}".encode()
        files[f"d/{index:03}.meta.json"] = json.dumps({"n": index}).encode()
        files[f"d/{index:03}.npy"] = npy(np.full(2, index))
        files[f"d/{index:03}.raw"] = b"\x00"
    rows = read_rows(place, archive(files))
    assert len(rows) == 600
    row = rows[7]
    assert (row["cls"], row["txt"], row["meta.json"], row["raw"]) == (
        7,
        "text 7",
        {"n": 7},
        b"\x00",
    )
    assert row["npy"].tolist() == [7, 7]
    assert row["__key__"] == "d/007"
    assert row["__url__"].endswith("a.tar")


def test_images_are_arrays(place):
    pillow = pytest.importorskip("PIL.Image")
    buffer = io.BytesIO()
    pillow.fromarray(np.zeros((3, 4, 3), np.uint8)).save(buffer, format="png")
    assert read_rows(place, archive({"0.png": buffer.getvalue()}))[0]["png"].shape == (3, 4, 3)


def test_custom_decoders_and_no_decoder(place):
    content = archive({"0.txt": b"a", "0.cls": b"3"})
    assert read_rows(place, content, decoder=None)[0]["cls"] == b"3"
    (row,) = read_rows(
        place, content, decoder=[lambda row: {**row, "txt": row["txt"].upper()}, True]
    )
    assert (row["txt"], row["cls"]) == ("A", 3)


def test_files_are_selected_and_renamed(place):
    content = archive({"0.txt": b"a", "0.cls": b"3", "0.json": b"{}"})
    assert set(read_rows(place, content, suffixes=["txt", "*.j*"])[0]) == {
        "txt",
        "json",
        "__key__",
        "__url__",
    }
    assert set(read_rows(place, content, fileselect=lambda name: name.endswith("cls"))[0]) == {
        "cls",
        "__key__",
        "__url__",
    }
    assert (
        read_rows(place, content, filerename=lambda name: name.replace("0.", "x/7."))[0]["__key__"]
        == "x/7"
    )


def test_expand_json_adds_columns(place):
    (row,) = read_rows(place, archive({"0.json": b'{"a": 1, "b": "x"}'}), expand_json=True)
    assert (row["a"], row["b"]) == (1, "x")


def test_pickles_are_rejected_by_default(place):
    with pytest.raises(ValueError, match=r"a\.tar, row '0': 'pkl' holds a pickle.*decoder="):
        read_rows(place, archive({"0.pkl": pickle.dumps(1)}))


def test_scattered_keys_and_corrupt_archives_are_errors(place):
    with pytest.raises(ValueError, match=r"a\.tar: the files of '0' are not adjacent"):
        read_rows(place, archive({"0.txt": b"", "1.txt": b"", "0.cls": b"1"}))
    with pytest.raises(ValueError, match="occurs twice"):
        read_rows(place, archive([("0.txt", b""), ("0.txt", b"")]))
    with pytest.raises(ValueError, match=r"a\.tar cannot be read as a tar"):
        read_rows(place, b"nonsense" * 200)
    with pytest.raises(ValueError, match=r"a\.tar cannot be read as a tar"):
        read_rows(place, archive({"0.txt": b"x" * 5000})[:2000])
