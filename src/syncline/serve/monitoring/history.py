"""`History`: lines about deployments and applications, from the reports of processes. Pure.

Each line has the sums of one interval: a second, or more for the coarser files that reach further
back. Lines of deployments (keys "app", "deployment") come from replicas and callers, lines of
applications (key "app" without "deployment") from proxies. Subjects without calls get no line,
except when a gauge has changed. Times are in the form of `Times.as_json`:

    deployment    requests, http, errors, cancelled, busy; queue, handling, compute, batch_wait;
                  batch_sizes {size: count}; queued, ongoing, running, wanted; lag (seconds for
                  which the event loop of a replica was blocked)
    application   requests, errors; total; status {code: count}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field

from syncline.records import dataclass
from syncline.runs.json_values import JsonObject
from syncline.serve.controller.messages import ServeDetails
from syncline.serve.monitoring.histogram import NO_TIMES, Times
from syncline.serve.monitoring.reports import ProxyReport, ReplicaReport
from syncline.serve.wire.routes import DeploymentId

FIRST_ERROR = 500
"""Lowest status that counts as an error of the application."""


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """A file of lines."""

    name: str
    span_s: float
    """Seconds of each line."""


RESOLUTIONS = (
    Resolution(name="seconds", span_s=1.0),
    Resolution(name="half_minutes", span_s=30.0),
    Resolution(name="quarter_hours", span_s=900.0),
)


@dataclass(kw_only=True)
class DeploymentSums:
    """Sums of one deployment over an interval."""

    requests: int = 0
    http: int = 0
    errors: int = 0
    cancelled: int = 0
    busy: int = 0
    queue: Times = NO_TIMES
    """Waits of those calls that had to wait."""
    handling: Times = NO_TIMES
    compute: Times = NO_TIMES
    batch_wait: Times = NO_TIMES
    batch_sizes: Counter[int] = field(default_factory=Counter)
    lag_s: float = 0.0

    def add(self, report: ReplicaReport) -> None:
        """Add the report of a replica."""
        self.requests += report.handled.count
        self.http += max(0, report.handled.count - report.by_handle)
        self.errors += report.failed
        self.cancelled += report.cancelled
        self.busy += report.busy
        self.handling += report.handled
        self.compute += report.computed
        for batch in report.batches:
            self.batch_wait += batch.wait
            self.batch_sizes.update(batch.sizes)
        self.lag_s = max(self.lag_s, report.loop_lag_s)

    def merge(self, other: DeploymentSums) -> None:
        """Add the sums of the interval after this one."""
        self.requests += other.requests
        self.http += other.http
        self.errors += other.errors
        self.cancelled += other.cancelled
        self.busy += other.busy
        self.queue += other.queue
        self.handling += other.handling
        self.compute += other.compute
        self.batch_wait += other.batch_wait
        self.batch_sizes.update(other.batch_sizes)
        self.lag_s = max(self.lag_s, other.lag_s)

    def fields(self) -> JsonObject:
        """Return the fields of a line, without zeros."""
        counts = {
            name: getattr(self, name)
            for name in ("requests", "http", "errors", "cancelled", "busy")
            if getattr(self, name)
        }
        times = {
            name: getattr(self, name).as_json()
            for name in ("queue", "handling", "compute", "batch_wait")
            if getattr(self, name).count
        }
        sizes = {str(size): count for size, count in sorted(self.batch_sizes.items())}
        return {
            **counts,
            **times,
            **({"batch_sizes": sizes} if sizes else {}),
            **({"lag": self.lag_s} if self.lag_s else {}),
        }


@dataclass(kw_only=True)
class ApplicationSums:
    """Sums of the HTTP requests of one application over an interval."""

    total: Times = NO_TIMES
    status: Counter[int] = field(default_factory=Counter)

    def merge(self, other: ApplicationSums) -> None:
        """Add the sums of the interval after this one."""
        self.total += other.total
        self.status.update(other.status)

    def fields(self) -> JsonObject:
        """Return the fields of a line."""
        errors = sum(count for code, count in self.status.items() if code >= FIRST_ERROR)
        return {
            "requests": sum(self.status.values()),
            **({"errors": errors} if errors else {}),
            "total": self.total.as_json(),
            "status": {str(code): count for code, count in sorted(self.status.items())},
        }


class _Interval:
    """Sums of all subjects."""

    def __init__(self) -> None:
        self.deployments: dict[DeploymentId, DeploymentSums] = {}
        self.applications: dict[str, ApplicationSums] = {}

    def deployment(self, id: DeploymentId) -> DeploymentSums:
        return self.deployments.setdefault(id, DeploymentSums())

    def application(self, name: str) -> ApplicationSums:
        return self.applications.setdefault(name, ApplicationSums())

    def merge(self, other: _Interval) -> None:
        for id, sums in other.deployments.items():
            self.deployment(id).merge(sums)
        for name, application in other.applications.items():
            self.application(name).merge(application)


class History:
    """Makes the lines of all resolutions."""

    def __init__(self, now: float) -> None:
        """`now` in seconds since the epoch, as in all methods."""
        self._written_at = now
        self._current = _Interval()
        self._coarse = {each.name: _Interval() for each in RESOLUTIONS[1:]}
        self._ends = {each.name: _end(now, each.span_s) for each in RESOLUTIONS[1:]}
        self._gauges: dict[DeploymentId, Mapping[str, int]] = {}
        self._written_gauges: dict[DeploymentId, Mapping[str, int]] = {}

    def add(self, report: ReplicaReport | ProxyReport) -> None:
        """Add the report of a process."""
        current = self._current
        for id, waits in report.waits.items():
            current.deployment(id).queue += waits
        if isinstance(report, ReplicaReport):
            if _has_calls(report):
                current.deployment(report.deployment).add(report)
            return
        for route in report.routes:
            if route.app:
                sums = current.application(route.app)
                sums.total += route.total
                for (_, status), count in route.by_method_and_status.items():
                    sums.status[status] += count

    def set_details(self, details: ServeDetails) -> None:
        """Set the gauges from the controller's state."""
        self._gauges = {
            each.id: {
                "queued": each.queued,
                "ongoing": sum(replica.ongoing for replica in each.replicas),
                "running": sum(replica.state == "RUNNING" for replica in each.replicas),
                "wanted": each.target_replicas,
            }
            for each in details.deployments
        }

    def lines(self, now: float) -> dict[str, list[JsonObject]]:
        """Return the new lines of each file, and begin the next second."""
        finished, self._current = self._current, _Interval()
        span_s = max(RESOLUTIONS[0].span_s, round(now - self._written_at, 1))
        self._written_at = now
        found = {"seconds": list(self._lines(finished, now, span_s))}
        for each in RESOLUTIONS[1:]:
            coarse = self._coarse[each.name]
            coarse.merge(finished)
            if now >= self._ends[each.name]:
                self._ends[each.name] = _end(now, each.span_s)
                self._coarse[each.name] = _Interval()
                found[each.name] = list(self._lines(coarse, now, each.span_s))
        self._written_gauges = dict(self._gauges)
        return found

    def rest(self, now: float) -> dict[str, list[JsonObject]]:
        """Return the lines of intervals that have not ended, at the end of the record."""
        return {
            each.name: list(self._lines(self._coarse[each.name], now, each.span_s))
            for each in RESOLUTIONS[1:]
        }

    def _lines(self, interval: _Interval, now: float, span_s: float) -> Iterable[JsonObject]:
        moment = round(now, 2)
        changed = {id for id, now in self._gauges.items() if now != self._written_gauges.get(id)}
        for id in sorted(interval.deployments.keys() | changed):
            sums = interval.deployments.get(id) or DeploymentSums()
            yield {
                "time": moment,
                "span": span_s,
                "app": id.app,
                "deployment": id.name,
                **sums.fields(),
                **self._gauges.get(id, {}),
            }
        for name, application in sorted(interval.applications.items()):
            yield {"time": moment, "span": span_s, "app": name, **application.fields()}


def _has_calls(report: ReplicaReport) -> bool:
    return bool(report.handled.count or report.cancelled or report.busy or report.loop_lag_s)


def _end(now: float, span_s: float) -> float:
    """Return the end of the interval of `now`; intervals begin at multiples of their length."""
    return (now // span_s + 1) * span_s
