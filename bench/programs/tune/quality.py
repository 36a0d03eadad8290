"""How near to the minimum of a function searches come: TPE, and ASHA on learning curves; medians
over seeds, ours beside Optuna's.

Syncline's searches are rehearsed, one trial at a time: the searcher, the scheduler and the
controller are the real ones, and no process is started. (The controller asks for a configuration
while the trial before it still runs, so TPE knows one result less than in Optuna.) TPE on the first
function is run by `Tuner`, too, two trials at a time in processes. Given `syncline`, the program
also says how much worse than Optuna's a median is, in standard errors of the difference. Given
`optuna`, it runs Optuna's searches only. BENCH_SCALE multiplies the seeds.
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
from bench.programs.tune.rehearsal import Rehearsal
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
    """The least regret that Optuna's TPE finds."""
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(lambda trial: function.regret(_suggested(function, trial)), n_trials=trials)
    return study.best_value


def tpe_by_us(function: Function, seed: int) -> float:
    """The same with our adapter and controller."""
    search = _search(OptunaSearch(seed=seed), function, TPE_TRIALS)
    ended = Rehearsal(
        search, FIFOScheduler(), lambda config, step: function.regret(config), steps=1
    ).run()
    return min(trial.last_result[searches.METRIC] for trial in ended)


def trial(config: dict[str, Any]) -> None:
    """One evaluation in a process of its own."""
    tune.report({searches.METRIC: FUNCTIONS[config["function"]].regret(config)})


def tpe_by_tuner(name: str, seed: int) -> float:
    """The same in processes, two at a time."""
    space = {**_space(FUNCTIONS[name]), "function": name}
    how = {"search_alg": OptunaSearch(seed=seed), "reuse_actors": True}
    results = searches.tuner(tune, trial, space, TPE_TRIALS, name=f"{name}-{seed}", **how).fit()
    assert results.num_errors == 0, results.errors
    return float(results.get_best_result().metrics[searches.METRIC])


def asha_by_optuna(function: Function, seed: int) -> float:
    """The least regret of random points that come to the end, where Optuna's pruner stops those
    that are behind.
    """

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
    """The same with our scheduler and controller, and the same points."""
    search = _search(
        OptunaSearch(sampler=optuna.samplers.RandomSampler(seed=seed)), function, ASHA_TRIALS
    )
    scheduler = ASHAScheduler(max_t=ASHA_STEPS, reduction_factor=ASHA_ETA)
    ended = Rehearsal(search, scheduler, function.regret_after, steps=ASHA_STEPS).run()
    return min(
        trial.last_result[searches.METRIC] for trial in ended if trial.iteration == ASHA_STEPS
    )


def worse(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The difference of the medians in its own standard errors, as resampling has them; more than 0
    if ours is worse.
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
    return {f"x{place}": tune.uniform(low, high) for place, (low, high) in enumerate(function.box)}


def _suggested(function: Function, trial: optuna.Trial) -> dict[str, float]:
    return {
        f"x{place}": trial.suggest_float(f"x{place}", low, high)
        for place, (low, high) in enumerate(function.box)
    }


def _search(searcher: OptunaSearch, function: Function, samples: int) -> SearchGenerator:
    search = SearchGenerator(searcher)
    search.configure(searches.METRIC, searches.MODE, _space(function), samples)
    return search


def measure(library: str) -> common.Values:
    """The median regret of every search."""
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
            values |= {f"{key}_worse": worse(regrets[key], peers[key]) for key in peers}
        values |= {key: statistics.median(found) for key, found in regrets.items()}
        if name == BY_TUNER:
            key = f"tuner_{name}"
            values[key] = values[f"tpe_{name}"]
            if library == "syncline":
                found = [tpe_by_tuner(name, seed) for seed in seeds]
                values |= {
                    key: statistics.median(found),
                    f"{key}_worse": worse(found, peers[f"tpe_{name}"]),
                }
        print(
            f"user: {name}: {', '.join(f'{key} {value:.3g}' for key, value in values.items() if name in key)}",
            flush=True,
        )
    return values


if __name__ == "__main__":
    options = common.arguments()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if options.library == "syncline":
        searches.start("syncline")
    common.write(options.out, measure(options.library))
    if options.library == "syncline":
        importlib.import_module("syncline").shutdown()
