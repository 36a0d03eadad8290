"""`RouteTable`: the application of each path, by the longest route prefix of whole segments.

The applications come from the controller's table. Paths match after percent-decoding.
"""

from __future__ import annotations

from urllib.parse import unquote

from syncline.serve.proxy.statistics import RouteStatistics
from syncline.serve.wire.routes import ApplicationRoute, DeploymentId, TableUpdate

_CACHED_PATHS = 4096


class HttpRoute:
    """An application that takes HTTP requests, as the proxy uses it."""

    __slots__ = ("app", "idempotent", "ingress", "prefix", "root_path", "statistics")

    def __init__(
        self,
        *,
        prefix: str,
        app: str,
        ingress: DeploymentId,
        root_path: str,
        idempotent: bool,
        statistics: RouteStatistics,
    ) -> None:
        self.prefix = prefix
        """Route prefix, with a leading and without a trailing slash."""
        self.app = app
        self.ingress = ingress
        self.root_path = root_path
        """ASGI root path: the proxy's own, then the prefix; no trailing slash."""
        self.idempotent = idempotent
        """True if requests may run again after they began on a replica that died."""
        self.statistics = statistics


class RouteTable:
    """Finds the route of a path."""

    def __init__(self, root_path: str = "") -> None:
        """`root_path` is the prefix under which another server forwards to this proxy."""
        self._root_path = root_path.rstrip("/")
        self._applications: tuple[ApplicationRoute, ...] = ()
        self._by_name: dict[str, ApplicationRoute] = {}
        self._idempotent: dict[DeploymentId, bool] = {}
        self._by_segment: dict[str, list[HttpRoute]] = {}
        self._default: HttpRoute | None = None
        self._cache: dict[bytes, HttpRoute | None] = {}
        self._statistics: dict[tuple[str, str], RouteStatistics] = {}
        self.is_ready = False
        """True after the first update."""

    def update(self, update: TableUpdate) -> None:
        """Apply a change of the controller's table."""
        self.is_ready = True
        if update.is_complete:
            self._idempotent.clear()
        for deployment in update.deployments:
            self._idempotent[deployment.id] = deployment.idempotent
        for id in update.removed:
            self._idempotent.pop(id, None)
        if update.applications is not None:
            self._applications = update.applications
            self._by_name = {route.name: route for route in update.applications}
        self._build()

    @property
    def applications(self) -> dict[str, ApplicationRoute]:
        """All applications by name, also those without a route prefix."""
        return self._by_name

    def prefixes(self) -> dict[str, str]:
        """Return the application of each route prefix."""
        return {
            route.route_prefix: route.name
            for route in sorted(self._applications, key=lambda each: each.route_prefix or "")
            if route.route_prefix is not None
        }

    def statistics(self) -> dict[tuple[str, str], RouteStatistics]:
        """Return statistics by application and route prefix, removed applications included."""
        return dict(self._statistics)

    def find(self, path: bytes) -> HttpRoute | None:
        """Return the route of a raw path without a query string; None without one."""
        try:
            return self._cache[path]
        except KeyError:
            pass
        if len(self._cache) >= _CACHED_PATHS:
            self._cache.clear()
        found = self._cache[path] = self._search(unquote(path.decode("ascii")))
        return found

    def _search(self, path: str) -> HttpRoute | None:
        segment = path.split("/", 2)[1] if path.startswith("/") else ""
        for route in self._by_segment.get(segment, ()):
            prefix = route.prefix
            if path.startswith(prefix) and (len(path) == len(prefix) or path[len(prefix)] == "/"):
                return route
        return self._default

    def _build(self) -> None:
        self._cache.clear()
        self._by_segment.clear()
        self._default = None
        for application in self._applications:
            if application.route_prefix is None:
                continue
            route = self._route(application, application.route_prefix)
            if route.prefix == "/":
                self._default = route
            else:
                self._by_segment.setdefault(route.prefix.split("/", 2)[1], []).append(route)
        for routes in self._by_segment.values():
            routes.sort(key=lambda each: len(each.prefix), reverse=True)

    def _route(self, application: ApplicationRoute, route_prefix: str) -> HttpRoute:
        prefix = route_prefix.rstrip("/")
        statistics = self._statistics.setdefault(
            (application.name, prefix or "/"), RouteStatistics()
        )
        return HttpRoute(
            prefix=prefix or "/",
            app=application.name,
            ingress=application.ingress,
            root_path=self._root_path + prefix,
            idempotent=self._idempotent.get(application.ingress, False),
            statistics=statistics,
        )
