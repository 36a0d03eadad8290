"""Optuna proposes parameters for four trials at a time; a scheduler stops bad trials early.
Requires `pip install syncline[tune]`.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from syncline import tune
from syncline.tune.schedulers import AsyncHyperBandScheduler
from syncline.tune.search import ConcurrencyLimiter
from syncline.tune.search.optuna import OptunaSearch


def evaluation_fn(step: int, width: float, height: float) -> float:
    """Return an artificial loss after `step` epochs."""
    time.sleep(0.01)
    return 1 / (0.1 + width * step / 100) + height * 0.1


def easy_objective(config: dict[str, Any]) -> None:
    """Train. `activation` has no effect, which the sampler must learn."""
    for step in range(config["steps"]):
        tune.report(
            {
                "iterations": step,
                "mean_loss": evaluation_fn(step, config["width"], config["height"]),
            }
        )


def main(num_samples: int = 100, steps: int = 100) -> tune.ResultGrid:
    """Try `num_samples` proposals for up to `steps` epochs."""
    tuner = tune.Tuner(
        easy_objective,
        run_config=tune.RunConfig(name="optuna_example"),
        tune_config=tune.TuneConfig(
            metric="mean_loss",
            mode="min",
            search_alg=ConcurrencyLimiter(OptunaSearch(), max_concurrent=4),
            scheduler=AsyncHyperBandScheduler(max_t=steps),
            num_samples=num_samples,
        ),
        param_space={
            "steps": steps,
            "width": tune.uniform(0, 20),
            "height": tune.uniform(-100, 100),
            "activation": tune.choice(["relu", "tanh"]),
        },
    )
    return tuner.fit()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke-test", action="store_true", help="finish quickly")
    smoke_test = parser.parse_args().smoke_test
    results = main(num_samples=10, steps=10) if smoke_test else main()
    print("Best hyperparameters found were:", results.get_best_result().config)
