"""A training function that saves checkpoints and continues from the last one after a restart."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from typing import Any

from syncline import tune
from syncline.tune import Checkpoint
from syncline.tune.examples.tune_basic_example import evaluation_fn

STATE_FILE = "checkpoint.json"


def train_func(config: dict[str, Any]) -> None:
    """Report a checkpoint with each result. Its directory may be deleted after `report`."""
    first = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with (
            checkpoint.as_directory() as directory,
            open(os.path.join(directory, STATE_FILE)) as file,
        ):
            first = json.load(file)["step"] + 1

    for step in range(first, config["steps"]):
        loss = evaluation_fn(step, config["width"], config["height"])
        with tempfile.TemporaryDirectory() as directory:
            with open(os.path.join(directory, STATE_FILE), "w") as file:
                json.dump({"step": step}, file)
            tune.report(
                {"iterations": step, "mean_loss": loss},
                checkpoint=Checkpoint.from_directory(directory),
            )


def main(num_samples: int = 5, steps: int = 10) -> tune.ResultGrid:
    """Try `num_samples` widths and heights for `steps` epochs."""
    tuner = tune.Tuner(
        train_func,
        run_config=tune.RunConfig(
            name="custom_func_checkpointing", checkpoint_config=tune.CheckpointConfig(num_to_keep=2)
        ),
        tune_config=tune.TuneConfig(metric="mean_loss", mode="min", num_samples=num_samples),
        param_space={
            "steps": steps,
            "width": tune.randint(10, 100),
            "height": tune.loguniform(10, 100),
        },
    )
    return tuner.fit()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke-test", action="store_true", help="finish quickly")
    smoke_test = parser.parse_args().smoke_test
    best = (main(num_samples=2, steps=2) if smoke_test else main()).get_best_result()
    print("Best hyperparameters found were:", best.config)
    print("Its last checkpoint:", best.checkpoint)
