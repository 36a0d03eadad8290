"""The same trials in Optuna, sequentially in one process; the argument is `few` or `many`, as in
`trials.py`, or `journal`: two processes that share a journal file, so that a kill loses no trial.
"""

import multiprocessing
import os
import time
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from bench.inputs import scaled
from bench.programs import common
from bench.programs.tune.trials import FEW, REPORTS, TEN_THOUSAND, THOUSAND

JOURNAL_TRIALS, PROCESSES = 400, 2
JOURNAL = "journal.log"


def trials_per_s(samples: int, reports: int) -> float:
    """Return the trials per second of one `optimize()` with random values."""

    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0, 1)
        for step in range(reports):
            trial.report(x / (step + 1), step)
        return x / reports

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    begin = time.perf_counter()
    study.optimize(objective, n_trials=samples)
    return samples / (time.perf_counter() - begin)


def journal_trials_per_s(samples: int) -> float:
    """Return the trials per second of two processes with one journal, without their start."""
    optuna.create_study(study_name="study", storage=_storage())
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(PROCESSES + 1)
    processes = [
        context.Process(target=_share, args=(ready, samples // PROCESSES)) for _ in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    ready.wait()
    begin = time.perf_counter()
    for process in processes:
        process.join()
    return samples / (time.perf_counter() - begin)


def _share(ready: Any, samples: int) -> None:
    sampler = optuna.samplers.RandomSampler(seed=os.getpid())
    study = optuna.load_study(study_name="study", storage=_storage(), sampler=sampler)

    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0, 1)
        trial.report(x, 0)
        return x

    ready.wait()
    study.optimize(objective, n_trials=samples)


def _storage() -> JournalStorage:
    return JournalStorage(JournalFileBackend(JOURNAL))


if __name__ == "__main__":
    options = common.arguments()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if options.library == "journal":
        common.write(options.out, {"thousand_per_s": journal_trials_per_s(scaled(JOURNAL_TRIALS))})
    elif options.library == "few":
        common.write(options.out, {"trials_per_s": trials_per_s(scaled(FEW), REPORTS)})
    else:
        thousand, ten_thousand = (
            trials_per_s(scaled(THOUSAND), 1),
            trials_per_s(scaled(TEN_THOUSAND), 1),
        )
        common.write(
            options.out,
            {
                "thousand_per_s": thousand,
                "ten_thousand_per_s": ten_thousand,
                "growth": thousand / ten_thousand,
            },
        )
