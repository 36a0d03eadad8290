"""Searches that pause trials to disk: with eight trials per CPU they end as with a CPU for each."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline import tune
from syncline.tune.schedulers import HyperBandScheduler, PopulationBasedTraining, TrialScheduler

pytestmark = pytest.mark.processes

TRIALS, LENGTH = 16, 8


class Descent(tune.Trainable):
    """Its result depends on all iterations before, so each resume must restore them."""

    def setup(self, config: dict[str, Any]) -> None:
        self.x = 10.0

    def step(self) -> dict[str, Any]:
        self.x -= self.config["lr"] * self.x * (1 + 0.1 * self.iteration)
        return {"loss": abs(self.x)}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"x": self.x}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.x = checkpoint["x"]


def descent(config: dict[str, Any]) -> None:
    """The same as a function."""
    x, iteration = 10.0, 0
    checkpoint = tune.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            x, iteration = json.loads(Path(directory, "state.json").read_text())
    while iteration < LENGTH:
        x -= config["lr"] * x * (1 + 0.1 * iteration)
        iteration += 1
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "state.json").write_text(json.dumps([x, iteration]))
            tune.report({"loss": abs(x)}, checkpoint=tune.Checkpoint.from_directory(directory))


def hyperband() -> TrialScheduler:
    return HyperBandScheduler(time_attr="training_iteration", max_t=LENGTH, reduction_factor=2)


def population() -> TrialScheduler:
    return PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=3,
        hyperparam_mutations={"lr": tune.uniform(0.01, 0.3)},
        synch=True,
    )


def outcome(
    trainable: Any, make: Callable[[], TrialScheduler], path: Path, cpus: int, isolation: str
) -> list[Any]:
    syncline.init(num_cpus=cpus)
    try:
        random.seed(5)  # of the population's mutations
        results = tune.Tuner(
            trainable,
            param_space={"lr": tune.grid_search([0.01 + 0.02 * n for n in range(TRIALS)])},
            tune_config=tune.TuneConfig(
                metric="loss", mode="min", scheduler=make(), isolation=isolation
            ),
            run_config=tune.RunConfig(
                name=f"{cpus}",
                storage_path=str(path),
                verbose=0,
                stop={"training_iteration": LENGTH},
            ),
        ).fit()
    finally:
        syncline.shutdown()
    assert not results.errors
    return [
        (result.metrics["training_iteration"], result.metrics["loss"], result.config)
        for result in results
    ]


@pytest.mark.parametrize(
    ("trainable", "make", "isolation"),
    [
        (Descent, hyperband, "process"),
        (descent, population, "worker"),
        pytest.param(descent, hyperband, "worker", marks=pytest.mark.long),
        pytest.param(Descent, population, "process", marks=pytest.mark.long),
    ],
)
def test_every_trial_ends_as_with_enough_cpus(
    trainable: Any, make: Callable[[], TrialScheduler], isolation: str, tmp_path: Path
) -> None:
    few = outcome(trainable, make, tmp_path, TRIALS // 8, isolation)
    many = outcome(trainable, make, tmp_path, TRIALS, "process")
    assert few == many
    assert len({iterations for iterations, _, _ in few}) > (make is hyperband)
