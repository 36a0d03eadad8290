import asyncio
import threading
from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from pydantic import BaseModel

from syncline.core import serialization
from syncline.serve.exceptions import RayServeException
from syncline.serve.ingress import BUILD_ASGI_APP, ingress
from tests.serve.replica.harness import TestCaller, run, staged


class Query(BaseModel):
    value: int


def make_ingress() -> Any:
    """Return an ingress class with routes of all kinds."""
    app = FastAPI(title="Test")
    router = APIRouter(prefix="/router")
    cache = {"hits": 0}

    @app.get("/function")
    def function() -> int:
        cache["hits"] += 1
        return cache["hits"]

    def token(request: Request) -> str:
        return request.headers["x-token"]

    @ingress(app)
    class Ingress:
        def __init__(self, factor: int = 2) -> None:
            self.factor = factor

        @app.get("/items/{item}")
        def item(self, item: int, q: str = "none") -> dict[str, Any]:
            return {"item": item * self.factor, "q": q}

        @app.post("/query")
        async def query(self, query: Query, token: str = Depends(token)) -> Query:
            return Query(value=query.value * self.factor + len(token))

        @router.get("/inside")
        async def inside(self) -> int:
            return self.factor + cache["hits"]

        @app.get("/{path:path}")
        def rest(self, path: str) -> str:
            return f"{path} of {type(self).__name__}"

    app.include_router(router)
    app.router.routes.insert(-2, app.router.routes.pop())  # before the route for all paths
    return Ingress


async def get(caller: TestCaller, target: bytes, **head: Any) -> tuple[int, bytes]:
    response = await caller.http(target, **head).response()
    return response.status, response.body


@pytest.mark.parametrize("by_value", [False, True])
def test_methods_are_routes_of_the_instance(tmp_path, by_value):
    async def scenario() -> None:
        async with staged(tmp_path, make_ingress(), 3, by_value=by_value) as stage:
            caller = await stage.connect()
            assert await get(caller, b"/items/5?q=x") == (200, b'{"item":15,"q":"x"}')
            assert (await get(caller, b"/items/five"))[0] == 422
            assert await get(caller, b"/function") == (200, b"1")
            assert await get(caller, b"/router/inside") == (200, b"4")  # one shared `cache`
            assert await get(caller, b"/a/b") == (200, b'"a/b of Ingress"')
            posted = await caller.http(
                b"/query",
                b'{"value":5}',
                method="POST",
                headers=[(b"content-type", b"application/json"), (b"x-token", b"abc")],
            ).response()
            assert (posted.status, posted.body) == (200, b'{"value":18}')
            schema = await caller.http(b"/openapi.json").response()
            assert b"self" not in schema.body
            assert await caller.call("item", 2, q="y").value() == {"item": 6, "q": "y"}

    run(scenario)


def test_prefix_is_the_root_path_and_docs_lie_below_it(tmp_path):
    async def scenario() -> None:
        options = {"route_prefix": "/app"}
        async with staged(tmp_path, make_ingress(), options=options) as stage:
            assert stage.ready.docs_path == "/app/docs"
            caller = await stage.connect()
            for target in (b"/app/docs", b"/app/openapi.json", b"/app/items/1"):
                assert (await get(caller, target, root_path="/app"))[0] == 200

    run(scenario)


def test_subclass_overrides_a_route_and_has_its_own_constructor(tmp_path):
    base = make_ingress()

    class Sub(base):
        async def __init__(self) -> None:  # type: ignore[misc]
            await asyncio.sleep(0)
            base.__init__(self, 10)

        def rest(self, path: str) -> str:
            return "mine"

    async def scenario() -> None:
        async with staged(tmp_path, Sub) as stage:
            caller = await stage.connect()
            assert await get(caller, b"/items/1") == (200, b'{"item":10,"q":"none"}')
            assert await get(caller, b"/other") == (200, b'"mine"')

    run(scenario)


def test_routes_of_another_class_on_the_same_application_are_left_out(tmp_path):
    app = FastAPI()

    class First:
        @app.get("/first")
        def first(self) -> int:
            return 1

    class Second:
        @app.get("/second")
        def second(self) -> int:
            return 2

    ingress(app)(First)
    ingress(app)(Second)

    async def scenario() -> None:
        async with staged(tmp_path, Second, by_value=True) as stage:
            caller = await stage.connect()
            assert await get(caller, b"/second") == (200, b"2")
            assert (await get(caller, b"/first"))[0] == 404

    run(scenario)


def test_router_is_served_as_an_application(tmp_path):
    router = APIRouter()

    @ingress(router)
    class Routed:
        @router.get("/")
        def home(self) -> str:
            return "home"

    async def scenario() -> None:
        async with staged(tmp_path, Routed) as stage:
            assert await get(await stage.connect(), b"/") == (200, b'"home"')

    run(scenario)


@pytest.mark.parametrize("is_async", [False, True])
def test_builder_makes_the_application_in_the_replica(tmp_path, is_async):
    def build() -> FastAPI:
        app = FastAPI()
        app.state.lock = threading.Lock()  # cannot be pickled

        @app.get("/")
        def home(request: Request) -> str:
            return type(request.app.state.lock).__name__

        return app

    async def build_async() -> FastAPI:
        return build()

    @ingress(build_async if is_async else build)
    class Built: ...

    async def scenario() -> None:
        async with staged(tmp_path, Built, by_value=True) as stage:
            assert await get(await stage.connect(), b"/") == (200, b'"lock"')

    run(scenario)


@pytest.mark.parametrize("is_decorated", [False, True])
def test_method_builds_the_application_after_the_constructor(tmp_path, is_decorated):
    class Own:
        def __init__(self, word: str) -> None:
            self.word = word

        async def __serve_build_asgi_app__(self) -> FastAPI:
            app = FastAPI()
            app.add_api_route("/", lambda: self.word)
            return app

    if is_decorated:
        ingress()(Own)
        ingress(FastAPI())(Own)  # its own method is preferred
        assert ingress(Own) is Own

    async def scenario() -> None:
        async with staged(tmp_path, Own, "own") as stage:
            assert await get(await stage.connect(), b"/") == (200, b'"own"')

    run(scenario)


def test_decorated_class_is_the_class_itself():
    class Plain:
        attribute = 1

    decorated = ingress(FastAPI())(Plain)
    assert decorated is Plain
    assert hasattr(decorated, BUILD_ASGI_APP)


def test_function_that_returns_no_application_fails_the_replica(tmp_path):
    @ingress(lambda: 3)
    class Wrong: ...

    async def scenario() -> None:
        async with staged(tmp_path, Wrong) as stage:
            assert "returned 3, a int" in stage.ready.traceback

    run(scenario)


def test_application_with_a_lock_is_refused_with_the_name_of_the_attribute():
    app = FastAPI()
    app.state.lock = threading.Lock()
    with pytest.raises(TypeError, match="lock"):
        serialization.pack_callable(ingress(app)(type("Locked", (), {})))


def with_call() -> type:
    class WithCall:
        def __call__(self) -> None: ...

    return WithCall


@pytest.mark.parametrize(
    ("app", "target", "message"),
    [
        (FastAPI(), with_call(), "__call__"),
        (FastAPI(), lambda: 1, "decorates classes"),
        (3, None, "got 3, a int"),
        (None, type("Empty", (), {}), "got no application"),
    ],
)
@pytest.mark.parametrize("error", [RayServeException, TypeError, ValueError])
def test_wrong_use_is_refused(app, target, message, error):
    with pytest.raises(error, match=message):
        ingress(app)(target)
