"""Figures of deployments and applications, from the lines of their record. Pure.

The lines are those of `syncline.serve.monitoring.history`. Each figure covers a range of time;
ranges that reach further back use coarser lines, and neighbours are added up until a curve has at
most `MAX_POINTS` points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from syncline.dashboard.serving_state import whole
from syncline.runs.json_values import Record, finite
from syncline.serve.monitoring.histogram import NO_TIMES, Times

MAX_POINTS = 240
MAX_CACHED = 20_000
RECENT_S = 60.0
"""Seconds of the rates and percentiles in tables."""
FRACTIONS = (0.5, 0.9, 0.99)


@dataclass(frozen=True, kw_only=True)
class Range:
    """A range of time that a visitor can choose."""

    label: str
    file: str
    """File of the lines below `serve/`, without its extension."""
    seconds: float


RANGES = {
    "10 minutes": Range(label="10 minutes", file="seconds", seconds=600.0),
    "6 hours": Range(label="6 hours", file="half_minutes", seconds=21_600.0),
    "7 days": Range(label="7 days", file="quarter_hours", seconds=604_800.0),
}


@dataclass(frozen=True, kw_only=True)
class DeploymentLine:
    """Sums of one deployment over an interval."""

    time: float
    """End of the interval."""
    span_s: float
    requests: int = 0
    errors: int = 0
    cancelled: int = 0
    queue: Times = NO_TIMES
    handling: Times = NO_TIMES
    compute: Times = NO_TIMES
    batch_wait: Times = NO_TIMES
    batches: int = 0
    batch_items: int = 0
    queued: int = 0
    ongoing: int = 0
    running: int = 0
    wanted: int = 0
    lag_s: float = 0.0

    @classmethod
    def of(cls, line: Record) -> DeploymentLine:
        """Return the values of a line."""
        sizes = line.get("batch_sizes")
        counts = {
            int(size): whole(count)
            for size, count in (sizes if isinstance(sizes, dict) else {}).items()
            if size.isdecimal() and len(size) < 9
        }
        return cls(
            time=finite(line.get("time")) or 0.0,
            span_s=finite(line.get("span")) or 1.0,
            requests=whole(line.get("requests")),
            errors=whole(line.get("errors")),
            cancelled=whole(line.get("cancelled")),
            queue=Times.from_json(line.get("queue")),
            handling=Times.from_json(line.get("handling")),
            compute=Times.from_json(line.get("compute")),
            batch_wait=Times.from_json(line.get("batch_wait")),
            batches=sum(counts.values()),
            batch_items=sum(size * count for size, count in counts.items()),
            queued=whole(line.get("queued")),
            ongoing=whole(line.get("ongoing")),
            running=whole(line.get("running")),
            wanted=whole(line.get("wanted")),
            lag_s=finite(line.get("lag")) or 0.0,
        )

    def __add__(self, later: DeploymentLine) -> DeploymentLine:
        """Return both intervals together; gauges are those of the later one, or the larger."""
        return DeploymentLine(
            time=later.time,
            span_s=self.span_s + later.span_s,
            requests=self.requests + later.requests,
            errors=self.errors + later.errors,
            cancelled=self.cancelled + later.cancelled,
            queue=self.queue + later.queue,
            handling=self.handling + later.handling,
            compute=self.compute + later.compute,
            batch_wait=self.batch_wait + later.batch_wait,
            batches=self.batches + later.batches,
            batch_items=self.batch_items + later.batch_items,
            queued=max(self.queued, later.queued),
            ongoing=max(self.ongoing, later.ongoing),
            running=later.running,
            wanted=later.wanted,
            lag_s=max(self.lag_s, later.lag_s),
        )


@dataclass(frozen=True, kw_only=True)
class ApplicationLine:
    """Sums of the HTTP requests of one application over an interval."""

    time: float
    span_s: float
    requests: int = 0
    errors: int = 0
    total: Times = NO_TIMES
    status: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, line: Record) -> ApplicationLine:
        """Return the values of a line."""
        status = line.get("status")
        return cls(
            time=finite(line.get("time")) or 0.0,
            span_s=finite(line.get("span")) or 1.0,
            requests=whole(line.get("requests")),
            errors=whole(line.get("errors")),
            total=Times.from_json(line.get("total")),
            status={
                code: whole(count)
                for code, count in list((status if isinstance(status, dict) else {}).items())[:100]
            },
        )

    def __add__(self, later: ApplicationLine) -> ApplicationLine:
        """Return both intervals together."""
        status = dict(self.status)
        for code, count in later.status.items():
            status[code] = status.get(code, 0) + count
        return ApplicationLine(
            time=later.time,
            span_s=self.span_s + later.span_s,
            requests=self.requests + later.requests,
            errors=self.errors + later.errors,
            total=self.total + later.total,
            status=status,
        )


L = TypeVar("L", DeploymentLine, ApplicationLine)


@dataclass(frozen=True, kw_only=True)
class Lines(Generic[L]):
    """Lines of one subject within a range."""

    points: tuple[L, ...]
    """At most `MAX_POINTS`, the oldest first."""
    whole: L
    """All of them together."""
    seconds: float
    """Seconds that the range covers."""

    def curve(self, value: Callable[[L], float | None]) -> tuple[list[float], list[float | None]]:
        """Return the times and a value of each point."""
        return [point.time for point in self.points], [value(point) for point in self.points]


class LineCache:
    """Parsed lines: a page shows the same ones every two seconds, and new ones after them."""

    def __init__(self) -> None:
        self._parsed: dict[int, tuple[Record, DeploymentLine | ApplicationLine]] = {}

    def parsed(self, kind: type[L], line: Record) -> L:
        """Return the values of a line."""
        found = self._parsed.get(id(line))
        if found is not None and found[0] is line and isinstance(found[1], kind):
            return found[1]
        if len(self._parsed) >= MAX_CACHED:
            self._parsed.clear()
        made = kind.of(line)
        self._parsed[id(line)] = (line, made)
        return made


def deployment_lines(
    lines: Iterable[Record],
    app: str,
    deployment: str,
    *,
    now: float,
    seconds: float,
    cache: LineCache,
) -> Lines[DeploymentLine]:
    """Return the lines of a deployment in the last `seconds`."""
    chosen = (
        cache.parsed(DeploymentLine, line)
        for line in lines
        if line.get("deployment") == deployment
        and line.get("app") == app
        and _is_within(line, now, seconds)
    )
    return _lines(chosen, DeploymentLine, now, seconds)


def application_lines(
    lines: Iterable[Record], app: str, *, now: float, seconds: float, cache: LineCache
) -> Lines[ApplicationLine]:
    """Return the lines of an application's HTTP requests in the last `seconds`."""
    chosen = (
        cache.parsed(ApplicationLine, line)
        for line in lines
        if "deployment" not in line and line.get("app") == app and _is_within(line, now, seconds)
    )
    return _lines(chosen, ApplicationLine, now, seconds)


