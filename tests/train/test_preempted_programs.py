"""SIGTERM to programs that train, at moments and in ways that do not suit them: how they end, what
they leave, what is saved.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from syncline.testing import eventually
from syncline.testing.programs import is_alive
from syncline.train import Result

pytestmark = pytest.mark.processes

PROGRAM = """
import os, sys, tempfile, time
from pathlib import Path
import syncline
from syncline import data, faults, train

how, folder = sys.argv[1], Path(sys.argv[2])

def save(**mode):
    directory = tempfile.mkdtemp(dir=folder)
    Path(directory, f"rank-{train.get_context().get_world_rank()}").write_text("saved")
    train.report({}, train.Checkpoint(directory), **mode)

def is_told():
    return train.get_preemption_info() is not None

def loop():
    (folder / f"trains-{train.get_context().get_world_rank()}").touch()
    if how == "uploads":
        faults.configure("train.uploaded=sleep:0.5")
    rows = 0
    while not is_told() or how == "ignores":
        if how == "reads":
            for batch in train.get_dataset_shard("train").iter_batches(batch_size=2):
                time.sleep(0.01)
                # Some more rows after the notice.
                if is_told() and (rows := rows + len(batch["id"])) > 20:
                    break
        elif how == "uploads":
            save(checkpoint_upload_mode=train.CheckpointUploadMode.ASYNC)
        time.sleep(0.05)
    mode = train.CheckpointUploadMode.ASYNC
    save(**({"checkpoint_upload_mode": mode} if how == "uploads" else {}))

@syncline.remote(num_cpus=2)
class Greedy:
    def answer(self):
        return 42

if __name__ == "__main__":
    syncline.init(num_cpus=2)
    if how == "waits":
        greedy = Greedy.remote()
        syncline.get(greedy.answer.remote())
        (folder / "waits").touch()
    dataset = data.range(400, override_num_blocks=50).map_batches(lambda batch: batch, batch_size=4)
    train.DataParallelTrainer(
        loop,
        datasets={"train": dataset} if how == "reads" else {},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name="run",
            storage_path=str(folder),
            failure_config=train.FailureConfig(preemption_grace_s=0.5),
        ),
    ).fit()
"""


class Training:
    """The program, which trains now, or waits for resources."""

    def __init__(self, folder: Path, how: str, notice_s: float) -> None:
        self._folder = folder
        script = folder / "program.py"
        script.write_text(PROGRAM)
        environment = {**os.environ, "SYNCLINE_TERMINATION_NOTICE_S": str(notice_s)}
        self.log = folder / "log"
        with self.log.open("w") as log:
            self._program = subprocess.Popen(
                [sys.executable, script, how, folder], stdout=log, stderr=log, env=environment
            )
        marks = (
            [folder / "waits"]
            if how == "waits"
            else [folder / f"trains-{rank}" for rank in range(2)]
        )
        eventually(
            lambda: all(mark.exists() for mark in marks) and self._listens(),
            what="a program that trains, or waits to",
        )
        self._started = [
            psutil.Process(self._program.pid),
            *psutil.Process(self._program.pid).children(recursive=True),
        ]

    def _listens(self) -> bool:
        """Whether it has a handler for SIGTERM."""
        status = Path(f"/proc/{self._program.pid}/status").read_text()
        (caught,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")]
        return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)

    def terminate(self, *, everything: bool = False) -> None:
        """SIGTERM to the program; to each of its processes too if `everything`, as batch systems
        do.
        """
        for process in self._started if everything else self._started[:1]:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """How it ends; no process of it is left."""
        code = self._program.wait(60)
        eventually(
            lambda: not any(map(is_alive, self._started)),
            what="all processes of the program have ended",
        )
        return code

    def saved(self) -> bool:
        """Whether both ranks' work is in the latest checkpoint."""
        checkpoint = Result.from_path(self._folder / "run").checkpoint
        return checkpoint is not None and all(
            Path(checkpoint.path, f"rank-{rank}").exists() for rank in range(2)
        )

    def end(self) -> None:
        if self._program.poll() is None:
            self._program.kill()
            self._program.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Training]]:
    trainings = []

    def started(how: str, notice_s: float = 30.0) -> Training:
        trainings.append(Training(tmp_path, how, notice_s))
        return trainings[-1]

    yield started
    for training in trainings:
        training.end()


def test_a_training_function_that_does_not_listen_is_stopped_at_the_deadline(
    start: Callable[..., Training],
) -> None:
    training = start("ignores", notice_s=0.2)
    training.terminate()
    assert training.wait() == 1
    assert (
        "some workers were still running at the deadline and were stopped"
        in training.log.read_text()
    )


def test_uploads_under_way_are_finished(start: Callable[..., Training]) -> None:
    training = start("uploads")
    training.terminate()
    assert training.wait() == 1
    assert training.saved()


def test_a_notice_to_every_process_leaves_the_ranks_their_data_until_they_have_saved_their_work(
    start: Callable[..., Training],
) -> None:
    training = start("reads")
    training.terminate(everything=True)
    assert training.wait() == 1
    assert "PreemptionError" in training.log.read_text()
    assert training.saved()


def test_a_second_notice_ends_the_program_as_ever(start: Callable[..., Training]) -> None:
    training = start("ignores")
    training.terminate()
    eventually(lambda: "will be preempted" in training.log.read_text(), what="the first notice")
    training.terminate()
    assert training.wait() == -signal.SIGTERM


def test_a_program_that_waits_for_resources_ends_at_once_and_with_the_reason(
    start: Callable[..., Training],
) -> None:
    training = start("waits")
    training.terminate()
    assert training.wait() == 1
    assert "PreemptionError" in training.log.read_text()
