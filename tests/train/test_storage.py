"""The run directory: resolving, staging, committing, merging, cleaning up, on local and remote filesystems."""

import os
import pickle
import shutil

import pytest
from pyarrow import fs

from syncline.train import filesystem as directories
from syncline.train import storage as storage_module
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import RunConfig
from syncline.train.storage import ArrowFiles, StorageContext, checkpoint_dir_name


def make(kind, tmp_path):
    if kind == "local":
        return StorageContext(tmp_path / "storage", "run")
    if kind == "mock":
        return StorageContext("storage", "run", fs.FileSystem.from_uri("mock:///")[0])
    if kind == "subtree":
        (tmp_path / "bucket").mkdir()
        return StorageContext("storage", "run", fs.SubTreeFileSystem(str(tmp_path / "bucket"), fs.LocalFileSystem()))
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    return StorageContext("storage", "run", fs.PyFileSystem(fs.FSSpecHandler(memory)))


@pytest.fixture(params=["local", "mock", "subtree", "memory"])
def storage(request, tmp_path):
    context = make(request.param, tmp_path)
    context.prepare()
    return context


@pytest.fixture
def local(tmp_path):
    context = make("local", tmp_path)
    context.prepare()
    return context


def source(tmp_path, name, **contents):
    directory = tmp_path / f"source-{name}"
    for path, text in contents.items():
        file = directory / path.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return Checkpoint.from_directory(directory)


def listing(storage, below=""):
    """Every file below the run directory: relative path to content."""
    root = os.path.join(storage.experiment_fs_path, below).rstrip("/")
    infos = storage.storage_filesystem.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
    found = {}
    for info in infos:
        if info.type == fs.FileType.File:
            with storage.storage_filesystem.open_input_file(info.path) as file:
                found[info.path.strip("/")[len(root.strip("/")) + 1 :]] = file.read().decode()
    return found


def put_in_place(storage, checkpoint, name):
    """What a program does itself that reports with NO_UPLOAD."""
    target = storage.build_checkpoint_path_from_name(name)
    directories.copy_directory(checkpoint.filesystem, checkpoint.path, storage.storage_filesystem, target)


def test_it_takes_its_place_from_the_run_config(tmp_path):
    context = StorageContext.from_run_config(RunConfig(name="run", storage_path=tmp_path))
    assert context.experiment_fs_path == f"{tmp_path}/run"
    assert (context.storage_fs_path, context.experiment_dir_name, context.local) == (str(tmp_path), "run", True)
    assert context.build_checkpoint_path_from_name("c") == f"{tmp_path}/run/c"
    assert pickle.loads(pickle.dumps(context)) == context


def test_a_uri_and_a_given_filesystem_drop_the_scheme(tmp_path):
    assert StorageContext(f"file://{tmp_path}", "run").experiment_fs_path == f"{tmp_path}/run"
    (tmp_path / "bucket").mkdir()
    elsewhere = fs.SubTreeFileSystem(str(tmp_path / "bucket"), fs.LocalFileSystem())
    assert StorageContext("any://bucket/runs/", "run", elsewhere).experiment_fs_path == "bucket/runs/run"


def test_checkpoints_are_numbered():
    assert [checkpoint_dir_name(index) for index in (0, 12)] == ["checkpoint_000000", "checkpoint_000012"]


def test_prepare_leaves_an_empty_directory_and_may_be_repeated(storage):
    storage.prepare()
    assert listing(storage) == {}
    assert directories.is_directory(storage.storage_filesystem, storage.experiment_fs_path)


def test_a_storage_path_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be written.*storage_path"):
        StorageContext(tmp_path / "file" / "below", "run").prepare()


def test_a_storage_path_that_cannot_be_written_is_refused():
    with pytest.raises(ValueError, match="/proc/syncline/run.*cannot be written.*storage_path"):
        StorageContext("/proc/syncline", "run").prepare()


