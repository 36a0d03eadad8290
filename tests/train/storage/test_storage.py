"""The run directory: resolving, staging, committing, merging, cleaning up, on local and remote
filesystems.
"""

import errno
import os
import pickle
import shutil

import pytest
from pyarrow import fs

from syncline.storage import filesystem as directories
from syncline.train.checkpoint import Checkpoint
from syncline.train.run_config import RunConfig
from syncline.train.storage import context as storage_module
from syncline.train.storage.context import ArrowFiles, StorageContext, checkpoint_dir_name


def make(kind, tmp_path):
    if kind == "local":
        return StorageContext(tmp_path / "storage", "run")
    if kind == "mock":
        return StorageContext("storage", "run", fs.FileSystem.from_uri("mock:///")[0])
    if kind == "subtree":
        (tmp_path / "bucket").mkdir()
        return StorageContext(
            "storage", "run", fs.SubTreeFileSystem(str(tmp_path / "bucket"), fs.LocalFileSystem())
        )
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
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
    infos = storage.storage_filesystem.get_file_info(
        fs.FileSelector(root, recursive=True, allow_not_found=True)
    )
    found = {}
    for info in infos:
        if info.type == fs.FileType.File:
            with storage.storage_filesystem.open_input_file(info.path) as file:
                found[info.path.strip("/")[len(root.strip("/")) + 1 :]] = file.read().decode()
    return found


def committed(storage, name, staged):
    """A checkpoint as it is once the list names it."""
    checkpoint = storage.commit(name, staged)
    storage.confirm(checkpoint)
    return checkpoint


def put_in_place(storage, checkpoint, name):
    """What a program does itself that reports with NO_UPLOAD."""
    target = storage.build_checkpoint_path_from_name(name)
    directories.copy_directory(
        checkpoint.filesystem, checkpoint.path, storage.storage_filesystem, target
    )


def test_it_takes_its_place_from_the_run_config(tmp_path):
    context = StorageContext.from_run_config(RunConfig(name="run", storage_path=tmp_path))
    assert context.experiment_fs_path == f"{tmp_path}/run"
    assert (context.storage_fs_path, context.experiment_dir_name, context.local) == (
        str(tmp_path),
        "run",
        True,
    )
    assert context.build_checkpoint_path_from_name("c") == f"{tmp_path}/run/c"
    assert pickle.loads(pickle.dumps(context)) == context


def test_a_uri_and_a_given_filesystem_drop_the_scheme(tmp_path):
    assert StorageContext(f"file://{tmp_path}", "run").experiment_fs_path == f"{tmp_path}/run"
    (tmp_path / "bucket").mkdir()
    elsewhere = fs.SubTreeFileSystem(str(tmp_path / "bucket"), fs.LocalFileSystem())
    assert (
        StorageContext("any://bucket/runs/", "run", elsewhere).experiment_fs_path
        == "bucket/runs/run"
    )


def test_checkpoints_are_numbered():
    assert [checkpoint_dir_name(index) for index in (0, 12)] == [
        "checkpoint_000000",
        "checkpoint_000012",
    ]


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
    with pytest.raises(ValueError, match="has 1000 free bytes.*storage_path"):
        StorageContext(tmp_path, "run").prepare()


def test_staged_files_become_a_checkpoint_and_the_source_stays(storage, tmp_path):
    given = source(tmp_path, "a", model="weights", sub__state="s")
    staged = storage.stage(given, "checkpoint_000000", rank=0, token="t0")
    checkpoint = committed(storage, "checkpoint_000000", [staged])
    assert checkpoint == storage.checkpoint("checkpoint_000000")
    assert listing(storage) == {
        "checkpoint_000000/model": "weights",
        "checkpoint_000000/sub/state": "s",
    }
    assert storage.exists(checkpoint)
    assert storage.contains(checkpoint)
    assert storage.name_of(checkpoint) == "checkpoint_000000"
    assert os.path.exists(os.path.join(given.path, "model"))


def test_the_files_of_all_ranks_merge(storage, tmp_path):
    parts = [
        source(tmp_path, "0", a="0", sub__x="0"),
        source(tmp_path, "1", b="1", sub__y="1"),
        source(tmp_path, "2", c="2"),
    ]
    staged = [storage.stage(part, "c", rank=rank, token="t") for rank, part in enumerate(parts)]
    committed(storage, "c", staged)
    assert listing(storage) == {"c/a": "0", "c/b": "1", "c/c": "2", "c/sub/x": "0", "c/sub/y": "1"}


def test_of_files_with_one_name_the_lowest_ranks_counts(local, tmp_path):
    staged = [
        local.stage(source(tmp_path, str(rank), model=f"rank {rank}"), "c", rank=rank, token="t")
        for rank in (1, 0)
    ]
    committed(local, "c", list(reversed(staged)))
    assert listing(local) == {"c/model": "rank 0"}


