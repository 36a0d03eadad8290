"""`ShortTrials` and `results.jsonl`: which trials they take, and reading their results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from syncline.train.config import CheckpointConfig
from syncline.tune.analysis import ExperimentAnalysis
from syncline.tune.analysis.trial_result import Result
from syncline.tune.controller.events import Hook, NotifyCallbacks
from syncline.tune.controller.short_trials import ShortTrials
from syncline.tune.experiment.trial import Trial
from syncline.tune.results_file import RESULTS_FILE, ResultsFile, read_results
from syncline.tune.trial_history import read_history
from syncline.tune.workers.messages import Stepped
from tests.tune.logger.logged_trials import make_trial


def search(directory: Path, *, resumed: bool = False) -> ShortTrials:
    (directory / "search").mkdir(exist_ok=True)
    return ShortTrials(ResultsFile(str(directory / "search"), resumed=resumed))


def result(iteration: int, **values: Any) -> dict[str, Any]:
    return {"loss": iteration / 8, "training_iteration": iteration, "timestamp": 7, **values}


def notify(short: ShortTrials, trial: Trial, hook: Hook, subject: Any = None) -> bool:
    return short.take(NotifyCallbacks(hook=hook, trial_id=trial.trial_id, subject=subject), trial)


def run(short: ShortTrials, trial: Trial, iterations: int, **values: Any) -> None:
    """A trial that ends in its batch."""
    rows = [result(number, **values) for number in range(1, iterations + 1)]
    short.expect(trial, Stepped(result=rows[-1], earlier=tuple(rows[:-1]), ended=True))
    assert notify(short, trial, "start")
    for row in rows:
        trial.record_result(row)
        assert notify(short, trial, "result", row)
    assert notify(short, trial, "complete")
    trial.status = Trial.TERMINATED


def history(trial: Trial) -> Any:
    return read_history(trial.storage.storage_filesystem, trial.path)


def test_results_are_read_from_the_file_and_the_trial_has_no_directory(tmp_path: Path) -> None:
    trial = make_trial(tmp_path, lr=0.5)
    run(search(tmp_path), trial, 3, config={"lr": 0.5})
    assert not Path(trial.path).exists()
    assert history(trial) == [result(number, config={"lr": 0.5}) for number in (1, 2, 3)]
    found = Result.from_path(trial.path)
    assert found.metrics == result(3, config={"lr": 0.5})
    assert (found.config, found.checkpoint) == ({"lr": 0.5}, None)


def test_the_last_line_of_a_trial_counts_and_a_torn_one_does_not(tmp_path: Path) -> None:
    trial = make_trial(tmp_path)
    run(search(tmp_path), trial, 2)
    again = make_trial(tmp_path)
    run(search(tmp_path, resumed=True), again, 1)
    assert history(trial) == [result(1)]
    with open(tmp_path / "search" / RESULTS_FILE, "a") as file:
        file.write('{"trial": "1a2b_00000", "direc')
    assert history(trial) == [result(1)]
    other = make_trial(tmp_path, "1a2b_00001")
    run(search(tmp_path, resumed=True), other, 1)
    assert history(other) == [result(1)]


def test_files_are_written_on_request_and_writing_again_changes_nothing(tmp_path: Path) -> None:
    trial = make_trial(tmp_path, lr=0.5)
    run(search(tmp_path), trial, 3)
    analysis = ExperimentAnalysis(str(tmp_path / "search"), trials=[trial])
    analysis.write_files()
    written = {path.name: path.read_bytes() for path in Path(trial.path).iterdir()}
    assert {name.split(".")[0] for name in written} == {"params", "result", "progress", "events"}
    assert [json.loads(line) for line in written["result.json"].splitlines()] == history(trial)
    assert len(written["progress.csv"].splitlines()) == 4
    assert json.loads(written["params.json"]) == {"lr": 0.5}
    analysis.write_files()
    assert {path.name: path.read_bytes() for path in Path(trial.path).iterdir()} == written


def test_a_trial_that_continues_gets_its_files_first(tmp_path: Path) -> None:
    trial = make_trial(tmp_path)
    run(search(tmp_path), trial, 2)
    assert not notify(search(tmp_path, resumed=True), trial, "start")
    assert read_results(trial.storage.storage_filesystem, trial.path) is None
    assert history(trial) == [result(1), result(2)]


def test_a_trial_that_restarts_from_scratch_leaves_the_file(tmp_path: Path) -> None:
    trial = make_trial(tmp_path)
    run(search(tmp_path), trial, 2)
    trial.reset(CheckpointConfig())
    assert not notify(search(tmp_path, resumed=True), trial, "start")
    assert history(trial) is None


def test_loggers_get_trials_of_their_own_process_and_results_that_json_would_change(
    tmp_path: Path,
) -> None:
    short = search(tmp_path)
    assert not notify(short, make_trial(tmp_path), "start")
    for values in ({"image": np.zeros((3, 4, 4))}, {"nested": {"value": np.float32(1)}}):
        trial = make_trial(tmp_path)
        short.expect(trial, Stepped(result=result(1, **values), ended=True))
        assert not notify(short, trial, "start")
    failed = make_trial(tmp_path)
    failed.num_failures = 1
    short.expect(failed, Stepped(result=result(1), ended=True))
    assert not notify(short, failed, "start")
    assert not (tmp_path / "search" / RESULTS_FILE).exists()
