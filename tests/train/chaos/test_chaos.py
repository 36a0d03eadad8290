"""Kill anything at any moment, and the run ends with the weights of an undisturbed one, every image
seen once an epoch.

`make test-long` kills a few times; `make chaos` 20 times, `make chaos KILLS=200 SEED=5` as often as
one likes. A failure names its seed.
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

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from syncline.testing.waiting import eventually

# What fails here by chance is what this suite is for: `make chaos` does not try again.
pytestmark = [pytest.mark.long, pytest.mark.processes]

SAMPLE = (
    Path(__file__).resolve().parents[3]
    / "examples"
    / "data"
    / "cifar10"
    / "train"
    / "part-00.parquet"
)
ROWS, FILES = 384, 4
KILLS = int(os.environ.get("CHAOS_KILLS", "2"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
EPOCHS = 2 + KILLS // 2
PATIENCE_S = 120.0


class Program:
    """The training, started again whenever its driver was killed."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.folder, self.mode = folder, mode
        folder.mkdir(exist_ok=True)
        table = pq.read_table(SAMPLE).slice(0, ROWS).append_column("id", pa.array(range(ROWS)))
        (folder / "images").mkdir()
        for number in range(FILES):
            part = table.slice(number * ROWS // FILES, ROWS // FILES)
            pq.write_table(part, folder / "images" / f"{number}.parquet", row_group_size=24)
        self.log = (folder / "log").open("w")
        self.start()

    def start(self) -> None:
        command = [
            sys.executable,
            str(Path(__file__).with_name("chaos_program.py")),
            str(self.folder),
            self.mode,
            str(EPOCHS),
        ]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)

    def progress(self, rank: int = 0) -> int:
        try:
            return int((self.folder / f"progress-{rank}").read_text() or 0)
        except FileNotFoundError:
            return 0

    @property
    def is_over(self) -> bool:
        return self.process.poll() == 0

    def kill(self, *names: str) -> None:
        """SIGKILL to "0", "1" or "driver"."""
        for name in names:
            with suppress(FileNotFoundError, ProcessLookupError, ValueError):
                os.kill(int((self.folder / f"pid-{name}").read_text()), signal.SIGKILL)
        if "driver" in names:
            self.process.wait()
            self.start()

    def order(self, rank: int, at: str, after: int) -> Path:
        """Have a rank kill itself; the file is gone when it does."""
        path = self.folder / "order.json"
        path.with_suffix(".new").write_text(json.dumps({"rank": rank, "at": at, "after": after}))
        return path.with_suffix(".new").rename(path)

    def finish(self) -> dict[str, Any]:
        """What came of it; AssertionError with the end of the log if nothing did."""
        code = self.process.wait(PATIENCE_S)
        assert code == 0, self.tail()
        outcome: dict[str, Any] = json.loads((self.folder / "outcome.json").read_text())
        return outcome

    def tail(self) -> str:
        return (self.folder / "log").read_text()[-4000:]

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()


@pytest.fixture
def start(tmp_path: Path) -> Any:
    programs = []

    def started(name: str, mode: str) -> Program:
        programs.append(Program(tmp_path / name, mode))
        return programs[-1]

    yield started
    for program in programs:
        program.end()


def strike(program: Program, dice: random.Random) -> str:
    """One kill, at a moment that the dice choose; what it was."""
    kind = dice.choice(["0", "1", "both", "driver", "step", "report", "upload", "epoch_end"])
    reached = program.progress()
    goal = reached + dice.choice([1, 2, 5])
    eventually(
        lambda: program.progress() >= goal or program.is_over,
        within_s=PATIENCE_S,
        what="progress after a kill",
    )
    if kind in ("step", "report", "upload", "epoch_end"):
        rank = dice.randrange(2)
        order = program.order(rank, kind, after=dice.choice([1, 2, 4]))
        eventually(
            lambda: not order.exists() or program.is_over,
            within_s=PATIENCE_S,
            what=f"rank {rank} at its {kind}",
        )
        order.unlink(missing_ok=True)
        return f"rank {rank} at {kind}"
    with suppress(subprocess.TimeoutExpired):
        program.process.wait(dice.uniform(0, 0.5))
    if not program.is_over:
        program.kill(*(("0", "1") if kind == "both" else (kind,)))
    return kind


@pytest.mark.timeout(60 + 40 * max(10, KILLS))
@pytest.mark.parametrize("mode", ["data", "loader"])
def test_a_run_that_is_killed_at_random_moments_ends_with_the_weights_of_an_undisturbed_one(
    mode: str, start: Any
) -> None:
    undisturbed = start("undisturbed", mode).finish()
    assert undisturbed["weights"][0] == undisturbed["weights"][1]
    dice = random.Random(f"{SEED}-{mode}")
    program, strikes = start("disturbed", mode), []
    while len(strikes) < KILLS and not program.is_over:
        strikes.append(strike(program, dice))
    disturbed = program.finish()
    story = f"CHAOS_SEED={SEED}, {len(strikes)} kills: {', '.join(strikes)}\n{program.tail()}"
    assert len(strikes) >= max(1, KILLS // 2), f"the run was over too soon: {story}"
    assert disturbed["seen"] == {str(epoch): list(range(ROWS)) for epoch in range(EPOCHS)}, story
    assert disturbed == undisturbed, story
