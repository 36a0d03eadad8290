"""The search's controller alone: 100 and 10 000 simulated trials of up to nine steps, under ASHA;
some of them die on the way.

What its instructions ask for is done at once, so all the time is the controller's, the scheduler's
and the simulation's own. Microseconds per event have to stay flat.
"""

import argparse
import gc
import random
import time
import tracemalloc
from typing import Any

from bench.inputs import scaled
from bench.programs import common
from bench.programs.tune.rehearsal import Rehearsal
from syncline.tune.schedulers import ASHAScheduler
from syncline.tune.search.search_algorithm import Suggestion

SIZES = (100, 10_000)
LEAST_EVENTS = 100_000
CPUS = 64
STEPS = 9
SAVES_EVERY = 3
FAILURE_CHANCE = 0.01
"""Of a step, to be the end of its process."""


class Numbers:
    """Proposes so many numbers, and costs next to nothing."""

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
        """Nothing to learn."""

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Nothing to learn."""


def rehearsed(trials: int) -> Rehearsal:
    """A search of so many trials that has been run."""
    chance = random.Random(0)

    def loss(config: dict[str, Any], step: int) -> float | None:
        return None if chance.random() < FAILURE_CHANCE else chance.random()

    scheduler = ASHAScheduler(max_t=STEPS, reduction_factor=3)
    rehearsal = Rehearsal(
        Numbers(trials), scheduler, loss, steps=STEPS, cpus=CPUS, saves_every=SAVES_EVERY
    )
    ended = rehearsal.run()
    assert len(ended) == trials, f"{len(ended)} trials instead of {trials}"
    return rehearsal


def event_us(trials: int) -> float:
    """Microseconds of CPU time per event, of as many searches as it takes for enough events."""
    seconds, events, failures, checkpoints = 0.0, 0, 0, 0
    while events < scaled(LEAST_EVENTS):
        begin = time.process_time()
        rehearsal = rehearsed(trials)
        seconds += time.process_time() - begin
        events += rehearsal.events
        failures += rehearsal.failures
        checkpoints += rehearsal.checkpoints
    print(
        f"user: {trials} trials: {seconds / events * 1e6:.2f} us per event ({events} events, {checkpoints} checkpoints, "
        f"{failures} failures)",
        flush=True,
    )
    return seconds / events * 1e6


def bytes_per_trial(trials: int) -> float:
    """What a search that has ended holds."""
    gc.collect()
    tracemalloc.start()
    rehearsal = rehearsed(trials)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / len(rehearsal.machine.trials)


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
