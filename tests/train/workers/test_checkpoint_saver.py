"""Buffers of `train.save`: released by a report, or with a checkpoint that is not reported."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from syncline.train import Checkpoint
from syncline.train.snapshots import directory as directories
from syncline.train.snapshots.config import SnapshotSpec
from syncline.train.snapshots.rank_snapshots import RankSnapshots
from syncline.train.workers import checkpoint_saver
from syncline.train.workers.checkpoint_saver import (
    BUFFERS,
    OWNER_POLL_S,
    CheckpointSaver,
    ending_with,
)
from syncline.train.workers.messages import CheckpointPart
from syncline.train.workers.uploads import SavedCheckpoint

DIRECT = Checkpoint.from_directory("/direct")


@pytest.fixture
def saver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CheckpointSaver]:
    """A saver that writes nothing."""
    monkeypatch.setattr(directories, "start_reaper", lambda directory, keep_s: None)
    monkeypatch.setattr(checkpoint_saver, "save_now", lambda state, file_name: DIRECT)
    monkeypatch.setattr(
        CheckpointSaver, "_write", lambda *_: CheckpointPart(dir_name="a", staged=None)
    )
    spec: Any = SimpleNamespace(
        token="token",
        worker=SimpleNamespace(rank=0),
        storage=SimpleNamespace(local=True, experiment_fs_path=str(tmp_path)),
    )
    snapshots = RankSnapshots(
        SnapshotSpec(directory=str(tmp_path / "snapshots")),
        rank=0,
        world_size=1,
        local_world_size=1,
        agree=int,
    )
    yield CheckpointSaver(spec, snapshots)
    for path in list(directories._locks):
        os.close(directories._locks.pop(path))


def save(saver: CheckpointSaver) -> Checkpoint:
    return saver.save({"step": 1}, "state.pt")


def report(saver: CheckpointSaver, checkpoint: Checkpoint) -> None:
    assert isinstance(checkpoint, SavedCheckpoint)
    saver.reported(checkpoint)
    upload: Any = None
    checkpoint.write(upload)


@pytest.mark.timeout(30)
def test_checkpoints_that_are_not_reported_release_their_memory(saver: CheckpointSaver) -> None:
    for _ in range(3 * BUFFERS):
        assert isinstance(save(saver), SavedCheckpoint)


@pytest.mark.timeout(30)
def test_reported_checkpoints_release_their_memory_once(saver: CheckpointSaver) -> None:
    kept = []
    for _ in range(3 * BUFFERS):
        kept.append(save(saver))
        report(saver, kept[-1])
    kept.clear()
    held = [save(saver) for _ in range(BUFFERS)]
    assert len({id(each) for each in held}) == BUFFERS
    assert save(saver) is DIRECT, "the release of the others has added no buffer"


@pytest.mark.timeout(30)
def test_kept_checkpoints_do_not_block_the_next_save(saver: CheckpointSaver) -> None:
    kept = [save(saver) for _ in range(BUFFERS)]
    assert save(saver) is DIRECT
    report(saver, kept.pop())
    assert isinstance(save(saver), SavedCheckpoint)


@pytest.mark.timeout(30)
def test_a_state_that_cannot_be_saved_releases_its_memory(saver: CheckpointSaver) -> None:
    for _ in range(3 * BUFFERS):
        with pytest.raises(TypeError, match="cannot capture"):
            saver.save({"step": (each for each in ())}, "state.pt")
    assert isinstance(save(saver), SavedCheckpoint)


def test_a_second_report_of_a_checkpoint_is_an_error(saver: CheckpointSaver) -> None:
    checkpoint = save(saver)
    report(saver, checkpoint)
    with pytest.raises(ValueError, match="was reported before"):
        report(saver, checkpoint)


WRITER = """
import sys, time
from syncline.train.workers.checkpoint_saver import ending_with
with ending_with(int(sys.argv[1])):
    print("writes", flush=True)
    if sys.argv[2] == "long":
        time.sleep(600)
print("done", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def writer(worker: subprocess.Popen[bytes], kind: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(worker.pid), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_the_process_that_writes_a_checkpoint_dies_with_the_worker(
    worker: subprocess.Popen[bytes],
) -> None:
    with writer(worker, "long") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writes\n"
        worker.kill()
        worker.wait()
        assert process.wait(30) == 1
    with pytest.raises(RuntimeError, match=f"process {worker.pid} died"), ending_with(worker.pid):
        pass


def test_the_process_outlives_the_worker_once_the_checkpoint_is_written(
    worker: subprocess.Popen[bytes],
) -> None:
    with writer(worker, "short") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writes\n"
        assert process.stdout.readline() == "done\n"
        worker.kill()
        worker.wait()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(10 * OWNER_POLL_S)
        process.communicate("")
        assert process.returncode == 0
