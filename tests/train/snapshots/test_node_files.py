"""Snapshot files of other nodes: copies there, and the way back. Tasks are called directly."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncline.core import api
from syncline.train.snapshots import directory as directories
from syncline.train.snapshots import node_files, rank_snapshots
from syncline.train.snapshots.config import SnapshotConfig, SnapshotSource, SnapshotSpec
from syncline.train.snapshots.copier import SnapshotCopier
from syncline.train.snapshots.rank_snapshots import RankSnapshots
from syncline.train.snapshots.slot import SnapshotId, SnapshotSlot

HERE, THERE = "here", "there"


@pytest.fixture(autouse=True)
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two nodes with a folder each. A task changes the folder that this process uses as its own."""
    current = [HERE]

    def run_on_node(node_id: str, function: Any, *arguments: Any) -> Any:
        current[0] = node_id
        try:
            return function(*arguments)
        finally:
            current[0] = HERE

    monkeypatch.setattr(directories, "root", lambda: tmp_path / current[0])
    monkeypatch.setattr(directories, "start_reaper", lambda directory, keep_s: None)
    monkeypatch.setattr(node_files, "run_on_node", run_on_node)
    monkeypatch.setattr(api, "get", lambda value: value)
    monkeypatch.setattr(node_files, "PART_BYTES", 5_000)
    yield
    for path in list(directories._locks):
        os.close(directories._locks.pop(path))


def rank(
    tmp_path: Path, *, resume: SnapshotId | None = None, source: SnapshotSource | None = None
) -> RankSnapshots:
    spec = SnapshotSpec(
        directory=str(tmp_path / HERE / "run"),
        attempt=6,
        resume_step=None if resume is None else resume.step,
        resume_attempt=0 if resume is None else resume.attempt,
        sources={} if source is None else {3: source},
    )
    made = RankSnapshots(spec, rank=3, world_size=4, local_world_size=1, agree=int)
    made.begin(lambda source, path: node_files.fetch(source, HERE, path))
    return made


def state(step: int) -> dict[str, Any]:
    return {"step": step, "weights": np.arange(3_000.0) * step}


def taken(tmp_path: Path, steps: int) -> RankSnapshots:
    made = rank(tmp_path)
    for step in range(1, steps + 1):
        made.advance(0.0)
        made.take(state(step), b"readers", step)
    return made


def send(slot: SnapshotSlot, kept: SnapshotId | None = None, *, stop_after: int = 100) -> None:
    parts = iter(range(stop_after + 1))
    node_files.send(
        slot, THERE, keep_s=1.0, kept=kept, is_stopped=lambda: next(parts) == stop_after
    )


def there(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / THERE / "run").glob("copy-*"))


def complete(tmp_path: Path) -> list[str]:
    found = directories.list_snapshots(tmp_path / THERE / "run")
    return sorted(each.file_name for each in found)


@pytest.mark.parametrize("at", [HERE, THERE])
def test_a_copy_is_restored_on_its_node_and_on_another_one(tmp_path: Path, at: str) -> None:
    send(taken(tmp_path, 2)._slots[1])
    assert complete(tmp_path) == ["copy-00003.6.2"]
    assert (tmp_path / THERE / "run").stat().st_mode & 0o777 == 0o700
    for path in (tmp_path / HERE / "run").glob("rank-*.[0-9]"):
        path.unlink()
    if at == HERE:
        (tmp_path / THERE / "run/copy-00003.6.2").rename(tmp_path / HERE / "run/copy-00003.6.2")
    source = SnapshotSource(node_id=at, file_name="copy-00003.6.2")
    restored = rank(tmp_path, resume=SnapshotId(attempt=6, step=2), source=source)
    assert restored.resumed_readers == b"readers"
    loaded = restored.load()
    assert loaded["step"] == 2
    np.testing.assert_array_equal(loaded["weights"], state(2)["weights"])
    assert restored.step == 2


def test_a_copy_that_is_not_finished_is_no_snapshot(tmp_path: Path) -> None:
    send(taken(tmp_path, 1)._slots[0], stop_after=2)
    assert there(tmp_path) == ["copy-00003.6.1"]
    assert complete(tmp_path) == []


