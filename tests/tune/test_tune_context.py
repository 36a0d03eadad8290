"""`report` and related functions, inside and outside of a trial."""

from __future__ import annotations

from typing import Any

import pytest

from syncline import train
from syncline.train.torch import TorchTrainer
from syncline.tune import context, track
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.trainable import wrap_function
from syncline.tune.trainable.trainable_state import TrialInfo


def first_result(function: Any, facts: TrialInfo | None = None) -> dict[str, Any]:
    trainable = wrap_function(function)({}, info=facts)
    try:
        return trainable.train()
    finally:
        trainable.stop()


def test_a_trial_knows_its_facts() -> None:
    resources = PlacementGroupFactory([{"CPU": 2}])
    facts = TrialInfo(
        trial_id="a1",
        trial_name="f_a1",
        trial_dir="/trials/a1",
        experiment_name="search",
        resources=resources,
    )

    def function(config: dict[str, Any]) -> dict[str, Any]:
        here = context.get_context()
        return {
            "new": [
                here.get_trial_id(),
                here.get_trial_name(),
                here.get_trial_dir(),
                here.get_experiment_name(),
            ],
            "resources": here.get_trial_resources() == resources,
            "world": [here.get_world_size(), here.get_world_rank()],
            "node": [here.get_local_world_size(), here.get_local_rank(), here.get_node_rank()],
        }

    result = first_result(function, facts)
    assert result["new"] == ["a1", "f_a1", "/trials/a1", "search"]
    assert result["resources"]
    assert (result["world"], result["node"]) == ([1, 0], [1, 0, 0])


def test_track_logs_by_keyword() -> None:
    assert first_result(lambda config: track.log(mean_accuracy=0.5))["mean_accuracy"] == 0.5


def test_outside_a_trial_a_warning_and_nothing_else() -> None:
    calls = [
        lambda: context.report({"x": 1}),
        context.get_checkpoint,
        context.get_context().get_trial_id,
        context.get_context().get_experiment_name,
        lambda: track.log(x=1),
    ]
    for call in calls:
        with pytest.warns(UserWarning, match="outside a trial"):
            assert call() is None


def test_a_context_made_before_the_trial_is_good_in_it() -> None:
    here = context.get_context()
    assert (
        first_result(lambda config: {"id": here.get_trial_id()}, TrialInfo(trial_id="a1"))["id"]
        == "a1"
    )


def test_in_a_training_worker_the_report_is_the_workers() -> None:
    def loop() -> None:
        context.report({"size": context.get_context().get_world_size()})
        assert context.get_checkpoint() is None

    result = TorchTrainer(loop, scaling_config=train.ScalingConfig(num_workers=0)).fit()
    assert result.metrics == {"size": 1}
