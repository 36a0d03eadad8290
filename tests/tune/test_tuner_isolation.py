"""`TuneConfig(isolation="worker")`: many trials in one process, each as if it were alone."""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline import tune
from syncline.testing.waiting import eventually
from syncline.train import DataParallelTrainer, ScalingConfig
from syncline.tune.schedulers import ASHAScheduler

pytestmark = pytest.mark.processes

CPUS = 2
SEEN: list[int] = []
"""State of the program that a trial changes."""


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    syncline.init(num_cpus=CPUS)
    yield
    syncline.shutdown()


@pytest.fixture(autouse=True)
def everything_is_free_again() -> Iterator[None]:
    yield
    eventually(
        lambda: syncline.available_resources().get("CPU") == CPUS,
        what="the resources of all trials",
    )


def fit(
    trainable: Any, path: Path, samples: int, *, run: dict[str, Any] | None = None, **options: Any
) -> tune.ResultGrid:
    return tune.Tuner(
        trainable,
        param_space={"number": tune.grid_search(list(range(samples)))},
        tune_config=tune.TuneConfig(
            **{"metric": "x", "mode": "max", "isolation": "worker", **options}
        ),
        run_config=tune.RunConfig(storage_path=str(path), name="search", verbose=0, **(run or {})),
    ).fit()


def pids(results: tune.ResultGrid) -> Counter[int]:
    return Counter(result.metrics["pid"] for result in results)


