"""Population based training of a function, with the toy model of `pbt_example`."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from typing import Any

from syncline import tune
from syncline.tune import Checkpoint
from syncline.tune.examples.pbt_example import MIDPOINT, PERTURBATION_INTERVAL, improved
from syncline.tune.schedulers import PopulationBasedTraining

STATE_FILE = "checkpoint.json"


def pbt_function(config: dict[str, Any]) -> None:
    """Train until the trial is stopped. A bad trial restarts from the checkpoint of a better one
    with another `lr`.
    """
    accuracy, step = 0.0, 1
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with (
            checkpoint.as_directory() as directory,
            open(os.path.join(directory, STATE_FILE)) as file,
        ):
            state = json.load(file)
        accuracy, step = state["accuracy"], state["step"] + 1

    while True:
        accuracy = improved(accuracy, config["lr"])
        metrics = {
            "mean_accuracy": accuracy,
            "cur_lr": config["lr"],
            "done": accuracy > 2 * MIDPOINT,
        }
        # Steps count from 1, so that checkpoints coincide with perturbations.
        if step % config["checkpoint_interval"] == 0:
            with tempfile.TemporaryDirectory() as directory:
                with open(os.path.join(directory, STATE_FILE), "w") as file:
                    json.dump({"accuracy": accuracy, "step": step}, file)
                tune.report(metrics, checkpoint=Checkpoint.from_directory(directory))
        else:
            tune.report(metrics)
        step += 1


def main(num_samples: int = 8, iterations: int = 1000) -> tune.ResultGrid:
    """Train a population of `num_samples` for up to `iterations` epochs."""
    tuner = tune.Tuner(
        pbt_function,
        run_config=tune.RunConfig(
            name="pbt_function_api_example",
            stop={"training_iteration": iterations},
            failure_config=tune.FailureConfig(fail_fast=True),
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_score_attribute="mean_accuracy", num_to_keep=2
            ),
        ),
        tune_config=tune.TuneConfig(
            scheduler=PopulationBasedTraining(
                time_attr="training_iteration",
                perturbation_interval=PERTURBATION_INTERVAL,
                hyperparam_mutations={
                    "lr": tune.uniform(0.0001, 0.02),
                    "some_other_factor": [1, 2],
                },
            ),
            metric="mean_accuracy",
            mode="max",
            reuse_actors=True,
            num_samples=num_samples,
        ),
        param_space={
            "lr": 0.0001,
            "some_other_factor": 1,
            "checkpoint_interval": PERTURBATION_INTERVAL,
        },
    )
    return tuner.fit()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke-test", action="store_true", help="finish quickly")
    smoke_test = parser.parse_args().smoke_test
    results = main(num_samples=4, iterations=10) if smoke_test else main()
    print("Best hyperparameters found were:", results.get_best_result().config)
