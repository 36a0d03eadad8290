"""Tags, notes and archive marks of runs, and deletion of runs."""

import json
import os
from pathlib import Path

import pytest

from syncline.runs import LocalFiles, RunDirectory
from syncline.runs.annotations import (
    MAX_NOTE_CHARACTERS,
    MAX_TAGS,
    Annotations,
    annotate,
    delete_run,
    read_annotations,
)
from syncline.runs.run_storage import LocalDirectory, open_directory


@pytest.fixture
def run(tmp_path: Path) -> LocalDirectory:
    place = tmp_path / "runs" / "a"
    with RunDirectory(LocalFiles(place)) as record:
        record.write_run("a", {}, detailed=False)
    return LocalDirectory(place)


def test_a_run_has_no_annotations_at_first(run: LocalDirectory) -> None:
    assert read_annotations(run) == Annotations(tags=(), note="", archived=False)


def test_annotations_are_changed_one_by_one(run: LocalDirectory) -> None:
    annotate(run, add_tags=["baseline", " lr sweep "])
    annotate(run, note="good\nseed", archived=True)
    annotate(run, add_tags=["baseline", "best"], remove_tags=["lr sweep", "unknown"])
    expected = Annotations(tags=("baseline", "best"), note="good\nseed", archived=True)
    assert read_annotations(run) == expected
    assert annotate(run, note="", archived=False) == Annotations(tags=("baseline", "best"))


def test_a_restart_of_the_run_keeps_its_annotations(run: LocalDirectory) -> None:
    annotate(run, add_tags=["kept"])
    with RunDirectory(LocalFiles(run.path)) as record:
        record.write_run("a", {}, detailed=False)
    assert read_annotations(run).tags == ("kept",)


@pytest.mark.parametrize("tag", ["", "  ", "a,b", "two\nlines", "x" * 65])
def test_text_that_is_not_a_tag_is_refused(run: LocalDirectory, tag: str) -> None:
    with pytest.raises(ValueError, match="is not a tag"):
        annotate(run, add_tags=["fine", tag])
    assert read_annotations(run) == Annotations()


def test_too_much_is_refused(run: LocalDirectory) -> None:
    with pytest.raises(ValueError, match=f"up to {MAX_TAGS}"):
        annotate(run, add_tags=[f"tag{number}" for number in range(MAX_TAGS + 1)])
    with pytest.raises(ValueError, match="characters"):
        annotate(run, note="x" * (MAX_NOTE_CHARACTERS + 1))


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b'{"tags": 3, "note": [], "archived": "yes"}',
        b'{"tags": [1, null, ""]}',
        b"\xff",
    ],
)
def test_a_damaged_file_counts_as_empty(run: LocalDirectory, data: bytes) -> None:
    run.write("annotations.json", data)
    assert read_annotations(run) == Annotations()


def test_a_file_of_other_hands_is_cut_to_the_limits(run: LocalDirectory) -> None:
    tags = [f"{number}" * 100 for number in range(200)]
    run.write("annotations.json", json.dumps({"tags": tags, "note": "n" * 10**5}).encode())
    found = read_annotations(run)
    assert len(found.tags) == MAX_TAGS
    assert len(found.note) == MAX_NOTE_CHARACTERS


def test_a_directory_without_a_run_is_neither_annotated_nor_deleted(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    with pytest.raises(ValueError, match="no run"):
        annotate(LocalDirectory(tmp_path), note="x")
    with pytest.raises(ValueError, match="not deleted"):
        delete_run(LocalDirectory(tmp_path))
    assert (tmp_path / "precious").exists()


def test_deletion_removes_the_run_but_nothing_behind_links(
    run: LocalDirectory, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "precious").write_text("x")
    os.symlink(tmp_path / "data", Path(run.path) / "data")
    (Path(run.path) / "checkpoint_000000").mkdir()
    delete_run(run)
    assert not os.path.exists(run.path)
    assert (tmp_path / "data" / "precious").exists()


def test_a_run_on_another_filesystem_is_annotated_and_deleted() -> None:
    pytest.importorskip("pyarrow")
    place = open_directory("mock:///runs/a")
    place.write("run.json", b"{}")
    assert annotate(place, add_tags=["remote"]).tags == ("remote",)
    assert read_annotations(place).tags == ("remote",)
    delete_run(place)
    assert place.file_info("run.json") is None
