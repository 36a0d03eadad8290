"""Summary of the measurements: medians over the rounds, ratios, and verdicts on targets. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from bench.rows import OURS, RAY, Group, Metric, Row, Target

Verdict = Literal["met", "missed", "no target", "not measured"]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Values of one run of one program; `failure` is the reason if there are none."""

    row: str
    contender: str
    round: int
    values: Mapping[str, float]
    duration_s: float
    load_before: float
    killed_after: int = 0
    failure: str | None = None


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A contender other than syncline and Ray; `ratio` is syncline's median divided by its own,
    `span` its lowest and highest value.
    """

    name: str
    value: float | None
    span: tuple[float, float] | None
    ratio: float | None


@dataclass(frozen=True, kw_only=True)
class Line:
    """One metric of one row: medians over the rounds, and spans (lowest, highest value); None
    without measurements.
    """

    row: str
    group: Group
    label: str
    unit: str
    ours: float | None
    ours_span: tuple[float, float] | None
    ray: float | None
    ray_ratio: float | None
    peers: tuple[Peer, ...]
    target: str
    verdict: Verdict


def samples(measurements: Sequence[Measurement], row: str, contender: str, key: str) -> list[float]:
    """Return the values of a metric from the successful runs of a contender."""
    return [
        measurement.values[key]
        for measurement in measurements
        if measurement.row == row
        and measurement.contender == contender
        and measurement.failure is None
        and key in measurement.values
    ]


def median(values: Sequence[float]) -> float | None:
    """Return the median; None for no values."""
    return statistics.median(values) if values else None


def span(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the lowest and the highest value; None for no values."""
    return (min(values), max(values)) if values else None


def ratio(ours: float | None, peer: float | None) -> float | None:
    """Return `ours / peer`; None if one of them is missing or the peer's is zero."""
    return ours / peer if ours is not None and peer else None


def target_text(metric: Metric) -> str:
    """Return the target as text: `<= 1.2x torchrun`, `>= 5 GB/s`, or a dash."""
    if metric.target is None:
        return "-"
    sign = "<=" if metric.better == "less" else ">="
    limit = (
        f"{metric.target.limit:,.3g}" if metric.target.limit < 1 else f"{metric.target.limit:,g}"
    )
    limit = limit.replace(",", " ")
    if metric.target.peers:
        best = "the best of " if len(metric.target.peers) > 1 else ""
        plus = f" + {metric.target.plus:g} {metric.unit}" if metric.target.plus else ""
        return f"{sign} {limit}x {best}{', '.join(metric.target.peers)}{plus}"
    return f"{sign} {limit} {metric.unit}".rstrip()


def verdict(metric: Metric, ours: float | None, values: Mapping[str, float | None]) -> Verdict:
    """Compare syncline's median with the target; `values` holds the medians of all contenders. A
    target relative to peers needs the values of all of them.
    """
    if metric.target is None:
        return "no target"
    limit = _limit(metric, metric.target, values)
    if ours is None or limit is None:
        return "not measured"
    reached = ours <= limit if metric.better == "less" else ours >= limit
    return "met" if reached else "missed"


def _limit(metric: Metric, target: Target, values: Mapping[str, float | None]) -> float | None:
    """Return the limit in the unit of the metric; None if a peer's value is missing."""
    if not target.peers:
        return target.limit
    known = [value for value in (values.get(peer) for peer in target.peers) if value is not None]
    if len(known) < len(target.peers):
        return None
    best = min(known) if metric.better == "less" else max(known)
    return target.limit * best + target.plus


def compare(row: Row, metric: Metric, measurements: Sequence[Measurement]) -> Line:
    """Return one line of the table, without peers whose programs do not measure this metric; peers
    that failed are kept.
    """
    given = {
        contender.name: samples(measurements, row.name, contender.name, metric.key)
        for contender in row.contenders
    }
    if metric.ray_key is not None:
        given[RAY] = samples(measurements, row.name, OURS, metric.ray_key)
    medians = {name: median(values) for name, values in given.items()}
    ours, ray = medians[OURS], medians.get(RAY)
    failed = {
        measurement.contender
        for measurement in measurements
        if measurement.row == row.name and measurement.failure is not None
    }
    peers = tuple(
        Peer(name=name, value=value, span=span(given[name]), ratio=ratio(ours, value))
        for name, value in medians.items()
        if name not in (OURS, RAY) and (value is not None or name in failed)
    )
    return Line(
        row=row.name,
        group=row.group,
        label=metric.label,
        unit=metric.unit,
        ours=ours,
        ours_span=span(given[OURS]),
        ray=ray,
        ray_ratio=ratio(ours, ray),
        peers=peers,
        target=target_text(metric),
        verdict=verdict(metric, ours, medians),
    )


def compare_all(rows: Sequence[Row], measurements: Sequence[Measurement]) -> list[Line]:
    """Return the lines of the table, in the order of the rows."""
    return [compare(row, metric, measurements) for row in rows for metric in row.metrics]
