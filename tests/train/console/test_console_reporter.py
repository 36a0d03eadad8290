"""Lines and snapshots about a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncline.runs import discovery
from syncline.train.backend import BackendConfig, Worker
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import CheckpointConfig, ScalingConfig
from syncline.train.console.console_reporter import ConsoleReporter
from syncline.train.console.display import INTERVAL_S, Display
from syncline.train.console.snapshot import Phase, Snapshot
from syncline.train.controller import events
from syncline.train.controller.checkpoint_manager import CheckpointManager
from syncline.train.controller.goodput import GoodputMeter
from syncline.train.controller.transitions import State
from syncline.train.run_config import RunConfig
from syncline.train.storage.context import StorageContext
from syncline.train.workers.messages import Reported
from syncline.train.workers.spec import RunSpec, serialize


class RecordingDisplay(Display):
    takes_snapshots = True

    def __init__(self) -> None:
        self.events: list[str] = []
        self.statuses: list[str] = []
        self.snapshots: list[Snapshot] = []
        self.closed = False

    def print_event(self, text: str) -> None:
        self.events.append(text)

    def print_status(self, text: str) -> None:
        self.statuses.append(text)

    def show(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    def close(self, *, interrupted: bool = False) -> None:
        self.closed = True


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Run:
    """A reporter with a recording display."""

    def __init__(self, folder: Path, **run_options: Any) -> None:
        config = RunConfig(name="vit", storage_path=str(folder), **run_options)
        self.spec = RunSpec(
            train_function=serialize(lambda: None, "f"),
            takes_config=True,
            train_config=serialize({"epochs": 4}, "c"),
            backend_config=BackendConfig(),
            scaling_config=ScalingConfig(),
            run_config=config,
            resume_from_checkpoint=None,
            metadata=None,
            validation_config=None,
            described={"train_config": {"epochs": 4}},
        )
        self.display, self.clock = RecordingDisplay(), Clock()
        self.path = str(folder / "vit")
        storage = StorageContext.from_run_config(config)
        self.reporter = ConsoleReporter(
            self.spec, storage, GoodputMeter(), clock=self.clock, display=self.display
        )


def worker() -> Worker:
    return Worker(
        rank=0,
        node_id="n",
        node_ip="",
        hostname="host",
        pid=1,
        local_rank=0,
        local_world_size=1,
        node_rank=0,
        gpu_ids=[],
    )


def test_run_without_events_prints_three_status_lines(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.reporter.attempt_started(1, [worker()], "")
    run.clock.now += 2
    meter = GoodputMeter()
    meter.attempt_began(0.0)
    meter.attempt_ended(10.0, lost=False)
    run.reporter.finished(meter.goodput(), {"loss": 0.5, "name": "x"})
    assert run.display.events == []
    assert run.display.statuses == [
        "syncline: training vit with 1 worker",
        "syncline: goodput 100.0 %: data 0.0 %, report 0.0 %, restarts 0.0 % "
        "(computing 100.0 %, communicating 0.0 %)",
        f"syncline: training finished in 2.0 s with loss=0.5; {run.path}",
    ]


def test_address_of_run_is_printed_if_dashboard_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(
        discovery, "page_of", lambda path: asked.append(path) or "http://127.0.0.1:8265/run/0/vit"
    )
    run = Run(tmp_path)
    run.reporter.attempt_started(1, [worker()], "from there")
    run.reporter.tick(State.RUNNING)
    assert asked == [run.path]
    assert run.display.statuses == [
        "syncline: training vit with 1 worker, from there",
        "syncline: this run is shown at http://127.0.0.1:8265/run/0/vit",
    ]
    assert run.display.snapshots[-1].page == "http://127.0.0.1:8265/run/0/vit"


def test_failed_dashboard_discovery_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def page_of(path: str) -> str:
        raise PermissionError(path)

    monkeypatch.setattr(discovery, "page_of", page_of)
    run = Run(tmp_path)
    run.reporter.attempt_started(1, [worker()], "")
    assert len(run.display.statuses) == 1


def test_restarts_and_resizes_are_events(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.reporter.restarting(
        events.NotifyRestart(failed_attempt=1, cause="why", count=1, limit=-1), ""
    )
    run.reporter.resizing(events.NotifyResize(world_size=2, workers=4))
    assert run.display.events == [
        "syncline: attempt 1 failed (failure 1, no limit); starting again from the beginning, "
        "as there is no checkpoint yet\nwhy",
        "syncline: continuing with 4 workers instead of 2, as the available resources have changed",
    ]


def test_phase_changes_are_shown_immediately_and_other_changes_twice_a_second(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path)
    run.reporter.instruction_started(
        events.StartGroup(attempt=1, world_size=1, first_index=0), State.STARTING
    )
    run.reporter.instruction_started(events.LaunchTraining(attempt=1), State.RUNNING)
    assert [snapshot.phase for snapshot in run.display.snapshots] == [
        Phase.STARTING,
        Phase.TRAINING,
    ]
    for number in range(100):
        report = Reported(index=number, metrics={"epoch": 0}, time=0.0)
        run.reporter.instruction_started(events.RecordReport(rank=0, report=report), State.RUNNING)
        run.reporter.tick(State.RUNNING)
        run.clock.now += INTERVAL_S / 10
    assert len(run.display.snapshots) == 2 + 10
    assert run.display.snapshots[-1].progress is not None
    assert run.display.snapshots[-1].progress.total == 4


def test_snapshot_has_best_checkpoint_if_there_is_a_score(tmp_path: Path) -> None:
    for attribute, best in ((None, ""), ("loss", "/b")):
        config = CheckpointConfig(
            checkpoint_score_attribute=attribute, checkpoint_score_order="min"
        )
        manager = CheckpointManager(config)
        run = Run(tmp_path, checkpoint_config=config)
        for index, (name, loss) in enumerate([("/a", 0.5), ("/b", 0.25), ("/c", 0.75)]):
            manager.register(index, Checkpoint(name), {"loss": loss})
            run.reporter.checkpoint_committed(Checkpoint(name), manager)
        run.reporter.close(State.FINISHED)
        assert (
            run.display.snapshots[-1].checkpoint,
            run.display.snapshots[-1].best_checkpoint,
        ) == ("/c", best)


def test_last_snapshot_is_final(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.reporter.close(State.ERRORED)
    assert run.display.snapshots[-1].phase is Phase.FAILED
    assert run.display.closed


def test_quiet_run_prints_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path, verbose=0)
    run.reporter.attempt_started(1, [worker()], "")
    run.reporter.tick(State.RUNNING)
    run.reporter.close(State.FINISHED)
    assert (run.display.events, run.display.statuses, run.display.snapshots) == ([], [], [])
