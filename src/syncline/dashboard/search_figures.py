"""Figures of a search as numbers: learning curves, parallel coordinates and parameter importance.
Pure.

Not all of many trials can be drawn: the best and the running ones are, and a sample of the others
from each range of quality. Notes give the numbers left out.
"""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from syncline.dashboard.search_trials import ENDED, Mode, TrialView, Value, ranked
from syncline.runs.metric_series import Axis, Series

MAX_CURVES = 150
MAX_POINTS = 12_000
"""Maximum points of all curves together."""
HIGHLIGHTED = 3
"""Number of best trials drawn with thick, named lines."""
MAX_RUNNING = 200
"""Maximum running trials whose latest results are read."""
MAX_LINES = 1_000
"""Maximum trials in parallel coordinates."""
MAX_AXES = 10
MAX_CATEGORIES = 20
LOGARITHMIC_SPAN = 100.0
"""Positive values whose extremes differ by at least this factor get a logarithmic axis."""
OTHERS = "(others)"
NONE = "(none)"


@dataclass(frozen=True, kw_only=True)
class TrialCurve:
    """One trial's values of a metric."""

    trial: TrialView
    """Trial of the curve."""
    rank: int | None
    """Position by its latest value, from 0; None without one."""
    x: Sequence[float]
    """Iterations, or seconds since the trial's first result."""
    y: Sequence[float]
    """Values."""


@dataclass(frozen=True, kw_only=True)
class Curves:
    """Learning curves."""

    curves: Sequence[TrialCurve]
    """Curves; the best trial is last, so that it is drawn on top."""
    trials: int
    """Number of trials that report the metric."""

    @property
    def left_out(self) -> str:
        """Note about curves that are not drawn; empty if all are."""
        if len(self.curves) >= self.trials:
            return ""
        return (
            f"{len(self.curves)} of {self.trials} trials are drawn: the best, the running, and a "
            "sample of the others. The table lists all."
        )


@dataclass(frozen=True, kw_only=True)
class ParallelAxis:
    """One axis of parallel coordinates."""

    name: str
    """Name of the parameter or metric."""
    kind: Literal["value", "log", "category"]
    """Scale of the axis."""
    low: float = 0.0
    """Smallest value."""
    high: float = 1.0
    """Largest value."""
    categories: Sequence[str] = ()
    """Categories in order, if `kind` is "category"."""


@dataclass(frozen=True, kw_only=True)
class ParallelLines:
    """Parallel coordinates: a line per trial through its parameters to its latest metric value."""

    axes: Sequence[ParallelAxis]
    """Axes of the parameters, then that of the metric."""
    lines: Sequence[tuple[TrialView, Sequence[float | None]]]
    """Trials with a value per axis, for categories their index; the best trial last."""
    left_out: str
    """Note about trials and parameters that are not drawn."""


