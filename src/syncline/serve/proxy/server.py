"""`HttpServer`: state that the connections of a proxy share, and the sweep over them."""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Callable
from typing import Protocol

from syncline.core.metrics_text import CONTENT_TYPE as METRICS_TYPE
from syncline.serve.proxy.limits import HttpLimits
from syncline.serve.proxy.responses import LocalResponse
from syncline.serve.proxy.routes import RouteTable
from syncline.serve.proxy.statistics import HttpStatistics, RouteStatistics, summarize
from syncline.serve.routing.link import Link
from syncline.serve.tracing import Tracing
from syncline.serve.wire.routes import DeploymentId


class Connection(Protocol):
    """The connection of a client, as the server treats it."""

    expires: float
    """Time of the next check."""

    @property
    def is_busy(self) -> bool:
        """True while a request waits for its response."""

    def on_expired(self) -> None:
        """Check the connection."""

    def drain(self) -> None:
        """Close the connection after the current response."""

    def abort(self) -> None:
        """Close the connection immediately."""


class RequestIds:
    """Makes ids that are unique over all processes: random digits of the process, and a counter."""

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(8)
        self._count = itertools.count(1).__next__

    def new(self) -> str:
        """Return a new id."""
        return f"{self._prefix}{self._count():08x}"


class HttpServer:
    """Shared state of the connections."""

    def __init__(
        self,
        link: Link,
        routes: RouteTable,
        limits: HttpLimits,
        *,
        clock: Callable[[], float],
        request_timeout_s: float | None = None,
        root_path: str = "",
    ) -> None:
        """`clock` is the clock of the link's deadlines."""
        self.link = link
        self.routes = routes
        self.limits = limits
        self.clock = clock
        self.request_timeout_s = request_timeout_s
        self.root_path = root_path.rstrip("/").encode("ascii")
        """Prepended to targets: the part of the path that a server in front removed."""
        self.request_ids = RequestIds()
        self.known_hosts: set[bytes] = set()
        self.unrouted = RouteStatistics()
        """Requests without an application."""
        self.refused_requests = 0
        self.accepted_connections = 0
        self.is_draining = False
        self.on_request_done: Callable[..., None] | None = None
        """`on_request_done(call, status, seconds)`, called after each `HttpCall`; status 499 if the
        client went away.
        """
        self.on_connections_changed: Callable[[int], None] = lambda count: None
        """Called with the number of connections."""
        self.on_poison: Callable[[DeploymentId, str, str | None], None] = lambda *facts: None
        """`on_poison(deployment, request_id, replica_id)`, called for a request that is given up
        because it ended several replicas; the last one is `replica_id`.
        """
        self.tracing: Tracing | None = None
        self.metrics_path: str | None = None
        """File with the metrics that the controller writes; None before it is known."""
        self.now = clock()
        """Time of the last sweep, or later."""
        self._connections: set[Connection] = set()

    def opened(self, connection: Connection) -> None:
        """Add a connection."""
        if not self._connections:
            self.now = self.clock()
        self._connections.add(connection)
        self.accepted_connections += 1
        self.on_connections_changed(len(self._connections))

    def closed(self, connection: Connection) -> None:
        """Remove a connection."""
        self._connections.discard(connection)
        self.on_connections_changed(len(self._connections))

    def sweep(self) -> None:
        """Check the connections whose time has come."""
        self.now = now = self.clock()
        for connection in [each for each in self._connections if each.expires <= now]:
            connection.on_expired()

    def drain(self) -> None:
        """Close idle connections, and the others after their current response."""
        self.is_draining = True
        for connection in list(self._connections):
            connection.drain()

    def abort(self) -> None:
        """Close all connections immediately."""
        for connection in list(self._connections):
            connection.abort()

    # -- responses of the proxy

    def local_response(self, path: bytes) -> LocalResponse | None:
        """Return the response for a path below `/-/`; None if it is not one of the proxy's."""
        if path == b"/-/healthz":
            if self.is_draining:
                return LocalResponse(503, "This node is being drained.")
            if not self.routes.is_ready:
                return LocalResponse(503, "Starting: the route table has not arrived yet.")
            return LocalResponse(200, "success")
        if path == b"/-/routes":
            if not self.routes.is_ready:
                return LocalResponse(503, "Starting: the route table has not arrived yet.")
            return LocalResponse(
                200, json.dumps(self.routes.prefixes()), content_type="application/json"
            )
        if path == b"/-/metrics":
            return self._metrics()
        return None

    def _metrics(self) -> LocalResponse:
        """Return the metrics of all processes as the controller wrote them a second ago."""
        try:
            with open(self.metrics_path or "", encoding="utf-8") as file:
                text = file.read()
        except OSError:
            return LocalResponse(
                503,
                "The metrics are not available yet: the controller writes them every second, on "
                "its node.",
                headers=(("retry-after", "1"),),
            )
        return LocalResponse(200, text, content_type=METRICS_TYPE)

    def not_found(self, path: bytes) -> LocalResponse:
        """Return the response for a path without an application."""
        if not self.routes.is_ready:
            return LocalResponse(
                503,
                "Starting: the route table has not arrived yet.",
                headers=(("retry-after", "1"),),
            )
        text = path.decode("ascii")
        return LocalResponse(
            404, f"Path '{text}' not found. Ping http://.../-/routes for available routes."
        )

    # -- counts

    @property
    def connection_count(self) -> int:
        """Number of open connections."""
        return len(self._connections)

    def statistics(self) -> HttpStatistics:
        """Return the current counts."""
        routes = [
            summarize(app, route, statistics)
            for (app, route), statistics in self.routes.statistics().items()
        ]
        return HttpStatistics(
            connections=len(self._connections),
            accepted_connections=self.accepted_connections,
            ongoing_requests=sum(each.is_busy for each in self._connections),
            refused_requests=self.refused_requests,
            routes=(summarize("", "", self.unrouted), *routes),
        )
