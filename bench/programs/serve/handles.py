"""Calls of deployment handles: from the program and from a replica, one at a time and many in
flight, and chains of deployments.
"""

import asyncio
import importlib
import time
from types import ModuleType
from typing import Any

from bench.programs import common
from bench.programs.serve.apps import deployments

CPU = {"num_cpus": 0.1}
ONGOING = 1000
IN_FLIGHT = 64
SECONDS = 1.0


def build(serve: ModuleType) -> Any:
    """Return an application: a deployment that echoes, chains of two and three deployments that end
    in it, and a caller of it.
    """

    @serve.deployment(name="Echo", max_ongoing_requests=ONGOING, ray_actor_options=CPU)
    class Echo:
        async def __call__(self, value: int) -> int:
            return value

    @serve.deployment(name="Middle", max_ongoing_requests=ONGOING, ray_actor_options=CPU)
    class Middle:
        def __init__(self, after: Any) -> None:
            self._after = after

        async def __call__(self, value: int) -> int:
            result: int = await self._after.remote(value)
            return result

    @serve.deployment(name="Caller", max_ongoing_requests=ONGOING, ray_actor_options=CPU)
    class Caller:
        def __init__(self, echo: Any, middle: Any) -> None:
            self._echo = echo
            self._middle = middle

        async def one(self, value: int) -> int:
            result: int = await self._echo.remote(value)
            return result

        async def chain(self, value: int) -> int:
            result: int = await self._middle.remote(value)
            return result

        async def alone(self, value: int) -> int:
            return value

        async def rate(self, in_flight: int, seconds: float) -> float:
            end = time.perf_counter() + seconds

            async def calls() -> int:
                count = 0
                while time.perf_counter() < end:
                    await self._echo.remote(count)
                    count += 1
                return count

            begin = time.perf_counter()
            count = sum(await asyncio.gather(*(calls() for _ in range(in_flight))))
            return count / (time.perf_counter() - begin)

    echo = Echo.bind()
    return Caller.bind(echo, Middle.bind(echo))


def calls_per_s(handle: Any, seconds: float = SECONDS) -> float:
    """Return the rate of calls, one at a time."""
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        assert handle.remote(count).result() == count
        count += 1
    return count / (time.perf_counter() - begin)


def calls_in_flight_per_s(handle: Any, seconds: float = SECONDS) -> float:
    """Return the rate of calls with many in flight."""
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        responses = [handle.remote(index) for index in range(ONGOING)]
        assert [response.result() for response in responses] == list(range(ONGOING))
        count += ONGOING
    return count / (time.perf_counter() - begin)


def median_call_ms(handle: Any, seconds: float = SECONDS) -> float:
    """Return the median latency of calls, one at a time."""
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        handle.remote(1).result()
        times.append(time.perf_counter() - begin)
    return common.median_ms(times)


def measure(serve: ModuleType) -> common.Values:
    """Return the values of one library, with Serve running."""
    caller = serve.run(build(serve), route_prefix=None)
    echo = serve.get_deployment_handle("Echo", app_name="default")
    for warm in (echo, caller.alone, caller.one, caller.chain):
        calls_per_s(warm, 0.2)
    one_hop, two, three = (
        median_call_ms(handle) for handle in (caller.alone, caller.one, caller.chain)
    )
    print(f"user: one deployment {one_hop:.3f} ms, two {two:.3f} ms, three {three:.3f} ms")
    return {
        "one_per_s": calls_per_s(echo),
        "many_per_s": calls_in_flight_per_s(echo),
        "replica_one_per_s": caller.rate.remote(1, SECONDS).result(),
        "replica_many_per_s": caller.rate.remote(IN_FLIGHT, SECONDS).result(),
        "chain_ms": three,
        "hop_ms": (three - one_hop) / 2,
    }


if __name__ == "__main__":
    options = common.arguments()
    library = importlib.import_module(options.library)
    deployments.start(library)
    common.write(options.out, measure(importlib.import_module(f"{options.library}.serve")))
    library.shutdown()
