"""The search's controller alone: 100 and 10 000 simulated trials of up to nine steps under ASHA;
some of them die.

The simulation answers each instruction immediately, so that only the controller, the scheduler and
the simulation take time. Microseconds per event must not grow.
"""

import argparse
import gc
import random
import time
import tracemalloc
from typing import Any

from bench.inputs import scaled
from bench.programs import common
from bench.programs.tune.simulated_search import SimulatedSearch
from syncline.tune.schedulers import ASHAScheduler
from syncline.tune.search.search_algorithm import Suggestion

SIZES = (100, 10_000)
LEAST_EVENTS = 100_000
CPUS = 64
STEPS = 9
SAVES_EVERY = 3
FAILURE_CHANCE = 0.01
"""Probability that a trial's process dies in a step."""


class Counter:
    """A search algorithm of negligible cost that suggests n numbers."""

    def __init__(self, samples: int) -> None:
        self.left = samples

    def next_trial(self, trial_id: str) -> Suggestion:
        self.left -= 1
        return Suggestion(
            config={"x": self.left}, evaluated_params={"x": self.left}, tag=f"x={self.left}"
        )

    def is_finished(self) -> bool:
        return self.left == 0

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Ignore the result."""

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Ignore the result."""


def searched(trials: int) -> SimulatedSearch:
    """Run a search with this number of trials."""
    chance = random.Random(0)

    def loss(config: dict[str, Any], step: int) -> float | None:
        return None if chance.random() < FAILURE_CHANCE else chance.random()

    scheduler = ASHAScheduler(max_t=STEPS, reduction_factor=3)
    search = SimulatedSearch(
        Counter(trials), scheduler, loss, steps=STEPS, cpus=CPUS, saves_every=SAVES_EVERY
    )
    ended = search.run()
    assert len(ended) == trials, f"{len(ended)} trials instead of {trials}"
    return search


def event_us(trials: int) -> float:
    """Return the microseconds of CPU time per event, over as many searches as needed."""
    seconds, events, failures, checkpoints = 0.0, 0, 0, 0
    while events < scaled(LEAST_EVENTS):
        begin = time.process_time()
        search = searched(trials)
        seconds += time.process_time() - begin
        events += search.events
        failures += search.failures
        checkpoints += search.checkpoints
    print(
        f"user: {trials} trials: {seconds / events * 1e6:.2f} us per event ({events} events, "
        f"{checkpoints} checkpoints, {failures} failures)",
        flush=True,
    )
    return seconds / events * 1e6


def bytes_per_trial(trials: int) -> float:
    """Return the memory that a finished search holds, per trial."""
    gc.collect()
    tracemalloc.start()
    search = searched(trials)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / len(search.machine.trials)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("library", nargs="?")
    parser.add_argument("--out")
    options = parser.parse_args()
    values: common.Values = {f"event_us_{size}": event_us(scaled(size)) for size in SIZES}
    values["growth"] = values[f"event_us_{SIZES[-1]}"] / values[f"event_us_{SIZES[0]}"]
    values["bytes_per_trial"] = bytes_per_trial(scaled(SIZES[-1]))
    if options.out:
        common.write(options.out, values)
