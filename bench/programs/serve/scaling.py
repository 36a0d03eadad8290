"""Replicas of a deployment with a torch model: the second one in a burst, the first from zero, and
one more on request.

All intervals of autoscaling are small; the row sets Ray's variables for its metrics as well.
"""

import asyncio
import importlib
import os
import statistics
import time
from types import ModuleType
from typing import Any

from bench.programs import common
from bench.programs.serve.apps import deployments
from bench.programs.serve.vit import Classifier, body

CPU = {"num_cpus": 0.2}
LIMIT_S = 30.0
CLIENTS = 8
WORK_S = 0.02
REPEATS = {"syncline": 3, "ray": 1}
SOON = {
    "target_ongoing_requests": 1,
    "upscale_delay_s": 0.0,
    "downscale_delay_s": 0.2,
    "look_back_period_s": 0.2,
    "metrics_interval_s": 0.1,
}


def build(serve: ModuleType, **options: Any) -> Any:
    """Return a deployment of the model with these options."""

    @serve.deployment(name="Model", max_ongoing_requests=100, ray_actor_options=CPU, **options)
    class Model:
        def __init__(self) -> None:
            self._classifier = Classifier()

        async def __call__(self, image: bytes) -> int:
            self._classifier.classify([image])
            await asyncio.sleep(WORK_S)
            return os.getpid()

    return Model.bind()


def until_processes(handle: Any, count: int, begin: float) -> float:
    """Call with some calls in flight until `count` processes have answered; return the seconds
    since `begin`.

    Raises:
        RuntimeError: Not within the time limit.
    """
    image, seen = body(), set()
    while time.monotonic() - begin < LIMIT_S:
        responses = [handle.remote(image) for _ in range(CLIENTS)]
        seen |= {response.result(timeout_s=LIMIT_S) for response in responses}
        if len(seen) >= count:
            return time.monotonic() - begin
    raise RuntimeError(f"{len(seen)} processes answered within {LIMIT_S:g} s, not {count}")


def until_running(serve: ModuleType, app: str, count: int) -> None:
    """Wait until so many replicas run.

    Raises:
        RuntimeError: Not within the time limit.
    """
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        states = serve.status().applications[app].deployments["Model"].replica_states
        if sum(states.values()) == states.get("RUNNING", 0) == count:
            return
        time.sleep(0.05)
    raise RuntimeError(f"replicas are {states}, not {count} running, after {LIMIT_S:g} s")


def burst_s(serve: ModuleType, repeats: int) -> float:
    """Return the time from the start of a burst until a second replica answers."""
    times = []
    app = build(serve, autoscaling_config={**SOON, "min_replicas": 1, "max_replicas": 2})
    handle = serve.run(app, name="burst", route_prefix=None)
    for _ in range(repeats):
        until_running(serve, "burst", 1)
        handle.remote(body()).result()
        times.append(until_processes(handle, 2, time.monotonic()))
    serve.delete("burst")
    return statistics.median(times)


def from_zero_s(serve: ModuleType, repeats: int) -> float:
    """Return the time from a call without a replica until its answer."""
    times = []
    scaling = {**SOON, "min_replicas": 0, "initial_replicas": 0, "max_replicas": 1}
    handle = serve.run(build(serve, autoscaling_config=scaling), name="zero", route_prefix=None)
    for _ in range(repeats):
        until_running(serve, "zero", 0)
        begin = time.monotonic()
        handle.remote(body()).result(timeout_s=LIMIT_S)
        times.append(time.monotonic() - begin)
    serve.delete("zero")
    return statistics.median(times)


def one_more_s(serve: ModuleType, repeats: int) -> float:
    """Return the time from `serve.run` with two replicas in place of one until the second answers.

    syncline only: Ray replaces the first replica as well.
    """
    times = []
    for _ in range(repeats):
        handle = serve.run(build(serve, num_replicas=1), name="more", route_prefix=None)
        until_running(serve, "more", 1)
        handle.remote(body()).result()
        begin = time.monotonic()
        handle = serve.run(build(serve, num_replicas=2), name="more", route_prefix=None)
        times.append(until_processes(handle, 2, begin))
    serve.delete("more")
    return statistics.median(times)


def measure(name: str, serve: ModuleType) -> common.Values:
    """Return the values of one library."""
    repeats = REPEATS[name]
    values = {"burst_s": burst_s(serve, repeats), "from_zero_s": from_zero_s(serve, repeats)}
    return values | ({"one_more_s": one_more_s(serve, repeats)} if name == "syncline" else {})


if __name__ == "__main__":
    options = common.arguments()
    library = importlib.import_module(options.library)
    deployments.start(library)
    common.write(
        options.out, measure(options.library, importlib.import_module(f"{options.library}.serve"))
    )
    library.shutdown()
