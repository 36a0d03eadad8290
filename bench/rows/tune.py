"""Searches on this machine: short trials, time between trials, restoring, the controller alone,
population-based training, and the quality of the results.
"""

from bench.rows.definitions import OURS, RAY, Contender, Metric, Row, Target, libraries

_OPTUNA = "Optuna"
_JOURNAL = "Optuna, journal, 2 processes"
_FUNCTIONS = {"branin": "Branin", "hartmann6": "Hartmann 6", "rosenbrock": "Rosenbrock 3"}
_NOISE = 2.0
"""Standard errors of a difference that count as noise."""


def _per_s(key: str, label: str, target: Target | None = None) -> Metric:
    return Metric(key=key, label=label, unit="trials/s", better="more", target=target)


def _less(key: str, label: str, unit: str, target: Target | None = None) -> Metric:
    return Metric(key=key, label=label, unit=unit, better="less", target=target)


def _with_optuna(argument: str) -> tuple[Contender, ...]:
    """Return the same trials with syncline, with Ray and with Optuna."""
    return (
        *libraries("tune.trials", argument),
        Contender(name=_OPTUNA, module="tune.trials_optuna", argument=argument),
    )


def _regret(key: str, label: str) -> tuple[Metric, Metric]:
    """Return the regret of a search, and its difference to Optuna's."""
    return (
        _less(key, f"median regret over seeds, {label}", ""),
        _less(
            f"{key}_worse",
            "excess over Optuna's regret, in standard errors",
            "",
            Target(limit=_NOISE),
        ),
    )


ROWS: tuple[Row, ...] = (
    Row(
        name="trials",
        group="tune",
        contenders=_with_optuna("few"),
        metrics=(
            _per_s("trials_per_s", "50 trivial trials of 10 reports", Target(limit=100)),
            _per_s("reused_per_s", "same, reuse_actors=True", Target(limit=100)),
            _per_s("starts_per_s", "processes that start, answer one call and end, no search"),
            _less("process_s", "whole process", "s"),
        ),
        timeout_s=300.0,
    ),
    Row(
        name="many_trials",
        group="tune",
        contenders=(
            *_with_optuna("many"),
            Contender(name=_JOURNAL, module="tune.trials_optuna", argument="journal"),
        ),
        metrics=(
            _per_s(
                "thousand_per_s",
                "1 000 trials of one report (Ray: 40; Optuna with a journal: 400)",
                Target(limit=100),
            ),
            _less("controller_ms", "same, CPU time of the program per trial", "ms"),
            _per_s("worker_thousand_per_s", 'same, isolation="worker"', Target(limit=2_000)),
            _per_s("ten_thousand_per_s", '10 000 trials of one report, isolation="worker"'),
            _less("growth", "cost per trial relative to 1 000 trials", "", Target(limit=1.2)),
            _less("trial_kb", "memory of the program per trial", "kB"),
        ),
        timeout_s=900.0,
    ),
    Row(
        name="turnover",
        group="tune",
        contenders=libraries("tune.turnover"),
        metrics=(
            _less(
                "returned_ms",
                "a trial returns until the first line of its successor",
                "ms",
                Target(limit=0.1, peers=(RAY,)),
            ),
            _less(
                "stopped_ms",
                "the search stops a trial until the first line of its successor",
                "ms",
                Target(limit=0.1, peers=(RAY,)),
            ),
        ),
    ),
    Row(
        name="restore",
        group="tune",
        contenders=libraries("tune.restore"),
        metrics=(
            _less("restore_s", "killed after 10 000 trials (Ray: 200) until restored", "s"),
            _less("each_ms", "same, per trial", "ms", Target(limit=1.0, peers=(RAY,))),
            _less("run_again", "finished trials that ran again", "", Target(limit=0)),
            _less("results_s", "time to read the results of that search", "s"),
        ),
        timeout_s=600.0,
    ),
    Row(
        name="search_controller",
        group="tune",
        contenders=(
            Contender(name=OURS, module="tune.controller_simulation", argument="syncline"),
        ),
        metrics=(
            _less("event_us_100", "controller and ASHA alone, one event with 100 trials", "us"),
            _less("event_us_10000", "one event with 10 000 trials", "us"),
            _less("growth", "cost of an event relative to 100 trials", "", Target(limit=1.5)),
            _less("bytes_per_trial", "memory per trial at the end", "bytes"),
        ),
    ),
    Row(
        name="population",
        group="tune",
        contenders=libraries("tune.population"),
        metrics=(
            _less(
                "fit_s",
                "PBT of a small CNN, 4 members on 2 CPUs, 8 intervals",
                "s",
                Target(limit=1.0, peers=(RAY,)),
            ),
            Metric(key="best_accuracy", label="best accuracy", unit="", better="more"),
        ),
        timeout_s=300.0,
    ),
    Row(
        name="search_quality",
        group="tune",
        contenders=(
            Contender(name=OURS, module="tune.quality", argument="syncline"),
            Contender(name=_OPTUNA, module="tune.quality", argument="optuna"),
        ),
        metrics=(
            *(
                metric
                for name, label in _FUNCTIONS.items()
                for metric in _regret(f"tpe_{name}", f"TPE, {label}")
            ),
            *_regret("tuner_branin", "TPE, Branin, by Tuner in 2 processes"),
            *(
                metric
                for name, label in _FUNCTIONS.items()
                for metric in _regret(f"asha_{name}", f"ASHA, {label}")
            ),
        ),
        timeout_s=300.0,
    ),
)
