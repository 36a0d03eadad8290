"""A syncline application whose replicas are replaced all the time: `churn PORT`.

SIGUSR1 stops the updates with one replica, and starts them again. The program prints a line with
the number of updates so far when they stand still.
"""

import asyncio
import itertools
import signal
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import syncline
from bench.programs.serve.apps import options
from syncline import serve


async def endless() -> AsyncIterator[str]:
    """Yield tokens until the client leaves."""
    while True:
        yield options.TOKEN
        await asyncio.sleep(options.TOKEN_S)


@serve.deployment(max_ongoing_requests=options.ONGOING, ray_actor_options={"num_cpus": 0.2})
class Echo:
    """Answers with the body of the request, or with a stream without end."""

    def __init__(self, version: int) -> None:
        self._version = version

    async def __call__(self, request: Any) -> Any:
        """Answer one request."""
        if request.scope["path"] == options.STREAM_PATH:
            from starlette.responses import StreamingResponse

            return StreamingResponse(endless(), media_type="text/plain")
        return await request.body()


def deploy(version: int, replicas: int) -> None:
    """Replace all replicas by new ones."""
    serve.run(Echo.options(num_replicas=replicas).bind(version))


def main() -> None:
    """Serve and update until SIGTERM."""
    updating, toggled, stopped = threading.Event(), threading.Event(), threading.Event()

    def toggle(*_: object) -> None:
        updating.clear() if updating.is_set() else updating.set()
        toggled.set()

    def stop(*_: object) -> None:
        stopped.set()
        toggled.set()

    # The first answer may arrive before `deploy` returns, and a signal right after it.
    signal.signal(signal.SIGUSR1, toggle)
    signal.signal(signal.SIGTERM, stop)
    syncline.init(num_cpus=2)
    serve.start(http_options={"host": options.HOST, "port": int(sys.argv[1])})
    deploy(0, 1)
    for version in itertools.count(1):
        if not updating.is_set():
            deploy(version, 1)
            print(f"user: updates {version}", flush=True)
            while not updating.is_set() and not stopped.is_set():
                toggled.wait()
                toggled.clear()
        if stopped.is_set():
            break
        deploy(version, 1 + version % 2)
        stopped.wait(options.UPDATE_S)
    syncline.shutdown()


if __name__ == "__main__":
    main()
