"""The same trials in Optuna, sequentially in one process; the argument is `few` or `many`, as in
`trials.py`.
"""

import time

import optuna

from bench.inputs import scaled
from bench.programs import common
from bench.programs.tune.trials import FEW, REPORTS, TEN_THOUSAND, THOUSAND


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


if __name__ == "__main__":
    options = common.arguments()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if options.library == "few":
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
