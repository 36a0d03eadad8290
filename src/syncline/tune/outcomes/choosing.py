"""Which trial is the best, and what to say where a metric is none. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Literal, get_args

from syncline.tune.experiment.trial import Trial
from syncline.tune.result import AUTO_RESULT_KEYS

Scope = Literal["last", "avg", "all", "last-5-avg", "last-10-avg"]
"""Which values of a metric count: the last, the average of all, of the last five or ten, or ("all")
the best one there ever was.
"""
SCOPES: tuple[str, ...] = get_args(Scope)


def check_mode(mode: str | None, where: str) -> None:
    """ValueError for a mode that is none; None is allowed."""
    if mode not in (None, "min", "max"):
        raise ValueError(
            f'{where}: mode={mode!r} is neither "min" nor "max", so it is not known what is better: give one of the two.'
        )


def best_trial(
    trials: Iterable[Trial],
    metric: str,
    mode: str,
    scope: str = "last",
    *,
    filter_nan_and_inf: bool = True,
) -> Trial | None:
    """The trial with the best value, the first of equal ones; None if no trial has one.

    Args:
        trials: Those to compare.
        metric: Its key in results, `a/b` if nested.
        mode: "min" or "max".
        scope: One of `Scope`.
        filter_nan_and_inf: Leave trials out whose value is infinite or not a number.

    Raises:
        ValueError: `scope` is none.
    """
    if scope not in SCOPES:
        raise ValueError(
            f"scope={scope!r} is unknown, so it is not clear which values of {metric!r} count: give one of {list(SCOPES)}."
        )
    which = mode if scope == "all" else scope
    best: Trial | None = None
    best_value = 0.0
    for trial in trials:
        summary = trial.summary(metric)
        if summary is None:
            continue
        value = summary[which]
        if filter_nan_and_inf and not math.isfinite(value):
            continue
        if best is None or (value > best_value if mode == "max" else value < best_value):
            best, best_value = trial, value
    return best


def known_metrics(trials: Iterable[Trial]) -> list[str]:
    """Every number that a trial has reported, the trainable's own ones first."""
    names = {name: None for trial in trials for name in trial.metric_analysis}
    return sorted(names, key=lambda name: (name in AUTO_RESULT_KEYS, name))


def nothing_best(metric: str, trials: Sequence[Trial], *, filter_nan_and_inf: bool) -> str:
    """Why no trial is the best: nobody reported the metric (and which name may be meant), or nobody
    reported a usable value.
    """
    names = known_metrics(trials)
    if metric in names:
        filtered = (
            " that is finite: fix the trainable, or give `filter_nan_and_inf=False`"
            if filter_nan_and_inf
            else ""
        )
        return f"No trial has a value of {metric!r}{filtered}."
    if not names:
        return f"No trial has reported {metric!r}, or any other number, so none is the best: look at `results.errors`."
    near = get_close_matches(metric, names, n=1, cutoff=0.5)
    own = [name for name in names if name not in AUTO_RESULT_KEYS] or names
    hint = f"Do you mean {near[0]!r}? " if near else ""
    return f"No trial has reported a number under {metric!r}, so none is the best. {hint}Reported are {own}."
