"""`Metrics`: sums of all reports since the start, as families of Prometheus metrics. Pure.

The names are those of Ray Serve with the prefix `syncline_serve_`, so that its dashboards need
another prefix only. Routes are prefixes, never raw paths. Series of replicas end with the replica,
those of applications with the application.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from syncline.core.metrics_text import Family, HistogramValue, Kind, UserMetric
from syncline.runs.json_values import Record
from syncline.serve.controller.events import RecordEvent
from syncline.serve.controller.messages import ServeDetails
from syncline.serve.monitoring.histogram import NO_TIMES, Times
from syncline.serve.monitoring.reports import BatchTimes, ProxyReport, ReplicaReport
from syncline.serve.wire.routes import DeploymentId

PREFIX = "syncline_serve_"
LATENCY_BOUNDS_MS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 300, 400, 500, 1000, 2000),
    *(5000, 10000, 60000, 120000, 300000, 600000),
)
"""Upper bounds of the buckets of latencies."""
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
MOST_SERIES = 2_000
"""Series of user metrics per replica."""
_BOUNDS_S = tuple(bound / 1e3 for bound in LATENCY_BOUNDS_MS)


@dataclass(kw_only=True)
class _ReplicaSums:
    """Sums of one replica."""

    id: DeploymentId
    ongoing: int = 0
    limit: int = 1
    handled: Times = NO_TIMES
    by_handle: int = 0
    failed: int = 0
    batches: dict[str, BatchTimes] = field(default_factory=dict)
    user_metrics: tuple[UserMetric, ...] = ()

    def add(self, report: ReplicaReport) -> None:
        self.ongoing, self.limit = report.ongoing, report.limit
        self.handled += report.handled
        self.by_handle += report.by_handle
        self.failed += report.failed
        for batch in report.batches:
            known = self.batches.get(batch.method)
            self.batches[batch.method] = batch if known is None else _together(known, batch)
        if report.user_metrics is not None:
            self.user_metrics = report.user_metrics


class Metrics:
    """Sums of all processes."""

    def __init__(self) -> None:
        self._replicas: dict[str, _ReplicaSums] = {}
        self._proxies: dict[str, ProxyReport] = {}
        self._http: dict[tuple[str, str], Times] = defaultdict(lambda: NO_TIMES)
        self._http_counts: dict[tuple[str, str, str, int], int] = defaultdict(int)
        self._waits: dict[DeploymentId, Times] = defaultdict(lambda: NO_TIMES)
        self._starts: dict[DeploymentId, int] = defaultdict(int)
        self._decisions: dict[DeploymentId, Record] = {}
        self._start_s: dict[str, float] = {}
        self._details: ServeDetails | None = None

    def add(self, report: ReplicaReport | ProxyReport) -> None:
        """Add the report of a process."""
        for id, waits in report.waits.items():
            self._waits[id] += waits
        if isinstance(report, ReplicaReport):
            known = self._replicas.get(report.replica_id)
            if known is None:
                known = self._replicas[report.replica_id] = _ReplicaSums(id=report.deployment)
            known.add(report)
            return
        self._proxies[report.proxy_id] = report
        for route in report.routes:
            self._http[route.app, route.route] += route.total
            for (method, status), count in route.by_method_and_status.items():
                self._http_counts[route.app, route.route, method, status] += count

    def add_event(self, event: RecordEvent) -> None:
        """Count starts of replicas, keep decisions, and forget what ended."""
        if event.kind == "replica_started" and event.deployment is not None:
            self._starts[event.deployment] += 1
            self._start_s[event.replica_id or ""] = float(event.data.get("seconds", 0.0))
        elif event.kind == "scaled" and event.deployment is not None:
            self._decisions[event.deployment] = event.data

    def set_details(self, details: ServeDetails) -> None:
        """Set the gauges from the controller's state; drop replicas and deployments that ended."""
        self._details = details
        replicas = {each.replica_id for one in details.deployments for each in one.replicas}
        deployments = {each.id for each in details.deployments}
        applications = {"", *(id.app for id in deployments)}
        for known in (self._replicas, self._start_s):
            for id in [id for id in known if id not in replicas]:
                del known[id]
        for by_deployment in (self._waits, self._starts, self._decisions):
            for key in [key for key in by_deployment if key not in deployments]:
                del by_deployment[key]
        for place in [place for place in self._http if place[0] not in applications]:
            del self._http[place]
        for count in [count for count in self._http_counts if count[0] not in applications]:
            del self._http_counts[count]

    def forget_proxy(self, proxy_id: str) -> None:
        """Drop the gauges of a proxy that ended."""
        self._proxies.pop(proxy_id, None)

    # -- families

    def families(self) -> list[Family]:
        """Return all metrics; those without a series are left out."""
        found = [*self._of_http(), *self._of_replicas(), *self._of_batches(), *self._of_state()]
        return [each for each in found if each.series] + self._of_users()

    def _of_http(self) -> Iterable[Family]:
        requests = _family("num_http_requests", "counter", "HTTP requests")
        errors = _family("num_http_error_requests", "counter", "HTTP requests with status >= 400")
        for (app, route, method, status), count in self._http_counts.items():
            labels = {"application": app, "route": route, "method": method, "status_code": status}
            requests.add(count, **labels)
            if status >= 400:
                errors.add(count, **labels)
        latency = _family(
            "http_request_latency_ms",
            "histogram",
            "Time from the head of a request to the last byte of its response",
        )
        for (app, route), times in self._http.items():
            latency.add(in_milliseconds(times), application=app, route=route)
        ongoing = _family("num_ongoing_http_requests", "gauge", "HTTP requests without a response")
        connections = _family("num_http_connections", "gauge", "Open connections of clients")
        refused = _family("num_refused_http_requests", "counter", "Malformed or oversized requests")
        for proxy in self._proxies.values():
            ongoing.add(proxy.ongoing, node_id=proxy.node_id)
            connections.add(proxy.connections, node_id=proxy.node_id)
            refused.add(proxy.refused, node_id=proxy.node_id)
        return requests, errors, latency, ongoing, connections, refused

    def _of_replicas(self) -> Iterable[Family]:
        requests = _family("deployment_request_counter", "counter", "Calls that replicas answered")
        errors = _family("deployment_error_counter", "counter", "Calls in which user code raised")
        latency = _family(
            "deployment_processing_latency_ms", "histogram", "Time of calls in a replica"
        )
        processing = _family("replica_processing_queries", "gauge", "Calls that a replica handles")
        utilization = _family(
            "replica_utilization_percent", "gauge", "Calls in percent of max_ongoing_requests"
        )
        handles = _family("handle_request_counter", "counter", "Calls of handles")
        startup = _family("replica_startup_latency_ms", "gauge", "Time until a replica was ready")
        for replica_id, sums in self._replicas.items():
            labels = _labels(sums.id, replica_id)
            requests.add(sums.handled.count, **labels)
            errors.add(sums.failed, **labels)
            latency.add(in_milliseconds(sums.handled), **labels)
            processing.add(sums.ongoing, **labels)
            utilization.add(round(100 * sums.ongoing / max(1, sums.limit), 1), **labels)
            handles.add(sums.by_handle, **labels)
            if replica_id in self._start_s:
                startup.add(round(self._start_s[replica_id] * 1e3, 3), **labels)
        waits = _family(
            "queue_wait_time_ms", "histogram", "Time of calls that waited for a free replica"
        )
        for id, times in self._waits.items():
            waits.add(in_milliseconds(times), **_labels(id))
        return requests, errors, latency, processing, utilization, handles, startup, waits

    def _of_batches(self) -> Iterable[Family]:
        sizes = _family("actual_batch_size", "histogram", "Items per batch")
        waits = _family("batch_wait_time_ms", "histogram", "Time of items until their batch began")
        runs = _family("batch_execution_time_ms", "histogram", "Time of batches")
        for replica_id, sums in self._replicas.items():
            for method, batch in sums.batches.items():
                labels = {**_labels(sums.id, replica_id), "function_name": method}
                sizes.add(_size_histogram(batch.sizes), **labels)
                waits.add(in_milliseconds(batch.wait), **labels)
                runs.add(in_milliseconds(batch.run), **labels)
        return sizes, waits, runs

    def _of_state(self) -> Iterable[Family]:
        details = self._details
        applications = _family("application_status", "gauge", "1 for the status it has")
        deployments = _family("deployment_status", "gauge", "1 for the status it has")
        healthy = _family("deployment_replica_healthy", "gauge", "1 if a replica takes calls")
        starts = _family("deployment_replica_starts", "counter", "Replicas that started")
        queued = _family("deployment_queued_queries", "gauge", "Calls that wait for a replica")
        target = _family("autoscaling_target_replicas", "gauge", "Replicas that are wanted")
        desired = _family(
            "autoscaling_desired_replicas", "gauge", "Replicas before bounds, last decision"
        )
        total = _family("autoscaling_total_requests", "gauge", "Mean load of the last decision")
        if details is None:
            return ()
        for name, status in details.status.applications.items():
            applications.add(1, application=name, status=status.status.value)
            for deployment, state in status.deployments.items():
                labels = _labels(DeploymentId(name, deployment))
                deployments.add(1, **labels, status=state.status.value)
        for each in details.deployments:
            labels = _labels(each.id)
            queued.add(each.queued, **labels)
            target.add(each.target_replicas, **labels)
            starts.add(self._starts.get(each.id, 0), **labels)
            decision = self._decisions.get(each.id)
            if decision is not None:
                desired.add(float(decision.get("desired", 0.0)), **labels)
                total.add(float(decision.get("load", 0.0)), **labels)
            for replica in each.replicas:
                is_running = replica.state in ("RUNNING", "PENDING_MIGRATION")
                healthy.add(int(is_running), **_labels(each.id, replica.replica_id))
        return applications, deployments, healthy, starts, queued, target, desired, total

    def _of_users(self) -> list[Family]:
        """Return the metrics of user code, with the labels of its replica; first kind wins."""
        found: dict[str, Family] = {}
        for replica_id, sums in self._replicas.items():
            own = tuple(_labels(sums.id, replica_id).items())
            room = MOST_SERIES
            for metric in sums.user_metrics:
                if metric.name.startswith(PREFIX):  # taken
                    continue
                family = found.setdefault(
                    metric.name, Family(name=metric.name, kind=metric.kind, help=metric.description)
                )
                if family.kind != metric.kind:
                    continue
                for tags, value in metric.series[:room]:
                    names = {name for name, _ in tags}
                    labels = (*tags, *(each for each in own if each[0] not in names))
                    family.series.append((labels, value))
                room -= len(metric.series)
        return [each for each in found.values() if each.series]


