"""Runs without checkpoints whose processes are killed: the weights are those of an undisturbed run,
each sample is seen once an epoch, and a killed worker costs at most one step.

`make chaos KILLS=200 SEED=5` kills as often as one likes. A failure names its seed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from syncline.testing.waiting import eventually
from syncline.train.snapshots import directory as directories
from tests.train.snapshots.snapshot_program import ROWS, STEPS, WORKERS

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]

KILLS = int(os.environ.get("CHAOS_KILLS", "6"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
PATIENCE_S = 600.0
"""Only a program that hangs takes this long."""


class Program:
    """The training, started again whenever its driver was killed."""

    def __init__(self, folder: Path, mode: str, epochs: int) -> None:
        self.folder, self.mode, self.epochs = folder, mode, epochs
        folder.mkdir(exist_ok=True)
        self.log = (folder / "log").open("w")
        self.start()

    def start(self) -> None:
        command = [
            sys.executable,
            str(Path(__file__).with_name("snapshot_program.py")),
            str(self.folder),
            self.mode,
            str(self.epochs),
        ]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)

    def steps(self, rank: int = 0) -> list[int]:
        """Steps that a rank has executed, with repetitions."""
        path = self.folder / f"steps-{rank}"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def wait_for_steps(self, more: int) -> None:
        """Wait until rank 0 has executed `more` steps. The program stops soon after them, so that
        it does not end before the next `kill`, however late that comes.
        """
        steps = self.steps()
        wanted = len(steps) + more
        limit = self.folder / "limit.tmp"
        limit.write_text(str(max(steps, default=0) + more + 2))
        limit.rename(self.folder / "limit")
        eventually(
            lambda: self.process.poll() is not None or len(self.steps()) >= wanted,
            within_s=PATIENCE_S,
        )
        assert self.process.poll() is None, (self.folder / "log").read_text()[-4000:]

    def kill(self, name: str) -> None:
        """SIGKILL to "0", "1" or "driver"."""
        with suppress(FileNotFoundError, ProcessLookupError, ValueError):
            os.kill(int((self.folder / f"pid-{name}").read_text()), signal.SIGKILL)
        if name == "driver":
            self.process.wait()
        (self.folder / "limit").unlink()
        if name == "driver":
            self.start()

    def outcome(self) -> dict[str, Any]:
        assert self.process.wait(PATIENCE_S) == 0, (self.folder / "log").read_text()[-4000:]
        self.log.close()
        outcome: dict[str, Any] = json.loads((self.folder / "outcome.json").read_text())
        return outcome

    def repeated(self) -> int:
        """Number of steps that were executed again, the maximum of the ranks."""
        return max(len(steps) - len(set(steps)) for steps in map(self.steps, range(WORKERS)))


def undisturbed(folder: Path, mode: str, epochs: int) -> dict[str, Any]:
    program = Program(folder, mode, epochs)
    outcome = program.outcome()
    assert program.repeated() == 0
    assert outcome["seen"] == {str(epoch): list(range(ROWS)) for epoch in range(epochs)}
    return outcome


def snapshots_of(folder: Path) -> Path:
    """Return the directory of the snapshots of a run."""
    run = folder / "storage" / "run"
    events = map(json.loads, (run / "events.jsonl").read_text().splitlines())
    return directories.directory_of(str(run), next(events)["run_started"])


@pytest.mark.parametrize("mode", ["automatic", "manual", "data"])
def test_killed_workers_cost_one_step_each_and_change_nothing(tmp_path: Path, mode: str) -> None:
    expected = undisturbed(tmp_path / "undisturbed", mode, 3)
    folder = tmp_path / "killed"
    folder.mkdir()
    # In the middle of an epoch, after its last step, and a second time in the same epoch.
    (folder / "die-1").write_text(str(STEPS // 2))
    program = Program(folder, mode, 3)
    for rank, step in ((0, STEPS), (1, STEPS + 1), (1, 2 * STEPS + 3)):
        eventually(
            lambda: not list(folder.glob("die-*")) or program.process.poll() is not None,
            within_s=PATIENCE_S,
        )
        (folder / f"die-{rank}").write_text(str(step))
    assert program.outcome() == expected
    assert not list(folder.glob("die-*"))
    assert program.repeated() <= 4
    text = (folder / "log").read_text()
    assert "starting again from the last memory snapshot" in text
    assert "attempt 2 starts from the memory snapshot of step " in text


@pytest.mark.parametrize("mode", ["automatic", "manual"])
def test_the_driver_killed_and_started_again_goes_on_at_the_snapshot(
    tmp_path: Path, mode: str
) -> None:
    expected = undisturbed(tmp_path / "undisturbed", mode, 3)
    program = Program(tmp_path / "killed", mode, 3)
    program.wait_for_steps(STEPS + 2)
    program.kill("driver")
    assert program.outcome() == expected
    assert program.repeated() <= 2
    assert (
        "training run with 2 workers, from the memory snapshot of step"
        in (tmp_path / "killed" / "log").read_text()
    )


def test_calls_do_not_continue_from_automatic_snapshots(tmp_path: Path) -> None:
    expected = undisturbed(tmp_path / "undisturbed", "manual", 1)
    program = Program(tmp_path / "killed", "automatic", 1)
    program.wait_for_steps(STEPS // 2)
    program.mode = "manual"
    program.kill("driver")
    assert program.outcome() == expected
    text = (tmp_path / "killed" / "log").read_text()
    assert "with automatic snapshots on, and this run has automatic snapshots off" in text


def test_ranks_that_take_snapshots_at_intervals_have_steps_in_common(tmp_path: Path) -> None:
    expected = undisturbed(tmp_path / "undisturbed", "interval", 3)
    folder = tmp_path / "killed"
    folder.mkdir()
    (folder / "die-1").write_text(str(2 * STEPS + 3))
    program = Program(folder, "interval", 3)
    assert program.outcome() == expected
    assert "no step is complete on all ranks" not in (folder / "log").read_text()
    assert 1 <= program.repeated() < 2 * STEPS


def test_snapshots_of_a_dead_program_are_deleted_after_their_time(tmp_path: Path) -> None:
    program = Program(tmp_path / "killed", "brief", 1000)
    program.wait_for_steps(3)
    own = snapshots_of(tmp_path / "killed")
    assert own.stat().st_mode & 0o777 == 0o700
    program.process.kill()
    program.process.wait()
    eventually(lambda: not own.exists(), within_s=PATIENCE_S)


def test_a_finished_run_leaves_no_snapshots(tmp_path: Path) -> None:
    undisturbed(tmp_path / "undisturbed", "manual", 1)
    assert not snapshots_of(tmp_path / "undisturbed").exists()


def test_the_snapshot_of_the_last_step_is_the_result(tmp_path: Path) -> None:
    expected = undisturbed(tmp_path / "undisturbed", "automatic", 1)
    folder = tmp_path / "killed"
    folder.mkdir()
    (folder / "die-0").write_text("end")
    program = Program(folder, "automatic", 1)
    assert program.outcome() == expected
    assert program.repeated() == 0


@pytest.mark.long
@pytest.mark.parametrize("mode", ["automatic", "manual", "data"])
def test_kills_at_random_moments_change_nothing(tmp_path: Path, mode: str) -> None:
    epochs = 4 + 4 * KILLS
    expected = undisturbed(tmp_path / "undisturbed", mode, epochs)
    draw = random.Random(SEED)
    program = Program(tmp_path / "killed", mode, epochs)
    for _ in range(KILLS):
        program.wait_for_steps(draw.randrange(1, 3 * STEPS))
        program.kill(draw.choice(("0", "1", "0", "1", "driver")))
    assert program.outcome() == expected, f"seed {SEED}"
    assert program.repeated() <= 2 * KILLS, f"seed {SEED}: more than expected after {KILLS} kills"


SAVING = """
import sys, torch
from pathlib import Path
from syncline import train
from syncline.train.torch import TorchTrainer

