"""Messages with statistics, from proxies and replicas to the controller, once a second.

Counts and histograms are those since the previous report, so that the controller only adds. Times
of `SlowRequest` and `SlowCall` are those of `time.perf_counter()`, which all processes of a node
share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from syncline.core.message import Message
from syncline.core.metrics_text import UserMetric
from syncline.records import dataclass
from syncline.serve.logging_config import LoggingConfig
from syncline.serve.monitoring.histogram import NO_TIMES, Times
from syncline.serve.wire.routes import DeploymentId

REPORT_S = 1.0
"""Seconds between reports of a process."""


class RecordTo(Message):
    """Controller -> proxy, replica: where the record of this serve is."""

    directory: str
    """Local run directory; processes on other nodes may not have it."""
    metrics_path: str
    """File with the Prometheus text of all processes."""
    is_same_node: bool = True
    """True if the receiver is on the controller's node."""
    logging_config: LoggingConfig | None = None
    """Logs of the proxies; None for the default."""


class SlowRequest(Message):
    """One of the slowest requests of a proxy in a period."""

    request_id: str
    app: str
    route: str
    method: str
    status: int
    deployment: DeploymentId
    replica_id: str
    """Replica that answered last; empty if none got the request."""
    started: float
    """The head of the request was complete."""
    sent: float
    """It was sent to the replica; equal to `ended` if it never was."""
    ended: float
    """The last byte of the response was written."""


class SlowCall(Message):
    """One of the slowest calls of a replica in a period."""

    request_id: str
    method: str
    """Method of the user's class, or HTTP method and route."""
    received: float
    """Its frame arrived and it was admitted."""
    batch_wait_s: float
    """Seconds that it waited for a batch to fill or to begin."""
    ended: float
    """Its last frame was handed to the socket."""


class FailedCall(Message):
    """An exception of user code."""

    request_id: str
    method: str
    error: str
    """Type and message."""
    traceback: str


@dataclass(frozen=True, kw_only=True)
class BatchTimes:
    """The batches of one method of a replica."""

    method: str
    sizes: Mapping[int, int]
    """Number of batches by size."""
    wait: Times
    """Seconds that items waited for their batch to begin."""
    run: Times
    """Seconds that batches took."""


class ReplicaReport(Message):
    """Statistics of a replica."""

    replica_id: str
    deployment: DeploymentId
    node_id: str
    ongoing: int
    """Requests that it handles now."""
    limit: int
    """`max_ongoing_requests`."""
    handled: Times = NO_TIMES
    """Seconds from the arrival of a call to its answer."""
    computed: Times = NO_TIMES
    """The same without the wait for a batch; only calls that waited for one."""
    by_handle: int = 0
    """Calls of handles among the handled ones; the others are HTTP requests."""
    failed: int = 0
    """Calls in which user code raised."""
    cancelled: int = 0
    busy: int = 0
    """Calls that were sent back because all slots were taken."""
    batches: tuple[BatchTimes, ...] = ()
    waits: Mapping[DeploymentId, Times] = field(default_factory=dict)
    """Seconds that calls of this replica to other deployments waited for a free replica; calls
    that did not wait are omitted."""
    called: tuple[DeploymentId, ...] = ()
    """Deployments that this replica has called."""
    loop_lag_s: float = 0.0
    """Longest delay of a timer: how long the event loop was blocked."""
    slow: tuple[SlowCall, ...] = ()
    failures: tuple[FailedCall, ...] = ()
    """Some of the failed calls; their number per period is limited."""
    user_metrics: tuple[UserMetric, ...] | None = None
    """None if they have not changed."""


class RouteReport(Message):
    """Requests of one route in a proxy."""

    app: str
    """Empty for requests without an application."""
    route: str
    """Route prefix."""
    by_method_and_status: Mapping[tuple[str, int], int]
    total: Times
    """Seconds from the complete head of a request to the last byte of its response."""


class ProxyReport(Message):
    """Statistics of a proxy."""

    proxy_id: str
    node_id: str
    pid: int
    connections: int
    ongoing: int
    """Requests that have no complete response yet."""
    refused: int
    """Malformed, oversized or too slow requests since the start."""
    routes: tuple[RouteReport, ...] = ()
    waits: Mapping[DeploymentId, Times] = field(default_factory=dict)
    """Seconds that requests waited for a free replica; requests that did not wait are left out."""
    slow: tuple[SlowRequest, ...] = ()
    loop_lag_s: float = 0.0


StatisticsReport = ReplicaReport | ProxyReport
