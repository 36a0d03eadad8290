"""A syncline application whose replicas are replaced all the time: `churn PORT`.

SIGUSR1 stops the updates with one replica, and starts them again. The program prints a line with
the number of updates so far when they stand still.
"""

import asyncio
import itertools
import signal
import sys
from collections.abc import AsyncIterator
from queue import Empty, SimpleQueue
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
    # A handler interrupts the main thread anywhere, so it must not need a lock as an Event does.
    signals: SimpleQueue[int] = SimpleQueue()
    # The first answer may arrive before `deploy` returns, and a signal right after it.
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, lambda number, _: signals.put(number))
    syncline.init(num_cpus=2)
    serve.start(http_options={"host": options.HOST, "port": int(sys.argv[1])})
    deploy(0, 1)
    updating = False
    for version in itertools.count(1):
        try:
            received = signals.get(timeout=options.UPDATE_S if updating else None)
        except Empty:
            received = 0
        if received == signal.SIGTERM:
            break
        if received == signal.SIGUSR1:
            updating = not updating
        deploy(version, 1 + version % 2 if updating else 1)
        if not updating:
            print(f"user: updates {version}", flush=True)
    syncline.shutdown()


if __name__ == "__main__":
    main()
