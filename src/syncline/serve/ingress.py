"""`@serve.ingress`: classes whose HTTP requests are handled by an ASGI application.

The decorator leaves the application with the class; each replica makes it its own after the
constructor (`__serve_build_asgi_app__`). The class, and the application with it, travels to the
replicas as cloudpickle pickles classes. An application that cannot be pickled is given as a
function that builds it. Methods that are routes of a FastAPI application are bound by
`fastapi_routes`.
"""

from __future__ import annotations

import copyreg
import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from syncline.optional import load
from syncline.serve.exceptions import RayServeException

BUILD_ASGI_APP = "__serve_build_asgi_app__"
"""Method of an ingress class that returns its application; a coroutine function, too."""
_APP = "__serve_ingress_app__"
_ASGI_PARAMETERS = 3

C = TypeVar("C", bound=type)


class IngressError(RayServeException, TypeError, ValueError):
    """`@serve.ingress` was used wrongly."""


def ingress(app: object = None) -> Callable[[C], C]:
    """Let an ASGI application handle the HTTP requests of the decorated class.

    Args:
        app: A FastAPI application or APIRouter, methods of the class among its routes; another
            ASGI application; or a function without parameters that returns one of these, which
            each replica calls. None if the class has a method `__serve_build_asgi_app__`.

    Raises:
        IngressError: (a RayServeException, TypeError and ValueError) The decorated object is not a
            class, the class has `__call__`, or `app` is not an application.
    """
    if isinstance(app, type) and hasattr(app, BUILD_ASGI_APP):  # `@serve.ingress` without brackets
        return _decorated(app, None)
    if app is not None and not callable(app):
        raise IngressError(
            f"`@serve.ingress` got {app!r}, a {type(app).__name__}: give an ASGI application, such "
            f"as `FastAPI()`, or a function that returns one"
        )

    def decorate(cls: C) -> C:
        return _decorated(cls, app)

    return decorate


def _decorated(cls: C, app: object) -> C:
    name = getattr(cls, "__name__", repr(cls))
    if not inspect.isclass(cls):
        raise IngressError(
            f"`@serve.ingress` decorates classes, but got {cls!r}: put it directly above a class, "
            f"below `@serve.deployment`"
        )
    if any("__call__" in vars(base) for base in cls.__mro__):
        raise IngressError(
            f"class `{name}` has both `@serve.ingress` and a method `__call__`: remove `__call__`, "
            f"because the application handles all HTTP requests"
        )
    own = getattr(cls, BUILD_ASGI_APP, None)
    if app is None and own is None:
        raise IngressError(
            f"`@serve.ingress` of class `{name}` got no application: pass one, such as "
            f"`FastAPI()`, or add a method `{BUILD_ASGI_APP}` that returns one"
        )
    if app is not None and (own is None or own is _build_application):
        setattr(cls, _APP, staticmethod(app) if inspect.isfunction(app) else app)
        setattr(cls, BUILD_ASGI_APP, _build_application)
        _register_reducers()
    return cls


async def _build_application(self: object) -> Any:
    """Return the application of the class, with its methods bound to this instance."""
    app = inspect.getattr_static(type(self), _APP)
    app = app.__func__ if isinstance(app, staticmethod) else app
    if _is_builder(app):
        app = app()
        app = await app if inspect.isawaitable(app) else app
        if not callable(app):
            raise IngressError(
                f"the function given to `@serve.ingress` returned {app!r}, a "
                f"{type(app).__name__}: return an ASGI application"
            )
    if "fastapi" not in sys.modules:
        return app
    routes = load(
        "syncline.serve.replica.fastapi_routes",
        purpose="An ingress with FastAPI",
        install="syncline[serve]",
        library="fastapi",
    )
    return routes.bound_application(app, self)


def _is_builder(app: object) -> bool:
    """Return True for a function that an ASGI server cannot call."""
    if not inspect.isfunction(app):
        return False
    parameters = inspect.signature(app).parameters.values()
    return sum(each.default is each.empty for each in parameters) < _ASGI_PARAMETERS


def _register_reducers() -> None:
    """Let objects of Starlette and FastAPI be pickled that fail because of how they are written."""
    starlette = sys.modules.get("starlette.datastructures")
    if starlette is not None:  # its `__getattr__` fails while it is unpickled
        copyreg.pickle(starlette.State, _reduce_state)
    fastapi = sys.modules.get("fastapi.routing")
    included = getattr(fastapi, "_IncludedRouter", None)
    if included is not None:  # it holds a lock beside a cache
        copyreg.pickle(included, _reduce_included_router)


def _reduce_state(state: object) -> tuple[Any, ...]:
    return type(state), (vars(state)["_state"],)


def _reduce_included_router(router: Any) -> tuple[Any, ...]:
    return type(router), (router.original_router, router.include_context)
