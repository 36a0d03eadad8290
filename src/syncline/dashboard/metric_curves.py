"""Curves of metrics for charts: horizontal axis, smoothing and thinning. Pure.

A metric may itself be the horizontal axis, such as `epoch` or `global_step`. Reports that lack it
are left out then, and the values of reports with equal positions are averaged.

Smoothing is the exponential moving average of TensorBoard with its correction of the start: point n
is the mean of all values up to n, weighted with powers of the smoothing factor.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syncline.runs.metric_series import AllPoints, Series, thinned

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_POINTS = 600
"""Points of a line; more cannot be distinguished."""
MAX_SMOOTHED = 100_000
"""Points that are smoothed; a longer curve is thinned before."""
REPORT = "report"
TIME = "time"
ELAPSED = "elapsed"
_METRIC = "metric:"
_UNITS = ((600.0, 1.0, "s"), (18_000.0, 60.0, "min"), (float("inf"), 3_600.0, "h"))
"""Upper limit of the elapsed seconds, and the unit below it."""
_POSITIONS = frozenset(
    {"epoch", "step", "global_step", "iteration", "training_iteration", "samples", "tokens"}
)
"""Metrics that count completed units, by the last part of their names."""
_MAX_AXES = 8


@dataclass(frozen=True, kw_only=True)
class CurveStyle:
    """Settings of a chart's curves."""

    over: str = REPORT
    """Horizontal axis, one of `axis_names`."""
    smoothing: float = 0.0
    """Weight of the earlier values, from 0 (no smoothing) to below 1."""

    @property
    def over_time(self) -> bool:
        """True if positions are moments."""
        return self.over == TIME

    @property
    def metric(self) -> str | None:
        """Metric that is the axis, if any."""
        return self.over.removeprefix(_METRIC) if self.over.startswith(_METRIC) else None


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One curve, ready to draw."""

    x: Sequence[float]
    y: Sequence[float]
    smooth_x: Sequence[float] = ()
    """Positions of the smoothed curve; empty without smoothing."""
    smooth_y: Sequence[float] = ()


def axis_names(names: Iterable[str]) -> dict[str, str]:
    """Return the axes that metrics offer, with their labels."""
    counted = [name for name in names if is_counter(name)]
    return {
        REPORT: "report",
        **{f"{_METRIC}{name}": name for name in counted[:_MAX_AXES]},
        ELAPSED: "time since start",
        TIME: "date and time",
    }


def is_counter(name: str) -> bool:
    """Return True if a metric counts completed units, such as `epoch`."""
    return name.rpartition("/")[2].lower() in _POSITIONS


def elapsed_unit(longest_s: float) -> tuple[float, str]:
    """Return the seconds of a readable unit and its name for an axis of this length."""
    return next((length, unit) for limit, length, unit in _UNITS if longest_s < limit)


def curve_of(
    series: Series,
    name: str,
    member: str | None,
    style: CurveStyle,
    *,
    start: float = 0.0,
    max_points: int = MAX_POINTS,
) -> Curve:
    """Return the curve of a metric.

    Args:
        series: Reported metrics of a run.
        name: Metric.
        member: Rank or trial ID; None for the mean over all members.
        style: Axis and smoothing.
        start: Zero of the axis `elapsed`, in seconds since the epoch.
        max_points: Maximum points.
    """
    points = _points(series, name, member)
    x, y = points.iterations, points.values
    if style.over == TIME:
        x = points.times
    elif style.over == ELAPSED:
        x = points.times - start
    elif style.metric is not None:
        x, y = _joined(_points(series, style.metric, member), points)
    drawn = thinned(x, y, max_points)
    if not style.smoothing or len(y) < 3:
        return Curve(x=drawn[0], y=drawn[1])
    if len(y) > MAX_SMOOTHED:
        np = _numpy()
        x, y = map(np.array, thinned(x, y, MAX_SMOOTHED))
    smooth = thinned(x, smoothed(y, style.smoothing), max_points)
    return Curve(x=drawn[0], y=drawn[1], smooth_x=smooth[0], smooth_y=smooth[1])


def smoothed(values: npt.NDArray[np.float64], weight: float) -> npt.NDArray[np.float64]:
    """Return the exponential moving average; values that are not finite neither count nor change.

    Args:
        values: Shape (n,).
        weight: Weight of the earlier values, at least 0 and below 1.
    """
    np = _numpy()
    found, mean, total = [], 0.0, 0.0
    for value in values.tolist():
        if value - value != 0.0:  # infinite or not a number
            found.append(value)
            continue
        mean = weight * mean + (1 - weight) * value
        total = weight * total + (1 - weight)
        found.append(mean / total)
    return np.array(found)  # type: ignore[no-any-return]


def _points(series: Series, name: str, member: str | None) -> AllPoints:
    return series.mean_points(name) if member is None else series.points(name, member)


def _joined(
    positions: AllPoints, points: AllPoints
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return position and mean value of the reports that have both."""
    np = _numpy()
    _, of_position, of_value = np.intersect1d(
        positions.iterations, points.iterations, assume_unique=True, return_indices=True
    )
    x, y = positions.values[of_position], points.values[of_value]
    is_known = np.isfinite(x)
    x, places = np.unique(x[is_known], return_inverse=True)
    sums = np.bincount(places, weights=y[is_known], minlength=len(x))
    return x, sums / np.bincount(places, minlength=len(x)).clip(1)


def _numpy() -> Any:
    """Load numpy on first use: listing runs does not need it."""
    return importlib.import_module("numpy")
