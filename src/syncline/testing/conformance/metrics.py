"""`util.metrics`: values of all processes in the program."""

from __future__ import annotations

import re
import time
from typing import ClassVar

import syncline
from syncline.testing.conformance.suite import Suite, Trait
from syncline.testing.tasks import get
from syncline.util import metrics
from syncline.util.metrics import Counter, Gauge, Histogram

SERVED = Counter("conformance_served", "Calls so far", tag_keys=("model",))
"""Travels to the workers with the functions that use it."""


def _wait_for(pattern: str) -> str:
    """Return the text of the metrics once it matches."""
    deadline = time.monotonic() + 60
    while not re.search(pattern, text := metrics.text(), re.MULTILINE):
        assert time.monotonic() < deadline, text
        time.sleep(0.02)
    return text


class Metrics(Suite):
    """Counters, gauges and histograms of tasks, actors and the driver."""

    needs: ClassVar[tuple[Trait, ...]] = ("processes", "parallel")

    def test_counters_of_tasks_actors_and_driver_are_summed(self) -> None:
        @syncline.remote
        def task() -> None:
            SERVED.inc(2, tags={"model": "a"})

        @syncline.remote
        class Actor:
            def call(self) -> None:
                SERVED.inc(3, tags={"model": "a"})

        actor = Actor.remote()
        get([task.remote(), actor.call.remote()])
        SERVED.inc(tags={"model": "a"})
        assert "# HELP conformance_served Calls so far" in _wait_for(
            r'^conformance_served{model="a"} 6$'
        )

    def test_values_of_a_worker_that_is_killed_after_its_call_are_kept(self) -> None:
        @syncline.remote
        class Actor:
            def call(self) -> None:
                Counter("conformance_mortal").inc(5)

        actor = Actor.remote()
        get(actor.call.remote())
        syncline.kill(actor)
        assert "conformance_mortal 5" in metrics.text()

    def test_gauge_of_a_worker_has_its_id(self) -> None:
        @syncline.remote
        def task() -> str:
            Gauge("conformance_size", "Size", tag_keys=("of",)).set(7, tags={"of": "x"})
            return syncline.get_runtime_context().get_worker_id()

        worker_id = get(task.remote())
        _wait_for(rf'^conformance_size{{of="x",worker_id="{worker_id}"}} 7$')

    def test_histogram_counts_observations_of_a_worker(self) -> None:
        @syncline.remote
        def task() -> None:
            times = Histogram("conformance_times", "Seconds", boundaries=[1, 10])
            for value in (0.5, 5, 50):
                times.observe(value)

        get(task.remote())
        text = _wait_for(r"^conformance_times_count 3$")
        assert 'conformance_times_bucket{le="10"} 2' in text
