"""What `microbenchmark` measures, each for some time on the engine that runs: round trips,
throughput, objects.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from syncline.core import api

MANY = 1_000
"""Calls in flight at once."""
LARGE_BYTES = 100 * 1024**2
"""Bytes of the large array."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One rate; `--json` gives these names."""

    name: str
    value: float
    unit: str
    """What there are `value` of in a second."""
    rounds: int
    """How often it was done while it was measured."""


def _nothing() -> None:
    """The task."""


class _Idle:
    """The actor."""

    def nothing(self) -> None:
        """The call."""


def measure(
    once: Callable[[], object], seconds: float, clock: Callable[[], float] = time.perf_counter
) -> tuple[int, float]:
    """(how often `once` was called, seconds that it took), for at least `seconds`, after one call
    that does not count.
    """
    once()
    began, rounds, passed = clock(), 0, 0.0
    while passed < seconds:
        once()
        rounds += 1
        passed = clock() - began
    return rounds, passed


def measurements(seconds: float) -> Iterator[Measurement]:
    """Each measurement as it is done. The engine runs already, and has a CPU for an actor and one
    for tasks.
    """
    nothing: Any = _nothing
    task = api.remote(nothing)
    actor: Any = api.remote(_Idle).remote()
    small, large = b"x" * 100, np.ones(LARGE_BYTES, dtype=np.uint8)
    kept = api.put(large)

    def per_second(
        name: str, once: Callable[[], object], each: float = 1, unit: str = "per s"
    ) -> Measurement:
        rounds, passed = measure(once, seconds)
        return Measurement(name=name, value=rounds * each / passed, unit=unit, rounds=rounds)

    yield per_second("task round trips", lambda: api.get(task.remote()))
    yield per_second(
        f"tasks, {MANY} in flight", lambda: api.get([task.remote() for _ in range(MANY)]), MANY
    )
    yield per_second("actor call round trips", lambda: api.get(actor.nothing.remote()))
    yield per_second(
        f"actor calls, {MANY} in flight",
        lambda: api.get([actor.nothing.remote() for _ in range(MANY)]),
        MANY,
    )
    yield per_second("put of 100 bytes", lambda: api.put(small))
    yield per_second("put and get of 100 bytes", lambda: api.get(api.put(small)))
    yield per_second("put of 100 MiB", lambda: api.put(large), LARGE_BYTES / 1e9, "GB/s")
    yield per_second("get of 100 MiB, already there", lambda: api.get(kept))
    api.kill(actor)
