"""The record of a search for the dashboard."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from syncline.runs import LocalFiles, RunDirectory
from syncline.train.checkpoint import Checkpoint
from syncline.tune.controller.search_record import (
    ERROR_CHARACTERS,
    RunningTrials,
    SearchRecord,
    numbers,
    read_trial_lines,
    recorded_config,
)
from syncline.tune.experiment.trial import Trial


class Recorded:
    """A record in a directory, and the content of its files."""

    def __init__(self, path: Path, clock: Any, *, restored: bool = False, **options: Any) -> None:
        self.path = path
        self.running = RunningTrials()
        earlier = read_trial_lines(LocalFiles(path)) if restored else []
        path.mkdir(exist_ok=True)
        self.directory = RunDirectory(LocalFiles(path), clock)
        self.record = SearchRecord(
            self.directory,
            clock,
            address="10.0.0.1",
            running=self.running,
            earlier=earlier,
            **options,
        )

    def lines(self, name: str = "trials.jsonl") -> list[dict[str, Any]]:
        self.record.flush()
        path = self.path / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def change(recorded: Recorded, trial: Trial, **values: Any) -> list[dict[str, Any]]:
    """Return the lines added by a change."""
    before = len(recorded.lines())
    for name, value in values.items():
        setattr(trial, name, value)
    recorded.record.update([trial])
    return recorded.lines()[before:]


def test_the_first_line_of_a_trial_has_its_configuration_and_later_ones_what_is_new(
    tmp_path: Path, make_trial: Any, clock: Any
) -> None:
    recorded, trial = (
        Recorded(tmp_path / "run", clock),
        make_trial(0, config={"lr": 0.5, "n": {"a": 1}}, status=Trial.PENDING),
    )
    (first,) = change(recorded, trial)
    assert first == {
        "time": 1000.0,
        "trial": "1a2b_00000",
        "status": "PENDING",
        "iteration": 0,
        "name": "train_1a2b_00000",
        "directory": "train_00000",
        "config": {"lr": 0.5, "n": {"a": 1}},
    }
    (running,) = change(
        recorded, trial, status=Trial.RUNNING, location="10.0.0.9:77", start_time=5.0
    )
    assert running.keys() == {
        "time",
        "trial",
        "status",
        "iteration",
        "hostname",
        "pid",
        "location",
        "started",
    }
    assert (running["hostname"], running["pid"], running["started"]) == ("10.0.0.9", 77, 5.0)
    trial.record_result({"loss": 0.25, "training_iteration": 3, "note": "x", "done": True})
    (ended,) = change(recorded, trial, status=Trial.TERMINATED, stopped_by="scheduler")
    assert ended["iteration"] == 3
    assert ended["metrics"] == {"loss": 0.25}
    assert ended["stopped_by"] == "scheduler"


def test_a_trial_that_has_not_changed_gets_no_line(
    tmp_path: Path, make_trial: Any, clock: Any
) -> None:
    recorded, trial = Recorded(tmp_path / "run", clock), make_trial(0, losses=[0.5])
    assert len(change(recorded, trial)) == 1
    assert change(recorded, trial) == []


def test_changes_in_quick_succession_are_one_line(
    tmp_path: Path, make_trial: Any, clock: Any
) -> None:
    recorded, trial = Recorded(tmp_path / "run", clock), make_trial(1, status=Trial.PENDING)
    recorded.record.update([make_trial(0)])  # is written immediately after a pause
    recorded.record.update([trial])
    trial.status = Trial.RUNNING
    recorded.record.update([trial])
    lines = [line for line in recorded.lines() if line["trial"] == trial.trial_id]
    assert [line["status"] for line in lines] == ["RUNNING"]
    assert lines[0]["config"] == trial.config


def test_another_configuration_is_recorded_again(
    tmp_path: Path, make_trial: Any, clock: Any
) -> None:
    recorded, trial = Recorded(tmp_path / "run", clock), make_trial(0)
    change(recorded, trial)
    (exploited,) = change(recorded, trial, config={"lr": 9.0})
    assert exploited["config"] == {"lr": 9.0}


def test_the_end_of_an_error_is_recorded_and_cleared_when_the_trial_continues(
    tmp_path: Path, make_trial: Any, clock: Any
) -> None:
    recorded, trial = Recorded(tmp_path / "run", clock), make_trial(0)
    (failed,) = change(
        recorded, trial, status=Trial.ERROR, error_text="x" * 50_000 + "ValueError: no"
    )
    assert len(failed["error"]) == ERROR_CHARACTERS
    assert failed["error"].endswith("ValueError: no")
    (again,) = change(recorded, trial, status=Trial.PENDING, error_text="")
    assert again["error"] is None


def test_the_path_of_the_latest_checkpoint_is_told(
    tmp_path: Path, make_trial: Any, clock: Any
) -> None:
    recorded, trial = Recorded(tmp_path / "run", clock), make_trial(0, losses=[0.5])
    trial.record_checkpoint(Checkpoint("/somewhere/checkpoint_000000"), trial.last_result)
    (line,) = change(recorded, trial)
    assert line["checkpoint"] == "/somewhere/checkpoint_000000"


def test_a_restored_search_adds_only_what_the_file_does_not_say(
    tmp_path: Path, make_trial: Any, clock: Any
) -> None:
    finished, cut_off = (
        make_trial(0, losses=[0.5]),
        make_trial(1, losses=[0.5], status=Trial.RUNNING),
    )
    before = Recorded(tmp_path / "run", clock)
    before.record.update([finished, cut_off])
    assert len(before.lines()) == 2
    after = Recorded(tmp_path / "run", clock, restored=True)
    cut_off.status = Trial.PENDING
    unheard_of = make_trial(2, losses=[0.1])
    after.record.update([finished, cut_off, unheard_of])
    assert [(line["trial"][-1], line["status"]) for line in after.lines()[2:]] == [
        ("1", "PENDING"),
        ("2", "TERMINATED"),
    ]
    assert "config" not in after.lines()[2]


def test_damaged_lines_do_not_keep_a_search_from_going_on(tmp_path: Path) -> None:
    lines = [
        "nonsense",
        "[1]",
        '{"trial": "a", "iteration": "x"}',
        '{"trial": "b", "status": 5, "metrics": [1], "config": 3}',
        '{"torn',
    ]
    (tmp_path / "trials.jsonl").write_text("\n".join(lines))
    found = read_trial_lines(LocalFiles(tmp_path))
    assert [line["trial"] for line in found] == ["b"]
    record = SearchRecord(
        RunDirectory(LocalFiles(tmp_path)),
        lambda: 0.0,
        address="",
        running=RunningTrials(),
        earlier=found,
    )
    record.write_state()


def test_results_are_recorded_as_numbers_by_trial(
    tmp_path: Path, make_trial: Any, clock: Any
) -> None:
    recorded, trial = Recorded(tmp_path / "run", clock), make_trial(0)
    for iteration in (1, 2):
        result = {
            "loss": 0.5,
            "training_iteration": iteration,
            "time_total_s": 1.5,
            "text": "x",
            "flag": True,
            "config": {"lr": 1.0},
        }
        recorded.record.result(trial, result)
    expected = {
        "time": 1000.0,
        "trial": trial.trial_id,
        "metrics": {"loss": 0.5, "time_total_s": 1.5},
    }
    assert recorded.lines("metrics.jsonl") == [
        {"iteration": iteration, **expected} for iteration in (1, 2)
    ]


def test_numbers_are_found_where_they_are_nested_and_nothing_else_is() -> None:
    result: Mapping[str, Any] = {
        "a": {"b": 1, "c": {"d": 2.5, "e": None}},
        "list": [1, 2],
        "date": "today",
        "pid": 5,
        "deep": {"s": "x"},
    }
    assert numbers(result) == {"a/b": 1, "a/c/d": 2.5}


def test_a_recorded_configuration_is_bounded_plain_and_without_secrets() -> None:
    config = {
        "text": "x" * 100_000,
        "list": list(range(10_000)),
        "function": len,
        "api_key": "abc123",
        "n": {"env_vars": {"HOME": "/root"}},
        **{f"p{number}": number for number in range(5_000)},
    }
    recorded = recorded_config(config)
    assert len(json.dumps(recorded)) < 50_000
    assert recorded["function"] == "builtins.len"
    assert recorded["api_key"] == "***"
    assert recorded["n"] == {"env_vars": {"HOME": "…"}}
    deep: dict[str, Any] = {}
    for _ in range(500):
        deep = {"deeper": deep}
    assert len(json.dumps(recorded_config(deep))) < 500


def test_the_state_of_a_search_has_the_best_trial(
    tmp_path: Path, make_trial: Any, clock: Any
) -> None:
    recorded = Recorded(tmp_path / "run", clock, objective=("loss", "min"), expected=lambda: 5)
    trials = [
        make_trial(0, losses=[0.5]),
        make_trial(1, losses=[0.2, 0.3]),
        make_trial(2, status=Trial.RUNNING),
    ]
    recorded.record.update(trials)
    for trial in trials[:2]:
        recorded.record.result(trial, {"other": 1.0, **trial.last_result})
    recorded.record.result(trials[2], {"training_iteration": 1, "loss": float("nan")})
    recorded.record.flush()
    recorded.record.write_state()
    state = json.loads((recorded.path / "trials.json").read_text())
    assert state["trials"] == {"TERMINATED": 2, "RUNNING": 1}
    assert (state["expected"], state["results"]) == (5, 4)
    assert state["best"]["trial"] == trials[1].trial_id
    assert next(iter(state["best"]["metrics"].items())) == ("loss", 0.3)


def test_those_that_run_are_known_until_they_do_not(
    tmp_path: Path, make_trial: Any, clock: Any
) -> None:
    recorded, trial = Recorded(tmp_path / "run", clock), make_trial(0)
    change(recorded, trial, status=Trial.RUNNING, location="10.0.0.1:77")
    (runs,) = recorded.running.all()
    assert (runs.trial_id, runs.pid, runs.attempt, runs.is_local) == (trial.trial_id, 77, 1, True)
    change(recorded, trial, status=Trial.PAUSED, location="")
    assert recorded.running.all() == []
    change(recorded, trial, status=Trial.RUNNING, location="10.0.0.2:78")
    (runs,) = recorded.running.all()
    assert (runs.attempt, runs.is_local, runs.host) == (2, False, "10.0.0.2")


def test_the_process_of_a_trial_that_has_already_ended_is_recorded(
    tmp_path: Path, make_trial: Any, clock: Any
) -> None:
    recorded, trial = Recorded(tmp_path, clock), make_trial(0)
    recorded.record.ran_at(trial.trial_id, "10.0.0.9:77")
    (line,) = change(recorded, trial, status=Trial.TERMINATED, start_time=5.0)
    assert (line["hostname"], line["pid"], line["started"]) == ("10.0.0.9", 77, 5.0)
    assert recorded.running.all() == []
    (line,) = change(recorded, trial, status=Trial.RUNNING, location="10.0.0.9:78")
    assert line["pid"] == 78


def test_a_record_that_cannot_be_written_is_said_once_and_the_search_goes_on(
    tmp_path: Path, make_trial: Any, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class FullDisk(RunDirectory):
        def lines(self, name: str, records: Iterable[Mapping[str, Any]]) -> None:
            raise OSError("no space left")

    record = SearchRecord(
        FullDisk(LocalFiles(tmp_path)), clock, address="", running=RunningTrials()
    )
    with caplog.at_level(logging.WARNING, logger="syncline"):
        for index in range(3):
            record.update([make_trial(index)])
            record.flush()
    assert len([text for text in caplog.messages if "cannot be written" in text]) == 1
