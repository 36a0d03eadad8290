"""`Series`: reported metrics of a run as curves. Pure.

Only numbers are kept; nested metrics are named `a/b`. A run that resumes from a checkpoint reports
some iterations again: the new report replaces the old one and all later ones. Curves with more
points than can be drawn are thinned so that peaks stay visible: each of equally long intervals
keeps its lowest and highest point.
"""

from __future__ import annotations

import importlib
import operator
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

from syncline.records import dataclass
from syncline.runs.json_values import as_float
from syncline.runs.media import MediaValue, is_media

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_NAMES = 500
"""Maximum number of metrics of a run."""
MAX_NAME_LENGTH = 500
"""Maximum characters of a metric's name; metrics with longer names are left out."""
MAX_MEMBERS = 20_000
"""Maximum number of ranks or trials; later ones are left out."""
MAX_MEDIA_NAMES = 50
MAX_MEDIA = 1_000
"""Maximum images or histograms of one name; later ones replace earlier ones."""
Axis = Literal["iteration", "time"]
Points = tuple[list[float], list[float]]
_MAX_DEPTH = 8
_NUMBERS = frozenset({int, float})
_NO_NUMBERS = frozenset({str, bool, type(None), list})
_FEW = 4
"""Blocks with fewer lines are faster to add line by line."""


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

    def extend(self, iterations: array[float], times: array[float], values: array[float]) -> None:
        if self.iterations and not iterations[0] > self.iterations[-1]:
            for point in zip(iterations, times, values, strict=True):
                self.add(*point)
            return
        self.iterations.extend(iterations)
        self.times.extend(times)
        self.values.extend(values)


@dataclass(frozen=True, eq=False)
class AllPoints:
    """All points of a curve: three arrays of equal length."""

    iterations: npt.NDArray[np.float64]
    """Numbers of the reports, increasing."""
    times: npt.NDArray[np.float64]
    """Seconds since the epoch."""
    values: npt.NDArray[np.float64]
    """Values of the metric."""

    def axis(self, over: Axis) -> npt.NDArray[np.float64]:
        """Return the positions on an axis."""
        return self.iterations if over == "iteration" else self.times


@dataclass(frozen=True, kw_only=True)
class Shown:
    """An image or a histogram with its report."""

    iteration: int
    """Number of the report."""
    member: str
    """Rank."""
    media: MediaValue


@dataclass(kw_only=True, eq=False)
class _Block:
    """Consecutive lines of one member with the same metric names."""

    member: str
    names: tuple[str, ...]
    records: list[Mapping[str, Any]] = field(default_factory=list)


