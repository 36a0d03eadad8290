"""Patterns of the paths of an ASGI application, for metrics and records.

Applications of Starlette and FastAPI have a list of routes; others have no patterns. Hosts are left
out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

MOST_PATTERNS = 500
"""Number of patterns from which on requests are counted by application only."""


def route_patterns(app: object) -> tuple[str, ...]:
    """Return the patterns in the order of the routes, such as "/users/{id}"; empty for too many."""
    patterns: dict[str, None] = {}
    for pattern in _patterns(getattr(app, "routes", ()), ""):
        patterns[pattern] = None
        if len(patterns) > MOST_PATTERNS:
            return ()
    return tuple(patterns)


def _patterns(routes: Iterable[Any], prefix: str) -> Iterator[str]:
    for route in routes:
        included = getattr(route, "original_router", None)
        path = getattr(route, "path", None)
        if included is not None:  # a router that FastAPI includes
            yield from _patterns(included.routes, prefix + route.include_context.prefix)
        elif isinstance(path, str) and not hasattr(route, "routes"):
            yield prefix + path
        elif isinstance(path, str) and route.routes:
            yield from _patterns(route.routes, prefix + path)
        elif isinstance(path, str):  # another application
            yield f"{prefix}{path}/{{path:path}}"
