"""`RequestTraces`: slow requests with the time of each hop. Pure.

Proxies and replicas report their slowest calls of a period. The parts of one request are joined by
its id: the proxy's part has the queue and the whole time, each replica's part the wait for a batch
and the handler. A replica's part may be missing, if many others of its calls were slower; then the
time after the queue is not split.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from syncline.records import dataclass
from syncline.runs.json_values import JsonObject
from syncline.serve.monitoring.reports import ProxyReport, ReplicaReport, SlowCall, SlowRequest
from syncline.serve.monitoring.slowest import PERIOD_S
from syncline.serve.wire.routes import DeploymentId

MOST_PER_PERIOD = 5
"""Requests per period and application that are recorded."""
WAIT_S = 2.5
"""Seconds after the arrival of a part in which the others arrive."""
_MOST_CALLS = 500


@dataclass(frozen=True, kw_only=True)
class _Part:
    call: SlowCall
    replica_id: str
    deployment: DeploymentId
    node_id: str


@dataclass(kw_only=True)
class _Period:
    """The parts that arrived together."""

    due: float
    requests: list[tuple[SlowRequest, str]] = field(default_factory=list)
    """With the node of the proxy."""


class RequestTraces:
    """Collects parts and returns complete traces."""

    def __init__(self) -> None:
        self._period: _Period | None = None
        self._parts: dict[str, list[_Part]] = {}
        self._arrived: dict[str, float] = {}

    def add(self, report: ReplicaReport | ProxyReport, now: float) -> None:
        """Add the slow calls of a report; `now` in seconds of any clock."""
        if not report.slow:
            return
        if isinstance(report, ProxyReport):
            if self._period is None:
                self._period = _Period(due=now + WAIT_S)
            self._period.requests += [(each, report.node_id) for each in report.slow]
            return
        for call in report.slow:
            part = _Part(
                call=call,
                replica_id=report.replica_id,
                deployment=report.deployment,
                node_id=report.node_id,
            )
            self._parts.setdefault(call.request_id, []).append(part)
            self._arrived[call.request_id] = now

    def take(self, now: float, wall_s: float) -> list[JsonObject]:
        """Return the records of the traces that are complete, the slowest first."""
        found: list[JsonObject] = []
        period = self._period
        if period is not None and now >= period.due:
            self._period = None
            for requests in _by_application(period.requests).values():
                requests.sort(key=lambda each: each[0].started - each[0].ended)
                for request, node_id in requests[:MOST_PER_PERIOD]:
                    parts = self._parts.pop(request.request_id, [])
                    found.append(_record(request, node_id, parts, wall_s))
        self._forget(now)
        return found

    def _forget(self, now: float) -> None:
        """Drop parts whose request was not among the slowest of its proxy."""
        old = [id for id, at in self._arrived.items() if now - at > PERIOD_S + WAIT_S]
        if len(self._arrived) - len(old) > _MOST_CALLS:
            old = list(self._arrived)[:-_MOST_CALLS]
        for id in old:
            del self._arrived[id]
            self._parts.pop(id, None)


def _by_application(
    requests: Iterable[tuple[SlowRequest, str]],
) -> dict[str, list[tuple[SlowRequest, str]]]:
    found: dict[str, list[tuple[SlowRequest, str]]] = {}
    for each in requests:
        found.setdefault(each[0].app, []).append(each)
    return found


def _record(request: SlowRequest, node_id: str, parts: list[_Part], wall_s: float) -> JsonObject:
    """Return the line of a trace; all times in milliseconds."""
    main = next((part for part in parts if part.replica_id == request.replica_id), None)
    record: JsonObject = {
        "time": round(wall_s, 2),
        "request_id": request.request_id,
        "app": request.app,
        "route": request.route,
        "method": request.method,
        "status": request.status,
        "deployment": request.deployment.name,
        "replica": request.replica_id,
        "total": _ms(request.ended - request.started),
        "queue": _ms(request.sent - request.started),
    }
    if main is not None:
        call = main.call
        handled_s = call.ended - call.received
        on_the_way_s = request.ended - request.sent - handled_s
        record["batch_wait"] = _ms(call.batch_wait_s)
        record["handler"] = _ms(handled_s - call.batch_wait_s)
        record["transfer"] = _ms(on_the_way_s)
        if main.node_id == node_id:  # one clock
            record["to_replica"] = _ms(call.received - request.sent)
            record["from_replica"] = _ms(request.ended - call.ended)
    record["calls"] = [
        {
            "deployment": part.deployment.name,
            "replica": part.replica_id,
            "method": part.call.method,
            "ms": _ms(part.call.ended - part.call.received),
            "batch_wait": _ms(part.call.batch_wait_s),
            **(
                {"after": _ms(part.call.received - request.started)}
                if part.node_id == node_id
                else {}
            ),
        }
        for part in sorted(parts, key=lambda each: each.call.received)
        if part is not main
    ]
    return record


def _ms(seconds: float) -> float:
    return round(max(0.0, seconds) * 1e3, 3)
