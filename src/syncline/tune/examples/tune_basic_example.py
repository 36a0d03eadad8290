"""Random search over two parameters, and a grid over a third."""

from __future__ import annotations

import argparse
import time
from typing import Any

from syncline import tune


def evaluation_fn(step: int, width: float, height: float) -> float:
    """Return an artificial loss after `step` epochs."""
    time.sleep(0.01)
    return 1 / (0.1 + width * step / 100) + height * 0.1


def easy_objective(config: dict[str, Any]) -> None:
    """Train and report the loss of each step."""
    for step in range(config["steps"]):
        tune.report(
            {
                "iterations": step,
                "mean_loss": evaluation_fn(step, config["width"], config["height"]),
            }
        )


def main(num_samples: int = 50, steps: int = 100) -> tune.ResultGrid:
    """Try `num_samples` widths and heights with each activation."""
    tuner = tune.Tuner(
        easy_objective,
        tune_config=tune.TuneConfig(metric="mean_loss", mode="min", num_samples=num_samples),
        param_space={
            "steps": steps,
            "width": tune.uniform(0, 20),
            "height": tune.uniform(-100, 100),
            "activation": tune.grid_search(["relu", "tanh"]),
        },
    )
    return tuner.fit()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke-test", action="store_true", help="finish quickly")
    smoke_test = parser.parse_args().smoke_test
    results = main(num_samples=5, steps=5) if smoke_test else main()
    print("Best hyperparameters found were:", results.get_best_result().config)
