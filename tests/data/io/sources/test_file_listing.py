"""Listing, grouping and shuffling files; paths and retries."""

import pytest
from pyarrow import fs as pyarrow_fs

from syncline.data.io import filesystem as filesystems
from syncline.data.io.sinks.staging import CommitRecord
from syncline.data.io.sources.file_listing import (
    FileInfo,
    FileShuffleConfig,
    contiguous_groups,
    has_extension,
    list_files,
    shuffled,
)
from syncline.data.io.sources.text import TextDatasource
from syncline.storage.retries import RetryPolicy


def names(place, *paths, **arguments) -> list[str]:
    found = list_files(place.arrow, list(paths) or [place.path], **arguments)
    return [file.path.removeprefix(place.path).lstrip("/") for file in found]


def test_a_directory_is_read_recursively_sorted_and_without_hidden_names(place):
    for name in (
        "b.txt",
        "a/z.txt",
        "a/y.txt",
        ".hidden",
        "_SUCCESS",
        "a/_temporary/x.txt",
        "_part=1/w.txt",
    ):
        place.write(name, b"x")
    assert names(place) == ["_part=1/w.txt", "a/y.txt", "a/z.txt", "b.txt"]


def test_given_files_keep_their_order_and_sizes(place):
    paths = [place.write("b.txt", b"12"), place.write("a.txt", b"1")]
    found = list_files(place.arrow, paths)
    assert [file.size for file in found] == [2, 1]


def test_missing_path_is_an_error_at_construction(place):
    place.write("a.txt", b"x")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        TextDatasource(
            [f"{place.path}/a.txt", f"{place.path}/nowhere"], filesystem=place.filesystem
        )
    with pytest.raises(FileNotFoundError, match="Globs are not expanded"):
        names(place, f"{place.path}/*.txt")


def test_missing_paths_may_be_ignored_unless_all_are(place):
    path = place.write("a.txt", b"x")
    assert names(place, path, f"{place.path}/nowhere", ignore_missing_paths=True) == ["a.txt"]
    with pytest.raises(ValueError, match="no file to read.*do not exist"):
        names(place, f"{place.path}/nowhere", ignore_missing_paths=True)


def test_extensions_select_files(place):
    for name in ("a.CSV", "b.csv.gz", "c.txt"):
        place.write(name, b"x")
    assert names(place, extensions=[".csv", "csv.gz"]) == ["a.CSV", "b.csv.gz"]
    with pytest.raises(ValueError, match="file_extensions"):
        names(place, extensions=["json"])
    assert has_extension("x.parquet?versionId=3", ["parquet"])


def test_partition_filter_selects_files(place):
    place.write("a.txt", b"x")
    place.write("b.txt", b"x")
    assert names(
        place, partition_filter=lambda paths: [path for path in paths if path.endswith("b.txt")]
    ) == ["b.txt"]
    with pytest.raises(ValueError, match="partition_filter rejects all"):
        names(place, partition_filter=lambda paths: [])


def test_commit_record_decides_which_files_are_listed(place):
    for name in (
        "old.txt",
        "both.txt",
        ".staging-j/data/new.txt",
        ".staging-j/data/both.txt",
        ".staging-i/data/undecided.txt",
    ):
        place.write(name, b"x")
    assert names(place) == ["both.txt", "old.txt"]
    place.write(
        ".staging-j/COMMIT",
        CommitRecord(
            job="j", files=("new.txt", "both.txt"), replaced=("old.txt", "both.txt")
        ).encode(),
    )
    assert names(place) == [".staging-j/data/both.txt", ".staging-j/data/new.txt"]


def test_shuffled_order_depends_on_seed_and_epoch():
    files = [FileInfo(path=str(index), size=1) for index in range(50)]
    assert shuffled(files, 1) == shuffled(files, 1) != shuffled(files, 2)
    every_epoch = FileShuffleConfig(seed=3)
    assert every_epoch.get_seed(0) == every_epoch.get_seed(0) != every_epoch.get_seed(1)
    assert FileShuffleConfig(seed=3, reseed_after_execution=False).get_seed(1) == 3
    with pytest.raises(ValueError, match="seed"):
        FileShuffleConfig(seed="x")


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_groups_cover_all_files_in_order_with_nearly_equal_bytes(count):
    files = [FileInfo(path=str(index), size=index * 10) for index in range(30)]
    cut = contiguous_groups(files, count)
    assert [file for run in cut for file in run] == files
    assert all(cut)
    assert len(cut) <= count
    if count == 3:
        assert max(sum(file.size for file in run) for run in cut) < 2 * 4350 / 3


@pytest.mark.parametrize("path", [5, None, [5]])
def test_a_value_that_is_no_path_is_named(path):
    with pytest.raises(TypeError, match=r"a path must be a str or a pathlib.Path, not (int|None)"):
        filesystems.resolve(path)


def test_paths_may_be_uris_home_directories_and_fsspec_schemes(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.txt").write_bytes(b"x")
    for path in (
        f"file://{tmp_path}/a.txt",
        f"local://{tmp_path}/a.txt",
        "~/a.txt",
        tmp_path / "a.txt",
    ):
        filesystem, (resolved,) = filesystems.resolve(path)
        assert isinstance(filesystem, pyarrow_fs.LocalFileSystem)
        assert resolved == str(tmp_path / "a.txt")
    pytest.importorskip("fsspec")
    assert filesystems.resolve("memory://x/y")[0].type_name.startswith("py::")


def test_unresolvable_paths_are_rejected():
    with pytest.raises(ValueError, match="no path"):
        filesystems.resolve([])
    with pytest.raises(ValueError, match="one filesystem"):
        filesystems.resolve(["/a", "s3://b/c"])
    with pytest.raises(TypeError, match="a path must be a str"):
        filesystems.resolve([1])
    with pytest.raises(TypeError, match="fsspec filesystem, not int"):
        filesystems.resolve("/a", 1)


def test_only_transient_errors_are_retried():
    policy = RetryPolicy(attempts=4, first_pause_s=0.0)
    attempts = []

    def fail():
        attempts.append(None)
        raise OSError("SLOW DISK during read")

    with pytest.raises(OSError, match="SLOW DISK"):
        filesystems.call_with_retry(fail, "reading", ["SLOW DISK"], policy)
    assert len(attempts) == 4
    with pytest.raises(OSError, match="SLOW DISK"):
        filesystems.call_with_retry(fail, "reading", [], policy)
    assert len(attempts) == 5


def test_iteration_after_a_transient_error_repeats_nothing():
    policy = RetryPolicy(attempts=10, first_pause_s=0.0)
    attempts = []

    def numbers():
        attempts.append(None)
        for number in range(10):
            if number == 2 * len(attempts):
                raise TimeoutError("slow")
            yield number

    assert list(filesystems.iterate_with_retry(numbers, "reading", [], policy)) == list(range(10))


def test_iteration_stops_at_a_permanent_error():
    policy = RetryPolicy(attempts=10, first_pause_s=0.0)

    def numbers():
        yield 1
        raise TimeoutError("always")

    iterator = filesystems.iterate_with_retry(numbers, "reading", [], policy)
    assert next(iterator) == 1
    with pytest.raises(TimeoutError):
        next(iterator)
