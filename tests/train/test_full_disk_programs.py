"""Runs on a disk that fills up: a small one, mounted where only the test's own program sees it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from syncline.testing.programs import run_program

pytestmark = pytest.mark.processes

PROGRAM = """
import os, pathlib, shutil, sys, tempfile

if "inside" not in sys.argv:
    os.mkdir("small")
    mount = 'mount -t tmpfs -o size=48m tmpfs small && exec "$0" "$@"'
    os.execvp("unshare", ["unshare", "-m", "sh", "-c", mount, sys.executable, *sys.orig_argv[1:], "inside"])

import errno

import syncline
from syncline import train

small = pathlib.Path("small").absolute()
run = small / "run"
CHECKPOINT_BYTES = 12 << 20


def loop(config):
    checkpoint = train.get_checkpoint()
    start = 0 if checkpoint is None else int(pathlib.Path(checkpoint.path, "step").read_text()) + 1
    for step in range(start, 6):
        train.report({"step": step})
        with tempfile.TemporaryDirectory() as directory:
            pathlib.Path(directory, "step").write_text(str(step))
            pathlib.Path(directory, "weights").write_bytes(bytes([step]) * CHECKPOINT_BYTES)
            mode = train.CheckpointUploadMode(config["mode"])
            train.report({"step": step}, train.Checkpoint.from_directory(directory), checkpoint_upload_mode=mode)
            train.get_checkpoint()


def fit(mode, **checkpoints):
    return train.DataParallelTrainer(
        loop,
        train_loop_config={"mode": mode},
        run_config=train.RunConfig(
            name="run",
            storage_path=str(small),
            failure_config=train.FailureConfig(max_failures=-1),
            checkpoint_config=train.CheckpointConfig(**checkpoints),
        ),
    ).fit()


def whole(checkpoint, step):
    assert pathlib.Path(checkpoint.path, "step").read_text() == str(step)
    assert pathlib.Path(checkpoint.path, "weights").read_bytes() == bytes([step]) * CHECKPOINT_BYTES


syncline.init(num_cpus=1)
for mode in ("SYNC", "ASYNC"):
    try:
        fit(mode)
    except train.WorkerGroupError as error:
        (cause,) = error.worker_failures.values()
        assert cause.errno == errno.ENOSPC and cause.needed_bytes > CHECKPOINT_BYTES, cause
        for part in ("checkpoint_000007", "do not fit", str(run), "bytes are free", "Free some room", "under the same name",
                     "was not started again"):
            assert part in str(error), (part, str(error))
    else:
        raise AssertionError("six checkpoints do not fit")
    result = train.Result.from_path(run)
    whole(result.checkpoint, 2)
    assert isinstance(result.error, train.TrainingFailedError)
    assert len(result.best_checkpoints) == 3
    assert not list(run.glob(".tmp-*"))
    assert (run / "events.jsonl").read_text().count('"event":"failure"') == 1, "another attempt would fail, too"
    assert result.metrics == {"step": 3}
    for old in sorted(run.glob("checkpoint_*"))[:2]:
        shutil.rmtree(old)  # somebody makes room
    result = fit(mode, num_to_keep=1)
    whole(result.checkpoint, 5)
    assert result.error is None
    assert len(list(run.glob("checkpoint_*"))) == 1
    shutil.rmtree(run)
syncline.shutdown()
print("done")
"""


def _may_mount(directory: Path) -> bool:
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(directory)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_full_disk_ends_a_run_that_goes_on_when_there_is_room_again(tmp_path: Path) -> None:
    if not _may_mount(tmp_path):
        pytest.skip("needs the right to mount a small disk of its own")
    with run_program(PROGRAM) as program:
        assert "done" in program.wait().check().stdout
