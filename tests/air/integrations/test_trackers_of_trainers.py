"""Trackers as callbacks of a trainer: one run of the tracker per training run, also over restarts;
and trainers as trials. The libraries are played; the engine is the inline one.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import syncline
from syncline import train, tune
from syncline.air.integrations.comet import CometLoggerCallback
from syncline.air.integrations.mlflow import MLflowLoggerCallback
from syncline.air.integrations.wandb import WandbLoggerCallback
from tests.fake_libraries import Recorder, install, raising


@pytest.fixture(autouse=True)
def inline_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in list(os.environ):
        if name.startswith(("WANDB_", "MLFLOW_", "COMET_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_API_KEY", "key")
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


def loop(config: dict[str, Any]) -> None:
    """Reports steps with checkpoints, up to `until` or to a failure before `fail_at`, from the
    latest checkpoint on.
    """
    checkpoint = train.get_checkpoint()
    begin = 0 if checkpoint is None else int(Path(checkpoint.path, "step").read_text()) + 1
    for step in range(begin, config["until"]):
        if step == config.get("fail_at"):
            raise ValueError("on purpose")
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "step").write_text(str(step))
            keeps = train.Checkpoint.from_directory(directory) if step % 2 == 0 else None
            train.report(
                {"loss": float(step), "note": "text", "eval": {"top1": 0.5}}, checkpoint=keeps
            )
    train.collective.barrier()


def trainer(
    storage: Path, *callbacks: Any, name: str = "my run", **config: Any
) -> train.DataParallelTrainer:
    run_config = train.RunConfig(
        name=name,
        storage_path=str(storage),
        callbacks=list(callbacks),
        on_conflict="takeover",  # a finished run is continued
    )
    return train.DataParallelTrainer(
        loop, train_loop_config={"until": 3, **config}, run_config=run_config
    )


def kept(storage: Path) -> list[str]:
    return sorted(path.name for path in storage.glob("my run/trackers/*"))


# -- Weights & Biases


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()

    def init(**named: Any) -> Recorder:
        recorder.calls.append(("init", (), named))
        return Recorder(recorder.calls, "init()", id=named["id"])

    install(
        monkeypatch,
        "wandb",
        init=init,
        Artifact=recorder.Artifact,
        api=SimpleNamespace(api_key=None),
    )
    return recorder


def test_wandb_gets_a_run_for_the_training_run(wandb: Recorder, tmp_path: Path) -> None:
    trainer(tmp_path, WandbLoggerCallback(project="p", entity="me"), lr=0.1).fit()
    ((_, named),) = wandb.of("init")
    expected = {
        "name": "my run",
        "project": "p",
        "group": None,
        "entity": "me",
        "resume": None,
        "config": {"until": 3, "lr": 0.1},
        "dir": str(tmp_path / "my run"),
    }
    assert {key: named[key] for key in expected} == expected
    assert wandb.of("init().log") == [
        (({"loss": float(step), "eval/top1": 0.5},), {"step": step}) for step in range(3)
    ]
    assert wandb.of("Artifact") == []
    assert wandb.of("init().finish") == [((), {"exit_code": 0})]


def test_wandb_gets_checkpoints_if_asked_to(wandb: Recorder, tmp_path: Path) -> None:
    trainer(tmp_path, WandbLoggerCallback(project="p", upload_checkpoints=True)).fit()
    run = tmp_path / "my run"
    assert wandb.of("Artifact") == [((), {"name": "checkpoint_my_run", "type": "model"})] * 2
    assert [arguments[0] for arguments, _ in wandb.of("Artifact().add_dir")] == [
        str(run / "checkpoint_000000"),
        str(run / "checkpoint_000002"),
    ]
    assert len(wandb.of("init().log_artifact")) == 2


def test_a_restarted_program_goes_on_in_the_run_and_sends_nothing_twice(
    wandb: Recorder, tmp_path: Path
) -> None:
    with pytest.raises(train.WorkerGroupError):
        trainer(tmp_path, WandbLoggerCallback(project="p"), until=9, fail_at=4).fit()
    assert wandb.of("init().finish") == [((), {"exit_code": 1})]
    assert kept(tmp_path) == ["weights-biases-p.json"]
    trainer(tmp_path, WandbLoggerCallback(project="p"), until=6).fit()
    first, second = (named for _, named in wandb.of("init"))
    assert second["id"] == first["id"]
    assert second["resume"] == "allow"
    assert [named["step"] for _, named in wandb.of("init().log")] == [0, 1, 2, 3, 4, 5]


def test_a_tracker_that_comes_later_gets_a_run_of_its_own_from_there(
    wandb: Recorder, tmp_path: Path
) -> None:
    with pytest.raises(train.WorkerGroupError):
        trainer(tmp_path, until=9, fail_at=4).fit()
    trainer(tmp_path, WandbLoggerCallback(project="p"), until=6).fit()
    trainer(tmp_path, WandbLoggerCallback(project="other"), until=7).fit()
    assert [named["resume"] for _, named in wandb.of("init")] == [None, None]
    assert [named["step"] for _, named in wandb.of("init().log")] == [3, 4, 5, 5, 6]
    assert kept(tmp_path) == ["weights-biases-other.json", "weights-biases-p.json"]


def test_a_damaged_note_of_the_run_begins_another(wandb: Recorder, tmp_path: Path) -> None:
    for content in ("{", "[]", '{"run": 5}'):
        for path in (tmp_path / "my run" / "trackers").glob("*"):
            path.write_text(content)
        trainer(tmp_path, WandbLoggerCallback(project="p")).fit()
    assert len({named["id"] for _, named in wandb.of("init")}) == 3


def test_attempts_of_one_program_are_one_run(wandb: Recorder, tmp_path: Path) -> None:
    class Healing(train.UserCallback):
        def after_exception(self, run_context: Any, worker_exceptions: Any) -> None:
            config["fail_at"] = None

    config: dict[str, Any] = {"until": 5, "fail_at": 4}
    run_config = train.RunConfig(
        name="my run",
        storage_path=str(tmp_path),
        callbacks=[WandbLoggerCallback(project="p"), Healing()],
        failure_config=train.FailureConfig(max_failures=1),
    )
    train.DataParallelTrainer(lambda: loop(config), run_config=run_config).fit()
    assert len(wandb.of("init")) == 1
    assert [named["step"] for _, named in wandb.of("init().log")] == [0, 1, 2, 3, 4]
    assert wandb.of("init().finish") == [((), {"exit_code": 0})]


def test_what_the_tracker_cannot_work_with_ends_the_run_before_it_begins(
    wandb: Recorder, tmp_path: Path
) -> None:
    with pytest.raises(train.ControllerError, match="WANDB_PROJECT_NAME"):
        trainer(tmp_path, WandbLoggerCallback()).fit()
    assert wandb.calls == []


def test_a_tracker_that_is_away_ends_no_run(
    wandb: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    install(
        monkeypatch,
        "wandb",
        init=raising(ConnectionError("no route to host")),
        api=SimpleNamespace(api_key=None),
    )
    assert trainer(tmp_path, WandbLoggerCallback(project="p")).fit().metrics["loss"] == 2.0
    assert [record.message.partition(";")[0] for record in caplog.records] == [
        "Logging to Weights & Biases failed"
    ]
    assert kept(tmp_path) == []


def test_an_interrupted_run_is_ended_as_such(
    wandb: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("syncline.train.controller.driver.TrainController._loop", interrupted)
    callback = WandbLoggerCallback(project="p")
    outcomes = []
    monkeypatch.setattr(
        callback, "_end_run", lambda run, tracked, outcome: outcomes.append(outcome)
    )
    with pytest.raises(KeyboardInterrupt):
        trainer(tmp_path, callback).fit()
    assert outcomes == ["interrupted"]


def test_a_tracker_can_be_sent_to_the_controller(wandb: Recorder, tmp_path: Path) -> None:
    callback = WandbLoggerCallback(project="p")
    trainer(tmp_path, callback).fit()
    trainer(tmp_path, pickle.loads(pickle.dumps(callback)), name="other").fit()
    assert [named["name"] for _, named in wandb.of("init")] == ["my run", "other"]


# -- MLflow


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    ids = iter(range(100))
    client = Recorder(
        recorder.calls,
        "client",
        get_experiment_by_name=lambda name: SimpleNamespace(experiment_id="7"),
    )

    def create_run(*arguments: Any, **named: Any) -> Any:
        recorder.calls.append(("create_run", arguments, named))
        return SimpleNamespace(info=SimpleNamespace(run_id=f"run{next(ids)}"))

    client.answers["create_run"] = create_run
    install(monkeypatch, "mlflow", MlflowClient=lambda **named: client)
    install(
        monkeypatch,
        "mlflow.entities",
        Param=lambda key, value: (key, value),
        Metric=lambda key, value, timestamp, step: (key, value, step),
    )
    return recorder


def test_mlflow_gets_a_run_and_a_restarted_program_goes_on_in_it(
    mlflow: Recorder, tmp_path: Path
) -> None:
    with pytest.raises(train.WorkerGroupError):
        trainer(
            tmp_path,
            MLflowLoggerCallback(experiment_name="e", tags={"by": "me"}),
            until=9,
            fail_at=2,
        ).fit()
    trainer(tmp_path, MLflowLoggerCallback(experiment_name="e", save_artifact=True), until=4).fit()
    assert mlflow.of("create_run") == [
        (("7",), {"run_name": "my run", "tags": {"by": "me", "run_name": "my run"}})
    ]
    batches = [named for _, named in mlflow.of("client.log_batch")]
    assert batches[0] == {"params": [("until", "9"), ("fail_at", "2")]}
    assert [batch["metrics"][0] for batch in batches[1:]] == [
        ("loss", float(step), step) for step in range(4)
    ]
    assert mlflow.of("client.update_run") == [(("run0",), {"status": "RUNNING"})]
    assert mlflow.of("client.set_terminated") == [
        (("run0",), {"status": "FAILED"}),
        (("run0",), {"status": "FINISHED"}),
    ]
    assert mlflow.of("client.log_artifacts") == [(("run0", str(tmp_path / "my run")), {})]


# -- Comet


@pytest.fixture
def comet(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()

    def experiment(name: str) -> Any:
        def make(**named: Any) -> Recorder:
            recorder.calls.append((name, (), named))
            return Recorder(recorder.calls, "experiment", get_key=lambda: "the key")

        return make

    names = ("Experiment", "OfflineExperiment", "ExistingExperiment", "ExistingOfflineExperiment")
    install(
        monkeypatch,
        "comet_ml",
        Artifact=recorder.Artifact,
        **{name: experiment(name) for name in names},
    )
    install(monkeypatch, "comet_ml.config", set_global_experiment=recorder.set_global_experiment)
    return recorder


@pytest.mark.parametrize(
    ("online", "first", "second"),
    [(True, "Experiment", "ExistingExperiment"), (False, "OfflineExperiment", None)],
)
def test_comet_gets_an_experiment_and_a_restarted_program_goes_on_in_it(
    comet: Recorder, tmp_path: Path, online: bool, first: str, second: str | None
) -> None:
    for until in (2, 4):
        callback = CometLoggerCallback(online=online, save_checkpoints=True, project_name="p")
        trainer(tmp_path, callback, until=until).fit()
    assert len(comet.of(first)) == 1
    ((_, named),) = comet.of(second or "ExistingOfflineExperiment")
    assert (named["previous_experiment"], named["project_name"]) == ("the key", "p")
    assert [named["step"] for _, named in comet.of("experiment.log_metrics")] == [0, 1, 2, 3]
    assert comet.of("experiment.set_name")[0] == (("my run",), {})
    assert len(comet.of("experiment.log_artifact")) == 2
    assert len(comet.of("experiment.end")) == 2


# -- trainers as trials


class Noting(tune.logger.LoggerCallback, train.UserCallback):
    """A callback of both kinds, that notes who calls it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def log_trial_start(self, trial: Any) -> None:
        calls.append((self.name, "trial starts"))

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        calls.append((self.name, "trial", result["loss"]))

    def on_report(self, run_context: Any, step: int, metrics: dict[str, Any]) -> None:
        calls.append((self.name, "run", metrics["loss"]))


