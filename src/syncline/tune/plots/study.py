"""An Optuna study of trials that have ended, for Optuna's visualisation.

The search space is not asked for, because a trial may come from anywhere: each parameter's
distribution is inferred from its values. Parameters that are neither numbers nor texts are shown by
their description, and those that never vary are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from syncline.train import metric_values
from syncline.tune.console.snapshot import short_names
from syncline.tune.experiment.trial import Trial
from syncline.tune.plots.libraries import load
from syncline.tune.trial_history import no_best_trial

LOGARITHMIC_SPAN = 100.0
"""Positive numbers that differ by at least this factor are shown on a logarithmic axis."""


def study_of(trials: Sequence[Trial], metric: str, mode: str) -> Any:
    """An `optuna.study.Study` with a completed trial for each trial that has a finite latest value.

    Raises:
        ValueError: There is none, or no parameter varies.
    """
    optuna = load("optuna")
    scored = [(trial, value) for trial in trials if (value := _value(trial, metric)) is not None]
    if not scored:
        raise ValueError(no_best_trial(metric, trials, filter_nan_and_inf=True))
    names = short_names(sorted({key for trial, _ in scored for key in trial.evaluated_params}))
    held = {
        key: [
            plain(trial.evaluated_params[key])
            for trial, _ in scored
            if key in trial.evaluated_params
        ]
        for key in names
    }
    varied = {key: values for key, values in held.items() if len(set(values)) > 1}
    if not varied:
        raise ValueError(
            f"No parameter differs between the {len(scored)} trials that report {metric!r}, so there is nothing to show."
        )
    distributions = {
        key: distribution(values, optuna.distributions) for key, values in varied.items()
    }
    study = _quiet_study(optuna, metric, mode)
    study.add_trials(
        [_frozen(optuna, trial, value, names, distributions) for trial, value in scored]
    )
    return study


def distribution(values: Sequence[bool | int | float | str], distributions: Any) -> Any:
    """The narrowest distribution of Optuna that has all `values`, of which two differ."""
    numbers = [value for value in values if not isinstance(value, (bool, str))]
    if len(numbers) < len(values):
        return distributions.CategoricalDistribution(
            sorted(set(values), key=lambda value: (type(value).__name__, value))
        )
    low, high = min(numbers), max(numbers)
    logarithmic = low > 0 and high / low >= LOGARITHMIC_SPAN
    if all(isinstance(value, int) for value in numbers):
        return distributions.IntDistribution(low, high, log=logarithmic)
    return distributions.FloatDistribution(float(low), float(high), log=logarithmic)


def plain(value: Any) -> bool | int | float | str:
    """A parameter as Optuna can hold it."""
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return str(value)


def _quiet_study(optuna: Any, metric: str, mode: str) -> Any:
    """A study in memory; Optuna would print that there is one."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(
            direction="maximize" if mode == "max" else "minimize", study_name=metric
        )
    finally:
        optuna.logging.set_verbosity(verbosity)


def _frozen(
    optuna: Any,
    trial: Trial,
    value: float,
    names: Mapping[str, str],
    distributions: Mapping[str, Any],
) -> Any:
    keys = [key for key in trial.evaluated_params if key in distributions]
    parameters = {names[key]: plain(trial.evaluated_params[key]) for key in keys}
    own = {names[key]: distributions[key] for key in keys}
    return optuna.trial.create_trial(
        params=parameters, distributions=own, value=value, user_attrs={"trial": str(trial)}
    )


def _value(trial: Trial, metric: str) -> float | None:
    value = metric_values.score(trial.last_result, metric, "max")
    return value if value is not None and math.isfinite(value) else None
