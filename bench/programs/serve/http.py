"""A server under wrk at 1, 16 and 64 connections. Argument: `CONTENDER-APP`."""

import json
import statistics

from bench.programs import common
from bench.programs.serve import load, server
from bench.programs.serve.load import Body

CONNECTIONS = (1, 16, 64)
SECONDS = 2
WARM_SECONDS = 1
STARTS = {"syncline": 3, "uvicorn": 3}
"""Number of starts of a fast server; its first response is the median over them."""
TEXT = "x" * 48


def request(contender: str, app: str) -> tuple[str, Body]:
    """Return the path and the body of the requests to an application."""
    path = f"/{app}" if contender in ("litserve", "bentoml") else "/"
    if app != "batched":
        return path, Body(
            content=json.dumps({"text": TEXT}).encode(), content_type="application/json"
        )
    from bench.programs.serve.vit import body

    if contender == "litserve":
        image = json.dumps({"image": body().hex()}).encode()
        return path, Body(content=image, content_type="application/json")
    return path, Body(content=body())


def under_load(target: server.Server, path: str, body: Body, connections: int) -> common.Values:
    """Return the values at one number of connections.

    Raises:
        RuntimeError: Requests failed.
    """
    before = target.cpu_seconds()
    outcome = load.generate(target.url(path), body, connections=connections, seconds=SECONDS)
    cpu_s = target.cpu_seconds() - before
    if outcome.failed:
        raise RuntimeError(f"{outcome.failed} of {outcome.requests} requests failed")
    return {
        f"rate_{connections}": outcome.rate,
        f"p50_{connections}_ms": outcome.p50_ms,
        f"p99_{connections}_ms": outcome.p99_ms,
        f"cpu_{connections}_us": cpu_s / outcome.requests * 1e6,
    }


def measure(contender: str, app: str) -> common.Values:
    """Return the values of one contender."""
    path, body = request(contender, app)
    first = []
    for _ in range(STARTS.get(contender, 1) - 1):
        with server.running(contender, app, path, body) as target:
            first.append(target.first_response_s)
    with server.running(contender, app, path, body) as target:
        first.append(target.first_response_s)
        load.generate(target.url(path), body, connections=16, seconds=WARM_SECONDS)
        values = {"first_s": statistics.median(first)}
        for connections in CONNECTIONS:
            values |= under_load(target, path, body, connections)
    return values


if __name__ == "__main__":
    options = common.arguments()
    common.write(options.out, measure(*options.library.split("-")))