def test_a_full_disk_is_refused(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(storage_module.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ValueError, match="has 1000 bytes left.*storage_path"):
        StorageContext(tmp_path, "run").prepare()


def test_staged_files_become_a_checkpoint_and_the_source_stays(storage, tmp_path):
    given = source(tmp_path, "a", model="weights", sub__state="s")
    staged = storage.stage(given, "checkpoint_000000", rank=0, token="t0")
    checkpoint = storage.commit("checkpoint_000000", [staged])
    assert checkpoint == storage.checkpoint("checkpoint_000000")
    assert listing(storage) == {"checkpoint_000000/model": "weights", "checkpoint_000000/sub/state": "s"}
    assert storage.exists(checkpoint)
    assert storage.contains(checkpoint)
    assert storage.name_of(checkpoint) == "checkpoint_000000"
    assert os.path.exists(os.path.join(given.path, "model"))


def test_the_files_of_all_ranks_merge(storage, tmp_path):
    parts = [source(tmp_path, "0", a="0", sub__x="0"), source(tmp_path, "1", b="1", sub__y="1"), source(tmp_path, "2", c="2")]
    staged = [storage.stage(part, "c", rank=rank, token="t") for rank, part in enumerate(parts)]
    storage.commit("c", staged)
    assert listing(storage) == {"c/a": "0", "c/b": "1", "c/c": "2", "c/sub/x": "0", "c/sub/y": "1"}


def test_of_files_with_one_name_the_lowest_ranks_counts(local, tmp_path):
    staged = [local.stage(source(tmp_path, str(rank), model=f"rank {rank}"), "c", rank=rank, token="t") for rank in (1, 0)]
    local.commit("c", list(reversed(staged)))
    assert listing(local) == {"c/model": "rank 0"}


def test_a_local_checkpoint_is_invisible_until_it_is_committed(local, tmp_path):
    local.stage(source(tmp_path, "a", model="w"), "c", rank=0, token="t")
    assert not local.exists(local.checkpoint("c"))
    assert all(name.startswith(".tmp-") for name in os.listdir(local.experiment_fs_path))


def test_a_name_that_is_reported_again_is_replaced(local, tmp_path):
    for token, contents in (("t0", {"old": "1"}), ("t1", {"new": "2"})):
        local.commit("c", [local.stage(source(tmp_path, token, **contents), "c", rank=0, token=token)])
    assert listing(local) == {"c/new": "2"}


def test_a_name_may_have_several_parts(storage, tmp_path):
    storage.commit("epoch/1", [storage.stage(source(tmp_path, "a", model="w"), "epoch/1", rank=0, token="t")])
    assert listing(storage) == {"epoch/1/model": "w"}


def test_parts_under_another_name_are_moved(storage, tmp_path):
    put_in_place(storage, source(tmp_path, "a", b="1"), "other")
    staged = storage.stage(source(tmp_path, "b", a="0"), "c", rank=0, token="t")
    storage.commit("c", [staged, "other"])
    assert listing(storage) == {"c/a": "0", "c/b": "1"}


def test_files_in_place_need_no_staging(storage, tmp_path):
    put_in_place(storage, source(tmp_path, "a", model="w"), "mine")
    assert storage.commit("mine", [None, None]) == storage.checkpoint("mine")
    assert listing(storage) == {"mine/model": "w"}


def test_files_in_place_and_staged_files_merge(local, tmp_path):
    put_in_place(local, source(tmp_path, "a", a="0"), "c")
    staged = local.stage(source(tmp_path, "b", b="1"), "c", rank=1, token="t")
    local.commit("c", [None, staged])
    assert listing(local) == {"c/a": "0", "c/b": "1"}


def test_what_an_attempt_left_unfinished_is_discarded(storage, tmp_path):
    storage.commit("good", [storage.stage(source(tmp_path, "a", model="w"), "good", rank=0, token="t0")])
    storage.stage(source(tmp_path, "b", model="half"), "bad", rank=1, token="t1")
    storage.stage(source(tmp_path, "c", model="w"), "good", rank=0, token="t2")
    storage.discard_staged(keep=["good"])
    assert listing(storage) == {"good/model": "w"}
    assert not storage.exists(storage.checkpoint("bad"))


def test_deleting_removes_the_directory_and_may_be_repeated(storage, tmp_path):
    checkpoint = storage.commit("c", [storage.stage(source(tmp_path, "a", model="w"), "c", rank=0, token="t")])
    storage.delete(checkpoint)
    storage.delete(checkpoint)
    assert not storage.exists(checkpoint)
    assert listing(storage) == {}


def test_nothing_outside_the_run_directory_is_deleted(storage, tmp_path):
    outside = source(tmp_path, "a", model="w")
    with pytest.raises(ValueError, match="outside the run directory"):
        storage.delete(outside)
    assert os.path.exists(outside.path)
    assert not storage.contains(outside)
    assert not storage.contains(Checkpoint(storage.experiment_fs_path + "-more/c", storage.storage_filesystem))


def test_a_missing_source_is_file_not_found(storage, tmp_path):
    with pytest.raises(FileNotFoundError, match="missing"):
        storage.stage(Checkpoint(str(tmp_path / "missing")), "c", rank=0, token="t")


def test_a_remote_source_can_be_staged(local, tmp_path):
    remote = make("memory", tmp_path)
    remote.prepare()
    origin = remote.commit("c", [remote.stage(source(tmp_path, "a", model="w"), "c", rank=0, token="t")])
    local.commit("d", [local.stage(origin, "d", rank=0, token="t")])
    assert listing(local) == {"d/model": "w"}


def test_arrow_files_read_and_write(storage):
    files = storage.files
    assert isinstance(files, ArrowFiles)
    assert files.read("a/b.json") is None
    files.write("a/b.json", b"1")
    files.write("a/b.json", b"2")
    assert files.read("a/b.json") == b"2"
    assert files.local_path == (storage.experiment_fs_path if storage.local else None)
    assert listing(storage) == {"a/b.json": "2"}
