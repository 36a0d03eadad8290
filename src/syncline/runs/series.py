"""`Series`: the numbers that a run has reported, as curves. Pure.

Values that are no numbers are left out; nested metrics are named `a/b`. A report whose number was there before (the run went back to a
checkpoint) takes the place of that one and of what came after it. Curves with more points than can be drawn are thinned so that peaks stay:
of each of equally long stretches the lowest and the highest point are shown.
"""

from __future__ import annotations

import importlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MOST_NAMES = 500
"""Metrics that are kept of one run."""
Axis = Literal["iteration", "time"]
Points = tuple[list[float], list[float]]
_DEEPEST = 8


@dataclass(kw_only=True, eq=False)
class _Curve:
    iterations: array[float] = field(default_factory=lambda: array("d"))
    times: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def add(self, iteration: float, time: float, value: float) -> None:
        if self.iterations and iteration <= self.iterations[-1]:
            position = bisect_left(self.iterations, iteration)
            del self.iterations[position:], self.times[position:], self.values[position:]
        self.iterations.append(iteration)
        self.times.append(time)
        self.values.append(value)

    def axis(self, over: Axis) -> npt.NDArray[np.float64]:
        return _numpy().array(self.iterations if over == "iteration" else self.times)  # type: ignore[no-any-return]


class Series:
    """Grows with `add`. For one thread."""

    def __init__(self) -> None:
        self._curves: dict[str, dict[str, _Curve]] = {}
        self._last: dict[str, dict[str, Any]] = {}
        self._left_out: set[str] = set()

    @property
    def names(self) -> list[str]:
        """Metrics that have numbers, in the order in which they came."""
        return list(self._curves)

    @property
    def left_out(self) -> int:
        """How many metrics are not kept, because there are more than `MOST_NAMES`."""
        return len(self._left_out)

    @property
    def members(self) -> list[str]:
        """Who has reported: ranks as "0", "1", …, or ids of trials."""
        return sorted(self._last, key=lambda member: (not member.isdigit(), int(member) if member.isdigit() else 0, member))

    def last(self, member: str) -> dict[str, Any]:
        """The latest report of one, as it came; empty without one."""
        return self._last.get(member, {})

    def members_of(self, name: str) -> list[str]:
        """Who has reported this metric."""
        return [member for member in self.members if member in self._curves.get(name, {})]

    def add(self, record: Mapping[str, Any]) -> None:
        """Take a line of `metrics.jsonl`; one of another form is passed over."""
        iteration, time, metrics = record.get("iteration"), record.get("time"), record.get("metrics")
        member = record.get("trial", record.get("rank"))
        if not (_is_number(iteration) and _is_number(time) and isinstance(metrics, Mapping) and isinstance(member, (int, str))):
            return
        self._last[str(member)] = dict(metrics)
        for name, value in numbers(metrics):
            curves = self._curves.get(name)
            if curves is None:
                if len(self._curves) >= MOST_NAMES:
                    self._left_out.add(name)
                    continue
                curves = self._curves[name] = {}
            curves.setdefault(str(member), _Curve()).add(float(iteration), float(time), value)  # type: ignore[arg-type]

    def curve(self, name: str, member: str, max_points: int = 1000, over: Axis = "iteration") -> Points:
        """(x, y) of one metric of one rank or trial, thinned; empty where there is none. x: report number, or seconds since the epoch."""
        curve = self._curves.get(name, {}).get(member)
        if curve is None:
            return [], []
        return thinned(curve.axis(over), _numpy().array(curve.values), max_points)

    def reduced(self, name: str, max_points: int = 1000, over: Axis = "iteration") -> Points:
        """(x, y) of the mean over those who have reported the metric in each round."""
        curves = list(self._curves.get(name, {}).values())
        if not curves:
            return [], []
        np = _numpy()
        iterations = np.concatenate([np.array(curve.iterations) for curve in curves])
        values = np.concatenate([np.array(curve.values) for curve in curves])
        times = np.concatenate([np.array(curve.times) for curve in curves])
        rounds, places = np.unique(iterations, return_inverse=True)
        counts = np.bincount(places)
        x = rounds if over == "iteration" else np.bincount(places, weights=times) / counts
        return thinned(x, np.bincount(places, weights=values) / counts, max_points)


def numbers(metrics: Mapping[Any, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, float]]:
    """(name, value) of every number in nested metrics; truth values are none."""
    for key, value in metrics.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            if depth < _DEEPEST:
                yield from numbers(value, f"{name}/", depth + 1)
        elif _is_number(value):
            try:
                yield name, float(value)
            except OverflowError:  # a whole number beyond all floats
                continue


def thinned(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], max_points: int) -> Points:
    """At most `max_points` (at least 4) of the points, among them the first, the last, and the peaks of each stretch."""
    if len(x) <= max(4, max_points):
        return x.tolist(), y.tolist()
    np = _numpy()
    stretches = np.array_split(np.arange(1, len(x) - 1), max(1, (max_points - 2) // 2))
    finite = np.where(np.isfinite(y), y, np.nanmean(y[np.isfinite(y)]) if np.isfinite(y).any() else 0.0)
    chosen = {0, len(x) - 1}
    for stretch in stretches:
        part = finite[stretch]
        chosen.update((int(stretch[part.argmin()]), int(stretch[part.argmax()])))
    order = np.array(sorted(chosen))
    return x[order].tolist(), y[order].tolist()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _numpy() -> Any:
    """Loaded when curves are drawn: who only lists runs does not wait for it."""
    return importlib.import_module("numpy")
