"""Deployments of syncline.serve and of Ray Serve, from the same source; the batched application of
syncline has one path for each wait.
"""

import asyncio
import importlib
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from types import ModuleType
from typing import Any

from bench.programs.serve.apps import options


def echo(serve: ModuleType) -> Any:
    """Return an application that answers with the body of the request."""

    @serve.deployment(max_ongoing_requests=options.ONGOING)
    class Echo:
        async def __call__(self, request: Any) -> bytes:
            body: bytes = await request.body()
            return body

    return Echo.bind()


def fastapi(serve: ModuleType) -> Any:
    """Return an application with a FastAPI ingress that checks a JSON body and answers with it."""
    from bench.programs.serve.apps.item import FastAPI, Item

    app = FastAPI()

    @serve.deployment(max_ongoing_requests=options.ONGOING)
    @serve.ingress(app)
    class Echo:
        @app.post("/")
        async def echo(self, item: Item) -> Item:
            return item

    return Echo.bind()


def batched(serve: ModuleType) -> Any:
    """Return an application that classifies images in batches that wait for a fixed time."""
    from bench.programs.serve.vit import Classifier

    @serve.deployment(max_ongoing_requests=options.ONGOING)
    class Batched:
        def __init__(self) -> None:
            self._classifier = Classifier()

        @serve.batch(max_batch_size=options.BATCH, batch_wait_timeout_s=options.WAIT_S)
        async def classify(self, bodies: list[bytes]) -> list[int]:
            return self._classifier.classify(bodies)

        async def __call__(self, request: Any) -> dict[str, int]:
            return {"label": await self.classify(await request.body())}

    return Batched.bind()


def waits(serve: ModuleType) -> Any:
    """Return the batched application with one path for each fixed wait and one for the adaptive
    one.
    """
    from bench.programs.serve.vit import Classifier

    def batch(path: str) -> Any:
        wait_s = options.WAITS_S.get(path, options.AUTO)
        return serve.batch(max_batch_size=options.BATCH, batch_wait_timeout_s=wait_s)

    @serve.deployment(max_ongoing_requests=options.ONGOING)
    class Waits:
        def __init__(self) -> None:
            self._classifier = Classifier()
            self._methods = {
                "/0ms": self.classify_0ms,
                "/1ms": self.classify_1ms,
                "/2ms": self.classify_2ms,
                "/5ms": self.classify_5ms,
                "/10ms": self.classify_10ms,
                "/auto": self.classify_auto,
            }

        @batch("0ms")
        async def classify_0ms(self, bodies: list[bytes]) -> list[int]:
            return self._classifier.classify(bodies)

        @batch("1ms")
        async def classify_1ms(self, bodies: list[bytes]) -> list[int]:
            return self._classifier.classify(bodies)

        @batch("2ms")
        async def classify_2ms(self, bodies: list[bytes]) -> list[int]:
            return self._classifier.classify(bodies)

        @batch("5ms")
        async def classify_5ms(self, bodies: list[bytes]) -> list[int]:
            return self._classifier.classify(bodies)

        @batch("10ms")
        async def classify_10ms(self, bodies: list[bytes]) -> list[int]:
            return self._classifier.classify(bodies)

        @batch(options.AUTO)
        async def classify_auto(self, bodies: list[bytes]) -> list[int]:
            return self._classifier.classify(bodies)

        async def __call__(self, request: Any) -> dict[str, int]:
            return {"label": await self._methods[request.scope["path"]](await request.body())}

    return Waits.bind()


def streams(serve: ModuleType) -> Any:
    """Return an application that streams tokens: paced below `/paced`, else as fast as it can."""
    from starlette.responses import StreamingResponse

    async def tokens(pause_s: float) -> AsyncIterator[str]:
        for _ in range(options.CHUNKS):
            yield options.TOKEN
            await asyncio.sleep(pause_s)

    @serve.deployment(max_ongoing_requests=options.ONGOING)
    class Streams:
        async def __call__(self, request: Any) -> Any:
            paced = request.scope["path"] == "/paced"
            return StreamingResponse(
                tokens(options.TOKEN_S if paced else 0.0), media_type="text/plain"
            )

    return Streams.bind()


APPS: dict[str, Callable[[ModuleType], Any]] = {
    "echo": echo,
    "fastapi": fastapi,
    "batched": batched,
    "waits": waits,
    "streams": streams,
}


def start(library: ModuleType) -> None:
    """Start the engine on two CPUs: Ray without its dashboard, in a cluster that is not shared."""
    if library.__name__ == "ray":
        library.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    else:
        library.init(num_cpus=2)


def main() -> None:
    """Serve one application until SIGTERM."""
    name, app, port = sys.argv[1:]
    library = importlib.import_module(name)
    serve = importlib.import_module(f"{name}.serve")
    application = APPS[app](serve)  # first, as in a module that declares deployments
    start(library)
    serve.start(http_options={"host": options.HOST, "port": int(port)})
    serve.run(application)
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    stopped.wait()
    library.shutdown()


if __name__ == "__main__":
    main()