class Series:
    """Curves of all metrics and members. For one thread."""

    def __init__(self) -> None:
        self._curves: dict[str, dict[str, _Curve]] = {}
        self._last: dict[str, dict[str, Any]] = {}
        self.media: dict[str, list[Shown]] = {}
        """Images and histograms by name, in the order of their reports."""

    @property
    def names(self) -> list[str]:
        """Metrics that have numbers, in order of their first report."""
        return list(self._curves)

    @property
    def members(self) -> list[str]:
        """Reporting ranks ("0", "1", …) or trial IDs."""
        return sorted(self._last, key=member_order)

    def last(self, member: str) -> dict[str, Any]:
        """Return the latest report of a member; empty before the first one."""
        return self._last.get(member, {})

    def members_of(self, name: str) -> list[str]:
        """Return the members that reported a metric."""
        return sorted(self._curves.get(name, {}), key=member_order)

    def add(self, record: Mapping[str, object]) -> None:
        """Add a line of `metrics.jsonl`; ignore lines of another form."""
        iteration, time, metrics = (
            record.get("iteration"),
            record.get("time"),
            record.get("metrics"),
        )
        member = record.get("trial", record.get("rank"))
        if not (
            _is_number(iteration)
            and _is_number(time)
            and isinstance(metrics, Mapping)
            and isinstance(member, (int, str))
        ):
            return
        if self._is_excess_member(str(member)):
            return
        self._last[str(member)] = metrics if isinstance(metrics, dict) else dict(metrics)
        if isinstance(iteration, int):
            self._add_media(iteration, str(member), metrics)
        for name, value in numbers(metrics):
            curves = self._curves.get(name)
            if curves is None:
                if len(self._curves) >= MAX_NAMES or len(name) > MAX_NAME_LENGTH:
                    continue
                curves = self._curves[name] = {}
            curves.setdefault(str(member), _Curve()).add(float(iteration), float(time), value)  # type: ignore[arg-type]

    def _add_media(self, iteration: int, member: str, metrics: Mapping[str, object]) -> None:
        """Keep the images and histograms of a report; a repeated report replaces the old ones."""
        for name, value in metrics.items():
            media = MediaValue.of(value)
            if media is None or (name not in self.media and len(self.media) >= MAX_MEDIA_NAMES):
                continue
            shown = self.media.setdefault(str(name)[:MAX_NAME_LENGTH], [])
            shown[:] = [
                each for each in shown if each.member != member or each.iteration < iteration
            ][-MAX_MEDIA + 1 :]
            shown.append(Shown(iteration=iteration, member=member, media=media))

    def extend(self, records: Iterable[Mapping[str, object]]) -> None:
        """Add many lines in order. Same result as `add` for each, but several times faster for
        typical reports: not nested, with the same names as the report before.
        """
        blocks: dict[str, _Block] = {}
        for record in records:
            member, metrics = str(record.get("trial", record.get("rank"))), record.get("metrics")
            names = tuple(metrics) if type(metrics) is dict else ()
            block = blocks.get(member)
            if block is None or block.names != names:
                if block is not None:
                    self._add_block(block)
                block = blocks[member] = _Block(member=member, names=names)
            block.records.append(record)
        for block in blocks.values():
            self._add_block(block)

    def _add_block(self, block: _Block) -> None:
        if len(block.records) < _FEW or not self._add_columns(block):
            for record in block.records:
                self.add(record)

    def _add_columns(self, block: _Block) -> bool:
        """Add a block by columns; return False, with nothing changed, if that is impossible."""
        records = block.records
        try:
            moments = [record["iteration"] for record in records] + [
                record["time"] for record in records
            ]
            rows = [record["metrics"].values() for record in records]
            columns = {
                name: column
                for name, column in zip(block.names, zip(*rows, strict=True), strict=True)
                if _is_column(column)
            }
            iterations, times = (
                array("d", moments[: len(records)]),
                array("d", moments[len(records) :]),
            )
            values = {name: array("d", column) for name, column in columns.items()}
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            return False
        are_numbers = _NUMBERS.issuperset(map(type, moments))
        is_new = sum(name not in self._curves for name in values)
        if (
            not are_numbers
            or not all(map(operator.lt, iterations, iterations[1:]))
            or len(self._curves) + is_new > MAX_NAMES
        ):
            return False
        if is_new and max(map(len, values)) > MAX_NAME_LENGTH:
            return False
        if self._is_excess_member(block.member):
            return True
        for name, numbers in values.items():
            self._curves.setdefault(name, {}).setdefault(block.member, _Curve()).extend(
                iterations, times, numbers
            )
        self._last[block.member] = records[-1]["metrics"]
        return True

    def _is_excess_member(self, member: str) -> bool:
        return len(self._last) >= MAX_MEMBERS and member not in self._last

    def curve(
        self, name: str, member: str, max_points: int = 1000, over: Axis = "iteration"
    ) -> Points:
        """Return (x, y) of one metric of one member, thinned; empty before the first value. x:
        report number, or seconds since the epoch.
        """
        points = self.points(name, member)
        return thinned(points.axis(over), points.values, max_points)

    def reduced(self, name: str, max_points: int = 1000, over: Axis = "iteration") -> Points:
        """Return (x, y) of the mean over all members that reported the metric in each round."""
        points = self.mean_points(name)
        return thinned(points.axis(over), points.values, max_points)

    def points(self, name: str, member: str) -> AllPoints:
        """Return all points of one metric of one member; no points if there are none."""
        np = _numpy()
        curve = self._curves.get(name, {}).get(member, _Curve())
        return AllPoints(np.array(curve.iterations), np.array(curve.times), np.array(curve.values))

    def mean_points(self, name: str) -> AllPoints:
        """Return the mean over all members that reported the metric in each round."""
        np = _numpy()
        curves = list(self._curves.get(name, {}).values()) or [_Curve()]
        iterations = np.concatenate([np.array(curve.iterations) for curve in curves])
        values = np.concatenate([np.array(curve.values) for curve in curves])
        times = np.concatenate([np.array(curve.times) for curve in curves])
        rounds, places = np.unique(iterations, return_inverse=True)
        counts = np.bincount(places)
        return AllPoints(
            rounds,
            np.bincount(places, weights=times) / counts,
            np.bincount(places, weights=values) / counts,
        )


def member_order(member: str) -> tuple[bool, int, str]:
    """Return the sort key of a member: ranks by number, then trial IDs by name."""
    is_rank = member.isascii() and member.isdigit() and len(member) < 10
    return not is_rank, int(member) if is_rank else 0, member


def numbers(
    metrics: Mapping[Any, Any], prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, float]]:
    """Yield (name, value) of every number in nested metrics; booleans are left out."""
    for key, value in metrics.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            if depth < _MAX_DEPTH and not is_media(value):
                yield from numbers(value, f"{name}/", depth + 1)
        elif _is_number(value):
            yield name, as_float(value)


def _is_column(values: Sequence[object]) -> bool:
    """Return True if all values are numbers, False if none is; TypeError for mixed or nested
    values.
    """
    kinds = set(map(type, values))
    if kinds <= _NUMBERS:
        return True
    if kinds & _NUMBERS or not kinds <= _NO_NUMBERS:
        raise TypeError(f"numbers and others: {kinds}")
    return False


def thinned(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], max_points: int) -> Points:
    """Return at most `max_points` (at least 4) of the points: the first, the last, and the extremes
    of each interval.
    """
    if len(x) <= max(4, max_points):
        return x.tolist(), y.tolist()
    np = _numpy()
    stretches = np.array_split(np.arange(1, len(x) - 1), max(1, (max_points - 2) // 2))
    finite = np.where(
        np.isfinite(y), y, np.nanmean(y[np.isfinite(y)]) if np.isfinite(y).any() else 0.0
    )
    chosen = {0, len(x) - 1}
    for stretch in stretches:
        part = finite[stretch]
        chosen.update((int(stretch[part.argmin()]), int(stretch[part.argmax()])))
    order = np.array(sorted(chosen))
    return x[order].tolist(), y[order].tolist()


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _numpy() -> Any:
    """Load numpy on first use: listing runs does not need it."""
    return importlib.import_module("numpy")
