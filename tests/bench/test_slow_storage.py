"""Slow storage: every request is delayed, writes share a link, runs store checkpoints there."""

import pickle
import time
from pathlib import Path

import pytest
from pyarrow import fs

from bench.programs import slow_storage
from bench.programs.link import Link
from syncline.train import Checkpoint
from syncline.train.storage.context import StorageContext


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of all sleeps; the clock does not advance."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    monkeypatch.setattr(slow_storage, "LINK", Link(slow_storage.WRITE_BYTES_PER_S))
    return slept


def test_requests_are_delayed_once_and_writes_wait_for_the_link(
    tmp_path: Path, pauses: list[float]
) -> None:
    slow = slow_storage.filesystem()
    slow.create_dir(f"{tmp_path}/a/b")
    assert pauses == [slow_storage.REQUEST_S]
    with slow.open_output_stream(f"{tmp_path}/a/b/file") as file:
        file.write(bytes(25_000_000))
        file.write(bytes(50_000_000))
    assert pauses[1:] == [slow_storage.REQUEST_S, pytest.approx(0.5), pytest.approx(1.5)]
    assert (tmp_path / "a/b/file").stat().st_size == 75_000_000


def test_reads_and_listings_are_delayed(tmp_path: Path, pauses: list[float]) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    slow = slow_storage.filesystem()
    with slow.open_input_stream(f"{tmp_path}/file") as file:
        assert file.read() == b"abc"
    assert [info.base_name for info in slow.get_file_info(fs.FileSelector(str(tmp_path)))] == [
        "file"
    ]
    assert slow.get_file_info(f"{tmp_path}/none").type == fs.FileType.NotFound
    slow.delete_file(f"{tmp_path}/file")
    assert pauses == [slow_storage.REQUEST_S] * 4


def test_filesystem_can_be_pickled(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert (
        pickle.loads(pickle.dumps(slow_storage.filesystem()))
        .get_file_info(f"{tmp_path}/file")
        .is_file
    )


def test_checkpoint_is_stored_completely(tmp_path: Path, pauses: list[float]) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "state.bin").write_bytes(b"weights")
    context = StorageContext(tmp_path / "storage", "run", slow_storage.filesystem())
    context.prepare()
    staged = context.stage(
        Checkpoint(str(given)), "checkpoint_000000", rank=0, token="t", states=b"{}"
    )
    with context.commit("checkpoint_000000", [staged]).as_directory() as folder:
        assert Path(folder, "state.bin").read_bytes() == b"weights"
    assert pauses