def test_short_trials_share_processes_and_lose_nothing(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        for step in range(3):
            tune.report({"x": config["number"] * 10 + step})

    results = fit(train, tmp_path, 120)
    assert not results.errors
    assert [result.metrics["x"] for result in results] == [n * 10 + 2 for n in range(120)]
    assert all(result.metrics["training_iteration"] == 3 for result in results)
    assert all(len(result.metrics_dataframe) == 3 for result in results)
    assert len(pids(results)) < 30
    before = [result.metrics_dataframe for result in results]
    results.write_files()
    for result, table in zip(results, before, strict=True):
        names = {name.split(".")[0] for name in os.listdir(result.path)}
        assert names >= {"params", "result", "progress", "events"}
        lines = Path(result.path, "result.json").read_text().splitlines()
        assert [json.loads(line)["x"] for line in lines] == list(table["x"])


def test_short_trials_write_their_files_at_once_for_callbacks_of_the_program(
    tmp_path: Path,
) -> None:
    seen: list[list[str]] = []

    class Watch(tune.Callback):
        def on_trial_complete(
            self, iteration: int, trials: list[Any], trial: Any, **info: object
        ) -> None:
            seen.append(os.listdir(trial.local_path))

    fit(lambda config: {"x": config["number"]}, tmp_path, 20, run={"callbacks": [Watch()]})
    assert len(seen) == 20
    assert all("params.json" in names for names in seen)


def test_a_short_trial_gets_its_directory_when_it_asks_for_it(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        directory = tune.get_context().get_trial_dir()
        assert directory is not None
        Path(directory, "own.txt").write_text(str(config["number"]))
        tune.report({"x": config["number"]})

    results = fit(train, tmp_path, 20)
    assert not results.errors
    assert [Path(result.path, "own.txt").read_text() for result in results] == [
        str(number) for number in range(20)
    ]


def test_lines_of_short_trials_begin_with_the_names_of_their_trials(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def train(config: dict[str, Any]) -> None:
        if config["number"] % 5 == 4:
            print(f"line of {tune.get_context().get_trial_name()}")
        tune.report({"x": config["number"]})

    results = fit(train, tmp_path, 40)
    assert not results.errors
    lines = [line for line in capfd.readouterr().out.splitlines() if "line of " in line]
    assert len(lines) == 8
    for line in lines:
        name = line.rpartition("line of ")[2]
        assert line == f"[{name}] line of {name}"


def test_a_trial_sees_nothing_of_the_trials_before(tmp_path: Path) -> None:
    here = os.getcwd()

    class Kind:
        count = 0

    def train(config: dict[str, Any]) -> None:
        values = {
            "x": config["number"],
            "globals": len(SEEN),
            "class": Kind.count,
            "variable": os.environ.get("LEFT_BEHIND", ""),
            "moved": os.getcwd() != here,
        }
        SEEN.append(config["number"])
        Kind.count += 1
        os.environ["LEFT_BEHIND"] = "yes"
        os.chdir("/")
        random.seed(0)
        tune.report(values)

    # Functions of a module would be pickled by name.
    train.__module__ = Kind.__module__ = "__main__"
    results = fit(train, tmp_path, 40)
    assert not results.errors
    for result in results:
        assert (result.metrics["class"], result.metrics["variable"]) == (0, "")
        assert not result.metrics["moved"]
        assert result.metrics["globals"] == 0
    assert max(pids(results).values()) > 1


def test_trials_have_different_random_numbers(tmp_path: Path) -> None:
    results = fit(lambda config: {"x": random.random()}, tmp_path, 30)
    assert len({result.metrics["x"] for result in results}) == 30
    assert max(pids(results).values()) > 1


def test_a_trial_that_leaves_a_thread_is_the_last_one_of_its_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def train(config: dict[str, Any]) -> None:
        values = {"x": sum(thread.name == "left over" for thread in threading.enumerate())}
        threading.Thread(target=time.sleep, args=(600,), name="left over", daemon=True).start()
        tune.report(values)

    results = fit(train, tmp_path, 6)
    assert [result.metrics["x"] for result in results] == [0] * 6
    assert max(pids(results).values()) == 1
    assert "its thread 'left over' still runs" in caplog.text


def test_an_imported_module_of_the_program_costs_one_process(tmp_path: Path) -> None:
    (tmp_path / "imported_by_trial.py").write_text("count = 0\n")
    directory = str(tmp_path)

    def train(config: dict[str, Any]) -> None:
        sys.path.insert(0, directory)
        module: Any = importlib.import_module("imported_by_trial")
        before = module.count
        if config["number"] == 20:
            module.count += 1
        tune.report({"x": before})

    results = fit(train, tmp_path, 40)
    assert not results.errors
    assert [result.metrics["x"] for result in results] == [0] * 40


def test_a_failed_and_a_killed_trial_fail_alone(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        if config["number"] == 11:
            raise ValueError("number eleven")
        if config["number"] == 23:
            os.kill(os.getpid(), signal.SIGKILL)
        tune.report({"x": config["number"]})

    results = fit(train, tmp_path, 40)
    assert [index for index, result in enumerate(results) if result.error] == [11, 23]
    assert "number eleven" in str(results[11].error)
    assert [r.metrics["x"] for i, r in enumerate(results) if i not in (11, 23)] == [
        number for number in range(40) if number not in (11, 23)
    ]


def test_long_trials_run_on_all_cpus_at_the_same_time(tmp_path: Path) -> None:
    """A long trial leaves its batch, and those behind it go to another process."""
    meeting = tmp_path / "meeting"
    meeting.mkdir()

    def train(config: dict[str, Any]) -> None:
        number = config["number"]
        if number >= 30:
            (meeting / str(number)).touch()
            partner = meeting / str(number ^ 1)
            deadline = time.monotonic() + 60
            while not partner.exists():
                assert time.monotonic() < deadline, "the partner did not start"
                time.sleep(0.01)
        for step in range(2):
            tune.report({"x": number + step})

    results = fit(train, tmp_path, 32)  # the last two meet: no third one takes a CPU
    assert not results.errors
    assert [result.metrics["x"] for result in results] == [number + 1 for number in range(32)]


def test_schedulers_and_class_trainables_share_processes_too(tmp_path: Path) -> None:
    class Steps(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            self.x = config["number"]

        def step(self) -> dict[str, Any]:
            self.x += 1
            return {"x": self.x}

        def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
            return {"x": self.x}

        def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            self.x = checkpoint["x"]

    scheduler = ASHAScheduler(max_t=4, grace_period=1, reduction_factor=2)
    results = fit(Steps, tmp_path, 8, scheduler=scheduler)
    assert not results.errors
    for number, result in enumerate(results):
        assert result.metrics["x"] == number + result.metrics["training_iteration"]
    assert max(pids(results).values()) > 1


def test_a_trainer_inside_a_trial_reserves_its_workers(tmp_path: Path) -> None:
    def worker() -> None:
        syncline.train.report({"x": 1})

    def train(config: dict[str, Any]) -> None:
        result = DataParallelTrainer(
            worker,
            scaling_config=ScalingConfig(num_workers=2),
            run_config=syncline.train.RunConfig(
                name="run", storage_path=tune.get_context().get_trial_dir()
            ),
        ).fit()
        tune.report({"x": result.metrics["x"]})

    results = fit(train, tmp_path, 3)
    assert [result.metrics["x"] for result in results] == [1, 1, 1], results.errors


def test_a_search_with_batches_is_restored(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"x": config["number"]})

    fit(train, tmp_path, 50)
    restored = tune.Tuner.restore(str(tmp_path / "search"), train).fit()
    assert [result.metrics["x"] for result in restored] == list(range(50))
    more = tune.Tuner.restore(str(tmp_path / "search"), train, further_samples=1).fit()
    assert len(more) == 100
    assert not more.errors


def test_trials_of_tune_run_share_processes_and_have_directories_of_their_own(
    tmp_path: Path,
) -> None:
    def train(config: dict[str, Any]) -> dict[str, Any]:
        Path("own.txt").write_text(str(config["number"]))
        return {"x": config["number"], "directory": os.getcwd()}

    analysis = tune.run(
        train,
        config={"number": tune.grid_search(list(range(20)))},
        isolation="worker",
        storage_path=str(tmp_path),
        verbose=0,
    )
    assert len({trial.last_result["pid"] for trial in analysis.trials}) < 20
    for trial in analysis.trials:
        assert trial.last_result["directory"] == trial.local_path
        assert Path(trial.path, "own.txt").read_text() == str(trial.config["number"])