def _family(name: str, kind: Kind, help: str) -> Family:
    return Family(name=f"{PREFIX}{name}", kind=kind, help=help)


def _labels(id: DeploymentId, replica_id: str | None = None) -> dict[str, str]:
    labels = {"application": id.app, "deployment": id.name}
    return labels if replica_id is None else {**labels, "replica": replica_id}


def in_milliseconds(times: Times) -> HistogramValue:
    """Return times as a histogram with `LATENCY_BOUNDS_MS`."""
    below = times.below(_BOUNDS_S)
    counts = [count - before for count, before in zip(below, (0, *below), strict=False)]
    rest = times.count - (below[-1] if below else 0)
    return HistogramValue(
        bounds=LATENCY_BOUNDS_MS, counts=(*counts, max(0, rest)), total=round(times.sum_s * 1e3, 3)
    )


def _size_histogram(sizes: Mapping[int, int]) -> HistogramValue:
    counts = [0] * (len(BATCH_SIZES) + 1)
    for size, count in sizes.items():
        place = next((i for i, bound in enumerate(BATCH_SIZES) if size <= bound), len(BATCH_SIZES))
        counts[place] += count
    total = sum(size * count for size, count in sizes.items())
    return HistogramValue(bounds=BATCH_SIZES, counts=tuple(counts), total=float(total))


def _together(one: BatchTimes, other: BatchTimes) -> BatchTimes:
    sizes = dict(one.sizes)
    for size, count in other.sizes.items():
        sizes[size] = sizes.get(size, 0) + count
    return replace(one, sizes=sizes, wait=one.wait + other.wait, run=one.run + other.run)
