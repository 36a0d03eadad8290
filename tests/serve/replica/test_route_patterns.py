"""Patterns of the paths of ASGI applications."""

from fastapi import APIRouter, FastAPI, WebSocket
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Host, Mount, Route

from syncline.serve.replica import route_patterns as module
from syncline.serve.replica.route_patterns import route_patterns


async def plain(scope, receive, send):
    await PlainTextResponse("")(scope, receive, send)


def test_routes_of_starlette_and_mounted_applications():
    inner = Starlette(routes=[Route("/deep/{path:path}", plain)])
    app = Starlette(
        routes=[
            Route("/users/{name}", plain),
            Mount("/inner", inner),
            Mount("/other", plain),
            Host("example.org", inner),
        ]
    )
    patterns = ("/users/{name}", "/inner/deep/{path:path}", "/other/{path:path}")
    assert route_patterns(app) == patterns


def test_routes_of_fastapi_and_included_routers():
    app = FastAPI(openapi_url=None)
    items, nested = APIRouter(), APIRouter()

    @app.get("/")
    @app.post("/")
    def root() -> None: ...

    @items.get("/items/{id:int}")
    def item(id: int) -> None: ...

    @nested.websocket("/ws")
    async def socket(websocket: WebSocket) -> None: ...

    items.include_router(nested, prefix="/nested")
    app.include_router(items, prefix="/v1")
    assert route_patterns(app) == ("/", "/v1/items/{id:int}", "/v1/nested/ws")


def test_other_applications_have_none():
    assert route_patterns(plain) == ()


def test_too_many_are_left_out(monkeypatch):
    monkeypatch.setattr(module, "MOST_PATTERNS", 2)
    routes = [Route(f"/{i}", plain) for i in range(3)]
    assert route_patterns(Starlette(routes=routes)) == ()
    assert route_patterns(Starlette(routes=routes[:2])) == ("/0", "/1")
