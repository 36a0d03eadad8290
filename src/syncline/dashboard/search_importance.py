"""How much each parameter decides whether a trial is among the better ones: PED-ANOVA (Watanabe,
Bansal and Hutter, 2023), of Optuna.

The same as `syncline.tune.plots.parameter_importance` draws, from the record instead of the search.
Deterministic. Takes up to seconds: called in a thread.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from syncline.dashboard.search_figures import LOGARITHMIC_SPAN
from syncline.dashboard.searches import ENDED, Mode, TrialView

FEWEST_TRIALS = 10
"""Of fewer that have ended, nothing is concluded."""
MOST_TRIALS = 2_000
MOST_PARAMETERS = 30
COMMON = 0.9
"""Only parameters are compared that this share of the trials have, and only trials that have all of
these.
"""


@dataclass(frozen=True, kw_only=True)
class Importance:
    """What the parameters count."""

    shares: Sequence[tuple[str, float]] = ()
    """(parameter, share); the shares are 1 together, the largest first."""
    trials: int = 0
    """Trials that were compared."""
    problem: str = ""
    """Why there are no shares."""


def importance_of(
    trials: Sequence[TrialView], parameters: Sequence[str], metric: str, mode: Mode
) -> Importance:
    """Of trials that have ended with a value of the metric."""
    ended = [trial for trial in trials if trial.status in ENDED and metric in trial.metrics][
        -MOST_TRIALS:
    ]
    if len(ended) < FEWEST_TRIALS:
        return Importance(
            trials=len(ended),
            problem=f"It takes {FEWEST_TRIALS} trials that have ended; so far there are {len(ended)}.",
        )
    common = [
        name
        for name in parameters
        if sum(name in trial.parameters for trial in ended) >= COMMON * len(ended)
    ][:MOST_PARAMETERS]
    ended = [trial for trial in ended if all(name in trial.parameters for name in common)]
    columns: dict[str, list[bool | int | float | str]] = {}
    for name in common:
        values = [_plain(trial.parameters[name]) for trial in ended]
        if len(set(values)) > 1:
            columns[name] = values
    if not columns:
        return Importance(
            trials=len(ended), problem="No parameter differs between the trials that have ended."
        )
    try:
        optuna, evaluation = (
            importlib.import_module("optuna"),
            importlib.import_module("optuna.importance"),
        )
    except ImportError as error:
        return Importance(
            trials=len(ended), problem=f"Needs Optuna ({error}): pip install 'syncline[tune]'"
        )
    keys = {f"p{number}": name for number, name in enumerate(columns)}
    distributions = {
        key: _distribution(columns[name], optuna.distributions) for key, name in keys.items()
    }
    study = _quiet_study(optuna, mode)
    study.add_trials(
        [
            optuna.trial.create_trial(
                params={key: columns[name][place] for key, name in keys.items()},
                distributions=distributions,
                value=trial.metrics[metric],
            )
            for place, trial in enumerate(ended)
        ]
    )
    try:
        shares = evaluation.get_param_importances(
            study, evaluator=evaluation.PedAnovaImportanceEvaluator()
        )
    except (ValueError, RuntimeError, ArithmeticError) as error:
        return Importance(trials=len(ended), problem=f"Cannot be worked out: {error}")
    found = sorted(
        ((keys[key], float(share)) for key, share in shares.items()), key=lambda each: -each[1]
    )
    return Importance(shares=found, trials=len(ended))


def _quiet_study(optuna: Any, mode: Mode) -> Any:
    """A study in memory; Optuna would print that there is one."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(direction="maximize" if mode == "max" else "minimize")
    finally:
        optuna.logging.set_verbosity(verbosity)


def _distribution(values: Sequence[bool | int | float | str], distributions: Any) -> Any:
    """The narrowest one of Optuna that has all values, of which two differ."""
    numbers = [value for value in values if not isinstance(value, (bool, str))]
    if len(numbers) < len(values):
        return distributions.CategoricalDistribution(
            sorted(set(values), key=lambda value: (type(value).__name__, value))
        )
    low, high = min(numbers), max(numbers)
    is_log = low > 0 and high / low >= LOGARITHMIC_SPAN
    if all(isinstance(value, int) for value in numbers):
        return distributions.IntDistribution(low, high, log=is_log)
    return distributions.FloatDistribution(float(low), float(high), log=is_log)


def _plain(value: bool | int | float | str | None) -> bool | int | float | str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**53:
        return float(value)
    return "None" if value is None else value
