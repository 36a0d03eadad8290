"""Searches on this machine: trivial trials, few and many, what lies between two of them, restoring,
the controller alone, a population, and how good what is found is.
"""

from bench.rows.form import OURS, RAY, Contender, Metric, Row, Target, libraries, told

_OPTUNA = "Optuna"
_FUNCTIONS = {"branin": "Branin", "hartmann6": "Hartmann 6", "rosenbrock": "Rosenbrock 3"}
_NOISE = 2.0
"""Standard errors of a difference that say nothing."""


def _per_s(key: str, label: str, target: Target | None = None) -> Metric:
    return Metric(key=key, label=label, unit="trials/s", better="more", target=target)


def _less(key: str, label: str, unit: str, target: Target | None = None) -> Metric:
    return Metric(key=key, label=label, unit=unit, better="less", target=target)


def _with_optuna(argument: str) -> tuple[Contender, ...]:
    """The same trials with syncline, with Ray and in Optuna."""
    return (
        *told("tune.trials", argument),
        Contender(name=_OPTUNA, module="tune.trials_optuna", argument=argument),
    )


def _found(key: str, label: str) -> tuple[Metric, Metric]:
    """What a kind of search finds, and whether that is worse than what Optuna's finds."""
    return (
        _less(key, f"{label}: regret, median over seeds", ""),
        _less(
            f"{key}_worse",
            "worse than Optuna's by so many standard errors",
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
            _per_s("reused_per_s", "the same with reuse_actors=True", Target(limit=100)),
            _less("process_s", "the whole of that process", "s"),
        ),
        timeout_s=300.0,
    ),
    Row(
        name="many_trials",
        group="tune",
        contenders=_with_optuna("many"),
        metrics=(
            _per_s("thousand_per_s", "1 000 trials of one report (Ray: 40)"),
            _per_s("ten_thousand_per_s", "10 000 trials of one report"),
            _less("growth", "how much a trial's cost grew", "", Target(limit=1.2)),
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
                "trial returns to its successor's first line",
                "ms",
                Target(limit=0.1, peers=(RAY,)),
            ),
            _less(
                "stopped_ms",
                "the same where the search stops the trial",
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
            _less("restore_s", "killed after 10 000 trials (Ray: 200): restored and training", "s"),
            _less("each_ms", "that time for each trial", "ms", Target(limit=1.0, peers=(RAY,))),
            _less("run_again", "trials that had ended and ran again", "", Target(limit=0)),
            _less("results_s", "results of that search read, without running", "s"),
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
            _less("event_us_100", "controller and ASHA alone, per event: 100 trials", "us"),
            _less("event_us_10000", "the same: 10 000 trials", "us"),
            _less("growth", "how much an event grew", "", Target(limit=1.5)),
            _less("bytes_per_trial", "memory for each of these trials at the end", "bytes"),
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
            Metric(key="best_accuracy", label="best accuracy of that", unit="", better="more"),
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
                for metric in _found(f"tpe_{name}", f"TPE, {label}")
            ),
            *_found("tuner_branin", "TPE, Branin, by Tuner in 2 processes"),
            *(
                metric
                for name, label in _FUNCTIONS.items()
                for metric in _found(f"asha_{name}", f"ASHA, {label}")
            ),
        ),
        timeout_s=300.0,
    ),
)
