"""Counters and latency histograms of HTTP requests."""

from __future__ import annotations

from dataclasses import field
from math import exp, log

from syncline.records import dataclass

BUCKET_RATIO = 1.02
"""Upper by lower bound of a histogram's bucket."""
_SCALE = 1 / log(BUCKET_RATIO)
_LOWEST_S = 1e-6
_HIGHEST_S = 86_400.0
_BUCKETS = int(log(_HIGHEST_S / _LOWEST_S) * _SCALE) + 2


class LatencyHistogram:
    """Counts of times in buckets 2 % wide, from a microsecond to a day."""

    __slots__ = ("_counts", "count", "sum_s")

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS
        self.count = 0
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count a time."""
        self.count += 1
        self.sum_s += seconds
        if seconds <= _LOWEST_S:
            self._counts[0] += 1
        else:
            index = int(log(seconds * 1e6) * _SCALE) + 1
            self._counts[index if index < _BUCKETS else -1] += 1

    def quantile(self, fraction: float) -> float:
        """Return the time in seconds below which this fraction of the times is; 0.0 if empty."""
        rank = fraction * self.count
        seen = 0
        for index, count in enumerate(self._counts):
            seen += count
            if count and seen >= rank:
                return _LOWEST_S * exp((index - 0.5) / _SCALE)
        return 0.0

    def buckets(self) -> dict[int, int]:
        """Return the counts of the buckets that are not empty; bucket i ends at 1.02**i us."""
        return {index: count for index, count in enumerate(self._counts) if count}


class RouteStatistics:
    """Counts of the requests of one route."""

    __slots__ = ("counts", "latency")

    def __init__(self) -> None:
        self.counts: dict[tuple[str, int], int] = {}
        """Finished requests by method and status; 499 if the client went away."""
        self.latency = LatencyHistogram()

    def record(self, method: str, status: int, seconds: float) -> None:
        """Count a finished request."""
        counts = self.counts
        key = (method, status)
        counts[key] = counts.get(key, 0) + 1
        self.latency.add(seconds)


@dataclass(frozen=True, kw_only=True)
class RouteSummary:
    """Counts of the requests of one route at one moment."""

    app: str
    """Empty for requests without an application."""
    route: str
    """Pattern of the path, or the route prefix."""
    requests: int
    errors: int
    """Requests with a status of 400 or higher."""
    by_status: dict[int, int]
    by_method_and_status: dict[tuple[str, int], int]
    latency_sum_s: float
    latency_buckets: dict[int, int]
    """See `LatencyHistogram.buckets`."""
    p50_s: float
    p99_s: float


@dataclass(frozen=True, kw_only=True)
class HttpStatistics:
    """State of a proxy at one moment."""

    connections: int
    """Open connections of clients."""
    accepted_connections: int
    """Connections since the start."""
    ongoing_requests: int
    refused_requests: int
    """Malformed, oversized or too slow requests."""
    routes: tuple[RouteSummary, ...] = field(default=())


def summarize(app: str, route: str, statistics: RouteStatistics) -> RouteSummary:
    """Return the counts of one route."""
    by_status: dict[int, int] = {}
    for (_, status), count in statistics.counts.items():
        by_status[status] = by_status.get(status, 0) + count
    latency = statistics.latency
    return RouteSummary(
        app=app,
        route=route,
        requests=latency.count,
        errors=sum(count for status, count in by_status.items() if status >= 400),
        by_status=by_status,
        by_method_and_status=dict(statistics.counts),
        latency_sum_s=latency.sum_s,
        latency_buckets=latency.buckets(),
        p50_s=latency.quantile(0.5),
        p99_s=latency.quantile(0.99),
    )
