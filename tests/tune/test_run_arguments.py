"""`tune.run` and `run_experiments`: the older arguments, in this process."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline import runs, tune


@pytest.fixture(scope="module", autouse=True)
def inline_engine() -> Iterator[None]:
    syncline.init(local_mode=True, num_cpus=2)
    yield
    syncline.shutdown()


def steps(config: dict[str, Any]) -> None:
    for step in range(1, 5):
        tune.report(loss=config.get("x", 0) + 1 / step, step=step)


class Counter(tune.Trainable):
    """Trainable that counts, and fails if its configuration says so."""

    def setup(self, config: dict[str, Any]) -> None:
        self.count = 0
        self.started_at = 0

    def step(self) -> dict[str, Any]:
        self.count += 1
        fail = self.config.get("fail")
        if fail is not None and self.count == 3 and not os.path.exists(fail):
            Path(fail).touch()
            raise ValueError("as configured")
        return {"count": self.count, "zigzag": self.count % 3, "started_at": self.started_at}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "count").write_text(str(self.count))

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.count = self.started_at = int(Path(checkpoint, "count").read_text())


def run(trainable: Any, path: Path, **arguments: Any) -> tune.ExperimentAnalysis:
    return tune.run(trainable, **{"storage_path": str(path), "verbose": 0, **arguments})


def iterations(analysis: tune.ExperimentAnalysis) -> list[int]:
    return [trial.last_result["training_iteration"] for trial in analysis.trials]


def test_a_search_and_its_analysis(tmp_path: Path) -> None:
    analysis = run(
        steps,
        tmp_path,
        name="first",
        metric="loss",
        mode="min",
        config={"x": tune.grid_search([3, 1, 2])},
        num_samples=2,
        trial_name_creator=lambda trial: f"named-{trial.config['x']}",
        trial_dirname_creator=lambda trial: f"in/{trial.trial_id[-5:]}-{trial.config['x']}",
    )
    assert analysis.best_config == {"x": 1}
    assert [str(trial) for trial in analysis.trials] == [f"named-{x}" for x in [3, 1, 2] * 2]
    assert sorted(path.name for path in (tmp_path / "first").iterdir() if path.is_dir()) == [
        f"in_0000{n}-{x}" for n, x in enumerate([3, 1, 2] * 2)
    ]
    assert tune.ExperimentAnalysis(str(tmp_path / "first")).get_best_config("loss", "min") == {
        "x": 1
    }


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ({"training_iteration": 2}, 2),
        ({"step": 3}, 3),
        (lambda trial_id, result: result["step"] >= 1, 1),
        (tune.stopper.MaximumIterationStopper(2), 2),
        (None, 4),
    ],
)
def test_when_trials_stop(stop: Any, expected: int, tmp_path: Path) -> None:
    analysis = run(steps, tmp_path, stop=stop, num_samples=2)
    assert iterations(analysis) == [expected] * 2


def test_checkpoints_of_a_class_as_often_and_as_many_as_asked(tmp_path: Path) -> None:
    options: dict[str, Any] = {"stop": {"training_iteration": 7}, "checkpoint_freq": 2}
    (trial,) = run(Counter, tmp_path, name="freq", **options).trials
    assert sorted(path.name for path in Path(trial.path).glob("checkpoint_*")) == [
        f"checkpoint_{n:06d}" for n in range(3)
    ]
    analysis = run(
        Counter,
        tmp_path,
        name="keep",
        keep_checkpoints_num=1,
        checkpoint_score_attr="zigzag",
        checkpoint_at_end=True,
        **options,
    )
    (trial,) = analysis.trials
    kept = {
        Path(entry.checkpoint.path, "count").read_text() for entry in trial.checkpoints.registered
    }
    assert kept == {"2", "7"}, "the best (2 % 3 is more than 4 % 3 and 6 % 3) and the latest"
    (trial,) = run(
        Counter,
        tmp_path,
        name="low",
        keep_checkpoints_num=1,
        checkpoint_score_attr="min-zigzag",
        **options,
    ).trials
    assert {
        Path(entry.checkpoint.path, "count").read_text() for entry in trial.checkpoints.registered
    } == {"6"}


def test_a_search_that_begins_from_a_checkpoint(tmp_path: Path) -> None:
    first = run(Counter, tmp_path, stop={"training_iteration": 3}, checkpoint_at_end=True)
    second = run(
        Counter, tmp_path, stop={"count": 5}, restore=first.trials[0].checkpoint.path, num_samples=2
    )
    assert [trial.last_result["started_at"] for trial in second.trials] == [3, 3]


def test_a_failed_trial_is_an_error_unless_it_is_not_to_be(tmp_path: Path) -> None:
    def fails(config: dict[str, Any]) -> None:
        tune.report(loss=1)
        raise KeyError(f"of {config['x']}")

    with pytest.raises(
        tune.TuneError,
        match=r"(?s)2 trials have failed: fails_\w+_00000, fails_\w+_00001.*KeyError: 'of 1'",
    ):
        run(fails, tmp_path, config={"x": tune.grid_search([1, 2])}, name="failed")
    analysis = run(fails, tmp_path, config={"x": 1}, raise_on_failed_trial=False)
    (trial,) = analysis.trials
    assert trial.status == "ERROR"
    assert isinstance(trial.exception, KeyError)
    assert "KeyError: 'of 1'" in Path(trial.path, "error.txt").read_text()


@pytest.mark.parametrize(("failing", "state"), [({1, 2}, "errored"), ({1}, "finished")])
def test_a_search_whose_trials_all_failed_is_errored_with_the_first_error(
    tmp_path: Path, failing: set[int], state: str
) -> None:
    def objective(config: dict[str, Any]) -> None:
        tune.report(loss=1)
        if config["x"] in failing:
            raise KeyError(f"of {config['x']}")

    space = {"x": tune.grid_search([1, 2])}
    run(objective, tmp_path, config=space, name="a", raise_on_failed_trial=False)
    summary = runs.open(tmp_path / "a").summary
    assert summary.state == state
    assert summary.cause == ("KeyError: 'of 1'" if state == "errored" else "")


def test_the_first_failure_ends_the_search_if_that_is_wanted(tmp_path: Path) -> None:
    def fails(config: dict[str, Any]) -> None:
        if config["x"] == 2:
            raise ZeroDivisionError("at two")
        tune.report(loss=config["x"])

    options: dict[str, Any] = {
        "config": {"x": tune.grid_search([1, 2, 3])},
        "max_concurrent_trials": 1,
    }
    with pytest.raises(tune.TuneError, match="1 trial has failed"):
        run(fails, tmp_path, name="fast", fail_fast=True, **options)
    analysis = run(
        fails, tmp_path, name="quiet", fail_fast=True, raise_on_failed_trial=False, **options
    )
    assert [trial.status for trial in analysis.trials][:2] == ["TERMINATED", "ERROR"]
    assert not any(trial.last_result for trial in analysis.trials[2:])
    with pytest.raises(ZeroDivisionError, match="at two") as caught:
        run(fails, tmp_path, name="raised", fail_fast="raise", **options)
    assert "fails" in str(caught.value.__cause__), "the traceback in the trial is there"


def test_a_trial_that_fails_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    (trial,) = run(
        Counter,
        tmp_path,
        config={"fail": str(tmp_path / "failed")},
        max_failures=1,
        checkpoint_freq=2,
        stop={"training_iteration": 4},
    ).trials
    assert trial.status == "TERMINATED"
    assert trial.last_result["started_at"] == 2
    assert trial.last_result["count"] == trial.last_result["training_iteration"] == 4


def test_a_search_goes_on_under_its_name(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "name": "goes-on",
        "config": {"fail": str(tmp_path / "failed"), "x": tune.grid_search([1, 2])},
        "checkpoint_freq": 2,
        "stop": {"training_iteration": 4},
        "raise_on_failed_trial": False,
    }
    with pytest.raises(ValueError, match="holds no search"):
        run(Counter, tmp_path, resume=True, **options)
    with pytest.raises(ValueError, match="needs the `name`"):
        run(Counter, tmp_path, resume=True)
    with pytest.raises(ValueError, match="resume='AUTOMATIC'"):
        run(Counter, tmp_path, resume="AUTOMATIC", **options)
    first = run(Counter, tmp_path, resume="AUTO", **options)
    assert [trial.status for trial in first.trials] == ["ERROR", "TERMINATED"]
    again = run(Counter, tmp_path, resume="AUTO", **options)
    assert [trial.status for trial in again.trials] == ["ERROR", "TERMINATED"]
    assert [trial.trial_id for trial in again.trials] == [trial.trial_id for trial in first.trials]
    third = run(Counter, tmp_path, resume="AUTO+ERRORED", **options)
    assert [trial.status for trial in third.trials] == ["TERMINATED", "TERMINATED"]
    assert third.trials[0].last_result["started_at"] == 2
    rows = [
        row["training_iteration"]
        for row in third.trial_dataframes[third.trials[0].trial_id].to_dict("records")
    ]
    assert rows == [1, 2, 3, 4]


def test_failed_trials_that_begin_anew(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "name": "anew",
        "config": {"fail": str(tmp_path / "failed")},
        "checkpoint_freq": 2,
        "stop": {"count": 4},
    }
    run(Counter, tmp_path, raise_on_failed_trial=False, **options)
    (trial,) = run(Counter, tmp_path, resume="AUTO+RESTART_ERRORED", **options).trials
    assert (trial.status, trial.last_result["started_at"], trial.last_result["count"]) == (
        "TERMINATED",
        0,
        4,
    )


def test_older_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = os.getcwd()
    analysis = tune.run(
        steps,
        local_dir=str(tmp_path),
        name="older",
        verbose=0,
        queue_trials=True,
        sync_config=None,
        log_to_file=False,
    )
    assert analysis.experiment_path == str(tmp_path / "older")
    assert os.getcwd() == here
    with pytest.warns(UserWarning, match="export_formats"):
        run(steps, tmp_path, export_formats=["model"])
    monkeypatch.chdir(tmp_path)
    assert (
        Path(tune.run(steps, local_dir="relative", verbose=0).trials[0].path).parents[1]
        == tmp_path / "relative"
    )


def test_the_time_budget_ends_the_search(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for budget in (0.3, datetime.timedelta(seconds=0.3)):
        caplog.clear()
        analysis = run(Counter, tmp_path, time_budget_s=budget, num_samples=-1)
        assert {trial.status for trial in analysis.trials} == {"TERMINATED"}
        assert "its time budget is used up" in caplog.text


def test_isolation_is_that_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        run(steps, tmp_path, isolation="worker", reuse_actors=True)
    with pytest.raises(ValueError, match="isolation='none'"):
        tune.run_experiments({"one": {"run": steps}}, isolation="none")


def test_several_experiments(tmp_path: Path) -> None:
    common = {"storage_path": str(tmp_path), "stop": {"training_iteration": 2}}
    trials = tune.run_experiments(
        {
            "one": {"run": steps, "config": {"x": tune.grid_search([1, 2])}, **common},
            "two": {"run": steps, **common},
        },
        verbose=0,
    )
    assert [trial.last_result["training_iteration"] for trial in trials] == [2, 2, 2]
    assert (tmp_path / "two" / "search.json").exists()
    experiment = tune.Experiment("three", steps, config={"x": 1}, num_samples=2, **common)
    assert len(tune.run_experiments(experiment, verbose=0)) == 2
    assert len(tune.run(tune.Experiment("four", steps, **common), verbose=0).trials) == 1
    with pytest.raises(ValueError, match="has no trainable"):
        tune.run_experiments({"five": {"config": {}}})
