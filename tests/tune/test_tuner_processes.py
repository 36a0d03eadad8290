"""Trials in processes: death, stop, reuse, and released resources."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline import train, tune
from syncline.testing.programs import is_alive
from syncline.testing.waiting import eventually
from syncline.tune.integration.ray_train import TuneReportCallback
from syncline.tune.schedulers import ASHAScheduler, FIFOScheduler
from syncline.util import placement_group_table

pytestmark = pytest.mark.processes

CPUS = 2


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    syncline.init(num_cpus=CPUS)
    yield
    syncline.shutdown()


@pytest.fixture(autouse=True)
def everything_is_free_again() -> Iterator[None]:
    here = os.getcwd()
    yield
    eventually(
        lambda: syncline.available_resources().get("CPU") == CPUS,
        what="the resources of all trials",
    )
    held = [group for group in placement_group_table().values() if group["state"] != "REMOVED"]
    assert not held
    assert os.getcwd() == here


def fit(
    trainable: Any,
    path: Path,
    *,
    space: Any = None,
    stop: Any = None,
    max_failures: int = 0,
    **options: Any,
) -> tune.ResultGrid:
    run_config = tune.RunConfig(
        storage_path=str(path),
        verbose=0,
        stop=stop,
        failure_config=tune.FailureConfig(max_failures=max_failures),
    )
    return tune.Tuner(
        trainable,
        param_space=space or {},
        tune_config=tune.TuneConfig(**options),
        run_config=run_config,
    ).fit()


def die_once(marker: Path) -> None:
    """Return True in the first process that calls it."""
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)


class Dies(tune.Trainable):
    """Trainable whose process is killed during its second save."""

    def setup(self, config: dict[str, Any]) -> None:
        self.count = self.began_at = 0

    def step(self) -> dict[str, Any]:
        self.count += 1
        return {"count": self.count, "began_at": self.began_at, "pid": os.getpid()}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "count").write_text(str(self.count))
        if self.count == 4:
            die_once(Path(self.config["folder"], f"{self.config['kind']}-{self.trial_id}"))

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.count = self.began_at = int(Path(checkpoint, "count").read_text())


@pytest.mark.promise
def test_a_killed_process_fails_its_trial_or_the_trial_goes_on_from_its_checkpoint(
    tmp_path: Path,
) -> None:
    def run(kind: str, max_failures: int) -> list[Any]:
        return tune.run(
            Dies,
            config={"folder": str(tmp_path), "kind": kind},
            num_samples=3,
            checkpoint_freq=2,
            stop={"training_iteration": 5},
            max_failures=max_failures,
            raise_on_failed_trial=False,
            storage_path=str(tmp_path / kind),
            verbose=0,
        ).trials

    for trial in run("fails", 0):
        assert trial.status == "ERROR"
        assert str(trial.exception).startswith("The process of the trial was killed")
        assert "SIGKILL" in str(trial.exception)
        assert "max_restarts" not in str(trial.exception)
        assert "SIGKILL" in Path(trial.path, "error.txt").read_text()
        assert trial.last_result["count"] == 4
        assert [
            path.name
            for path in Path(trial.path).iterdir()
            if "checkpoint" in path.name or path.name.startswith(".")
        ] == ["checkpoint_000000"]
    for trial in run("goes-on", 1):
        assert (trial.status, trial.last_result["began_at"], trial.last_result["count"]) == (
            "TERMINATED",
            2,
            5,
        )
        assert not [path.name for path in Path(trial.path).iterdir() if path.name.startswith(".")]


def inner_loop(config: dict[str, Any]) -> None:
    """Training function that reports its rank; rank 1 may be killed."""
    rank = train.get_context().get_world_rank()
    Path(config["folder"], f"worker-{os.getpid()}").touch()
    for step in range(1, 7):
        if step == 3 and rank == 1 and config.get("kills"):
            die_once(Path(config["folder"], f"killed-{config['x']}"))
        train.report({"score": step * config["x"], "workers": train.get_context().get_world_size()})


def trainer(folder: Path, *, failures: int = 0, **config: Any) -> train.DataParallelTrainer:
    return train.DataParallelTrainer(
        inner_loop,
        train_loop_config={"folder": str(folder), **config},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(failure_config=train.FailureConfig(max_failures=failures)),
    )


def fit_in_a_function(config: dict[str, Any]) -> None:
    train.DataParallelTrainer(
        inner_loop,
        train_loop_config=config,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name="run",
            storage_path=tune.get_context().get_trial_dir(),
            callbacks=[TuneReportCallback()],
        ),
    ).fit()


def test_eight_trials_that_are_trainers_share_two_cpus_without_being_told_how(
    tmp_path: Path,
) -> None:
    xs = tune.grid_search([8, 1, 7, 2, 6, 3, 5, 4])
    for trainable, space in (
        (trainer(tmp_path), {"train_loop_config": {"x": xs}}),
        (fit_in_a_function, {"x": xs, "folder": str(tmp_path)}),
    ):
        scheduler = ASHAScheduler(max_t=6, grace_period=2, reduction_factor=2)
        results = fit(
            trainable,
            tmp_path / "results",
            space=space,
            metric="score",
            mode="max",
            scheduler=scheduler,
        )
        assert not results.errors
        assert [result.metrics["workers"] for result in results] == [2] * 8
        iterations = Counter(result.metrics["training_iteration"] for result in results)
        assert iterations[6] >= 1
        assert iterations[2] >= 2, "some were stopped early"
        best = results.get_best_result().config
        assert best.get("train_loop_config", best)["x"] == 8
        eventually(
            lambda: (
                not [path for path in tmp_path.glob("worker-*") if is_alive(int(path.name[7:]))]
            ),
            what="the end of all workers",
        )


def test_a_trainer_in_a_trial_loses_a_worker(tmp_path: Path) -> None:
    space = {"train_loop_config": {"x": tune.grid_search([1, 2])}}
    failed = fit(trainer(tmp_path, kills=True), tmp_path / "failed", space=space)
    assert failed.num_errors == 2
    for error in failed.errors:
        assert "SIGKILL" in str(error)
        assert "rank 1" in str(error).lower()
    for marker in tmp_path.glob("killed-*"):
        marker.unlink()
    goes_on = fit(trainer(tmp_path, kills=True, failures=1), tmp_path / "goes-on", space=space)
    assert not goes_on.errors
    assert [result.metrics["score"] for result in goes_on] == [6, 12]


class Serves(tune.Trainable):
    """Trainable with a slow cleanup."""

    def setup(self, config: dict[str, Any]) -> None:
        self.count = 0

    def step(self) -> dict[str, Any]:
        self.count += 1
        return {"count": self.count, "pid": os.getpid()}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"count": self.count}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.count = checkpoint["count"]

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.count = 0
        return True

    def cleanup(self) -> None:
        time.sleep(self.config.get("cleans_up_for", 0))


def test_one_process_serves_several_trials_where_that_is_wanted(tmp_path: Path) -> None:
    def processes(trainable: Any, reuse: bool, **stop: int) -> list[int]:
        results = fit(
            trainable,
            tmp_path,
            space={"x": tune.grid_search(list(range(6)))},
            stop=stop,
            reuse_actors=reuse,
        )
        assert not results.errors
        assert [result.metrics["count"] for result in results] == [3] * 6
        return [result.metrics["pid"] for result in results]

    def counts(config: dict[str, Any]) -> None:
        for count in range(1, 5):
            tune.report({"count": count, "pid": os.getpid()})

    assert len(set(processes(Serves, True, training_iteration=3))) <= CPUS
    assert len(set(processes(Serves, False, training_iteration=3))) == 6
    assert len(set(processes(counts, True, training_iteration=3))) <= CPUS
    pids = processes(counts, False, training_iteration=3)
    assert len(set(pids)) == 6
    eventually(
        lambda: not [pid for pid in pids if is_alive(pid)], what="the end of all trials' processes"
    )


class Alternating(FIFOScheduler):
    """Scheduler that pauses a trial after every result and immediately chooses it again."""

    def on_trial_result(self, controller: Any, trial: Any, result: dict[str, Any]) -> str:
        return self.PAUSE

    def choose_trial_to_run(self, controller: Any) -> Any:
        return next(iter(controller.paused_trials()), None) or next(
            iter(controller.pending_trials()), None
        )


@pytest.mark.parametrize("reuse", [False, True])
def test_a_paused_trial_goes_on_while_its_old_process_still_cleans_up(
    reuse: bool, tmp_path: Path
) -> None:
    space = {"x": tune.grid_search([1, 2, 3]), "cleans_up_for": 0.1}
    results = fit(
        Serves,
        tmp_path,
        space=space,
        stop={"training_iteration": 4},
        scheduler=Alternating(),
        reuse_actors=reuse,
    )
    assert not results.errors
    assert [result.metrics["count"] for result in results] == [4, 4, 4]


def test_no_more_trials_at_a_time_than_allowed(tmp_path: Path) -> None:
    def logs(config: dict[str, Any]) -> None:
        for word in ("begins", "ends"):
            with open(tmp_path / "log", "a") as file:
                file.write(f"{word} {config['x']}\n")
            time.sleep(0.02)

    assert not fit(
        logs, tmp_path / "one", space={"x": tune.grid_search([1, 2, 3, 4])}, max_concurrent_trials=1
    ).errors
    words = (tmp_path / "log").read_text().split()
    assert words[::2] == ["begins", "ends"] * 4
    assert words[1::4] == words[3::4] == ["1", "2", "3", "4"]


def test_working_directories_of_trials(tmp_path: Path) -> None:
    def where(config: dict[str, Any]) -> dict[str, Any]:
        Path("mine").touch() if config["writes"] else None
        return {"where": os.getcwd()}

    here = os.getcwd()
    assert fit(where, tmp_path, space={"writes": False})[0].metrics["where"] == here
    (trial,) = tune.run(
        where, config={"writes": True}, storage_path=str(tmp_path), verbose=0
    ).trials
    assert trial.last_result["where"] == trial.path
    assert Path(trial.path, "mine").exists()


def test_a_trial_that_is_stopped_while_it_saves_leaves_nothing_half(tmp_path: Path) -> None:
    """Train function: the first trial ends the search while the other one writes a checkpoint."""

    def saves(config: dict[str, Any]) -> None:
        if config["x"] == 1:
            eventually((tmp_path / "saving").exists, what="the other trial's checkpoint")
            tune.report({"over": 1})
            return
        for _ in range(2):
            with tempfile.TemporaryDirectory() as directory:
                for number in range(3000):
                    Path(directory, str(number)).touch()
                (tmp_path / "saving").touch()
                tune.report({"over": 0}, checkpoint=tune.Checkpoint(directory))

    class Over(tune.Stopper):
        over = False

        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            self.over = self.over or bool(result["over"])
            return False

        def stop_all(self) -> bool:
            return self.over

    results = fit(saves, tmp_path / "results", space={"x": tune.grid_search([1, 2])}, stop=Over())
    assert not results.errors
    known = [checkpoint for result in results for checkpoint, _ in result.best_checkpoints]
    found = list(Path(results.experiment_path).glob("*/checkpoint_*"))
    assert len(found) == len(known)
    assert not list(Path(results.experiment_path).rglob(".tmp-*"))


def test_actors_of_a_trainable_take_the_bundles_of_its_trial(tmp_path: Path) -> None:
    """There are no other CPUs: outside of the trial's group they would wait for ever."""

    @syncline.remote(num_cpus=1)
    class Helper:
        def number(self) -> int:
            return 7

    class Asks(tune.Trainable):
        @classmethod
        def default_resource_request(cls, config: Any) -> tune.PlacementGroupFactory:
            return tune.PlacementGroupFactory([{"CPU": 1}] * CPUS)

        def setup(self, config: dict[str, Any]) -> None:
            self.helper = Helper.remote()  # type: ignore[attr-defined]

        def step(self) -> dict[str, Any]:
            number = syncline.get(self.helper.number.remote(), timeout=30)
            return {"number": number, "done": True}

    def asks(config: dict[str, Any]) -> None:
        helper = Helper.remote  # type: ignore[attr-defined]
        tune.report({"number": syncline.get(helper().number.remote(), timeout=30)})

    bundles = tune.PlacementGroupFactory([{"CPU": 1}] * CPUS)
    for trainable in (Asks, tune.with_resources(asks, bundles)):
        results = fit(trainable, tmp_path, space={"trial": tune.grid_search([1, 2])})
        assert [result.metrics["number"] for result in results] == [7, 7]
