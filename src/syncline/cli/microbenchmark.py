"""`microbenchmark`: measure tasks, actor calls and objects, on this machine or on a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import click
import numpy as np

from syncline.cli import engines
from syncline.cli.output import console, json_option, print_json, table
from syncline.core import api

MANY = 1_000
"""Calls in flight at a time."""
LARGE_BYTES = 100 * 1024**2
"""Bytes of the large array."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One rate; the field names are the keys of `--json`."""

    name: str
    value: float
    unit: str
    """Unit of `value`."""
    rounds: int
    """Number of repetitions."""


def _nothing() -> None:
    """Empty task."""


class _Idle:
    """Actor with an empty method."""

    def nothing(self) -> None:
        """Empty method."""


def measure(
    once: Callable[[], object], seconds: float, clock: Callable[[], float] = time.perf_counter
) -> tuple[int, float]:
    """Call `once` repeatedly for at least `seconds`, after one warm-up call.

    Returns:
        (number of calls, elapsed seconds).
    """
    once()
    began, rounds, passed = clock(), 0, 0.0
    while passed < seconds:
        once()
        rounds += 1
        passed = clock() - began
    return rounds, passed


def measurements(seconds: float) -> Iterator[Measurement]:
    """Yield each measurement; the engine needs a CPU for an actor and one for tasks."""
    nothing: Any = _nothing
    task = api.remote(nothing)
    actor: Any = api.remote(_Idle).remote()
    small, large = b"x" * 100, np.ones(LARGE_BYTES, dtype=np.uint8)
    stored = api.put(large)

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
    yield per_second("get of 100 MiB, in memory", lambda: api.get(stored))
    api.kill(actor)


@click.command(name="microbenchmark")
@engines.address_option
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Duration of each measurement.",
)
@json_option
def microbenchmark_command(address: str | None, seconds: float, as_json: bool) -> None:
    """Measure tasks, actor calls and objects, on the cluster at the address or on this machine.

    Run it on an idle machine, and compare results of the same machine only.
    """
    chosen = engines.chosen_address(address)
    name = "this machine" if chosen is None else chosen
    with engines.connected(chosen):
        done = list(measurements(seconds))
    if as_json:
        print_json(
            {
                "engine": name,
                "seconds": seconds,
                "measurements": [asdict(measurement) for measurement in done],
            }
        )
        return
    rows = [
        (measurement.name, _number(measurement.value), measurement.unit) for measurement in done
    ]
    console().print(table((f"on {name}", "rate", ""), rows, right=("rate",)))


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ") if value >= 100 else f"{value:.3g}"
