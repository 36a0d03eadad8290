"""The applications on uvicorn with uvloop and httptools, in one process: no hop to a replica.

Plain applications use Starlette's request and response without its router and middleware.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from bench.programs.serve.apps import options


def asgi(handler: Callable[[Request], Awaitable[Response]]) -> ASGIApp:
    """Return an ASGI application that answers all requests by `handler`."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            response = await handler(Request(scope, receive))
            await response(scope, receive, send)

    return app


def echo() -> ASGIApp:
    """Return an application that answers with the body of the request."""

    async def handler(request: Request) -> Response:
        return Response(await request.body(), media_type="text/plain")

    return asgi(handler)


def fastapi() -> ASGIApp:
    """Return a FastAPI application that checks a JSON body and answers with it."""
    from bench.programs.serve.apps.item import FastAPI, Item

    app = FastAPI()

    @app.post("/")
    async def echo(item: Item) -> Item:
        return item

    return app


class Batcher:
    """Collects items for one call: until there are enough, or the first has waited long enough."""

    def __init__(self, call: Callable[[list[bytes]], list[int]], size: int, wait_s: float) -> None:
        self._call = call
        self._size = size
        self._wait_s = wait_s
        self._waiting: list[tuple[bytes, asyncio.Future[int]]] = []
        self._timer: asyncio.TimerHandle | None = None

    async def submit(self, item: bytes) -> int:
        """Return the result of one item."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        self._waiting.append((item, future))
        if len(self._waiting) == self._size:
            self._flush()
        elif self._timer is None:
            self._timer = loop.call_later(self._wait_s, self._flush)
        return await future

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        for (_, future), result in zip(
            waiting, self._call([item for item, _ in waiting]), strict=True
        ):
            if not future.done():
                future.set_result(result)


def batched() -> ASGIApp:
    """Return an application that classifies images in batches, on the event loop."""
    from bench.programs.serve.vit import Classifier

    batcher = Batcher(Classifier().classify, options.BATCH, options.WAIT_S)

    async def handler(request: Request) -> Response:
        return JSONResponse({"label": await batcher.submit(await request.body())})

    return asgi(handler)


def streams() -> ASGIApp:
    """Return an application that streams tokens: paced below `/paced`, else as fast as it can."""

    async def tokens(pause_s: float) -> AsyncIterator[str]:
        for _ in range(options.CHUNKS):
            yield options.TOKEN
            await asyncio.sleep(pause_s)

    async def handler(request: Request) -> Response:
        paced = request.scope["path"] == "/paced"
        return StreamingResponse(tokens(options.TOKEN_S if paced else 0.0), media_type="text/plain")

    return asgi(handler)


APPS: dict[str, Callable[[], ASGIApp]] = {
    "echo": echo,
    "fastapi": fastapi,
    "batched": batched,
    "streams": streams,
}


def main() -> None:
    """Serve one application until SIGTERM."""
    app, port = sys.argv[1:]
    settings: dict[str, Any] = {"loop": "uvloop", "http": "httptools", "lifespan": "off"}
    uvicorn.run(
        APPS[app](),
        host=options.HOST,
        port=int(port),
        access_log=False,
        log_level="warning",
        **settings,
    )


if __name__ == "__main__":
    main()
