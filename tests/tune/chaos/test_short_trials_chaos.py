"""Kill a search of short trials at any moment and restore it: no trial is lost, none that was over
runs again, and each result is there once.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from syncline.testing.waiting import eventually
from syncline.tune.analysis import ExperimentAnalysis
from syncline.tune.controller.search_store import load_trials
from syncline.tune.experiment.trial import Trial
from syncline.tune.trial_history import read_history

pytestmark = [pytest.mark.long, pytest.mark.processes]

KILLS = int(os.environ.get("CHAOS_KILLS", "4"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
SAMPLES = 100 * (KILLS + 1)
POINTS = ("tune.before_journal", "tune.after_journal", "tune.after_instruction")
PATIENCE_S = 120.0


def ran(folder: Path) -> list[str]:
    path = folder / "ran"
    return path.read_text().splitlines() if path.exists() else []


def run(folder: Path, faults: str = "", kill_after: int | None = None) -> int:
    """Run until the end, a fault, or a kill after so many trials; return the exit code."""
    program = str(Path(__file__).with_name("killed_short_trials.py"))
    before = len(ran(folder))
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, program, str(folder), str(SAMPLES)],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "SYNCLINE_FAULTS": faults},
        )
    try:
        if kill_after is not None:
            eventually(
                lambda: len(ran(folder)) >= before + kill_after or process.poll() is not None,
                within_s=PATIENCE_S,
                what="trials before a kill",
            )
            process.kill()
        return process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait()


def trials(folder: Path) -> list[Trial]:
    exists = (folder / "search" / "search.json").exists()
    return load_trials(str(folder / "search")) if exists else []


@pytest.mark.timeout(180 + 20 * KILLS)
def test_short_trials_that_are_killed_are_neither_lost_nor_repeated(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    over: dict[str, int] = {}
    story = f"CHAOS_SEED={SEED}:"
    for _ in range(KILLS):
        if dice.random() < 0.5:
            count = dice.randint(1, 80)
            story += f" kill after {count} trials,"
            code = run(tmp_path, kill_after=count)
        else:
            fault = f"{dice.choice(POINTS)}=kill:{dice.randint(1, 300)}"
            story += f" {fault},"
            code = run(tmp_path, faults=fault)
        assert code == -signal.SIGKILL, (story, (tmp_path / "log").read_text()[-4000:])
        for trial in trials(tmp_path):
            if trial.is_finished():
                over.setdefault(trial.trial_id, len(ran(tmp_path)))
    assert run(tmp_path) == 0, (story, (tmp_path / "log").read_text()[-4000:])
    assert over, f"no trial was over at a kill: {story}"
    starts = ran(tmp_path)
    for trial_id, known in over.items():
        assert trial_id not in starts[known:], f"{trial_id} was over and ran again: {story}"
    found = trials(tmp_path)
    assert [trial.config["number"] for trial in found] == list(range(SAMPLES)), story
    analysis = ExperimentAnalysis(str(tmp_path / "search"))
    for _ in ("results.jsonl", "files of the trials"):
        for trial in found:
            rows = read_history(trial.storage.storage_filesystem, trial.path) or []
            number = trial.config["number"]
            assert [row["x"] for row in rows] == [2 * number, 2 * number + 1], (trial, story)
        analysis.write_files()
        (tmp_path / "search" / "results.jsonl").unlink(missing_ok=True)