def test_a_local_checkpoint_is_invisible_until_it_is_committed(local, tmp_path):
    local.stage(source(tmp_path, "a", model="w"), "c", rank=0, token="t")
    assert not local.exists(local.checkpoint("c"))
    assert all(name.startswith(".tmp-") for name in os.listdir(local.experiment_fs_path))


def test_a_name_that_is_reported_again_is_replaced(local, tmp_path):
    for token, contents in (("t0", {"old": "1"}), ("t1", {"new": "2"})):
        committed(
            local, "c", [local.stage(source(tmp_path, token, **contents), "c", rank=0, token=token)]
        )
    assert listing(local) == {"c/new": "2"}


def test_a_name_may_have_several_parts(storage, tmp_path):
    committed(
        storage,
        "epoch/1",
        [storage.stage(source(tmp_path, "a", model="w"), "epoch/1", rank=0, token="t")],
    )
    assert listing(storage) == {"epoch/1/model": "w"}


def test_parts_under_another_name_are_moved(storage, tmp_path):
    put_in_place(storage, source(tmp_path, "a", b="1"), "other")
    staged = storage.stage(source(tmp_path, "b", a="0"), "c", rank=0, token="t")
    committed(storage, "c", [staged, "other"])
    assert listing(storage) == {"c/a": "0", "c/b": "1"}


def test_files_in_place_need_no_staging(storage, tmp_path):
    put_in_place(storage, source(tmp_path, "a", model="w"), "mine")
    assert committed(storage, "mine", [None, None]) == storage.checkpoint("mine")
    assert listing(storage) == {"mine/model": "w"}


def test_files_in_place_and_staged_files_merge(local, tmp_path):
    put_in_place(local, source(tmp_path, "a", a="0"), "c")
    staged = local.stage(source(tmp_path, "b", b="1"), "c", rank=1, token="t")
    committed(local, "c", [None, staged])
    assert listing(local) == {"c/a": "0", "c/b": "1"}


def test_what_an_attempt_left_unfinished_is_discarded(storage, tmp_path):
    committed(
        storage,
        "good",
        [storage.stage(source(tmp_path, "a", model="w"), "good", rank=0, token="t0")],
    )
    storage.stage(source(tmp_path, "b", model="half"), "bad", rank=1, token="t1")
    storage.stage(source(tmp_path, "c", model="w"), "good", rank=0, token="t2")
    storage.discard_staged(keep=["good"])
    assert listing(storage) == {"good/model": "w"}
    assert not storage.exists(storage.checkpoint("bad"))


def test_deleting_removes_the_directory_and_may_be_repeated(storage, tmp_path):
    checkpoint = committed(
        storage, "c", [storage.stage(source(tmp_path, "a", model="w"), "c", rank=0, token="t")]
    )
    storage.delete(checkpoint)
    storage.delete(checkpoint)
    assert not storage.exists(checkpoint)
    assert listing(storage) == {}


def test_nothing_outside_the_run_directory_is_deleted(storage, tmp_path):
    outside = source(tmp_path, "a", model="w")
    with pytest.raises(ValueError, match="outside of the run directory"):
        storage.delete(outside)
    assert os.path.exists(outside.path)
    assert not storage.contains(outside)
    assert not storage.contains(
        Checkpoint(storage.experiment_fs_path + "-more/c", storage.storage_filesystem)
    )


def test_a_commit_that_was_not_confirmed_is_deleted_unless_the_list_names_it(storage, tmp_path):
    for name in ("listed", "unlisted"):
        storage.commit(
            name, [storage.stage(source(tmp_path, name, model="w"), name, rank=0, token=name)]
        )
    storage.discard_staged(keep=["listed"])
    assert listing(storage) == {"listed/model": "w"}


def test_a_name_that_is_taken_is_replaced_without_a_moment_in_which_neither_is_whole(
    storage, tmp_path
):
    first = committed(
        storage, "last", [storage.stage(source(tmp_path, "a", old="1"), "last", rank=0, token="t0")]
    )
    parts = [source(tmp_path, f"b{rank}", **{f"new{rank}": "2"}) for rank in range(2)]
    staged = [storage.stage(part, "last", rank=rank, token="t1") for rank, part in enumerate(parts)]
    assert listing(storage, "last") == {"old": "1"}
    second = committed(storage, "last", staged)
    assert listing(storage, storage.name_of(second)) == {"new0": "2", "new1": "2"}
    assert storage_module.reported_name(storage.name_of(second)) == "last"
    assert first == second if storage.local else listing(storage, "last") == {"old": "1"}


