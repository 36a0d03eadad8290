"""Invalid arguments are refused early, with the values, the remedy and a short traceback."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline import tune
from syncline.tune.schedulers import ASHAScheduler, PopulationBasedTraining
from syncline.tune.search.optuna import OptunaSearch


@pytest.fixture(scope="module", autouse=True)
def inline_engine() -> Iterator[None]:
    syncline.init(local_mode=True, num_cpus=2)
    yield
    syncline.shutdown()


@pytest.fixture
def run_config(tmp_path: Path) -> tune.RunConfig:
    return tune.RunConfig(name="search", storage_path=str(tmp_path), verbose=0)


def report_loss(config: dict[str, Any]) -> None:
    for step in range(3):
        tune.report({"mean_loss": config.get("x", 0) + step})


def said(error: BaseException) -> str:
    """Return the message; fail if the traceback shows internals to the reader."""
    frames = [
        frame.filename
        for frame in traceback.extract_tb(error.__traceback__)
        if "/syncline/" in frame.filename
    ]
    assert len(frames) <= 3, frames
    return str(error)


def refused(action: Callable[[], Any], kind: type[BaseException], *parts: str) -> None:
    with pytest.raises(kind) as caught:
        action()
    message = said(caught.value)
    for part in parts:
        assert part in message


def test_a_metric_that_is_never_reported_is_named_with_its_neighbour(
    run_config: tune.RunConfig, tmp_path: Path
) -> None:
    config = tune.TuneConfig(metric="mean_los", mode="min")
    tuner = tune.Tuner(report_loss, tune_config=config, run_config=run_config)
    refused(tuner.fit, tune.TuneError, "'mean_los'", "Did you mean 'mean_loss'?", "'report_loss'")
    with_scheduler = tune.Tuner(
        report_loss,
        tune_config=tune.TuneConfig(scheduler=ASHAScheduler(metric="loss", mode="min")),
        run_config=run_config,
    )
    refused(with_scheduler.fit, tune.TuneError, "scheduler", "'loss'", "'mean_loss'")
    stopping = tune.Tuner(
        report_loss,
        run_config=tune.RunConfig(storage_path=str(tmp_path), stop={"mean_lss": 1}, verbose=0),
    )
    refused(stopping.fit, tune.TuneError, "'mean_lss'", "'mean_loss'")


def test_results_without_the_metric_pass_where_that_is_allowed(
    run_config: tune.RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
    config = tune.TuneConfig(metric="mean_los", mode="min")
    assert (
        tune.Tuner(report_loss, tune_config=config, run_config=run_config)
        .fit()[0]
        .metrics["mean_loss"]
        == 2
    )


def test_a_grid_for_a_searcher_that_cannot_search_it(run_config: tune.RunConfig) -> None:
    config = tune.TuneConfig(metric="mean_loss", mode="min", search_alg=OptunaSearch())
    tuner = tune.Tuner(
        report_loss,
        param_space={"x": tune.grid_search([1, 2])},
        tune_config=config,
        run_config=run_config,
    )
    refused(tuner.fit, ValueError, "grid_search", "OptunaSearch", "`x`")


def test_a_metric_in_two_places(run_config: tune.RunConfig) -> None:
    config = tune.TuneConfig(
        metric="mean_loss", mode="min", scheduler=ASHAScheduler(metric="mean_loss", mode="min")
    )
    refused(
        tune.Tuner(report_loss, tune_config=config, run_config=run_config).fit,
        ValueError,
        "AsyncHyperBandScheduler",
        "one place",
    )


def test_a_trainable_that_cannot_be_pickled(run_config: tune.RunConfig) -> None:
    lock = threading.Lock()

    def train(config: dict[str, Any]) -> None:
        with lock:
            tune.report({"loss": 1})

    refused(
        tune.Tuner(train, run_config=run_config).fit,
        TypeError,
        "train",
        "`lock`",
        "cannot be pickled",
    )


def test_a_space_that_cannot_be_kept(run_config: tune.RunConfig) -> None:
    refused(
        tune.Tuner(report_loss, param_space={"x": threading.Lock()}, run_config=run_config).fit,
        TypeError,
        "cannot be pickled",
    )


def test_a_domain_the_wrong_way_round() -> None:
    refused(lambda: tune.uniform(2, 1), ValueError, "2", "1")
    refused(lambda: tune.randint(5, 5), ValueError, "5")
    refused(lambda: tune.loguniform(0, 1), ValueError, "0")


def test_resources_that_can_never_be_had_fail_the_trials_at_once_with_the_numbers(
    run_config: tune.RunConfig, tmp_path: Path
) -> None:
    results = tune.Tuner(tune.with_resources(report_loss, {"cpu": 3}), run_config=run_config).fit()
    assert results.num_errors == 1
    for part in ("3 CPU", "the cluster has 2", "with_resources", "num_cpus"):
        assert part in str(results.errors[0])
    refused(
        lambda: tune.run(
            report_loss, resources_per_trial={"gpu": 1}, storage_path=str(tmp_path), verbose=0
        ),
        tune.TuneError,
        "1 GPU",
        "the cluster has 0",
        "resources_per_trial",
    )


def test_a_directory_without_a_search(tmp_path: Path) -> None:
    assert not tune.Tuner.can_restore(tmp_path)
    assert not tune.Tuner.can_restore(tmp_path / "nowhere")
    refused(
        lambda: tune.Tuner.restore(str(tmp_path), report_loss),
        ValueError,
        str(tmp_path),
        "no search to restore",
    )
    refused(lambda: tune.ExperimentAnalysis(str(tmp_path)), FileNotFoundError, str(tmp_path))


def test_another_trainable_or_space_than_the_search_has(
    run_config: tune.RunConfig, tmp_path: Path
) -> None:
    tune.Tuner(report_loss, param_space={"x": 1}, run_config=run_config).fit()
    path = str(tmp_path / "search")

    def other(config: dict[str, Any]) -> None:
        tune.report({"loss": 1})

    refused(lambda: tune.Tuner.restore(path, other), ValueError, "`report_loss`", "`other`")
    refused(
        lambda: tune.Tuner.restore(path, report_loss, param_space={"x": 1, "y": 2}),
        ValueError,
        "['y'] differ",
    )
    refused(
        lambda: tune.Tuner.restore(path, report_loss, resume_errored=True, restart_errored=True),
        ValueError,
        "exclude each other",
    )


def test_arguments_of_wrong_types(run_config: tune.RunConfig) -> None:
    refused(lambda: tune.Tuner(), TypeError, "needs a trainable")
    refused(lambda: tune.Tuner(3), TypeError, "3")
    refused(lambda: tune.Tuner("no such name"), tune.TuneError, "no such name")
    refused(lambda: tune.Tuner(int), TypeError, "Trainable")
    refused(lambda: tune.Tuner(lambda: None), ValueError, "configuration")
    refused(lambda: tune.Tuner(report_loss, param_space=[1]), ValueError, "`param_space`", "list")
    refused(
        lambda: tune.Tuner(report_loss, tune_config={"metric": "a"}),
        ValueError,
        "`tune_config`",
        "dict",
    )
    refused(
        lambda: tune.Tuner(report_loss, run_config={"name": "a"}),
        ValueError,
        "`run_config`",
        "dict",
    )
    refused(lambda: tune.run(report_loss, num_sample=3), TypeError, "num_sample")
    refused(lambda: tune.run(report_loss, num_samples=0), ValueError, "num_samples=0")
    scheduler = tune.TuneConfig(metric="mean_loss", mode="min", scheduler="no such")
    refused(
        tune.Tuner(report_loss, tune_config=scheduler, run_config=run_config).fit,
        ValueError,
        "no such",
    )
    searcher = tune.TuneConfig(metric="mean_loss", mode="min", search_alg="no such")
    refused(
        tune.Tuner(report_loss, tune_config=searcher, run_config=run_config).fit,
        ValueError,
        "no such",
    )
    searcher = tune.TuneConfig(metric="mean_loss", mode="min", search_alg=3)
    refused(
        tune.Tuner(report_loss, tune_config=searcher, run_config=run_config).fit, TypeError, "3"
    )
    scheduler = tune.TuneConfig(metric="mean_loss", mode="min", scheduler=3)
    refused(
        tune.Tuner(report_loss, tune_config=scheduler, run_config=run_config).fit, ValueError, "3"
    )


def test_checkpoints_asked_of_a_function_that_says_itself_when_it_saves(tmp_path: Path) -> None:
    config = tune.RunConfig(
        storage_path=str(tmp_path),
        verbose=0,
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=2),
    )
    refused(
        tune.Tuner(report_loss, run_config=config).fit,
        ValueError,
        "checkpoint_frequency=2",
        "report_loss",
    )


def test_results_before_there_are_any() -> None:
    refused(tune.Tuner(report_loss).get_results, RuntimeError, "fit()")


def test_a_scheduler_that_needs_a_metric_and_has_none(run_config: tune.RunConfig) -> None:
    scheduler = PopulationBasedTraining(perturbation_interval=1, hyperparam_mutations={"x": [1, 2]})
    refused(
        tune.Tuner(
            report_loss,
            param_space={"x": 1},
            tune_config=tune.TuneConfig(scheduler=scheduler),
            run_config=run_config,
        ).fit,
        (tune.TuneError, ValueError),
        "metric",
    )