class OfRuns(train.UserCallback):
    def on_report(self, run_context: Any, step: int, metrics: dict[str, Any]) -> None:
        calls.append(("of runs", "run", metrics["loss"]))


calls: list[Any] = []


@pytest.mark.parametrize(
    ("of_trainer", "of_search", "called"),
    [(["a"], [], "a"), ([], ["b"], "b"), (["a"], ["b"], "b"), (["same"], ["same"], "same")],
)
def test_a_trainer_as_a_trial_is_logged_once(
    tmp_path: Path, of_trainer: list[str], of_search: list[str], called: str
) -> None:
    calls.clear()
    made = {name: Noting(name) for name in (*of_trainer, *of_search)}
    search = tune.Tuner(
        trainer(tmp_path, OfRuns(), *(made[name] for name in of_trainer)),
        param_space={"train_loop_config": {"until": 2}},
        run_config=tune.RunConfig(
            name="search",
            storage_path=str(tmp_path),
            callbacks=[made[name] for name in of_search],
            verbose=0,
        ),
    )
    assert search.fit().num_errors == 0
    assert [call for call in calls if call[0] == called] == [
        (called, "trial starts"),
        (called, "trial", 0.0),
        (called, "trial", 1.0),
    ]
    assert [call for call in calls if call[0] not in (called, "of runs")] == []
    assert [call for call in calls if call[0] == "of runs"] == [
        ("of runs", "run", 0.0),
        ("of runs", "run", 1.0),
    ]
