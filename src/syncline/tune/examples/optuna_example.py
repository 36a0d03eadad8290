"""Optuna proposes parameters for four trials of `tune_basic_example` at a time; a scheduler stops
bad trials early. `activation` has no effect, which the sampler must learn. Requires
`pip install syncline[tune]`.
"""

from __future__ import annotations

import argparse

from syncline import tune
from syncline.tune.examples.tune_basic_example import easy_objective, evaluation_fn
from syncline.tune.schedulers import AsyncHyperBandScheduler
from syncline.tune.search import ConcurrencyLimiter
from syncline.tune.search.optuna import OptunaSearch

__all__ = ["easy_objective", "evaluation_fn", "main"]


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
