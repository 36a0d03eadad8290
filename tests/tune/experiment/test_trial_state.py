"""Pickled and reset trials."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle

from syncline.core.error_frames import pack_error
from syncline.tune.config import CheckpointConfig
from syncline.tune.controller import events
from syncline.tune.experiment.trial import Trial
from tests.tune.controller.simulation import Simulation, failing


class TwoPartError(Exception):
    """Exception that can be pickled but not rebuilt."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")


def test_an_exception_that_pickle_cannot_make_again_stays_with_its_trial(
    make_trial: Callable[..., Trial],
) -> None:
    trial: Trial = make_trial(0, losses=[1.0])
    trial.set_error(pack_error(TwoPartError("disk", "full")), "")
    again: Any = pickle.loads(cloudpickle.dumps(trial))
    assert isinstance(again.exception, TwoPartError)
    assert str(again.exception) == "disk: full"
    assert again.metric_analysis == trial.metric_analysis


def test_a_trial_without_an_exception_has_none_afterwards(make_trial: Callable[..., Trial]) -> None:
    assert pickle.loads(cloudpickle.dumps(make_trial(0))).exception is None


class Unpickled(RuntimeError):
    """Exception that counts how often it is rebuilt."""

    count = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, ()


def _rebuild() -> Unpickled:
    Unpickled.count += 1
    return Unpickled("rebuilt")


def test_an_exception_stays_serialized_until_it_is_read() -> None:
    search = Simulation(samples=1)
    search.begin()
    search.go_on()
    search.waiting.clear()
    Unpickled.count = 0
    search.take(
        events.TrialFailed(
            trial_id="t_00000", attempt=1, error=pack_error(Unpickled("user")), text="user"
        )
    )
    machine = pickle.loads(pickle.dumps(search.machine))
    packing = Unpickled.count
    trial = machine.trials[0]
    assert trial.status == Trial.ERROR
    assert Unpickled.count == packing
    assert isinstance(trial.exception, Unpickled)
    assert Unpickled.count > packing


def test_a_reset_trial_keeps_its_identity_and_nothing_else() -> None:
    search = Simulation(samples=1, step=failing(4, 1))
    search.run()
    trial = search.machine.trials[0]
    trial.start_time = 5.0
    kept = (trial.trial_id, trial.config, trial.experiment_tag, trial.storage)
    deleted = trial.reset(CheckpointConfig())
    assert [checkpoint.path for checkpoint in deleted]
    assert (trial.trial_id, trial.config, trial.experiment_tag, trial.storage) == kept
    fresh = Trial(
        trial_id=trial.trial_id,
        index=trial.index,
        trainable_name=trial.trainable_name,
        config=trial.config,
        evaluated_params=trial.evaluated_params,
        experiment_tag=trial.experiment_tag,
        placement_group_factory=trial.placement_group_factory,
        storage=trial.storage,
        checkpoint_config=CheckpointConfig(),
    )
    assert trial.__dict__.keys() == fresh.__dict__.keys()
    different = {
        name
        for name, value in trial.__dict__.items()
        if name != "checkpoints" and value != fresh.__dict__[name]
    }
    assert different == set()
    assert trial.checkpoints.latest is None


def test_a_trial_pickled_between_any_two_results_has_the_same_statistics(
    make_trial: Callable[..., Trial],
) -> None:
    losses = [3.0, float("nan"), 1.0, *map(float, range(12))]
    whole: Trial = make_trial(0)
    pickled: Trial = make_trial(0)
    for loss in losses:
        for trial in (whole, pickled):
            trial.record_result({"loss": loss})
        pickled = pickle.loads(cloudpickle.dumps(pickled))
        assert repr(pickled.summary("loss")) == repr(whole.summary("loss"))  # NaN differs from NaN
    assert whole.summary("loss") == {
        "max": 11.0,
        "min": 0.0,
        "avg": 5.0,
        "last": 11.0,
        "last-5-avg": 9.0,
        "last-10-avg": 6.5,
    }
