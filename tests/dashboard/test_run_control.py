"""Finding and querying live runs; this process plays the program."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from syncline import runs
from syncline.core import control
from syncline.dashboard import run_control
from syncline.dashboard.run_control import ActionFailed, reach
from syncline.runs import LocalFiles, RunDirectory


class FakeProgram:
    """Answers like a training run and records the requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    def answer(self, action: str, arguments: Mapping[str, Any]) -> Any:
        self.asked.append((action, arguments))
        if action == "workers":
            return [{"rank": 0, "pid": 7}]
        if action == "stacks":
            return {"0": "  File …"}
        if action == "stop":
            return {}
        if arguments["rank"] == 9:
            raise RuntimeError("the run has no rank 9")
        return {"file": "profiles/a.svg"}


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SYNCLINE_TMPDIR", str(tmp_path / "sessions"))
    control.close()
    yield
    control.close()


@pytest.fixture
def run(tmp_path: Path) -> runs.Run:
    with RunDirectory(LocalFiles(tmp_path / "runs" / "a")) as record:
        record.write_run("a", {}, detailed=False)
    return runs.open(tmp_path / "runs" / "a")


def test_a_run_is_asked_through_its_program(run: runs.Run) -> None:
    program = FakeProgram()
    withdraw = control.serve(f"run:{run.path}", program.answer)
    found = reach(run)
    assert found is not None
    assert found.members() == [{"rank": 0, "pid": 7}]
    assert found.stacks([0]) == {"0": "  File …"}
    assert found.stacks() == {"0": "  File …"}
    assert found.profile(0, "torch", steps=4) == "profiles/a.svg"
    found.stop()
    assert [action for action, _ in program.asked] == [
        "workers",
        "stacks",
        "stacks",
        "profile",
        "stop",
    ]
    assert program.asked[1][1] == {"ranks": [0]}
    assert program.asked[3][1] == {"rank": 0, "kind": "torch", "seconds": None, "steps": 4}
    with pytest.raises(ActionFailed, match="no rank 9"):
        found.profile(9, "cpu")
    withdraw()
    with pytest.raises(run_control.ProgramUnreachable):
        found.stacks()
    assert reach(run) is None


def test_a_run_that_no_program_answers_for_is_not_reached(run: runs.Run) -> None:
    control.serve(f"run:{run.path}-other", FakeProgram().answer)
    control.serve("engine", FakeProgram().answer)
    assert reach(run) is None


def test_a_directory_has_more_than_one_path(run: runs.Run, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    control.serve(f"run:{tmp_path}/link/a", FakeProgram().answer)
    assert reach(run) is not None


@pytest.mark.parametrize(
    ("place", "uri", "same"),
    [
        ("bucket/runs/a", "s3://bucket/runs/a", True),
        ("bucket/runs/a", "s3://bucket/runs/a?endpoint_override=localhost", True),
        ("/runs/a", "hdfs://host:9000/runs/a", True),
        ("bucket/runs/a", "s3://key:***@bucket/runs/a?endpoint_override=localhost", True),
        ("bucket/runs/a@b", "s3://bucket/runs/a@b", True),
        ("bucket/runs/a", "s3://bucket/runs/ab", False),
        ("a", "s3://bucket/runs/ba", False),
        ("runs/a", "s3://bucket/runs/a", False),
        ("/home/ann/runs/a", "s3://bucket/home/ann/runs/a", False),
        ("/home/ann/runs/a", "s3://home/ann/runs/a", False),
    ],
)
def test_a_run_elsewhere_is_known_by_its_path_there(place: str, uri: str, same: bool) -> None:
    assert run_control._same_place(place, uri) is same


def test_asking_about_this_machine_alone_connects_to_no_cluster(
    run: runs.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, address: str | None) -> None:
        raise AssertionError(f"{path} is looked for on a cluster")

    monkeypatch.setattr(run_control, "_ask_on_cluster", refuse)
    assert reach(run) is None


TRAINING = """
import sys
from syncline import train
from syncline.train.trainer import DataParallelTrainer

def wait(config):
    train.report({"step": 0})
    __import__("threading").Event().wait()

DataParallelTrainer(
    wait,
    scaling_config=train.ScalingConfig(num_workers=1),
    run_config=train.RunConfig(name="a", storage_path=sys.argv[1]),
).fit()
"""
SEARCH = """
import sys
from syncline import tune

def wait(config):
    tune.report({"step": 0})
    __import__("threading").Event().wait()

results = tune.Tuner(wait, run_config=tune.RunConfig(name="a", storage_path=sys.argv[1])).fit()
print("go on with", len(results), "trials")
"""


def has_workers(path: Path) -> bool:
    """Return True if a live run has workers or trials."""
    if not (path / "run.json").exists():
        return False
    found = reach(runs.open(path))
    try:
        return found is not None and bool(found.members())
    except (ActionFailed, run_control.ProgramUnreachable):  # it is starting
        return False


@pytest.mark.processes
@pytest.mark.parametrize("program", [TRAINING, SEARCH], ids=["training", "search"])
def test_a_live_run_is_stopped_from_another_process(tmp_path: Path, program: str) -> None:
    started = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with started:
        while not has_workers(tmp_path / "a"):
            assert started.poll() is None, started.stdout and started.stdout.read()
            time.sleep(0.02)
        found = reach(runs.open(tmp_path / "a"))
        assert found is not None
        found.stop()
        output = started.communicate(timeout=60)[0]
    run = runs.open(tmp_path / "a")
    assert run.state == "aborted"
    assert "stopped from the dashboard or with `syncline runs stop`" in run.outcome["error"]
    if program is TRAINING:
        assert "KeyboardInterrupt: stopped from the dashboard" in output
        assert started.returncode != 0
    else:
        assert "go on with 1 trials" in output