def loop(config):
    weight = torch.zeros(1000, 500)
    rank = train.get_context().get_world_rank()
    for step in range(5):
        weight += 1
        mode = train.CheckpointUploadMode.SYNC if step == 3 else train.CheckpointUploadMode.ASYNC
        checkpoint = train.save({"w": weight, "step": step}, file_name=f"{rank}.pt")
        weight += 1  # the next step of the program
        train.report({"step": step}, checkpoint, checkpoint_upload_mode=mode)
        weight -= 1

result = TorchTrainer(
    loop,
    scaling_config=train.ScalingConfig(num_workers=2),
    run_config=train.RunConfig(name="run", storage_path=sys.argv[1]),
).fit()
for step, (checkpoint, _) in enumerate(result.best_checkpoints):
    for rank in (0, 1):
        state = torch.load(Path(checkpoint.path, f"{rank}.pt"))
        assert state["step"] == step
        assert (state["w"] == step + 1).all()
    assert sorted(each.name for each in Path(checkpoint.path).iterdir()) == [
        ".resume", "0.pt", "1.pt"
    ]
assert len(result.best_checkpoints) == 5
assert not list(Path(sys.argv[1], "run").glob(".tmp*"))
"""


def test_saved_checkpoints_have_the_state_of_their_call(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SAVING, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
