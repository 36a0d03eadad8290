"""What a controller's deeds become for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncline.train.backend import BackendConfig, Worker
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import CheckpointConfig, RunConfig, ScalingConfig
from syncline.train.console import narrator
from syncline.train.console.display import INTERVAL_S, Display
from syncline.train.console.narrator import Narrator
from syncline.train.console.snapshot import Phase, Snapshot
from syncline.train.controller import events
from syncline.train.controller.checkpoint_manager import CheckpointManager
from syncline.train.controller.goodput import GoodputMeter
from syncline.train.controller.transitions import State
from syncline.train.storage.context import StorageContext
from syncline.train.workers.messages import Reported
from syncline.train.workers.spec import RunSpec, serialize


class Told(Display):
    """Keeps everything."""

    takes_snapshots = True

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.outlines: list[str] = []
        self.snapshots: list[Snapshot] = []
        self.closed = False

    def say(self, line: str) -> None:
        self.lines.append(line)

    def outline(self, line: str) -> None:
        self.outlines.append(line)

    def show(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    def close(self, *, interrupted: bool = False) -> None:
        self.closed = True


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class EventStream:
    """A narrator and who it tells."""

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
        self.told, self.clock = Told(), Clock()
        self.path = str(folder / "vit")
        storage = StorageContext.from_run_config(config)
        self.narrator = Narrator(
            self.spec, storage, GoodputMeter(), clock=self.clock, display=self.told
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


def test_a_quiet_run_is_told_in_three_lines_that_panels_say_too(tmp_path: Path) -> None:
    story = EventStream(tmp_path)
    story.narrator.opened(1, [worker()], "")
    story.clock.now += 2
    meter = GoodputMeter()
    meter.attempt_began(0.0)
    meter.attempt_ended(10.0, lost=False)
    story.narrator.finished(meter.goodput(), {"loss": 0.5, "name": "x"})
    assert story.told.lines == []
    assert story.told.outlines == [
        "syncline: training vit with 1 worker",
        "syncline: goodput 100.0 %: data 0.0 %, report 0.0 %, restarts 0.0 % (computing 100.0 %, communicating 0.0 %)",
        f"syncline: training finished in 2.0 s with loss=0.5; {story.path}",
    ]


def test_the_page_of_a_run_is_told_when_a_dashboard_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(
        narrator.dashboards,
        "page_of",
        lambda path: asked.append(path) or "http://127.0.0.1:8265/run/0/vit",
    )
    story = EventStream(tmp_path)
    story.narrator.opened(1, [worker()], "from there")
    story.narrator.tick(State.RUNNING)
    assert asked == [story.path]
    assert story.told.outlines == [
        "syncline: training vit with 1 worker, from there",
        "syncline: this run is shown at http://127.0.0.1:8265/run/0/vit",
    ]
    assert story.told.snapshots[-1].page == "http://127.0.0.1:8265/run/0/vit"


def test_a_dashboard_that_cannot_be_looked_for_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def page_of(path: str) -> str:
        raise PermissionError(path)

    monkeypatch.setattr(narrator.dashboards, "page_of", page_of)
    story = EventStream(tmp_path)
    story.narrator.opened(1, [worker()], "")
    assert len(story.told.outlines) == 1


def test_restarts_and_resizes_are_said_to_everybody(tmp_path: Path) -> None:
    story = EventStream(tmp_path)
    story.narrator.restarting(
        events.NotifyRestart(failed_attempt=1, cause="why", count=1, limit=-1), ""
    )
    story.narrator.resizing(events.NotifyResize(world_size=2, workers=4))
    assert story.told.lines == [
        "syncline: attempt 1 failed (1, no limit); starting again from the beginning, as there is no checkpoint yet\nwhy",
        "syncline: there is room for 4 workers instead of 2: going on with as many",
    ]


def test_turns_are_shown_at_once_and_everything_else_twice_a_second(tmp_path: Path) -> None:
    story = EventStream(tmp_path)
    story.narrator.see(events.StartGroup(attempt=1, world_size=1, first_index=0), State.STARTING)
    story.narrator.see(events.LaunchTraining(attempt=1), State.RUNNING)
    assert [snapshot.phase for snapshot in story.told.snapshots] == [Phase.STARTING, Phase.TRAINING]
    for number in range(100):
        report = Reported(index=number, metrics={"epoch": 0}, time=0.0)
        story.narrator.see(events.RecordReport(rank=0, report=report), State.RUNNING)
        story.narrator.tick(State.RUNNING)
        story.clock.now += INTERVAL_S / 10
    assert len(story.told.snapshots) == 2 + 10
    assert story.told.snapshots[-1].progress is not None
    assert story.told.snapshots[-1].progress.total == 4


def test_the_best_checkpoint_is_known_where_there_is_a_score(tmp_path: Path) -> None:
    for attribute, best in ((None, ""), ("loss", "/b")):
        config = CheckpointConfig(
            checkpoint_score_attribute=attribute, checkpoint_score_order="min"
        )
        manager = CheckpointManager(config)
        story = EventStream(tmp_path, checkpoint_config=config)
        for index, (name, loss) in enumerate([("/a", 0.5), ("/b", 0.25), ("/c", 0.75)]):
            manager.register(index, Checkpoint(name), {"loss": loss})
            story.narrator.committed(Checkpoint(name), manager)
        story.narrator.close(State.FINISHED)
        assert (story.told.snapshots[-1].checkpoint, story.told.snapshots[-1].best_checkpoint) == (
            "/c",
            best,
        )


def test_the_last_snapshot_is_that_of_the_end(tmp_path: Path) -> None:
    story = EventStream(tmp_path)
    story.narrator.close(State.ERRORED)
    assert story.told.snapshots[-1].phase is Phase.FAILED
    assert story.told.closed


def test_a_quiet_run_tells_nobody(tmp_path: Path) -> None:
    story = EventStream(tmp_path, verbose=0)
    story.narrator.opened(1, [worker()], "")
    story.narrator.tick(State.RUNNING)
    story.narrator.close(State.FINISHED)
    assert (story.told.lines, story.told.outlines, story.told.snapshots) == ([], [], [])
