"""Search for kill tests: `python killed_search.py FOLDER SAMPLES`. A restart resumes the search.

The course of the search is deterministic: the searcher has a seed, ASHA stops trials, and one trial
runs at a time. The function saves with every second result and appends each trained step to
`steps`. At the end `outcome.json` holds the results of all trials.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import optuna

import syncline
from syncline import tune
from syncline.tune.schedulers import ASHAScheduler
from syncline.tune.search.optuna import OptunaSearch

MOST_ITERATIONS = 6


def objective(config: dict[str, Any]) -> None:
    start = 0
    if (checkpoint := tune.get_checkpoint()) is not None:
        with checkpoint.as_directory() as directory:
            start = int(Path(directory, "iteration").read_text())
    for iteration in range(start + 1, MOST_ITERATIONS + 1):
        with open(Path(config["folder"], "steps"), "a") as steps:
            steps.write(f"{tune.get_context().get_trial_id()} {iteration} {os.getpid()}\n")
        metrics = {"loss": (config["x"] - 0.3) ** 2 + config["y"] / iteration}
        if iteration % 2:
            tune.report(metrics)
            continue
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "iteration").write_text(str(iteration))
            tune.report(metrics, checkpoint=tune.Checkpoint(directory))


def tuner(folder: Path, samples: int) -> tune.Tuner:
    if tune.Tuner.can_restore(folder / "search"):
        return tune.Tuner.restore(folder / "search", objective)
    return tune.Tuner(
        objective,
        param_space={"x": tune.uniform(0, 1), "y": tune.loguniform(1e-3, 1), "folder": str(folder)},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=samples,
            search_alg=OptunaSearch(sampler=optuna.samplers.TPESampler(seed=3, n_startup_trials=4)),
            scheduler=ASHAScheduler(max_t=MOST_ITERATIONS, grace_period=2, reduction_factor=2),
        ),
        run_config=tune.RunConfig(name="search", storage_path=str(folder), verbose=0),
    )


def main() -> None:
    folder, samples = Path(sys.argv[1]), int(sys.argv[2])
    syncline.init(num_cpus=1)
    results = tuner(folder, samples).fit()
    trials = [
        [
            result.config["x"],
            result.config["y"],
            result.metrics["training_iteration"],
            result.metrics["loss"],
        ]
        for result in results
    ]
    best = results.get_best_result().config
    (folder / "outcome.json").write_text(
        json.dumps({"trials": trials, "best": [best["x"], best["y"]], "errors": results.num_errors})
    )


if __name__ == "__main__":
    main()