def _is_within(line: Record, now: float, seconds: float) -> bool:
    moment = finite(line.get("time"))
    return moment is not None and now - seconds < moment <= now + 60.0


def _lines(lines: Iterable[L], kind: type[L], now: float, seconds: float) -> Lines[L]:
    """Return the lines summed over equal intervals; idle lines are zero if others are busy."""
    step = seconds / MAX_POINTS
    slots: dict[int, L] = {}
    for line in lines:
        slot = int(line.time // max(step, line.span_s))
        slots[slot] = slots[slot] + line if slot in slots else line
    together = kind(time=now, span_s=0.0)
    width = max([step, *(line.span_s for line in slots.values())])
    for line in slots.values():
        together = together + line
    return Lines(points=_with_gaps(slots, kind, width), whole=together, seconds=seconds)


def _with_gaps(slots: Mapping[int, L], kind: type[L], width: float) -> tuple[L, ...]:
    """Return the points in order, with a point of zero at both ends of each pause."""
    points: list[L] = []
    before: int | None = None
    for slot in sorted(slots):
        point = slots[slot]
        if before is not None and slot - before > 2:
            points.append(_idle(kind, points[-1], points[-1].time + width))
            if slot - before > 3:
                points.append(_idle(kind, points[-1], point.time - width))
        points.append(point)
        before = slot
    return tuple(points)


def _idle(kind: type[L], before: L, moment: float) -> L:
    if isinstance(before, DeploymentLine):
        return kind(time=moment, span_s=before.span_s, running=before.running, wanted=before.wanted)
    return kind(time=moment, span_s=before.span_s)


def rate(line: DeploymentLine | ApplicationLine) -> float:
    """Return requests per second."""
    return line.requests / max(line.span_s, 1e-3)


def error_share(line: DeploymentLine | ApplicationLine) -> float | None:
    """Return the share of requests with an error; None without requests."""
    return min(1.0, line.errors / line.requests) if line.requests else None


def quantile_ms(times: Times, fraction: float) -> float | None:
    """Return a percentile in milliseconds; None without times."""
    seconds = times.quantile(fraction)
    return None if seconds is None else seconds * 1e3


def queue_with_others(line: DeploymentLine) -> Times:
    """Return the waits of all calls; calls that were sent immediately have a wait of 0."""
    at_once = max(0, line.requests - line.queue.count)
    return line.queue + Times(count=at_once, sum_s=0.0, buckets={0: at_once} if at_once else {})


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Mean milliseconds of each part of a request."""

    queue: float
    batch_wait: float
    compute: float
    transfer: float | None
    """Seconds between proxy and replica; None for deployments without HTTP requests."""

    def values(self) -> list[float]:
        """Return the parts in the order of `PARTS`."""
        return [self.queue, self.batch_wait, self.compute, self.transfer or 0.0]

    @property
    def total(self) -> float:
        """Sum of the parts."""
        return sum(self.values())


PARTS = ("queue", "batch wait", "compute", "transfer")


def mean_parts(line: DeploymentLine, http: ApplicationLine | None) -> Parts | None:
    """Return where the time of a mean request goes; None without requests.

    Args:
        line: The deployment.
        http: Requests of its application over the same time, if it is the ingress; the time that
            neither queue nor handling explain is the transfer.
    """
    if not line.requests:
        return None
    queue_s = line.queue.sum_s / line.requests
    batch_s = min(line.batch_wait.sum_s, line.handling.sum_s) / line.requests
    compute_s = line.handling.sum_s / line.requests - batch_s
    transfer_s = None
    if http is not None and http.total.mean_s is not None:
        transfer_s = max(0.0, http.total.mean_s - queue_s - batch_s - compute_s)
    return Parts(
        queue=queue_s * 1e3,
        batch_wait=batch_s * 1e3,
        compute=compute_s * 1e3,
        transfer=None if transfer_s is None else transfer_s * 1e3,
    )
