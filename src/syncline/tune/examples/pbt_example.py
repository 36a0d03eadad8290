"""Population based training of a class: a bad trial continues from the checkpoint of a better one
with another learning rate.

The best learning rate of the toy model depends on its accuracy: it rises from 0.001 to 0.01 and
falls again. No constant learning rate reaches the goal; a small population does.
"""

from __future__ import annotations

import argparse
import random
from typing import Any

from syncline import tune
from syncline.tune.schedulers import PopulationBasedTraining

MIDPOINT = 100
"""Accuracy with the highest best learning rate; the goal is twice this value."""
TOLERANCE = 3
"""Factor by which a learning rate may be too high without doing harm."""
PERTURBATION_INTERVAL = 5


def optimal_lr(accuracy: float) -> float:
    """Return the best learning rate of a model with this accuracy."""
    distance = accuracy if accuracy < MIDPOINT else 2 * MIDPOINT - accuracy
    return min(0.01, max(0.001, 0.01 * distance / MIDPOINT))


def improved(accuracy: float, lr: float) -> float:
    """Return the accuracy after one more epoch with a learning rate."""
    best = optimal_lr(accuracy)
    error = max(lr, best) / min(lr, best)
    if error < TOLERANCE:
        accuracy += random.random() / error
    elif lr > best:
        accuracy -= (error - TOLERANCE) * random.random()
    return max(0.0, accuracy + random.gauss(0, 2))


class PBTBenchmarkExample(tune.Trainable):
    """The toy model."""

    def setup(self, config: dict[str, Any]) -> None:
        """Start untrained."""
        self.lr = config["lr"]
        self.accuracy = 0.0

    def step(self) -> dict[str, Any]:
        """Train one epoch."""
        self.accuracy = improved(self.accuracy, self.lr)
        return {
            "mean_accuracy": self.accuracy,
            "cur_lr": self.lr,
            "done": self.accuracy > 2 * MIDPOINT,
        }

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Return the state; a dictionary needs no file."""
        return {"accuracy": self.accuracy}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the state of this or another trial."""
        self.accuracy = checkpoint["accuracy"]

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Change the parameters in the same process."""
        self.lr = new_config["lr"]
        return True


def main(num_samples: int = 8, iterations: int = 1000) -> tune.ResultGrid:
    """Train a population of `num_samples` for up to `iterations` epochs. The checkpoint frequency
    equals the perturbation interval, so that copied checkpoints are current.
    """
    tuner = tune.Tuner(
        PBTBenchmarkExample,
        run_config=tune.RunConfig(
            name="pbt_class_api_example",
            stop={"training_iteration": iterations},
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_frequency=PERTURBATION_INTERVAL,
                checkpoint_score_attribute="mean_accuracy",
                num_to_keep=4,
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
        param_space={"lr": 0.0001, "some_other_factor": 1},
    )
    return tuner.fit()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke-test", action="store_true", help="finish quickly")
    smoke_test = parser.parse_args().smoke_test
    results = main(num_samples=4, iterations=10) if smoke_test else main()
    print("Best hyperparameters found were:", results.get_best_result().config)
