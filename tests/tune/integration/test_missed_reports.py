"""Missed reports of a trainer after a kill: each once, in order, from the trial's checkpoint to the
run's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from syncline.train.checkpoint import Checkpoint
from syncline.train.storage.context import StorageContext
from syncline.tune.integration.ray_train import missed_reports


class Run:
    """Record of a run, written line by line."""

    def __init__(self, directory: Path) -> None:
        self.storage = StorageContext(directory, "run")
        self.path = directory / "run"
        self.path.mkdir()
        (self.path / "run.json").write_text("{}")
        self.next = 0
        self.kept: list[dict[str, Any]] = []

    def starts(self) -> None:
        self._event(event="started", next_report=self.next)

    def reports(self, *steps: int, saves: bool = False) -> None:
        for step in steps:
            for rank in (1, 0):
                self._add(
                    "metrics.jsonl",
                    {
                        "iteration": self.next,
                        "time": 1.0,
                        "rank": rank,
                        "metrics": {"step": step, "rank": rank},
                    },
                )
            if saves:
                name = f"checkpoint_{self.next:06d}"
                self._event(event="checkpoint", report=self.next, name=name)
                self.kept.append({"index": self.next, "name": name})
                (self.path / "checkpoints.json").write_text(json.dumps({"checkpoints": self.kept}))
            self.next += 1

    def checkpoint(self, number: int) -> Checkpoint:
        return self.storage.checkpoint(self.kept[number]["name"])

    def told(
        self, known: Checkpoint | None, *, started: bool = False
    ) -> list[tuple[int, str | None]]:
        return [
            (metrics["step"], Path(checkpoint.path).name if checkpoint is not None else None)
            for metrics, checkpoint in missed_reports(self.storage, known, started=started)
        ]

    def _event(self, **event: Any) -> None:
        self._add("events.jsonl", {"time": 1.0, **event})

    def _add(self, name: str, line: dict[str, Any]) -> None:
        with (self.path / name).open("a") as file:
            file.write(json.dumps(line) + "\n")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_a_run_that_was_never_started_has_reported_nothing(tmp_path: Path) -> None:
    assert not list(missed_reports(StorageContext(tmp_path, "run"), None, started=False))


def test_reports_between_the_checkpoints_of_trial_and_run_are_missed(run: Run) -> None:
    run.starts()
    run.reports(1)
    run.reports(2, saves=True)
    run.reports(3)
    run.reports(4, saves=True)
    run.reports(5)
    assert run.told(None) == [
        (1, None),
        (2, "checkpoint_000001"),
        (3, None),
        (4, "checkpoint_000003"),
    ], "5 will be trained again"
    assert run.told(run.checkpoint(0)) == [(3, None), (4, "checkpoint_000003")]
    assert run.told(run.checkpoint(1)) == []


def test_reports_that_were_computed_again_count_once(run: Run) -> None:
    run.starts()
    run.reports(1)
    run.reports(2, saves=True)
    run.reports(3, 4)
    run.starts()
    run.reports(3)
    run.reports(4, saves=True)
    assert run.told(None) == [
        (1, None),
        (2, "checkpoint_000001"),
        (3, None),
        (4, "checkpoint_000005"),
    ]
    assert run.told(run.checkpoint(0)) == [(3, None), (4, "checkpoint_000005")]


def test_reports_since_the_latest_start_are_left_out(run: Run) -> None:
    run.starts()
    run.reports(1, 2, saves=True)
    run.reports(3)
    run.starts()
    run.reports(3, saves=True)
    assert run.told(run.checkpoint(0), started=True) == [(2, "checkpoint_000001")]


def test_a_checkpoint_that_is_not_kept_any_more_is_not_told_of(run: Run) -> None:
    run.starts()
    run.reports(1, 2, 3, saves=True)
    known = run.checkpoint(0)
    (run.path / "checkpoints.json").write_text(json.dumps({"checkpoints": run.kept[2:]}))
    assert run.told(known) == [(2, None), (3, "checkpoint_000002")]


def test_a_checkpoint_from_elsewhere_is_before_all(run: Run) -> None:
    run.starts()
    run.reports(1, saves=True)
    assert run.told(Checkpoint("/elsewhere/checkpoint_000000")) == [(1, "checkpoint_000000")]
