"""Runs on a disk that fills up: a small one, mounted where only the test's own program sees it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from syncline.testing.programs import run_program

pytestmark = pytest.mark.processes

ON_A_SMALL_DISK = """
import os, pathlib, shutil, sys, tempfile

if "inside" not in sys.argv:
    os.mkdir("small")
    mount = 'mount -t tmpfs -o size=48m tmpfs small && exec "$0" "$@"'
    command = [sys.executable, *sys.orig_argv[1:], "inside"]
    os.execvp("unshare", ["unshare", "-m", "sh", "-c", mount, *command])
"""

CHECKPOINTS = """
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
            checkpoint = train.Checkpoint.from_directory(directory)
            train.report({"step": step}, checkpoint, checkpoint_upload_mode=mode)
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
        for part in ("checkpoint_000007", "do not fit", str(run), "bytes are free",
                     "Free some space", "under the same name", "was not started again"):
            assert part in str(error), (part, str(error))
    else:
        raise AssertionError("six checkpoints do not fit")
    result = train.Result.from_path(run)
    whole(result.checkpoint, 2)
    assert isinstance(result.error, train.TrainingFailedError)
    assert len(result.best_checkpoints) == 3
    assert not list(run.glob(".tmp-*"))
    failures = (run / "events.jsonl").read_text().count('"event":"failure"')
    assert failures == 1, "another attempt would fail, too"
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


METRICS = """
import time

import syncline
from syncline import runs, train

small = pathlib.Path("small").absolute()


def fill(left):
    file = os.open(small / "other", os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(file, bytes(4096))
    except OSError:
        os.ftruncate(file, os.fstat(file).st_size - left)
    os.close(file)


def loop():
    if train.get_context().get_experiment_name() == "shown":
        fill(0)
        print("line after line, " * 10_000)
        time.sleep(2.5)  # samples are written, or not
        (small / "other").unlink()
        return
    fill(300_000)
    for step in range(20_000):
        train.report({"step": step, **{f"metric_{number}": step / 7 for number in range(40)}})


def fit(name):
    run_config = train.RunConfig(name=name, storage_path=str(small))
    return train.DataParallelTrainer(loop, run_config=run_config).fit()


syncline.init(num_cpus=1)
assert fit("shown").error is None, "logs, samples and events end no run"
try:
    fit("metrics")
except train.ControllerError as error:
    for part in ("does not fit on the disk of", str(small / "metrics"), "Free some space",
                 "under the same name"):
        assert part in str(error), (part, str(error))
else:
    raise AssertionError("they do not fit")
run = runs.open(small / "metrics")
assert len(run.attempts) == 1, "another attempt would fail, too"
assert run.problems == []
assert run.summary.reports > 20
(small / "other").unlink()
again = train.Result.from_path(small / "metrics")
assert [report["iteration"] for report in again.reports] == list(range(run.summary.reports))
syncline.shutdown()
print("done")
"""


def _may_mount(directory: Path) -> bool:
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(directory)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(CHECKPOINTS, id="checkpoints", marks=pytest.mark.promise),
        pytest.param(METRICS, id="metrics"),
    ],
)
def test_a_full_disk_ends_a_run_that_goes_on_when_there_is_room_again(
    tmp_path: Path, program: str
) -> None:
    if not _may_mount(tmp_path):
        pytest.skip("needs the right to mount a small disk of its own")
    with run_program(ON_A_SMALL_DISK + program) as running:
        assert "done" in running.wait().check().stdout
