"""Experiment trackers: what is sent to them, and that their failures stay their own. Their
libraries are played.
"""

import os
import pickle
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from syncline.train.checkpoint import Checkpoint
from syncline.tune.logger import tracker
from syncline.tune.logger.aim import AimLoggerCallback
from syncline.tune.logger.comet import CometLoggerCallback
from syncline.tune.logger.mlflow import MLflowLoggerCallback
from syncline.tune.logger.tracker import TrackerCallback
from syncline.tune.logger.wandb import WandbLoggerCallback
from tests.fake_libraries import Recorder, install, raising
from tests.tune.logger.logged_trials import Search, make_trial

CALLBACKS = {
    "wandb": WandbLoggerCallback,
    "mlflow": MLflowLoggerCallback,
    "comet_ml": CometLoggerCallback,
    "aim": AimLoggerCallback,
}


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("WANDB_", "MLFLOW_", "COMET_")):
            monkeypatch.delenv(name)


class Noting(TrackerCallback):
    """A tracker that notes what it is told."""

    def __init__(self):
        super().__init__("Noting")
        self.calls = []

    def _begin_run(self, trial, run):
        self.calls.append(("begin", trial.name, run))
        return f"run of {trial.id}"

    @property
    def logs_checkpoints(self):
        return True

    def _log_result(self, run, trial, result, step):
        self.calls.append(("log", run, result["loss"]))

    def _log_checkpoint(self, run, trial, directory):
        self.calls.append(("checkpoint", run, directory))

    def _end_run(self, run, trial, outcome):
        self.calls.append(("end", run, outcome))


def checkpointed(trial):
    """The trial has a checkpoint."""
    directory = os.path.join(trial.local_path, "checkpoint_000000")
    os.makedirs(os.path.join(directory, "sub"))
    for name in ("a", "sub/b"):
        with open(os.path.join(directory, name), "w") as file:
            file.write(name)
    trial.record_checkpoint(Checkpoint(directory), {"training_iteration": 1})
    return directory


# -- what all of them do


