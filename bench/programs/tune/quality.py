"""Regret of searches: TPE, and ASHA on learning curves; medians over seeds, syncline and Optuna.

Searches of syncline are simulated, one trial at a time: searcher, scheduler and controller are the
real ones, without processes. (The controller asks for a configuration while the trial before still
runs, so TPE knows one result less than in Optuna.) TPE on the first function also runs with
`Tuner`, two trials at a time in processes. With the argument `syncline`, the program also compares
each median with Optuna's, in standard errors of the difference; with `optuna`, it runs Optuna's
searches only. BENCH_SCALE multiplies the seeds.
"""

import importlib
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna

from bench.inputs import scaled
from bench.programs import common
from bench.programs.tune import searches
from bench.programs.tune.functions import FUNCTIONS, Function
from bench.programs.tune.simulated_search import SimulatedSearch
from syncline import tune
from syncline.tune.schedulers import ASHAScheduler, FIFOScheduler
from syncline.tune.search.optuna import OptunaSearch
from syncline.tune.search.search_generator import SearchGenerator

SEEDS = 20
TPE_TRIALS = 40
ASHA_TRIALS, ASHA_STEPS, ASHA_ETA = 81, 27, 3
RESAMPLES = 2_000
BY_TUNER = "branin"


def tpe_by_optuna(function: Function, seed: int, trials: int = TPE_TRIALS) -> float:
    """Return the smallest regret that Optuna's TPE finds."""
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(lambda trial: function.regret(_suggested(function, trial)), n_trials=trials)
    return study.best_value


def tpe_by_us(function: Function, seed: int) -> float:
    """Return the same with syncline's adapter and controller."""
    search = _search(OptunaSearch(seed=seed), function, TPE_TRIALS)
    ended = SimulatedSearch(
        search, FIFOScheduler(), lambda config, step: function.regret(config), steps=1
    ).run()
    return min(trial.last_result[searches.METRIC] for trial in ended)


def trial(config: dict[str, Any]) -> None:
    """Evaluate one configuration in a process."""
    tune.report({searches.METRIC: FUNCTIONS[config["function"]].regret(config)})


def tpe_by_tuner(name: str, seed: int) -> float:
    """Return the same with processes, two at a time."""
    space = {**_space(FUNCTIONS[name]), "function": name}
    options = {"search_alg": OptunaSearch(seed=seed), "reuse_actors": True}
    results = searches.tuner(tune, trial, space, TPE_TRIALS, name=f"{name}-{seed}", **options).fit()
    assert results.num_errors == 0, results.errors
    return float(results.get_best_result().metrics[searches.METRIC])


def asha_by_optuna(function: Function, seed: int) -> float:
    """Return the smallest regret of random points that Optuna's pruner does not stop."""

    def objective(trial: optuna.Trial) -> float:
        point = _suggested(function, trial)
        for step in range(1, ASHA_STEPS + 1):
            loss = function.regret_after(point, step)
            trial.report(loss, step)
            if step < ASHA_STEPS and trial.should_prune():
                raise optuna.TrialPruned
        return loss

    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=ASHA_ETA)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed), pruner=pruner)
    study.optimize(objective, n_trials=ASHA_TRIALS)
    return study.best_value


def asha_by_us(function: Function, seed: int) -> float:
    """Return the same with syncline's scheduler and controller, and the same points."""
    search = _search(
        OptunaSearch(sampler=optuna.samplers.RandomSampler(seed=seed)), function, ASHA_TRIALS
    )
    scheduler = ASHAScheduler(max_t=ASHA_STEPS, reduction_factor=ASHA_ETA)
    ended = SimulatedSearch(search, scheduler, function.regret_after, steps=ASHA_STEPS).run()
    return min(
        trial.last_result[searches.METRIC] for trial in ended if trial.iteration == ASHA_STEPS
    )


def excess(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the difference of the medians in its standard errors, estimated by resampling;
    positive if ours is worse.
    """
    difference = statistics.median(ours) - statistics.median(theirs)
    if difference == 0:
        return 0.0
    chance = np.random.default_rng(0)
    medians = [
        np.median(chance.choice(regrets, (RESAMPLES, len(regrets))), axis=1)
        for regrets in (ours, theirs)
    ]
    return float(difference / max(np.std(medians[0] - medians[1]), 1e-12))


def _space(function: Function) -> dict[str, Any]:
    return {f"x{index}": tune.uniform(low, high) for index, (low, high) in enumerate(function.box)}


def _suggested(function: Function, trial: optuna.Trial) -> dict[str, float]:
    return {
        f"x{index}": trial.suggest_float(f"x{index}", low, high)
        for index, (low, high) in enumerate(function.box)
    }


def _search(searcher: OptunaSearch, function: Function, samples: int) -> SearchGenerator:
    search = SearchGenerator(searcher)
    search.configure(searches.METRIC, searches.MODE, _space(function), samples)
    return search


def measure(library: str) -> common.Values:
    """Return the median regret of every search."""
    values: common.Values = {}
    seeds = range(max(2, scaled(SEEDS)))
    for name, function in FUNCTIONS.items():
        peers = {
            f"tpe_{name}": [tpe_by_optuna(function, seed) for seed in seeds],
            f"asha_{name}": [asha_by_optuna(function, seed) for seed in seeds],
        }
        regrets = peers
        if library == "syncline":
            regrets = {
                f"tpe_{name}": [tpe_by_us(function, seed) for seed in seeds],
                f"asha_{name}": [asha_by_us(function, seed) for seed in seeds],
            }
            values |= {f"{key}_worse": excess(regrets[key], peers[key]) for key in peers}
        values |= {key: statistics.median(found) for key, found in regrets.items()}
        if name == BY_TUNER:
            key = f"tuner_{name}"
            values[key] = values[f"tpe_{name}"]
            if library == "syncline":
                found = [tpe_by_tuner(name, seed) for seed in seeds]
                values |= {
                    key: statistics.median(found),
                    f"{key}_worse": excess(found, peers[f"tpe_{name}"]),
                }
        shown = [f"{key} {value:.3g}" for key, value in values.items() if name in key]
        print(f"user: {name}: {', '.join(shown)}", flush=True)
    return values


if __name__ == "__main__":
    options = common.arguments()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if options.library == "syncline":
        searches.start("syncline")
    common.write(options.out, measure(options.library))
    if options.library == "syncline":
        importlib.import_module("syncline").shutdown()