def test_copies_that_no_restart_needs_are_deleted(tmp_path: Path) -> None:
    ranks = taken(tmp_path, 2)
    folder = tmp_path / THERE / "run"
    folder.mkdir(parents=True)
    for name in ("copy-00003.5.8", "copy-00003.5.9", "copy-00001.5.9", "copy-00001.6.2"):
        (folder / name).touch()
    (folder / "rank-00002.0").touch()
    (folder / "rank-00002.lock").touch()  # no process has it: the rank is elsewhere
    send(ranks._slots[0], SnapshotId(attempt=5, step=9))
    assert there(tmp_path) == [
        "copy-00001.5.9", "copy-00001.6.2", "copy-00003.5.9", "copy-00003.6.1",
    ]  # fmt: skip
    assert (folder / "rank-00002.0").exists()
    send(ranks._slots[1], SnapshotId(attempt=6, step=1))
    assert there(tmp_path) == ["copy-00001.6.2", "copy-00003.6.1", "copy-00003.6.2"]
    assert not (folder / "rank-00002.0").exists(), "all ranks have a snapshot of this attempt"


def test_a_node_without_room_keeps_no_part_of_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(28, "No space left on device")

    ranks = taken(tmp_path, 1)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        send(ranks._slots[0])
    assert there(tmp_path) == []


def copied_rank(tmp_path: Path, config: SnapshotConfig | None = None) -> RankSnapshots:
    spec = SnapshotSpec(directory=str(tmp_path / HERE / "run"), attempt=6, config=config)
    copier = SnapshotCopier(lambda *_: None, lambda *_: None, every_s=0.0)
    return RankSnapshots(spec, rank=0, world_size=1, local_world_size=1, agree=int, copier=copier)


def steps(ranks: RankSnapshots) -> set[int]:
    return {header.step for slot in ranks._slots if (header := slot.header()) is not None}


def test_snapshots_that_copies_need_are_not_overwritten(tmp_path: Path) -> None:
    ranks = copied_rank(tmp_path)

    def take(count: int) -> None:
        for _ in range(count):
            ranks.advance(0.0)
            ranks.take(state(ranks.step), b"", 0)

    take(5)
    assert steps(ranks) == {4, 5}, "no more memory than without copies"
    ranks.copy(from_step=6, kept_step=None)
    take(4)
    assert steps(ranks) == {6, 8, 9}
    ranks.copy(from_step=10, kept_step=6)
    take(5)
    assert steps(ranks) == {6, 10, 13, 14}
    ranks.copy(from_step=16, kept_step=10)
    take(5)
    assert steps(ranks) == {10, 16, 18, 19}
    ranks.finish()


def test_without_room_for_copies_snapshots_are_still_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ranks = copied_rank(tmp_path, SnapshotConfig(automatic=False, memory_bytes=120_000))
    for step in (1, 2, 3):
        ranks.advance(0.0)
        ranks.take(state(step), b"", 0)
    assert steps(ranks) == {2, 3}
    assert len(caplog.records) == 1
    assert "are not copied to other nodes" in caplog.text
    assert f"have {rank_snapshots._size(120_000)}" in caplog.text


def test_snapshots_of_an_attempt_with_copies_are_found_without_them(tmp_path: Path) -> None:
    ranks = copied_rank(tmp_path)
    for step in range(1, 5):
        ranks.advance(0.0)
        ranks.take(state(step), b"", 0)
        if step == 1:
            ranks.copy(from_step=2, kept_step=None)
    (wanted,) = [slot for slot in ranks._slots[2:] if slot.header() is not None]
    header = wanted.header()
    assert header is not None
    spec = SnapshotSpec(
        directory=ranks.spec.directory, resume_step=header.step, resume_attempt=header.attempt
    )
    ranks.finish()
    after = RankSnapshots(spec, rank=0, world_size=1, local_world_size=1, agree=int)
    after.begin()
    assert after.load()["step"] == header.step
    assert len(list(Path(spec.directory).glob("rank-*.[0-9]"))) == 2