@pytest.mark.parametrize("library", CALLBACKS)
def test_a_missing_library_is_told_at_once_with_its_name(library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setattr("syncline.optional.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=f"pip install '{library}'"):
        CALLBACKS[library]()


def test_a_trial_is_told_from_its_start_to_its_end(tmp_path):
    trial, noting = make_trial(tmp_path), Noting()
    search, directory = Search(noting), checkpointed(trial)
    search.start(trial)
    search.report(trial, [1])
    search.save(trial)
    search.start(trial, iteration=1)
    search.report(trial, [2])
    search.fail(trial)
    search.end()
    run = f"run of {trial.trial_id}"
    assert noting.calls == [
        ("begin", trial.name, None),
        ("log", run, 1.0),
        ("checkpoint", run, directory),
        ("begin", trial.name, run),
        ("log", run, 2.0),
        ("end", run, "failed"),
    ]


def test_trials_that_are_interrupted_are_ended_as_such(tmp_path):
    noting = Noting()
    search = Search(noting)
    for number in range(2):
        search.start(make_trial(tmp_path, f"t{number}"))
    search.end()
    assert noting.calls[2:] == [
        ("end", "run of t0", "interrupted"),
        ("end", "run of t1", "interrupted"),
    ]


def test_a_tracker_that_hangs_delays_no_trial(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(tracker, "BACKLOG", 5)
    gate, trial, noting = threading.Event(), make_trial(tmp_path), Noting()
    search = Search(noting)
    noting._begin_run = lambda trial, run: gate.wait(60)
    search.start(trial)
    search.report(trial, range(1, 50))  # would not come back if the tracker were waited for
    assert "Noting is 5 results behind" in caplog.text
    gate.set()
    search.complete(trial)
    search.end()
    assert 4 <= sum(call[0] == "log" for call in noting.calls) <= 6
    assert noting.calls[-1][0] == "end"


def test_a_tracker_that_fails_is_told_once_and_ends_nothing(tmp_path, caplog):
    trials, noting = [make_trial(tmp_path, f"t{number}") for number in range(3)], Noting()
    search = Search(noting)
    noting._begin_run = raising(ConnectionError("no route to host"))
    for trial in trials:
        search.start(trial)
        search.report(trial, [1])
        search.complete(trial)
    search.end()
    assert [record.message.partition(";")[0] for record in caplog.records] == [
        "Logging to Noting failed"
    ]
    assert noting.calls == []


def test_a_tracker_can_be_pickled_during_a_search(tmp_path):
    noting = Noting()
    Search(noting).start(make_trial(tmp_path))
    assert noting._background.wait(30)
    assert pickle.loads(pickle.dumps(noting))._runs == {}


# -- Weights & Biases


@pytest.fixture
def wandb(monkeypatch):
    recorder = Recorder()
    media = {
        name: type(
            name,
            (),
            {"__module__": "wandb.data", "__init__": lambda self, *a, **k: self.__dict__.update(k)},
        )
        for name in ("Image", "Video")
    }
    install(
        monkeypatch,
        "wandb",
        init=recorder.init,
        Artifact=recorder.Artifact,
        api=SimpleNamespace(api_key=None),
        **media,
    )
    recorder.media = media
    return recorder


def wandb_search(**arguments):
    callback = WandbLoggerCallback(**{"project": "p", "api_key": "k", **arguments})
    search = Search(callback)
    search.callbacks.setup()
    return search


def test_wandb_gets_a_run_per_trial(wandb, tmp_path):
    search, trial = (
        wandb_search(excludes=["secret"], entity="me"),
        make_trial(tmp_path, lr=0.1, secret=1),
    )
    search.start(trial)
    search.report(
        trial, [1], secret=2, trial_id="x", done=False, note="text", eval={"top1": np.float32(0.5)}
    )
    search.complete(trial)
    search.end()
    ((_, named),) = wandb.of("init")
    expected = {
        "id": trial.trial_id,
        "name": trial.name,
        "project": "p",
        "group": "search",
        "config": {"lr": 0.1},
        "entity": "me",
    }
    assert {key: named[key] for key in expected} == expected
    assert named["reinit"] == "create_new"
    assert wandb.of("init().log") == [
        (({"loss": 1.0, "training_iteration": 1, "eval/top1": 0.5},), {"step": 1})
    ]
    assert wandb.of("init().config.update")[1][0] == ({"trial_id": "x"},)
    assert wandb.of("init().finish") == [((), {"exit_code": 0})]
    assert os.environ["WANDB_API_KEY"] == "k"


def test_wandb_takes_arrays_as_media(wandb, tmp_path):
    search, trial = (
        wandb_search(image_kwargs={"caption": "c"}, video_kwargs={"fps": 4}),
        make_trial(tmp_path),
    )
    search.start(trial)
    search.report(
        trial,
        [1],
        image=np.zeros((2, 2, 3)),
        images=np.zeros((2, 2, 2, 3)),
        video=np.zeros((1, 2, 3, 4, 4)),
        matrix=np.zeros((2, 2)),
    )
    search.end()
    (((logged,), _),) = wandb.of("init().log")
    assert set(logged) == {"loss", "training_iteration", "image", "images", "video"}
    assert isinstance(logged["image"], wandb.media["Image"])
    assert logged["image"].caption == "c"
    assert [type(one).__name__ for one in logged["images"]] == ["Image", "Image"]
    assert (type(logged["video"]).__name__, logged["video"].fps) == ("Video", 4)


@pytest.mark.parametrize(
    ("upload", "artifacts"),
    [({"upload_checkpoints": True}, 1), ({"save_checkpoints": True}, 1), ({}, 0)],
)
def test_wandb_gets_checkpoints_if_asked_to(wandb, tmp_path, upload, artifacts):
    search, trial = wandb_search(**upload), make_trial(tmp_path)
    directory = checkpointed(trial)
    search.start(trial)
    search.save(trial)
    search.end()
    assert wandb.of("Artifact().add_dir") == [((directory,), {})] * artifacts
    assert len(wandb.of("init().log_artifact")) == artifacts


def test_wandb_follows_a_configuration_that_changes_if_asked_to(wandb, tmp_path):
    search, trial = wandb_search(log_config=True), make_trial(tmp_path, lr=0.1)
    search.start(trial)
    search.report(trial, [1])
    search.end()
    assert wandb.of("init().config.update")[1][0] == ({"lr": 0.1},)


def test_wandb_finds_its_key_in_a_file_and_project_and_group_in_the_environment(
    wandb, tmp_path, monkeypatch
):
    (tmp_path / "key").write_text("from file\nmore")
    monkeypatch.setenv("WANDB_PROJECT_NAME", "of environment")
    monkeypatch.setenv("WANDB_GROUP_NAME", "grouped")
    search, trial = (
        wandb_search(project=None, api_key=None, api_key_file=str(tmp_path / "key")),
        make_trial(tmp_path),
    )
    assert os.environ["WANDB_API_KEY"] == "from file"
    search.start(trial)
    search.end()
    named = wandb.of("init")[0][1]
    assert (named["project"], named["group"]) == ("of environment", "grouped")


def test_wandb_without_key_or_project_refuses_to_start(wandb, monkeypatch):
    with pytest.raises(ValueError, match="wandb login"):
        wandb_search(api_key=None)
    with pytest.raises(ValueError, match="WANDB_PROJECT_NAME"):
        wandb_search(project=None)
    with pytest.raises(ValueError, match="give one of them"):
        wandb_search(api_key_file="f")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")
    wandb_search(api_key=None)


def test_wandb_asks_the_functions_that_the_environment_names(wandb, tmp_path, monkeypatch, caplog):
    runs = []
    install(
        monkeypatch,
        "hooks_of_a_site",
        key=lambda: "hooked",
        location=raising(OSError("x")),
        run=runs.append,
    )
    monkeypatch.setenv("WANDB_SETUP_API_KEY_HOOK", "hooks_of_a_site.key")
    monkeypatch.setenv("WANDB_POPULATE_RUN_LOCATION_HOOK", "hooks_of_a_site.location")
    monkeypatch.setenv("WANDB_PROCESS_RUN_INFO_HOOK", "hooks_of_a_site.run")
    search, trial = None, make_trial(tmp_path)
    with pytest.raises(ValueError, match="project"):
        wandb_search(api_key=None, project=None)
    assert os.environ["WANDB_API_KEY"] == "hooked"
    assert "hooks_of_a_site.location" in caplog.text
    search = wandb_search(api_key=None)
    search.start(trial)
    search.end()
    assert len(runs) == 1


# -- MLflow


@pytest.fixture
def mlflow(monkeypatch):
    recorder = Recorder()
    ids = iter(range(100))
    client = Recorder(
        recorder.calls,
        "client",
        get_experiment_by_name=lambda name: (
            SimpleNamespace(experiment_id="7") if name == "known" else None
        ),
        get_experiment=lambda identifier: SimpleNamespace(experiment_id=identifier),
        create_experiment=lambda name, artifact_location=None: f"new {name}",
    )

    def create_run(*arguments, **named):
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
    install(
        monkeypatch, "mlflow.exceptions", MlflowException=type("MlflowException", (Exception,), {})
    )
    return recorder


def mlflow_search(**arguments):
    callback = MLflowLoggerCallback(**{"experiment_name": "known", **arguments})
    search = Search(callback)
    search.callbacks.setup()
    return search


def test_mlflow_gets_a_run_per_trial(mlflow, tmp_path):
    search, trial = mlflow_search(tags={"by": "me"}), make_trial(tmp_path, lr=0.1, net={"width": 8})
    search.start(trial)
    search.report(trial, [1], note="text", **{"top 1 (%)": np.float32(0.5)})
    search.complete(trial)
    search.end()
    assert mlflow.of("create_run") == [
        (("7",), {"run_name": trial.name, "tags": {"by": "me", "trial_name": trial.name}})
    ]
    params, metrics = (named for _, named in mlflow.of("client.log_batch"))
    assert params == {"params": [("lr", "0.1"), ("net/width", "8")]}
    assert {("loss", 1.0, 1), ("top 1 ___", 0.5, 1)} <= set(metrics["metrics"])
    assert "note" not in {key for key, _, _ in metrics["metrics"]}
    assert mlflow.of("client.set_terminated") == [(("run0",), {"status": "FINISHED"})]


def test_mlflow_sends_many_parameters_in_portions(mlflow, tmp_path):
    search, trial = (
        mlflow_search(),
        make_trial(tmp_path, **{f"p{number}": number for number in range(250)}),
    )
    search.start(trial)
    search.end()
    assert [len(named["params"]) for _, named in mlflow.of("client.log_batch")] == [100, 100, 50]


def test_mlflow_logs_parameters_and_files_at_the_end_if_asked_to(mlflow, tmp_path):
    search, trial = (
        mlflow_search(log_params_on_trial_end=True, save_artifact=True),
        make_trial(tmp_path, lr=0.1),
    )
    search.start(trial)
    search.fail(trial)
    search.end()
    assert [path for path, *_ in mlflow.calls] == [
        "create_run",
        "client.log_artifacts",
        "client.log_batch",
        "client.set_terminated",
    ]
    assert mlflow.of("client.log_artifacts")[0][0] == ("run0", trial.local_path)
    assert mlflow.of("client.set_terminated")[0][1] == {"status": "FAILED"}


def test_a_restored_search_goes_on_in_the_runs_of_mlflow(mlflow, tmp_path):
    first, trial, done = (
        mlflow_search(),
        make_trial(tmp_path, "a", lr=0.1),
        make_trial(tmp_path, "b"),
    )
    first.start(trial)
    first.start(done)
    first.complete(done)
    first.end()
    state = first.callbacks.get_state()
    second = mlflow_search()
    second.callbacks.set_state(state)
    second.start(trial, iteration=3)
    second.report(trial, [4])
    second.complete(trial)
    second.end()
    assert len(mlflow.of("create_run")) == 2
    assert mlflow.of("client.set_terminated") == [
        (("run1",), {"status": "FINISHED"}),
        (("run0",), {"status": "KILLED"}),
        (("run0",), {"status": "FINISHED"}),
    ]
    assert second.callbacks.get_state() is None


def test_mlflow_makes_an_experiment_that_is_not_there_and_needs_a_name(
    mlflow, tmp_path, monkeypatch
):
    search = mlflow_search(experiment_name="other", tracking_token="t")
    search.start(make_trial(tmp_path))
    search.end()
    assert mlflow.of("create_run")[0][0] == ("new other",)
    assert os.environ["MLFLOW_TRACKING_TOKEN"] == "t"
    with pytest.raises(ValueError, match="give an `experiment_name`"):
        mlflow_search(experiment_name=None)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "known")
    assert mlflow_search(experiment_name=None).callbacks._callbacks[0]._experiment_id == "7"


# -- Comet


@pytest.fixture
def comet(monkeypatch):
    recorder = Recorder()
    names = ("Experiment", "OfflineExperiment", "Artifact")
    install(monkeypatch, "comet_ml", **{name: getattr(recorder, name) for name in names})
    install(monkeypatch, "comet_ml.config", set_global_experiment=recorder.set_global_experiment)
    return recorder


def test_comet_gets_an_experiment_per_trial(comet, tmp_path):
    search = Search(CometLoggerCallback(tags=["x"], workspace="w", log_env_cpu=True))
    trial = make_trial(tmp_path, lr=0.1, net={"width": 8})
    search.start(trial)
    search.report(trial, [1], trial_id="t", pid=5, done=False)
    search.complete(trial)
    search.end()
    ((_, named),) = comet.of("Experiment")
    assert (named["workspace"], named["log_env_cpu"], named["log_env_gpu"]) == ("w", True, False)
    assert comet.of("set_global_experiment") == [((None,), {})]
    assert comet.of("Experiment().set_name") == [((trial.name,), {})]
    assert comet.of("Experiment().log_parameters")[0] == (({"lr": 0.1, "net/width": 8},), {})
    assert comet.of("Experiment().log_metrics") == [
        (({"loss": 1.0, "training_iteration": 1},), {"step": 1})
    ]
    assert comet.of("Experiment().log_others") == [(({"trial_id": "t"},), {})]
    assert comet.of("Experiment().log_system_info") == [(("pid", 5), {})]
    assert len(comet.of("Experiment().end")) == 1


def test_comet_works_offline_and_gets_checkpoints_if_asked_to(comet, tmp_path):
    search, trial = (
        Search(CometLoggerCallback(online=False, save_checkpoints=True)),
        make_trial(tmp_path),
    )
    directory = checkpointed(trial)
    search.start(trial)
    search.save(trial)
    search.end()
    assert comet.of("Experiment") == []
    added = {named["logical_path"]: arguments[0] for arguments, named in comet.of("Artifact().add")}
    assert added == {name: os.path.join(directory, name) for name in ("a", "sub/b")}
    assert len(comet.of("OfflineExperiment().log_artifact")) == 1


# -- Aim


@pytest.fixture
def aim(monkeypatch):
    recorder = Recorder()
    install(monkeypatch, "aim", Run=recorder.Run)
    return recorder


def test_aim_gets_a_run_per_trial(aim, tmp_path):
    search, trial = (
        Search(AimLoggerCallback(log_system_params=False)),
        make_trial(tmp_path, lr=np.float64(0.1), net={"act": len}),
    )
    search.start(trial)
    search.report(
        trial,
        [1],
        eval={"top1": 0.5},
        bad=float("nan"),
        epoch=3,
        context={"subset": "train"},
        pid=5,
    )
    search.complete(trial)
    search.end()
    assert aim.of("Run") == [
        ((), {"repo": str(tmp_path / "search"), "experiment": "search", "log_system_params": False})
    ]
    assert aim.of("Run()[hparams]") == [(({"lr": 0.1, "net/act": str(len)},), {})]
    tracked = [named for _, named in aim.of("Run().track")]
    assert tracked == [
        {
            "value": value,
            "name": f"ray/tune/{name}",
            "epoch": 3,
            "step": 1,
            "context": {"subset": "train"},
        }
        for name, value in {"loss": 1.0, "eval/top1": 0.5}.items()
    ]
    assert len(aim.of("Run().close")) == 1


def test_aim_tracks_chosen_metrics_and_needs_one(aim, tmp_path):
    search, trial = (
        Search(AimLoggerCallback(repo="r", experiment_name="e", metrics=["loss"])),
        make_trial(tmp_path),
    )
    search.start(trial)
    search.report(trial, [1], other=2)
    search.end()
    assert [named["name"] for _, named in aim.of("Run().track")] == ["ray/tune/loss"]
    assert aim.of("Run")[0][1] == {"repo": "r", "experiment": "e"}
    with pytest.raises(ValueError, match="at least one metric"):
        AimLoggerCallback(metrics=[])
