"""Asynchronous HyperBand: at each milestone only the better trials of `tune_basic_example`
continue. In the others, `report` does not return.
"""

from __future__ import annotations

import argparse

from syncline import tune
from syncline.tune.examples.tune_basic_example import easy_objective, evaluation_fn
from syncline.tune.schedulers import AsyncHyperBandScheduler

__all__ = ["easy_objective", "evaluation_fn", "main"]


def main(num_samples: int = 20, steps: int = 100) -> tune.ResultGrid:
    """Try `num_samples` widths and heights for 5 to `steps` epochs."""
    tuner = tune.Tuner(
        tune.with_resources(easy_objective, {"cpu": 1, "gpu": 0}),
        run_config=tune.RunConfig(name="async_hyperband_example"),
        tune_config=tune.TuneConfig(
            metric="mean_loss",
            mode="min",
            scheduler=AsyncHyperBandScheduler(grace_period=5, max_t=steps),
            num_samples=num_samples,
        ),
        param_space={
            "steps": steps,
            "width": tune.uniform(10, 100),
            "height": tune.uniform(0, 100),
        },
    )
    return tuner.fit()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke-test", action="store_true", help="finish quickly")
    smoke_test = parser.parse_args().smoke_test
    results = main(num_samples=6, steps=20) if smoke_test else main()
    print("Best hyperparameters found were:", results.get_best_result().config)
