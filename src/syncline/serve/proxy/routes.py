"""`RouteTable`: the application of each path, by the longest route prefix of whole segments.

The applications come from the controller's table. Paths match after percent-decoding. Requests are
counted by the pattern of their path, if the application has patterns.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from syncline.serve.proxy.statistics import RouteStatistics
from syncline.serve.wire.routes import ApplicationRoute, DeploymentId, TableUpdate

_CACHED_PATHS = 4096
_PARAMETER = re.compile(r"\{\w+(?::(\w+))?\}")
_CONVERTERS = {"path": ".*", "int": "[0-9]+"}


class HttpRoute:
    """An application that takes HTTP requests, as the proxy uses it."""

    __slots__ = (
        "app",
        "idempotent",
        "ingress",
        "label",
        "patterns",
        "prefix",
        "root_path",
        "statistics",
    )

    def __init__(
        self,
        *,
        prefix: str,
        label: str,
        app: str,
        ingress: DeploymentId,
        root_path: str,
        idempotent: bool,
        statistics: RouteStatistics,
    ) -> None:
        self.prefix = prefix
        """Route prefix, with a leading and without a trailing slash."""
        self.label = label
        """Pattern of the path, with the prefix, for metrics and records."""
        self.app = app
        self.ingress = ingress
        self.root_path = root_path
        """ASGI root path: the proxy's own, then the prefix; no trailing slash."""
        self.idempotent = idempotent
        """True if requests may run again after they began on a replica that died."""
        self.statistics = statistics
        self.patterns: tuple[tuple[re.Pattern[str], str], ...] = ()
        """Patterns of the application's paths, and their labels."""

    def label_of(self, path: str) -> str:
        """Return the label of the first pattern that a path matches; this route's without one."""
        below = path if self.prefix == "/" else path[len(self.prefix) :]
        for pattern, label in self.patterns:
            if pattern.fullmatch(below or "/"):
                return label
        return self.label


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
        self._by_label: dict[tuple[str, str], HttpRoute] = {}
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
        """Return statistics by application and label, removed applications included."""
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
                return self._labelled(route, path)
        return None if self._default is None else self._labelled(self._default, path)

    def _labelled(self, route: HttpRoute, path: str) -> HttpRoute:
        """Return the route of the pattern of a path; made with the first request to it."""
        if not route.patterns:
            return route
        key = (route.app, route.label_of(path))
        found = self._by_label.get(key)
        if found is None:
            application, prefix = self._by_name[route.app], route.prefix.rstrip("/")
            found = self._by_label[key] = self._route(application, prefix, key[1])
        return found

    def _build(self) -> None:
        self._cache.clear()
        self._by_label.clear()
        self._by_segment.clear()
        self._default = None
        for application in self._applications:
            if application.route_prefix is None:
                continue
            prefix = application.route_prefix.rstrip("/")
            route = self._route(application, prefix, prefix or "/")
            route.patterns = tuple(
                (_compiled(pattern), prefix + pattern) for pattern in application.patterns
            )
            if route.prefix == "/":
                self._default = route
            else:
                self._by_segment.setdefault(route.prefix.split("/", 2)[1], []).append(route)
        for routes in self._by_segment.values():
            routes.sort(key=lambda each: len(each.prefix), reverse=True)

    def _route(self, application: ApplicationRoute, prefix: str, label: str) -> HttpRoute:
        key = (application.name, label)
        statistics = self._statistics.get(key)
        if statistics is None:
            statistics = self._statistics[key] = RouteStatistics()
        return HttpRoute(
            prefix=prefix or "/",
            label=label,
            app=application.name,
            ingress=application.ingress,
            root_path=self._root_path + prefix,
            idempotent=self._idempotent.get(application.ingress, False),
            statistics=statistics,
        )


def _compiled(pattern: str) -> re.Pattern[str]:
    """Return the expression of a pattern of Starlette."""
    parts: list[str] = []
    end = 0
    for parameter in _PARAMETER.finditer(pattern):
        parts += re.escape(pattern[end : parameter.start()]), "(?:"
        parts += _CONVERTERS.get(parameter[1], "[^/]+"), ")"
        end = parameter.end()
    return re.compile("".join([*parts, re.escape(pattern[end:])]))
