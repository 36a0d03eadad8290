"""`Checkpoint` on the local filesystem, on pyarrow's mock, on a subtree and on fsspec's memory."""

import os
import pickle
import tempfile
import threading

import pytest
from pyarrow import fs

from syncline.train.checkpoint import Checkpoint
from syncline.train.storage import download_locks as locks


@pytest.fixture(autouse=True)
def own_temporary_directory(monkeypatch, tmp_path_factory):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))


@pytest.fixture
def local(tmp_path):
    directory = tmp_path / "source"
    (directory / "sub").mkdir(parents=True)
    (directory / "model.pt").write_bytes(b"weights")
    (directory / "sub" / "state.json").write_text("{}")
    return Checkpoint.from_directory(directory)


def remote_filesystems(tmp_path):
    (tmp_path / "bucket").mkdir()
    yield "subtree", fs.SubTreeFileSystem(str(tmp_path / "bucket"), fs.LocalFileSystem())
    mock, _ = fs.FileSystem.from_uri("mock:///")
    yield "mock", mock
    try:
        import fsspec
    except ImportError:
        return
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    yield "memory", fs.PyFileSystem(fs.FSSpecHandler(memory))


@pytest.fixture(params=["subtree", "mock", "memory"])
def remote(request, tmp_path):
    filesystem = dict(remote_filesystems(tmp_path)).get(request.param)
    if filesystem is None:
        pytest.skip("fsspec is not installed")
    filesystem.create_dir("store/checkpoint/sub", recursive=True)
    for name, data in (("model.pt", b"weights"), ("sub/state.json", b"{}")):
        with filesystem.open_output_stream(f"store/checkpoint/{name}") as stream:
            stream.write(data)
    return Checkpoint("store/checkpoint", filesystem)


def tree(directory):
    found = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, directory)] = file.read()
    return found


TREE = {"model.pt": b"weights", "sub/state.json": b"{}"}


def test_from_directory_makes_an_existing_relative_path_absolute(local, monkeypatch):
    monkeypatch.chdir(os.path.dirname(local.path))
    assert Checkpoint.from_directory("source").path == os.path.join(os.getcwd(), "source")
    assert Checkpoint("source/").path == os.path.join(os.getcwd(), "source")


def test_from_directory_refuses_a_missing_relative_path_naming_the_absolute_one(
    monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"'missing'.*{tmp_path}/missing.*does not exist"):
        Checkpoint.from_directory("missing")


def test_from_directory_refuses_a_file(local):
    with pytest.raises(ValueError, match="is a file"):
        Checkpoint.from_directory(os.path.join(local.path, "model.pt"))


@pytest.mark.parametrize("path", [None, 3, b"bytes"])
def test_what_is_no_path_is_a_type_error(path):
    with pytest.raises(TypeError, match=type(path).__name__):
        Checkpoint.from_directory(path)
    with pytest.raises(TypeError, match=type(path).__name__):
        Checkpoint(path)


def test_an_unknown_uri_is_a_value_error_with_the_remedy():
    with pytest.raises(ValueError, match="'nowhere://x/y'.*FSSpecHandler"):
        Checkpoint("nowhere://x/y")


def test_a_uri_gives_filesystem_and_path(tmp_path):
    checkpoint = Checkpoint(f"file://{tmp_path}/")
    assert (checkpoint.path, checkpoint.filesystem) == (str(tmp_path), fs.LocalFileSystem())


def test_equal_checkpoints_are_equal_and_hash_alike(local, tmp_path):
    again = Checkpoint(local.path)
    assert again == local
    assert hash(again) == hash(local)
    assert Checkpoint(str(tmp_path)) != local
    assert Checkpoint(local.path, fs.SubTreeFileSystem("/", fs.LocalFileSystem())) != local
    assert local != local.path


def test_it_prints_where_it_is_and_survives_pickle(local):
    assert repr(local) == f"Checkpoint(filesystem=local, path={local.path})"
    assert pickle.loads(pickle.dumps(local)) == local


def test_a_subclass_stays_itself(local):
    class Special(Checkpoint):
        pass

    assert type(Special.from_directory(local.path)) is Special


def test_a_local_checkpoint_is_read_in_place(local):
    with local.as_directory() as directory:
        assert directory == local.path
    assert tree(local.path) == TREE


def test_to_directory_copies(local, tmp_path):
    assert local.to_directory(tmp_path / "new" / "copy") == str(tmp_path / "new" / "copy")
    assert tree(tmp_path / "new" / "copy") == TREE
    assert tree(local.to_directory()) == TREE
    assert not [name for name in os.listdir(tmp_path / "new") if name.endswith(".lock")]


def test_a_checkpoint_that_is_gone_is_file_not_found(tmp_path):
    gone = Checkpoint(str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError, match="gone"):
        gone.to_directory(tmp_path / "copy")
    with pytest.raises(FileNotFoundError, match="gone"), gone.as_directory():
        pass


