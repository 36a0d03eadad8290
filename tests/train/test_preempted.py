"""SIGTERM to workers or to the program: a notice, a last checkpoint, and the run goes on or ends in
good order.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline import train
from syncline.train import (
    Checkpoint,
    FailureConfig,
    PreemptionError,
    Result,
    RunConfig,
    ScalingConfig,
)
from syncline.train.torch import TorchTrainer

pytestmark = pytest.mark.processes


def train_until_told(config: dict[str, Any]) -> str:
    """Counts steps; in the first attempt, one rank's process gets SIGTERM; saves its step when it
    hears of a preemption, and stops.
    """
    first = train.get_checkpoint() is None
    rank = train.get_context().get_world_rank()
    if first and rank == config["rank"]:
        os.kill(os.getpid(), signal.SIGTERM)
    deadline = time.monotonic() + 60
    while first and train.get_preemption_info() is None:
        assert time.monotonic() < deadline, "nobody told this rank"
        time.sleep(0.01)
    info = train.get_preemption_info()
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, f"rank-{rank}").write_text("saved")
        train.report({"told": info is not None}, Checkpoint.from_directory(directory))
    if info is not None:
        assert list(info.preempted_node_to_ranks.values()) == [[config["rank"]]]
        assert info.deadline_ms is not None
        return "preempted"
    return "done"


@pytest.mark.promise
def test_a_rank_that_is_told_to_end_saves_its_work_and_the_run_goes_on_from_there(
    tmp_path: Any,
) -> None:
    syncline.init(num_cpus=2, ignore_reinit_error=True)
    result = TorchTrainer(
        train_until_told,
        train_loop_config={"rank": 1},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name="preempted", storage_path=tmp_path, failure_config=FailureConfig(max_failures=0)
        ),
    ).fit()
    assert result.return_value == "done"
    assert result.metrics_dataframe is not None
    assert list(result.metrics_dataframe["told"]) == [True, False]


def test_preemptions_have_a_budget_of_their_own(tmp_path: Any) -> None:
    syncline.init(num_cpus=2, ignore_reinit_error=True)
    trainer = TorchTrainer(
        train_until_told,
        train_loop_config={"rank": 0},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name="budget",
            storage_path=tmp_path,
            failure_config=FailureConfig(max_failures=-1, max_preemption_failures=0),
        ),
    )
    with pytest.raises(PreemptionError) as raised:
        trainer.fit()
    assert not raised.value.drain_timed_out
    assert Result.from_path(tmp_path / "budget").checkpoint is not None


PROGRAM = """
import sys, tempfile, time
from pathlib import Path
from syncline import train
from syncline.train import Checkpoint, RunConfig, ScalingConfig
from syncline.train.torch import TorchTrainer

def loop():
    print("training", flush=True)
    while train.get_preemption_info() is None:
        time.sleep(0.01)
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "weights").write_text("saved")
        train.report({"step": 1}, Checkpoint.from_directory(directory))

if __name__ == "__main__":
    run_config = RunConfig(name="run", storage_path=sys.argv[1])
    TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2), run_config=run_config).fit()
"""


def test_a_program_that_is_told_to_end_commits_a_last_checkpoint_and_ends_with_the_reason(
    tmp_path: Any,
) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    program = subprocess.Popen(
        [sys.executable, script, tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert program.stdout is not None
    for line in program.stdout:
        if "training" in line and "2 workers" not in line:
            break
    program.send_signal(signal.SIGTERM)
    rest, _ = program.communicate(timeout=60)
    assert program.returncode == 1
    assert "PreemptionError" in rest
    checkpoint = Result.from_path(tmp_path / "run").checkpoint
    assert checkpoint is not None
    assert Path(checkpoint.path, "weights").read_text() == "saved"