def select_curves(
    trials: Sequence[TrialView],
    series: Series,
    metric: str,
    mode: Mode,
    over: Axis,
    most: int = MAX_CURVES,
    most_points: int = MAX_POINTS,
) -> Curves:
    """Select the learning curves to draw."""
    having = [
        trial for trial in trials if metric in trial.metrics or metric in series.last(trial.id)
    ]
    order = {trial.id: rank for rank, trial in enumerate(ranked(having, metric, mode))}
    chosen = sorted(
        select_trials(having, order, most),
        key=lambda trial: order.get(trial.id, len(having)),
        reverse=True,
    )
    points = max(4, most_points // max(1, len(chosen)))
    curves = []
    for trial in chosen:
        x, y = series.curve(metric, trial.id, max_points=points, over=over)
        if over == "time" and x:
            x = [moment - x[0] for moment in x]
        curves.append(TrialCurve(trial=trial, rank=order.get(trial.id), x=x, y=y))
    return Curves(curves=curves, trials=len(having))


def latest_results(
    trials: Iterable[TrialView], series: Series
) -> dict[str, tuple[int, Mapping[str, float]]]:
    """Return iteration and metrics of the latest results of running trials."""
    found: dict[str, tuple[int, Mapping[str, float]]] = {}
    for trial in trials:
        if trial.status != "RUNNING" or len(found) == MAX_RUNNING:
            continue
        metrics = series.last(trial.id)
        x = next(
            (x for name in metrics if (x := series.curve(name, trial.id, max_points=4)[0])), []
        )
        if x and math.isfinite(x[-1]):
            found[trial.id] = (int(x[-1]), metrics)
    return found


def select_trials(
    trials: Sequence[TrialView], order: Mapping[str, int], most: int
) -> list[TrialView]:
    """Select at most `most` trials: a third the best, a third running, the rest evenly by rank."""
    if len(trials) <= most:
        return list(trials)
    by_rank = sorted(trials, key=lambda trial: order.get(trial.id, len(trials)))
    chosen = {trial.id: trial for trial in by_rank[: most // 3]}
    running = (
        [trial for trial in trials if trial.status == "RUNNING" and trial.id not in chosen][
            -(most // 3) :
        ]
        if most >= 3
        else []
    )
    chosen.update((trial.id, trial) for trial in running)
    rest = [trial for trial in by_rank if trial.id not in chosen]
    room = most - len(chosen)
    chosen.update(
        (trial.id, trial) for trial in (rest[place * len(rest) // room] for place in range(room))
    )
    return list(chosen.values())


def parallel_coordinates(
    trials: Sequence[TrialView],
    parameters: Sequence[str],
    metric: str,
    mode: Mode,
    most: int = MAX_LINES,
) -> ParallelLines:
    """Return the parallel coordinates of trials that have a value of the metric."""
    having = ranked(trials, metric, mode)
    order = {trial.id: rank for rank, trial in enumerate(having)}
    chosen = sorted(
        select_trials(having, order, most), key=lambda trial: order[trial.id], reverse=True
    )
    shown = list(parameters[:MAX_AXES])
    axes = [choose_axis(name, [trial.parameters.get(name) for trial in chosen]) for name in shown]
    axes.append(choose_axis(metric, [trial.metrics[metric] for trial in chosen]))
    lines = []
    for trial in chosen:
        places = [
            _place(axis, trial.parameters.get(name))
            for axis, name in zip(axes, shown, strict=False)
        ]
        lines.append((trial, [*places, trial.metrics[metric]]))
    said = []
    if len(chosen) < len(having):
        said.append(f"{len(chosen)} of {len(having)} trials are drawn")
    if len(parameters) > len(shown):
        said.append(f"{len(shown)} of {len(parameters)} parameters have an axis")
    return ParallelLines(axes=axes, lines=lines, left_out="; ".join(said))


def choose_axis(name: str, values: Iterable[Value]) -> ParallelAxis:
    """Return the axis for values: numeric, logarithmic if they span decades, or categories."""
    known = list(values)
    numbers = [
        float(value)
        for value in known
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    if numbers and len(numbers) == sum(value is not None for value in known):
        low, high = min(numbers), max(numbers)
        is_log = low > 0 and high / low >= LOGARITHMIC_SPAN
        return ParallelAxis(name=name, kind="log" if is_log else "value", low=low, high=high)
    found = Counter(_category(value) for value in known)
    kept = [category for category, _ in found.most_common(MAX_CATEGORIES)]
    return ParallelAxis(
        name=name,
        kind="category",
        categories=sorted(kept) + ([OTHERS] if len(found) > len(kept) else []),
    )


def color_range(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of a color scale: the range of the values without distant outliers."""
    ordered = sorted(values)
    if not ordered:
        return 0.0, 1.0
    low, high = ordered[0], ordered[-1]
    if len(ordered) >= 20:
        near, far = ordered[len(ordered) // 20], ordered[-1 - len(ordered) // 20]
        spread = far - near
        if math.isfinite(spread) and spread > 0:
            low, high = max(low, near - spread), min(high, far + spread)
    return (low, high) if high > low else (low, low + (abs(low) or 1.0))


def _place(axis: ParallelAxis, value: Value) -> float | None:
    if axis.kind != "category":
        return (
            float(value)
            if isinstance(value, (int, float)) and not isinstance(value, bool)
            else None
        )
    category = _category(value)
    if category not in axis.categories:
        category = OTHERS
    return float(axis.categories.index(category))


def _category(value: Value) -> str:
    return NONE if value is None else str(value)[:40]


MIN_TRIALS = 10
"""Minimum number of ended trials."""
MAX_TRIALS = 2_000
MAX_PARAMETERS = 30
COMMON = 0.9
"""Minimum share of trials with a parameter; only trials with all such parameters are used."""


@dataclass(frozen=True, kw_only=True)
class Importance:
    """Importance of the parameters."""

    shares: Sequence[tuple[str, float]] = ()
    """(parameter, share) in descending order; the shares add up to 1."""
    trials: int = 0
    """Number of trials used."""
    problem: str = ""
    """Reason why there are no shares."""


def importance_of(
    trials: Sequence[TrialView], parameters: Sequence[str], metric: str, mode: Mode
) -> Importance:
    """Compute how much each parameter decides whether a trial is among the better ones.

    Uses PED-ANOVA (Watanabe, Bansal and Hutter, 2023) of Optuna on the ended trials that have a
    value of the metric; equals `syncline.tune.plots.parameter_importance`. Deterministic. Takes up
    to seconds: call it in a thread.
    """
    ended = [trial for trial in trials if trial.status in ENDED and metric in trial.metrics][
        -MAX_TRIALS:
    ]
    if len(ended) < MIN_TRIALS:
        return Importance(
            trials=len(ended),
            problem=f"Needs {MIN_TRIALS} ended trials; there are {len(ended)} so far.",
        )
    common = [
        name
        for name in parameters
        if sum(name in trial.parameters for trial in ended) >= COMMON * len(ended)
    ][:MAX_PARAMETERS]
    ended = [trial for trial in ended if all(name in trial.parameters for name in common)]
    columns: dict[str, list[bool | int | float | str]] = {}
    for name in common:
        values = [_plain(trial.parameters[name]) for trial in ended]
        if len(set(values)) > 1:
            columns[name] = values
    if not columns:
        return Importance(trials=len(ended), problem="All ended trials have the same parameters.")
    try:
        optuna, evaluation = (
            importlib.import_module("optuna"),
            importlib.import_module("optuna.importance"),
        )
    except ImportError as error:
        return Importance(
            trials=len(ended), problem=f"Needs Optuna ({error}): pip install 'syncline[tune]'"
        )
    # Imported only for this figure, since it takes most of a second.
    from syncline.tune.plots.figures import distribution
    from syncline.tune.search.optuna.optuna_search import quiet

    keys = {f"p{number}": name for number, name in enumerate(columns)}
    distributions = {
        key: distribution(columns[name], optuna.distributions) for key, name in keys.items()
    }
    with quiet(optuna):
        study = optuna.create_study(direction="maximize" if mode == "max" else "minimize")
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
        return Importance(trials=len(ended), problem=f"The computation failed: {error}")
    found = sorted(
        ((keys[key], float(share)) for key, share in shares.items()), key=lambda each: -each[1]
    )
    return Importance(shares=found, trials=len(ended))


def _plain(value: bool | int | float | str | None) -> bool | int | float | str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**53:
        return float(value)
    return "None" if value is None else value
