"""Input files: repeated links to images, files for the scan, creation on first use."""

import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.inputs import (
    CIFAR10,
    GROUPS,
    SAMPLE,
    SCALE,
    Inputs,
    link_images,
    scaled,
    write_numbers,
    write_photos,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "input"
    made.mkdir()
    return made


def test_images_repeat_until_there_are_enough(tmp_path: Path, folder: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name, rows in (("a", 3), ("b", 2)):
        pq.write_table(pa.table({"name": [name] * rows}), source / f"{name}.parquet")
    link_images(folder, source, 7)
    assert pq.read_table(folder)["name"].to_pylist() == ["a"] * 3 + ["b"] * 2 + ["a"] * 3
    assert all(file.is_symlink() for file in folder.iterdir())


def test_error_names_the_folder_without_images_and_the_variable(
    tmp_path: Path, folder: Path
) -> None:
    with pytest.raises(FileNotFoundError, match=rf"{tmp_path}.*set {CIFAR10} to a folder"):
        link_images(folder, tmp_path, 7)


def test_sample_has_the_columns_that_programs_read() -> None:
    (file,) = (SAMPLE / "train").glob("*.parquet")
    assert set(pq.read_schema(file).names) == {"image", "label"}


def test_scan_files_hold_all_rows_once_in_order(folder: Path) -> None:
    write_numbers(folder, 1001)
    table = pq.read_table(folder)
    assert table["id"].to_pylist() == list(range(1001))
    assert set(table["group"].to_pylist()) <= set(range(GROUPS))
    assert table.num_columns == 26


def test_fewer_rows_than_files_make_fewer_files(folder: Path) -> None:
    write_numbers(folder, 3)
    assert pq.read_table(folder)["id"].to_pylist() == [0, 1, 2]


def test_photos_have_one_size_and_are_the_same_in_all_layouts(folder: Path) -> None:
    write_photos(folder, SAMPLE / "test", 9)
    table = pq.read_table(folder / "parquet")
    jpegs = table["image"].to_pylist()
    assert [file.read_bytes() for file in sorted((folder / "files").iterdir())] == jpegs
    assert all(80_000 < len(jpeg) < 140_000 for jpeg in jpegs)
    names, contents = [], []
    for path in sorted((folder / "tar").iterdir()):
        with tarfile.open(path) as archive:
            for member in archive:
                names.append(member.name)
                contents.append(archive.extractfile(member).read())
    assert names == [f"{key:06}.{suffix}" for key in range(9) for suffix in ("jpg", "cls")]
    assert contents[::2] == jpegs
    assert [int(label) for label in contents[1::2]] == table["label"].to_pylist()


@pytest.mark.parametrize(
    ("scale", "expected"), [(None, 1000), ("", 1000), ("0.01", 10), ("0.00001", 1)]
)
def test_sizes_are_scaled(scale: str | None, expected: int) -> None:
    assert scaled(1000, {} if scale is None else {SCALE: scale}) == expected


def test_input_is_created_on_first_use_and_deleted_after_the_run() -> None:
    made: list[Path] = []
    with Inputs({"scan": made.append, "images": made.append}) as inputs:
        first = inputs.folder("scan")
        assert inputs.folder("scan") == first
        assert made == [first]
        assert first.is_dir()
    assert not first.exists()
