"""Local mode: a search in the process of the program, for debuggers."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline import train, tune
from syncline.testing.waiting import eventually
from syncline.train.session import current_session
from syncline.train.workers.reservation import is_hosted
from syncline.tune.integration.ray_train import TuneReportCallback
from syncline.tune.schedulers import ASHAScheduler, PopulationBasedTraining


@pytest.fixture(scope="module", autouse=True)
def inline_engine() -> Iterator[None]:
    syncline.init(local_mode=True, num_cpus=2)
    yield
    syncline.shutdown()


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Check that threads of trials end with the search and that the process state is restored."""
    threads, here, streams = set(threading.enumerate()), os.getcwd(), (sys.stdout, sys.stderr)
    yield
    eventually(lambda: set(threading.enumerate()) <= threads, what="the end of the trials' threads")
    assert (os.getcwd(), (sys.stdout, sys.stderr)) == (here, streams)
    assert not is_hosted()
    assert current_session() is None


def fit(trainable: Any, path: Path, *, stop: Any = None, **options: Any) -> tune.ResultGrid:
    space = options.pop("param_space", {"x": tune.grid_search([1, 2, 3])})
    run_config = tune.RunConfig(storage_path=str(path), verbose=0, stop=stop)
    return tune.Tuner(
        trainable, param_space=space, tune_config=tune.TuneConfig(**options), run_config=run_config
    ).fit()


class Watch(tune.Callback):
    """Callback that notes its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_step_begin(self, iteration: int, trials: Any, **info: object) -> None:
        self.calls.append(f"begin {iteration}")

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: Any, **info: object
    ) -> None:
        self.calls.append(f"result {iteration}")

    def on_step_end(self, iteration: int, trials: Any, **info: object) -> None:
        self.calls.append(f"end {iteration}")


def test_each_step_of_the_controller_begins_and_ends(tmp_path: Path) -> None:
    watch = Watch()
    run_config = tune.RunConfig(storage_path=str(tmp_path), verbose=0, callbacks=[watch])
    tune.Tuner(lambda config: {"loss": 1.0}, run_config=run_config).fit()
    first = watch.calls.index("result 1")
    assert watch.calls[first - 1 : first + 2] == ["begin 0", "result 1", "end 1"]
    assert [call.split()[0] for call in watch.calls if "result" not in call] == ["begin", "end"] * (
        (len(watch.calls) - 1) // 2
    )


class Adder(tune.Trainable):
    """Trainable that adds `x` in every step and records which object serves which trial."""

    cleaned = 0

    def setup(self, config: dict[str, Any]) -> None:
        self.total = 0
        self.trials = [self.trial_id]

    def step(self) -> dict[str, Any]:
        self.total += self.config["x"]
        return {"total": self.total, "pid": os.getpid(), "served": len(self.trials)}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"total": self.total}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.total = checkpoint["total"]

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.total = 0
        self.trials.append(self.trial_id)
        return bool(new_config.get("may_be_reset", True))

    def cleanup(self) -> None:
        Path(self.config["folder"], self.trial_id).touch()


def test_a_breakpoint_in_a_trial_stops_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops: list[int] = []
    monkeypatch.setattr(sys, "breakpointhook", lambda *args, **options: stops.append(os.getpid()))

    def train_function(config: dict[str, Any]) -> dict[str, Any]:
        breakpoint()
        return {"x": config["x"]}

    results = fit(train_function, tmp_path, metric="x", mode="max")
    assert stops == [os.getpid()] * 3
    assert results.get_best_result().config == {"x": 3}


def test_trials_that_are_stopped_or_fail_leave_no_threads(tmp_path: Path) -> None:
    def train_function(config: dict[str, Any]) -> None:
        for step in range(100):
            if config["x"] == 2 and step == 3:
                raise ValueError("two")
            tune.report({"score": config["x"] * step})

    results = fit(train_function, tmp_path, stop={"training_iteration": 5})
    assert [result.metrics["training_iteration"] for result in results] == [5, 3, 5]
    assert [str(error) for error in results.errors] == ["two"]


@pytest.mark.parametrize(
    ("reuse", "may", "served"),
    [(True, True, [1, 2, 3]), (False, True, [1, 1, 1]), (True, False, [1, 1, 1])],
)
def test_one_object_serves_several_trials_if_it_may(
    reuse: bool, may: bool, served: list[int], tmp_path: Path
) -> None:
    space = {"x": tune.grid_search([1, 2, 3]), "may_be_reset": may, "folder": str(tmp_path)}
    results = fit(
        Adder,
        tmp_path / "results",
        param_space=space,
        stop={"training_iteration": 3},
        reuse_actors=reuse,
    )
    assert not results.errors
    assert [result.metrics["total"] for result in results] == [3, 6, 9]
    assert [result.metrics["served"] for result in results] == served
    assert {result.metrics["trial_id"] for result in results} <= {
        path.name for path in tmp_path.iterdir()
    }, "each has cleaned up"


def test_weights_of_the_good_are_copied_to_the_bad(tmp_path: Path) -> None:
    space = {"x": tune.grid_search([1, 2, 3]), "folder": str(tmp_path)}
    for reuse in (False, True):
        results = fit(
            Adder,
            tmp_path / f"results-{reuse}",
            param_space=space,
            stop={"training_iteration": 8},
            metric="total",
            mode="max",
            scheduler=PopulationBasedTraining(
                time_attr="training_iteration",
                perturbation_interval=2,
                hyperparam_mutations={"x": [1, 2, 3]},
                quantile_fraction=0.34,
                synch=reuse,
            ),
            reuse_actors=reuse,
        )
        assert not results.errors
        assert min(result.metrics["total"] for result in results) > 8, (
            "the trial with x=1 got better weights"
        )


def test_a_trainer_in_a_trial_and_after_the_search(tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> None:
        for step in range(4):
            train.report({"score": step * config["x"]})

    def train_function(config: dict[str, Any]) -> None:
        train.DataParallelTrainer(
            loop,
            train_loop_config=config,
            run_config=train.RunConfig(
                name="run",
                storage_path=tune.get_context().get_trial_dir(),
                callbacks=[TuneReportCallback()],
            ),
        ).fit()

    options: dict[str, Any] = {
        "scheduler": ASHAScheduler(max_t=3, grace_period=1, reduction_factor=2),
        "metric": "score",
        "mode": "max",
    }
    results = fit(train_function, tmp_path, **options)
    assert not results.errors
    assert results.get_best_result().metrics["score"] == 6
    run_config = train.RunConfig(name="own", storage_path=str(tmp_path))
    assert train.DataParallelTrainer(
        loop, train_loop_config={"x": 2}, run_config=run_config
    ).fit().metrics == {"score": 6}