def test_a_remote_checkpoint_is_downloaded(remote, tmp_path):
    assert tree(remote.to_directory(tmp_path / "copy")) == TREE


def test_a_remote_checkpoint_that_is_gone_is_file_not_found_and_leaves_nothing(remote):
    gone = Checkpoint("store/gone", remote.filesystem)
    with pytest.raises(FileNotFoundError, match="gone"), gone.as_directory():
        pass
    assert tree(tempfile.gettempdir()) == {}


def test_readers_share_one_download_that_goes_with_the_last(remote, monkeypatch):
    downloads = []
    download = Checkpoint._download
    monkeypatch.setattr(
        Checkpoint,
        "_download",
        lambda self, target: (downloads.append(target), download(self, target)),
    )
    with remote.as_directory() as first:
        with Checkpoint(remote.path, remote.filesystem).as_directory() as second:
            assert first == second
            assert tree(first) == TREE
        assert tree(first) == TREE
    assert len(downloads) == 1
    assert not os.path.exists(first)
    assert tree(tempfile.gettempdir()) == {}


def test_different_checkpoints_do_not_meet(remote):
    remote.filesystem.create_dir("store/other", recursive=True)
    with (
        remote.as_directory() as first,
        Checkpoint("store/other", remote.filesystem).as_directory() as second,
    ):
        assert first != second


def test_metadata_is_stored_with_the_checkpoint(local):
    assert local.get_metadata() == {}
    local.set_metadata({"a": 1, "b": 2})
    local.update_metadata({"b": 3})
    assert Checkpoint(local.path).get_metadata() == {"a": 1, "b": 3}
    assert sorted(os.listdir(local.path)) == [".metadata.json", "model.pt", "sub"]


def test_metadata_of_a_remote_checkpoint(remote):
    assert remote.get_metadata() == {}
    remote.set_metadata({"a": 1})
    remote.update_metadata({"b": 2})
    assert remote.get_metadata() == {"a": 1, "b": 2}


def test_metadata_that_json_cannot_hold_is_refused_and_the_old_stays(local):
    local.set_metadata({"a": 1})
    with pytest.raises(TypeError):
        local.set_metadata({"a": object()})
    assert local.get_metadata() == {"a": 1}


class TestLocks:
    """Threads stand for processes: each opens the lock file itself, which is what the kernel
    counts.
    """

    def test_who_waits_for_a_download_does_not_repeat_it(self, tmp_path):
        target = str(tmp_path / "target")
        started, may_end, calls = threading.Event(), threading.Event(), []

        def slow():
            calls.append("first")
            started.set()
            assert may_end.wait(60)

        first = threading.Thread(target=locks.download_once, args=(target, "key", slow))
        first.start()
        assert started.wait(60)
        second = threading.Thread(
            target=locks.download_once, args=(target, "key", lambda: calls.append("second"))
        )
        second.start()
        wait_until_blocked(f"{target}.lock", 2)
        may_end.set()
        first.join(60)
        second.join(60)
        assert calls == ["first"]
        assert os.listdir(tmp_path) == []

    def test_who_waits_for_a_download_that_fails_downloads_itself(self, tmp_path):
        target = str(tmp_path / "target")
        started, may_end, calls = threading.Event(), threading.Event(), []

        def failing():
            started.set()
            assert may_end.wait(60)
            raise OSError("network")

        def first_try():
            with pytest.raises(OSError, match="network"):
                locks.download_once(target, "key", failing)

        first = threading.Thread(target=first_try)
        first.start()
        assert started.wait(60)
        second = threading.Thread(
            target=locks.download_once, args=(target, "key", lambda: calls.append("second"))
        )
        second.start()
        wait_until_blocked(f"{target}.lock", 2)
        may_end.set()
        first.join(60)
        second.join(60)
        assert calls == ["second"]

    def test_many_readers_come_and_go_and_always_see_a_whole_directory(self, tmp_path):
        target = str(tmp_path / "target")
        problems = []

        def download(directory):
            os.makedirs(directory)
            for name in "abc":
                with open(os.path.join(directory, name), "w") as file:
                    file.write(name)

        def reader():
            for _ in range(30):
                with locks.shared_download(target, download):
                    if sorted(os.listdir(target)) != ["a", "b", "c"]:
                        problems.append(os.listdir(target))

        threads = [threading.Thread(target=reader) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        assert problems == []
        assert os.listdir(tmp_path) == []


def wait_until_blocked(path, descriptors):
    """Wait until this process has that many descriptors open on `path`: the second caller then
    holds the file that it waits for.
    """
    for _ in range(6000):
        links = []
        for descriptor in os.listdir("/proc/self/fd"):
            try:
                links.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            except OSError:
                continue
        if links.count(path) >= descriptors:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"{path} was not opened {descriptors} times within 60 s")
