"""Routes of a FastAPI application that are methods of an ingress class, bound to its instance.

FastAPI read the signatures of the methods when it decorated them, with `self` as a parameter of the
query. Each such route is made again with the bound method as its endpoint, at the same place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute, APIWebSocketRoute

from syncline.serve.exceptions import RayServeException


def bound_application(app: object, instance: object) -> Any:
    """Return `app` with its routes bound to `instance`, if it is FastAPI's; else as it is.

    An APIRouter becomes a FastAPI application. Routes that are methods of other classes are
    removed. Raises RayServeException for a route whose method does not take `self`.
    """
    if isinstance(app, APIRouter):
        application = FastAPI()
        application.include_router(app)
        app = application
    if not isinstance(app, FastAPI):
        return app
    for router in _routers(app.router, set()):
        router.routes[:] = [
            bound for route in router.routes if (bound := _bound(route, instance)) is not None
        ]
        if hasattr(router, "_mark_routes_changed"):  # FastAPI caches routes of included routers
            router._mark_routes_changed()
    app.openapi_schema = None
    return app


def _routers(router: APIRouter, seen: set[int]) -> Iterator[APIRouter]:
    """Yield a router and the routers that it includes, each once."""
    if id(router) in seen:
        return
    seen.add(id(router))
    yield router
    for route in router.routes:
        included = getattr(route, "original_router", None)
        if isinstance(included, APIRouter):
            yield from _routers(included, seen)


def _bound(route: object, instance: object) -> Any:
    """Return the route for the instance; None if it belongs to another class."""
    if not isinstance(route, (APIRoute, APIWebSocketRoute)):
        return route
    endpoint = route.endpoint
    function = getattr(endpoint, "__func__", endpoint)  # bound before, to another instance
    owner, _, name = getattr(function, "__qualname__", "").rpartition(".")
    if not owner or owner.endswith("<locals>"):
        return route
    for base in type(instance).__mro__:
        if vars(base).get(name) is function:
            return _remade(route, _checked(getattr(instance, name), function))
        if base.__qualname__ == owner and base.__module__ == function.__module__:
            return _remade(route, _checked(MethodType(function, instance), function))
    return None if _takes_self(function) else route


def _checked(method: Any, function: Any) -> Any:
    if isinstance(method, MethodType) and not inspect.signature(function).parameters:
        raise RayServeException(
            f"`{function.__qualname__}` is a route of the ingress, but takes no `self`: add it as "
            f"the first parameter"
        )
    return method


def _takes_self(function: Any) -> bool:
    return next(iter(inspect.signature(function).parameters), "") == "self"


def _remade(route: Any, endpoint: Callable[..., Any]) -> Any:
    base = APIRoute if isinstance(route, APIRoute) else APIWebSocketRoute
    options = {
        name: getattr(route, name)
        for name in inspect.signature(base).parameters
        if name != "endpoint" and hasattr(route, name)
    }
    if getattr(route, "stream_item_type", None) is not None:
        options.pop("response_model")  # FastAPI derives both from the annotation
    return type(route)(endpoint=endpoint, **options)
