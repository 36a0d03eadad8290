"""Figures of a search as numbers: which trials' curves are drawn, and the axes of parallel
coordinates. Pure.

With many trials not all can be drawn: the best ones are, those that run, and of the others some
from each range of quality. What is left out is said.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from syncline.dashboard.searches import Mode, TrialView, Value, ranked
from syncline.runs.series import Axis, Series

MOST_CURVES = 150
MOST_POINTS = 12_000
"""Points of all curves together."""
HIGHLIGHTED = 3
"""So many of the best trials are drawn thick, with their names."""
MOST_RUNNING = 200
"""Running trials whose latest results are looked at."""
MOST_LINES = 1_000
"""Trials in parallel coordinates."""
MOST_AXES = 10
MOST_CATEGORIES = 20
LOGARITHMIC_SPAN = 100.0
"""Positive numbers that differ by at least this factor are shown on a logarithmic axis."""
OTHERS = "(others)"
NONE = "(none)"


@dataclass(frozen=True, kw_only=True)
class TrialCurve:
    """One trial's values of a metric."""

    trial: TrialView
    """Whose."""
    rank: int | None
    """Its place among the trials by their latest values, from 0; None without one."""
    x: Sequence[float]
    """Iterations, or seconds since the trial's first result."""
    y: Sequence[float]
    """As many values."""


@dataclass(frozen=True, kw_only=True)
class Curves:
    """Learning curves."""

    curves: Sequence[TrialCurve]
    """The best trial's last, so that it is drawn above the others."""
    trials: int
    """How many trials have the metric."""

    @property
    def left_out(self) -> str:
        """What is not drawn, in words; "" if everything is."""
        if len(self.curves) >= self.trials:
            return ""
        return (
            f"{len(self.curves)} of {self.trials} trials are drawn: the best, those that run, and of the others some of each quality. "
            "The table has all."
        )


@dataclass(frozen=True, kw_only=True)
class AxisOf:
    """One axis of parallel coordinates."""

    name: str
    """Of the parameter, or of the metric."""
    kind: Literal["value", "log", "category"]
    """How values are laid out."""
    low: float = 0.0
    """The smallest value."""
    high: float = 1.0
    """The largest one."""
    categories: Sequence[str] = ()
    """In their order, of an axis of that kind."""


@dataclass(frozen=True, kw_only=True)
class ParallelLines:
    """Parallel coordinates: a line for each trial, through its parameters to its latest value of
    the metric.
    """

    axes: Sequence[AxisOf]
    """The metric's is the last."""
    lines: Sequence[tuple[TrialView, Sequence[float | None]]]
    """Trials with a value for each axis: of a category its number; the best trial last."""
    left_out: str
    """What is not drawn, in words."""


def curves_of(
    trials: Sequence[TrialView],
    series: Series,
    metric: str,
    mode: Mode,
    over: Axis,
    most: int = MOST_CURVES,
    most_points: int = MOST_POINTS,
) -> Curves:
    """The learning curves to draw."""
    having = [
        trial for trial in trials if metric in trial.metrics or metric in series.last(trial.id)
    ]
    order = {trial.id: rank for rank, trial in enumerate(ranked(having, metric, mode))}
    chosen = sorted(
        chosen_of(having, order, most),
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


def latest_of(
    trials: Iterable[TrialView], series: Series
) -> dict[str, tuple[int, Mapping[str, float]]]:
    """Iteration and metrics of the latest results of trials that run."""
    found: dict[str, tuple[int, Mapping[str, float]]] = {}
    for trial in trials:
        if trial.status != "RUNNING" or len(found) == MOST_RUNNING:
            continue
        metrics = series.last(trial.id)
        x = next(
            (x for name in metrics if (x := series.curve(name, trial.id, max_points=4)[0])), []
        )
        if x and math.isfinite(x[-1]):
            found[trial.id] = (int(x[-1]), metrics)
    return found


def chosen_of(trials: Sequence[TrialView], order: Mapping[str, int], most: int) -> list[TrialView]:
    """At most so many trials: a third the best ones, a third those that run, the rest from all
    ranks alike.
    """
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


def parallel_of(
    trials: Sequence[TrialView],
    parameters: Sequence[str],
    metric: str,
    mode: Mode,
    most: int = MOST_LINES,
) -> ParallelLines:
    """Parallel coordinates of trials that have a value of the metric."""
    having = ranked(trials, metric, mode)
    order = {trial.id: rank for rank, trial in enumerate(having)}
    chosen = sorted(chosen_of(having, order, most), key=lambda trial: order[trial.id], reverse=True)
    shown = list(parameters[:MOST_AXES])
    axes = [axis_of(name, [trial.parameters.get(name) for trial in chosen]) for name in shown]
    axes.append(axis_of(metric, [trial.metrics[metric] for trial in chosen]))
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


def axis_of(name: str, values: Iterable[Value]) -> AxisOf:
    """The axis that suits values: numbers on a scale, logarithmic where they span decades;
    everything else by name.
    """
    known = list(values)
    numbers = [
        float(value)
        for value in known
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    if numbers and len(numbers) == sum(value is not None for value in known):
        low, high = min(numbers), max(numbers)
        is_log = low > 0 and high / low >= LOGARITHMIC_SPAN
        return AxisOf(name=name, kind="log" if is_log else "value", low=low, high=high)
    found = Counter(_category(value) for value in known)
    kept = [category for category, _ in found.most_common(MOST_CATEGORIES)]
    return AxisOf(
        name=name,
        kind="category",
        categories=sorted(kept) + ([OTHERS] if len(found) > len(kept) else []),
    )


def range_of(values: Sequence[float]) -> tuple[float, float]:
    """What colours are spread over: all values, but few that lie far away from the others do not
    take the colours from these.
    """
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


def _place(axis: AxisOf, value: Value) -> float | None:
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
