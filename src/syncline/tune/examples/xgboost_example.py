"""Boosted trees on scikit-learn's breast cancer data; a callback reports each round with its model.
Requires `syncline[xgboost]` and scikit-learn.
"""

from __future__ import annotations

import argparse
from typing import Any

from syncline import tune
from syncline.tune.schedulers import ASHAScheduler

MODEL_FILE = "booster.json"


def train_breast_cancer(config: dict[str, Any]) -> None:
    """Train ten rounds with XGBoost's parameters in `config`."""
    # Imported here because these libraries start threads, which only trial processes need.
    import sklearn.datasets
    import xgboost
    from sklearn.model_selection import train_test_split

    from syncline.tune.integration.xgboost import TuneReportCheckpointCallback

    data, labels = sklearn.datasets.load_breast_cancer(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(data, labels, test_size=0.25)
    xgboost.train(
        config,
        xgboost.DMatrix(train_x, label=train_y),
        evals=[(xgboost.DMatrix(test_x, label=test_y), "test")],
        verbose_eval=False,
        callbacks=[TuneReportCheckpointCallback(frequency=1, filename=MODEL_FILE)],
    )


def main(num_samples: int = 10, max_rounds: int = 10) -> tune.ResultGrid:
    """Try `num_samples` sets of parameters; the better half continues each time the number of
    rounds has doubled.
    """
    tuner = tune.Tuner(
        tune.with_resources(train_breast_cancer, {"cpu": 1}),
        run_config=tune.RunConfig(name="xgboost_example"),
        tune_config=tune.TuneConfig(
            metric="test-logloss",
            mode="min",
            num_samples=num_samples,
            scheduler=ASHAScheduler(max_t=max_rounds, grace_period=1, reduction_factor=2),
        ),
        param_space={
            "objective": "binary:logistic",
            "eval_metric": ["logloss", "error"],
            "nthread": 1,
            "max_depth": tune.randint(1, 9),
            "min_child_weight": tune.choice([1, 2, 3]),
            "subsample": tune.uniform(0.5, 1.0),
            "eta": tune.loguniform(1e-4, 1e-1),
        },
    )
    return tuner.fit()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke-test", action="store_true", help="finish quickly")
    best = main(num_samples=3 if parser.parse_args().smoke_test else 10).get_best_result()
    error = (best.metrics or {})["test-error"]
    print(f"Best parameters: {best.config}\nAccuracy: {1 - error:.4f}\nModel: {best.checkpoint}")
