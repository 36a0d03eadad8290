"""The older names are the newer ones."""

import pytest

from syncline import air, train
from syncline.air import config, session
from syncline.train import session as train_session
from syncline.train.checkpoint import Checkpoint
from syncline.tune import config as tune_config


def test_the_configuration_classes_serve_trainers_and_searches():
    assert air.ScalingConfig is config.ScalingConfig is train.ScalingConfig
    for name in ("CheckpointConfig", "FailureConfig", "RunConfig"):
        assert getattr(air, name) is getattr(config, name) is getattr(tune_config, name)
        assert issubclass(getattr(air, name), getattr(train, name))
    assert air.Checkpoint is Checkpoint
    assert air.session is session


def test_report_hands_its_arguments_on(monkeypatch):
    calls = []
    monkeypatch.setattr(
        train_session, "report", lambda *arguments, **named: calls.append((arguments, named))
    )
    checkpoint = Checkpoint("/c")
    session.report({"a": 1}, checkpoint=checkpoint)
    assert calls == [(({"a": 1},), {"checkpoint": checkpoint, "checkpoint_dir_name": None})]


def test_questions_are_answered_by_the_train_session(monkeypatch):
    class Context:
        def __getattr__(self, name):
            return lambda: name

    monkeypatch.setattr(train_session, "get_context", Context)
    for name in (
        "experiment_name",
        "world_size",
        "world_rank",
        "local_rank",
        "local_world_size",
        "node_rank",
    ):
        assert getattr(session, f"get_{name}")() == f"get_{name}"
    monkeypatch.setattr(train_session, "get_checkpoint", lambda: "checkpoint")
    monkeypatch.setattr(train_session, "get_dataset_shard", lambda name: f"shard {name}")
    assert session.get_checkpoint() == "checkpoint"
    assert session.get_dataset_shard("train") == "shard train"


@pytest.mark.parametrize(
    "name",
    ["get_checkpoint", "get_world_size", "get_world_rank", "get_local_rank", "get_dataset_shard"],
)
def test_outside_a_train_function_they_are_refused(name):
    with pytest.raises(RuntimeError, match="outside a training function"):
        getattr(session, name)()
    with pytest.raises(RuntimeError, match="outside a training function"):
        session.report({"a": 1})
