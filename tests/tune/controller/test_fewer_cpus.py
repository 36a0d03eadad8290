"""Searches with eight trials per CPU end as with a CPU for each trial, although trials pause."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from syncline import tune
from syncline.tune.experiment.trial import Trial
from syncline.tune.schedulers import (
    ASHAScheduler,
    HyperBandScheduler,
    PopulationBasedTraining,
    TrialScheduler,
)
from tests.tune.controller.simulation import Simulation, rules

TRIALS, LENGTH = 16, 20
_numbers = random.Random(3)
QUALITY = [_numbers.random() for _ in range(TRIALS)]
BEST = max(range(TRIALS), key=QUALITY.__getitem__)


def hyperband() -> TrialScheduler:
    return HyperBandScheduler(time_attr="training_iteration", max_t=9, reduction_factor=3)


def population(*, synch: bool) -> TrialScheduler:
    return PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=4,
        hyperparam_mutations={"lr": tune.uniform(0.0, 1.0)},
        synch=synch,
    )


def step(trial: Trial, iteration: int) -> dict[str, Any]:
    """Learning curves cross: a fast start may end worse."""
    quality, lr = QUALITY[trial.index], trial.config.get("lr", 0.5)
    speed = 1 if trial.index == BEST else (trial.index * 7) % TRIALS / TRIALS
    return {"score": (quality + lr) * (1 - 0.5 ** (iteration * (0.2 + speed))) + trial.index * 1e-6}


def searched(make: Callable[[], TrialScheduler], cpus: int, seed: int) -> Simulation:
    random.seed(11)  # of the scheduler
    search = Simulation(
        rules=rules(),
        scheduler=make(),
        stopper=tune.stopper.MaximumIterationStopper(LENGTH),
        samples=TRIALS,
        cpus=cpus,
        step=step,
    )
    search.run(random.Random(seed))
    return search


def outcome(search: Simulation) -> list[Any]:
    return [
        (trial.status, trial.iteration, trial.last_result["score"], trial.config)
        for trial in search.machine.trials
    ]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "make", [hyperband, lambda: population(synch=True)], ids=["hyperband", "pbt"]
)
def test_every_trial_ends_as_with_enough_cpus(
    make: Callable[[], TrialScheduler], seed: int
) -> None:
    few, many = searched(make, TRIALS // 8, seed), searched(make, TRIALS, seed + 100)
    assert few.most_at_once == TRIALS // 8
    assert many.most_at_once > few.most_at_once
    assert outcome(few) == outcome(many)


@pytest.mark.parametrize("seed", range(6))
def test_asha_finds_the_same_best_trial(seed: int) -> None:
    """Its decisions depend on the order of results, but the best trial passes every rung, if it is
    the best one at each of them.
    """

    def make() -> TrialScheduler:
        return ASHAScheduler(
            time_attr="training_iteration", max_t=LENGTH, grace_period=1, reduction_factor=2
        )

    def best(search: Simulation) -> tuple[int, int]:
        trial = max(search.machine.trials, key=lambda one: one.last_result["score"])
        assert trial.index == BEST
        return trial.index, trial.iteration

    few, many = searched(make, TRIALS // 8, seed), searched(make, TRIALS, seed + 100)
    assert best(few) == best(many)


@pytest.mark.parametrize("seed", range(3))
def test_an_asynchronous_population_trains_every_member_to_the_end(seed: int) -> None:
    few = searched(lambda: population(synch=False), TRIALS // 8, seed)
    assert [trial.iteration for trial in few.machine.trials] == [LENGTH] * TRIALS
    assert any("@perturbed" in trial.experiment_tag for trial in few.machine.trials)
