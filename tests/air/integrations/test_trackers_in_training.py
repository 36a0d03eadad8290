"""`setup_wandb` and `setup_mlflow`: what they begin in a trial, in a trainer's workers, and outside
of both. The libraries are played.
"""

import os
import sys
from types import SimpleNamespace

import pytest

from syncline.air.integrations import comet, mlflow, wandb
from syncline.train import session as train_session
from syncline.train.storage.context import StorageContext
from syncline.tune.logger.comet import CometLoggerCallback
from syncline.tune.logger.mlflow import MLflowLoggerCallback
from syncline.tune.logger.wandb import WandbLoggerCallback
from syncline.tune.trainable.session import ReportQueue, TrialSession
from syncline.tune.trainable.trainable_state import TrialInfo
from tests.fake_libraries import install


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("WANDB_", "MLFLOW_")):
            monkeypatch.delenv(name)
    # What the functions set is taken back, too.
    for name in ("WANDB_API_KEY", "MLFLOW_TRACKING_TOKEN"):
        monkeypatch.setenv(name, "")


@pytest.fixture
def in_trial():
    train_session.set_session(
        TrialSession(
            TrialInfo(trial_id="1a", trial_name="train_1a", experiment_name="search"), ReportQueue()
        )
    )
    yield
    train_session.set_session(None)


@pytest.fixture
def as_rank(tmp_path):
    """Makes this process a worker of a trainer that keeps its run in `tmp_path/run`."""
    facts = {
        "experiment_name": "run",
        "storage": StorageContext(tmp_path, "run"),
        "local_mode": False,
    }
    yield lambda rank, **other: train_session.set_session(
        SimpleNamespace(world_rank=rank, **{**facts, **other})
    )
    train_session.set_session(None)


@pytest.fixture
def wandb_runs(monkeypatch):
    runs = []
    install(
        monkeypatch,
        "wandb",
        init=lambda **named: runs.append(named) or "the run",
        api=SimpleNamespace(api_key=None),
    )
    return runs


def test_the_callbacks_have_both_addresses():
    assert wandb.WandbLoggerCallback is WandbLoggerCallback
    assert mlflow.MLflowLoggerCallback is MLflowLoggerCallback
    assert comet.CometLoggerCallback is CometLoggerCallback


@pytest.mark.parametrize(
    ("setup", "library"), [(wandb.setup_wandb, "wandb"), (mlflow.setup_mlflow, "mlflow")]
)
def test_a_missing_library_is_named(setup, library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=f"pip install '{library}'"):
        setup()


@pytest.mark.usefixtures("in_trial")
def test_wandb_in_a_trial_gets_the_trials_names(wandb_runs):
    assert (
        wandb.setup_wandb({"lr": 0.1, "f": len}, api_key="k", project="p", entity="me") == "the run"
    )
    expected = {
        "id": "1a",
        "name": "train_1a",
        "group": "search",
        "project": "p",
        "config": {"lr": 0.1, "f": "builtins.len"},
        "entity": "me",
    }
    assert {key: wandb_runs[0][key] for key in expected} == expected
    assert os.environ["WANDB_API_KEY"] == "k"


@pytest.mark.usefixtures("in_trial")
def test_arguments_beat_the_trials_names(wandb_runs):
    wandb.setup_wandb(api_key="k", trial_id="mine", trial_name="named", group="g", resume="never")
    assert {key: wandb_runs[0][key] for key in ("id", "name", "group", "resume")} == {
        "id": "mine",
        "name": "named",
        "group": "g",
        "resume": "never",
    }


def test_wandb_outside_of_trials_takes_the_group_of_the_environment(wandb_runs, monkeypatch):
    monkeypatch.setenv("WANDB_GROUP_NAME", "grouped")
    wandb.setup_wandb(api_key="k")
    assert (wandb_runs[0]["id"], wandb_runs[0]["group"]) == (None, "grouped")


@pytest.mark.parametrize(
    ("rank", "rank_zero_only", "disabled"), [(0, True, False), (1, True, True), (1, False, False)]
)
def test_only_rank_0_logs_to_wandb_unless_all_are_to(
    wandb_runs, as_rank, rank, rank_zero_only, disabled
):
    as_rank(rank)
    wandb.setup_wandb(api_key="k", rank_zero_only=rank_zero_only)
    assert (wandb_runs == [{"mode": "disabled"}]) is disabled


