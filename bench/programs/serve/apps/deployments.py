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

    def batching(wait_s: float | str) -> Callable[..., Any]:
        @serve.batch(max_batch_size=options.BATCH, batch_wait_timeout_s=wait_s)
        async def classify(self: Any, bodies: list[bytes]) -> list[int]:
            labels: list[int] = self.classifier.classify(bodies)
            return labels

        return classify

    @serve.deployment(max_ongoing_requests=options.ONGOING)
    class Waits:
        classify_0ms = batching(options.WAITS_S["0ms"])
        classify_1ms = batching(options.WAITS_S["1ms"])
        classify_2ms = batching(options.WAITS_S["2ms"])
        classify_5ms = batching(options.WAITS_S["5ms"])
        classify_10ms = batching(options.WAITS_S["10ms"])
        classify_auto = batching(options.AUTO)

        def __init__(self) -> None:
            self.classifier = Classifier()

        async def __call__(self, request: Any) -> dict[str, int]:
            classify = getattr(self, "classify_" + request.scope["path"][1:])
            return {"label": await classify(await request.body())}

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
    start(library)
    serve.start(http_options={"host": options.HOST, "port": int(port)})
    serve.run(APPS[app](serve))
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    stopped.wait()
    library.shutdown()


if __name__ == "__main__":
    main()
