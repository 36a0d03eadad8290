"""Interplay of scheduler, searcher and callbacks."""

from typing import Any

import pytest

from syncline.tune.config import CheckpointConfig
from syncline.tune.controller import events
from syncline.tune.experiment.trial import Trial
from syncline.tune.schedulers import (
    FIFOScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    TrialScheduler,
)
from syncline.tune.schedulers.trial_scheduler import ControllerView
from syncline.tune.stopper import make_stopper
from tests.tune.controller.simulation import Simulation, rules


@pytest.mark.parametrize("kind", [HyperBandScheduler, HyperBandForBOHB])
def test_a_searcher_with_few_trials_at_a_time_goes_on_under_hyperband(
    kind: type[HyperBandScheduler],
) -> None:
    search = Simulation(
        scheduler=kind(max_t=9), samples=9, concurrency_of_searcher=2, stopper=make_stopper(None)
    )
    search.run(limit=1000)
    assert len(search.machine.trials) == 9
    assert {trial.status for trial in search.machine.trials} == {Trial.TERMINATED}


class EndsTheFirst(FIFOScheduler):
    """Scheduler that never starts the first trial."""

    def choose_trial_to_run(self, tune_controller: ControllerView) -> Trial | None:
        first, *others = tune_controller.get_trials()
        if first.status == Trial.PENDING:
            tune_controller.stop_trial(first)
        return super().choose_trial_to_run(tune_controller) if others else None


def test_a_trial_that_never_began_makes_room_for_the_next() -> None:
    search = Simulation(scheduler=EndsTheFirst(), samples=3)
    search.run(limit=1000)
    assert [trial.iteration for trial in search.machine.trials] == [0, 5, 5]


class StopsItself(FIFOScheduler):
    """Scheduler that stops a trial through the controller at its second result."""

    def on_trial_result(
        self, tune_controller: ControllerView, trial: Trial, result: dict[str, Any]
    ) -> str:
        if result["training_iteration"] == 2:
            tune_controller.stop_trial(trial)
        return self.CONTINUE


@pytest.mark.parametrize("scheduler", [FIFOScheduler(), StopsItself()])
def test_callbacks_hear_of_a_result_before_what_follows_from_it(scheduler: TrialScheduler) -> None:
    search = Simulation(
        samples=1,
        rules=rules(is_function=True),
        scheduler=scheduler,
        stopper=make_stopper({"training_iteration": 2})
        if type(scheduler) is FIFOScheduler
        else make_stopper(None),
        step=lambda trial, iteration: {"score": 1.0, "saves": True},
    )
    search.run(limit=1000)
    told = [do for do in search.done if isinstance(do, events.NotifyCallbacks)]
    assert [do.hook for do in told] == [
        "start",
        "result",
        "checkpoint",
        "result",
        "checkpoint",
        "complete",
    ]
    assert told[1].subject["done"] is False


def test_an_engine_with_room_for_one_lets_others_wait_and_says_so_anew_each_time() -> None:
    search = Simulation(samples=3, cpus=2)
    search.machine.set_capacity(1)
    search.begin()
    for _ in range(4):
        search.go_on()
    assert search.most_at_once == 1
    assert [trial.status for trial in search.machine.trials] == [Trial.RUNNING, Trial.PENDING], (
        "a scheduler sees that one waits"
    )
    search.machine.set_capacity(float("inf"))
    search.run()
    assert search.most_at_once == 2


def test_a_checkpoint_is_not_deleted_while_it_is_copied() -> None:
    keep_one = CheckpointConfig(num_to_keep=1, checkpoint_frequency=1, checkpoint_at_end=False)
    search = Simulation(
        samples=2, stopper=make_stopper(None), rules=rules(checkpoint_config=keep_one)
    )
    search.begin()
    while len(search.machine.trials) < 2 or any(
        trial.checkpoint is None for trial in search.machine.trials
    ):
        search.go_on()
    trial, donor = search.machine.trials
    source = donor.checkpoint
    search.machine.exploit(trial, donor, config={"x": 5})
    while donor.checkpoint == source:
        search.go_on()
    assert not deleted(search, source)
    search.take(
        events.CheckpointCopied(
            trial_id=trial.trial_id,
            checkpoint=search.checkpoint(trial.trial_id, trial.next_checkpoint_index),
        )
    )
    assert deleted(search, source)


def deleted(search: Simulation, checkpoint: Any) -> bool:
    return any(
        isinstance(do, events.DeleteCheckpoint) and do.checkpoint == checkpoint
        for do in search.done
    )