def test_wandb_in_a_trainer_gets_the_runs_name_and_a_restart_goes_on_in_its_run(
    wandb_runs, as_rank
):
    for rank in (0, 0, 1):
        as_rank(rank)
        wandb.setup_wandb(api_key="k", rank_zero_only=False)
    first, again, other = (
        (named["id"], named["name"], named["group"], named["resume"]) for named in wandb_runs
    )
    assert first[1:] == ("run", "run", "allow")
    assert again == first
    assert other[1:3] == ("run-rank-1", "run")
    assert other[0] != first[0]


def test_wandb_where_nothing_is_kept_gets_a_new_run(wandb_runs, as_rank):
    as_rank(0, local_mode=True)
    wandb.setup_wandb(api_key="k")
    assert (wandb_runs[0]["id"], wandb_runs[0]["name"]) == (None, "run")


@pytest.fixture
def mlflow_calls(monkeypatch):
    calls = []

    def note(name, answer=None):
        return lambda *arguments, **named: calls.append((name, arguments, named)) or answer

    def missing(identifier):
        raise sys.modules["mlflow.exceptions"].MlflowException(identifier)

    client = SimpleNamespace(
        get_experiment=missing,
        get_experiment_by_name=lambda name: (
            SimpleNamespace(experiment_id="7") if name == "train_1a" else None
        ),
        create_experiment=note("create_experiment", "8"),
        log_batch=note("log_batch"),
    )
    install(
        monkeypatch,
        "mlflow",
        MlflowClient=lambda **named: client,
        set_tracking_uri=note("set_tracking_uri"),
        set_registry_uri=note("set_registry_uri"),
        active_run=lambda: None,
        start_run=note("start_run", SimpleNamespace(info=SimpleNamespace(run_id="r"))),
    )
    install(monkeypatch, "mlflow.entities", Param=lambda key, value: (key, value))
    install(
        monkeypatch, "mlflow.exceptions", MlflowException=type("MlflowException", (Exception,), {})
    )
    return calls


@pytest.mark.usefixtures("in_trial")
def test_mlflow_in_a_trial_takes_the_experiment_of_the_trials_name(mlflow_calls):
    assert (
        mlflow.setup_mlflow(
            {"net": {"width": 8}}, tracking_uri="uri", tags={"a": "b"}, tracking_token="t"
        )
        is sys.modules["mlflow"]
    )
    assert mlflow_calls == [
        ("set_tracking_uri", ("uri",), {}),
        ("start_run", (), {"run_name": "train_1a", "experiment_id": "7", "tags": {"a": "b"}}),
        ("log_batch", ("r",), {"params": [("net/width", "8")]}),
    ]
    assert os.environ["MLFLOW_TRACKING_TOKEN"] == "t"


def test_mlflow_makes_an_experiment_only_if_it_may(mlflow_calls, monkeypatch):
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "new")
    with pytest.raises(ValueError, match="create_experiment_if_not_exists=True"):
        mlflow.setup_mlflow()
    mlflow.setup_mlflow(create_experiment_if_not_exists=True, run_name="named")
    assert mlflow_calls == [
        ("create_experiment", ("new",), {"artifact_location": None}),
        ("start_run", (), {"run_name": "named", "experiment_id": "8", "tags": None}),
    ]


def test_mlflow_in_a_trainer_takes_the_experiment_of_the_runs_name(mlflow_calls, as_rank):
    as_rank(0)
    mlflow.setup_mlflow(create_experiment_if_not_exists=True)
    assert mlflow_calls[0] == ("create_experiment", ("run",), {"artifact_location": None})


def test_other_ranks_get_an_mlflow_that_does_nothing(mlflow_calls, as_rank):
    as_rank(1)
    nothing = mlflow.setup_mlflow({"lr": 0.1})
    with nothing.start_run() as run:
        nothing.log_metric("loss", 1.0)
        run.info.run_id.anything()
    assert mlflow_calls == []
