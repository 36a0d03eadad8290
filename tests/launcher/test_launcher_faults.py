"""`syncline run` with each `TrainingFault` on one of four ranks of a plain script."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from syncline import runs
from syncline.runs.verdicts import Verdict, verdicts
from syncline.testing.training_faults import TrainingFault

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

RANK = 2
ELSEWHERE = {TrainingFault.NOT_A_NUMBER, TrainingFault.NETWORK_DELAY}
"""The launcher does not see numbers, and compares the ranks of one host."""
SHOWN = tuple(fault for fault in TrainingFault if fault not in ELSEWHERE)
LIMIT_S = 180.0
SEES_NAN_S = 8.0
"""Seconds of a run with a NaN: several windows of the diagnosis."""


def found(folder: Path) -> list[Verdict]:
    """Return the verdicts so far of the only run."""
    paths = list((folder / "runs").glob("*/run.json"))
    return verdicts(runs.open(paths[0].parent).events) if paths else []


def until(
    condition: Callable[[], bool], process: subprocess.Popen[bytes], limit_s: float = LIMIT_S
) -> None:
    """Wait for the condition, the end of the job, or the limit."""
    deadline = time.monotonic() + limit_s
    while not condition() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)


@pytest.fixture
def start(launcher, tmp_path):
    """Return a function that starts the job with a fault; the job ends with the test."""
    one = launcher("syncline")
    output = (tmp_path / "output").open("wb")
    started = []

    def run(fault: TrainingFault) -> tuple[subprocess.Popen[bytes], Path]:
        arguments = ("-n", "4", "--shutdown-timeout", "1", "faulty.py", str(fault))
        process = one.start(*arguments, str(one.folder), str(RANK), stdout=output, stderr=output)
        started.append(process)
        return process, one.folder

    yield run
    for process in started:
        process.terminate()
        process.wait(LIMIT_S)
    output.close()


@pytest.mark.parametrize("fault", SHOWN, ids=str)
def test_the_verdict_names_the_rank_and_the_cause(start, tmp_path, fault):
    process, folder = start(fault)

    def is_named() -> bool:
        return (str(fault), (RANK,)) in [(str(each.cause), each.ranks) for each in found(folder)]

    until(is_named, process)
    said = [each.title for each in found(folder)]
    assert is_named(), (said, (tmp_path / "output").read_text(errors="replace")[-3000:])
    assert {each.ranks for each in found(folder)} == {(RANK,)}, said


def test_a_nan_is_no_fault_that_the_launcher_sees(start):
    process, folder = start(TrainingFault.NOT_A_NUMBER)
    until(lambda: bool(found(folder)), process, SEES_NAN_S)
    assert "nan" not in [str(each.cause) for each in found(folder)]
    (folder / "stop").touch()
    assert process.wait(LIMIT_S) == 0