def test_where_directories_cannot_change_places_the_new_one_comes_beside_the_old(
    local, tmp_path, monkeypatch
):
    monkeypatch.setattr(storage_module, "exchange", lambda one, other: False)
    committed(
        local, "last", [local.stage(source(tmp_path, "a", old="1"), "last", rank=0, token="t0")]
    )
    second = committed(
        local, "last", [local.stage(source(tmp_path, "b", new="2"), "last", rank=0, token="t1")]
    )
    assert (listing(local, "last"), listing(local, local.name_of(second))) == (
        {"old": "1"},
        {"new": "2"},
    )
    assert storage_module.reported_name(local.name_of(second)) == "last"


def test_a_checkpoint_that_somebody_reads_stays_where_it_is(local, tmp_path):
    committed(
        local, "last", [local.stage(source(tmp_path, "a", old="1"), "last", rank=0, token="t0")]
    )
    local.commit(
        "last",
        [local.stage(source(tmp_path, "b", new="2"), "last", rank=0, token="t1")],
        beside=True,
    )
    assert listing(local, "last") == {"old": "1"}


def test_a_source_that_goes_is_moved_and_its_permissions_are_the_run_directorys(local, tmp_path):
    given = source(tmp_path, "a", model="w", sub__x="y")
    os.chmod(given.path, 0o700)
    inode = os.stat(os.path.join(given.path, "model")).st_ino
    checkpoint = committed(local, "c", [local.stage(given, "c", rank=0, token="t", move=True)])
    assert listing(local) == {"c/model": "w", "c/sub/x": "y"}
    assert os.stat(os.path.join(checkpoint.path, "model")).st_ino == inode
    assert os.stat(checkpoint.path).st_mode == os.stat(local.experiment_fs_path).st_mode


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_a_source_whose_files_have_other_names_too_is_copied(local, tmp_path, link):
    given = source(tmp_path, "a", model="w")
    (tmp_path / "base").write_text("shared")
    link(tmp_path / "base", os.path.join(given.path, "base"))
    local.commit("c", [local.stage(given, "c", rank=0, token="t", move=True)])
    (tmp_path / "base").write_text("changed later")
    assert listing(local, "c") == {"model": "w", "base": "shared"}


def test_only_directories_apart_from_the_run_directory_may_be_deleted(local, storage, tmp_path):
    (tmp_path / "link").symlink_to(local.experiment_fs_path)
    assert local.is_separate(source(tmp_path, "a", model="w"))
    for path in (
        local.experiment_fs_path,
        local.storage_fs_path,
        f"{local.experiment_fs_path}/c",
        str(tmp_path / "link"),
    ):
        assert not local.is_separate(Checkpoint(path))
    assert not local.is_separate(Checkpoint("elsewhere", fs.FileSystem.from_uri("mock:///")[0]))


def test_a_checkpoint_that_does_not_fit_leaves_nothing_and_says_what_to_do(
    local, tmp_path, monkeypatch
):
    def full(source, target):
        raise OSError(errno.ENOSPC, "No space left on device", target)

    monkeypatch.setattr(directories, "_copy_local", full)
    with pytest.raises(
        storage_module.StorageFullError,
        match="has 7 bytes.*do not fit.*bytes are free.*Free some space",
    ) as raised:
        local.stage(source(tmp_path, "a", model="weights"), "c", rank=0, token="t")
    assert listing(local) == {}
    assert os.listdir(local.experiment_fs_path) == []
    error = pickle.loads(pickle.dumps(raised.value))
    assert (type(error), error.errno, error.needed_bytes, str(error)) == (
        type(raised.value),
        errno.ENOSPC,
        7,
        str(raised.value),
    )


@pytest.mark.parametrize(
    "name", ["../other", "a//b", ".tmp-x", "logs", "run.json", "checkpoints.json/x"]
)
def test_places_that_are_not_for_checkpoints_are_refused(storage, name):
    with pytest.raises(ValueError, match="not a valid name for a checkpoint"):
        storage_module.checked_name(name)
    if not storage.local:  # local paths are made absolute
        with pytest.raises(ValueError, match="not a valid name for a checkpoint"):
            storage.name_of(storage.checkpoint(name))


def test_a_missing_source_is_file_not_found(storage, tmp_path):
    with pytest.raises(FileNotFoundError, match="missing"):
        storage.stage(Checkpoint(str(tmp_path / "missing")), "c", rank=0, token="t")


def test_a_remote_source_can_be_staged(local, tmp_path):
    remote = make("memory", tmp_path)
    remote.prepare()
    origin = committed(
        remote, "c", [remote.stage(source(tmp_path, "a", model="w"), "c", rank=0, token="t")]
    )
    committed(local, "d", [local.stage(origin, "d", rank=0, token="t")])
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
