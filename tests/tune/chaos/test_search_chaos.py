"""Kill a search at any moment and restore it: it ends as the undisturbed one, and nothing that was
over is trained again.

`make test-long` kills a few times; `make chaos` 20 times, `make chaos KILLS=200 SEED=5` as often as
one likes. A failure names its seed.
"""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from syncline.testing.programs import is_alive
from syncline.testing.waiting import eventually
from syncline.tune.controller.search_store import load_trials

# A failure by chance is a defect, so tests are not rerun.
pytestmark = [pytest.mark.long, pytest.mark.processes]

KILLS = int(os.environ.get("CHAOS_KILLS", "4"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
SAMPLES = 8 + 2 * KILLS
PATIENCE_S = 120.0
POINTS = ("tune.before_journal", "tune.after_journal", "tune.after_instruction")
"""Fault points reached with every event."""
RARE_POINTS = ("tune.before_pointer", "tune.after_pointer")
"""Fault points reached with a snapshot: at the start, at the end, and after many events."""


class Search:
    """The program, restarted after each kill."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.log = (folder / "log").open("w")
        self.finished: dict[str, int] = {}
        """Ended trials at a kill, and their numbers of steps."""

    def run(self, faults: str = "", kill_after: tuple[int, float] | None = None) -> int:
        """Run until the end, a fault, or a kill after `kill_after` steps and seconds; return the
        exit code.
        """
        command = [
            sys.executable,
            str(Path(__file__).with_name("killed_search.py")),
            str(self.folder),
            str(SAMPLES),
        ]
        before = len(self.steps())
        process = subprocess.Popen(
            command,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "SYNCLINE_FAULTS": faults},
        )
        try:
            if kill_after is not None:
                steps, seconds = kill_after
                eventually(
                    lambda: len(self.steps()) >= before + steps or process.poll() is not None,
                    within_s=PATIENCE_S,
                    what="steps after a kill",
                )
                try:
                    process.wait(seconds)
                except subprocess.TimeoutExpired:
                    process.kill()
            return process.wait(PATIENCE_S)
        finally:
            process.kill()
            process.wait()
            self.await_silence()

    def await_silence(self) -> None:
        """Check that no process of a trial outlives its program."""
        trials = {pid for _, _, pid in self.steps()}
        eventually(
            lambda: not [pid for pid in trials if is_alive(pid)],
            what="the end of the trials' processes",
        )

    def note_finished(self) -> None:
        if (self.folder / "search" / "search.json").exists():
            steps = len(self.steps())
            for trial in load_trials(str(self.folder / "search")):
                if trial.is_finished():
                    self.finished.setdefault(trial.trial_id, steps)

    def steps(self) -> list[tuple[str, int, int]]:
        """Return (trial, iteration, process) of each trained step."""
        try:
            lines = (self.folder / "steps").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [
            (trial, int(iteration), int(pid)) for trial, iteration, pid in map(str.split, lines)
        ]

    def outcome(self) -> Any:
        return json.loads((self.folder / "outcome.json").read_text())

    def tail(self) -> str:
        return (self.folder / "log").read_text()[-4000:]


def strike(search: Search, dice: random.Random) -> tuple[str, int]:
    """Start the program and kill it at a random moment; return the kind of kill and exit code."""
    kind = dice.choice(
        [*POINTS, *POINTS, "any moment", "any moment", "any moment", dice.choice(RARE_POINTS)]
    )
    if kind == "any moment":
        after = dice.choice([0, 1, 2, 5, 9]), dice.uniform(0, 0.2)
        return f"{kind} after {after}", search.run(kill_after=after)
    count = 1 if kind in RARE_POINTS else dice.randint(1, 25)
    return f"{kind} {count}", search.run(f"{kind}=kill:{count}")


@pytest.mark.timeout(120 + 20 * KILLS)
def test_a_search_that_is_killed_at_random_moments_ends_as_an_undisturbed_one(
    tmp_path: Path,
) -> None:
    undisturbed = Search(tmp_path / "undisturbed")
    assert undisturbed.run() == 0, undisturbed.tail()
    dice = random.Random(SEED)
    search, strikes = Search(tmp_path / "disturbed"), []
    code = -signal.SIGKILL
    while len(strikes) < KILLS and code == -signal.SIGKILL:
        kind, code = strike(search, dice)
        strikes.append(kind)
        search.note_finished()
    # Once more during a snapshot; with few kills the search may have ended.
    if code == -signal.SIGKILL:
        strikes.append("tune.before_pointer 2")
        code = search.run("tune.before_pointer=kill:2")
        search.note_finished()
        assert code == -signal.SIGKILL, search.tail()
        code = search.run()
    story = f"CHAOS_SEED={SEED}, {len(strikes)} kills: {', '.join(strikes)}\n{search.tail()}"
    assert code == 0, story
    assert len(strikes) >= max(1, KILLS // 2), f"the search was over too soon: {story}"
    assert search.outcome() == undisturbed.outcome(), story
    assert search.outcome()["errors"] == 0, story
    steps = search.steps()
    for trial_id, known in search.finished.items():
        assert trial_id not in {trial for trial, _, _ in steps[known:]}, (
            f"{trial_id} was over, and trained again: {story}"
        )
    # A kill costs what was trained since the checkpoint before it: two steps at most.
    repeated = sum(
        count - 1 for count in Counter((trial, iteration) for trial, iteration, _ in steps).values()
    )
    assert repeated <= 2 * len(strikes), story
    _assert_whole(search, story)


def _assert_whole(search: Search, story: str) -> None:
    """Check that each result is once in its trial's files and that nothing is unfinished."""
    for trial, (_, _, iterations, _) in zip(
        load_trials(str(search.folder / "search")), search.outcome()["trials"], strict=True
    ):
        directory, expected = Path(trial.path), list(range(1, iterations + 1))
        rows = [
            json.loads(line)["training_iteration"]
            for line in (directory / "result.json").read_text().splitlines()
        ]
        with (directory / "progress.csv").open() as file:
            assert [int(row["training_iteration"]) for row in csv.DictReader(file)] == expected, (
                trial,
                story,
            )
        assert rows == expected, (trial, story)
        assert sorted(path.name for path in directory.glob("checkpoint_*")) == [
            f"checkpoint_{n:06d}" for n in range(iterations // 2)
        ], story
    left = [path for path in (search.folder / "search").rglob("*") if path.name.startswith(".tmp-")]
    assert not left, (left, story)
    kept = [
        path.name
        for path in (search.folder / "search").iterdir()
        if path.name.startswith(("search-", "journal-"))
    ]
    assert len(kept) == 1, f"state of earlier times is left: {kept}, {story}"
