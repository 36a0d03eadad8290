"""`TimeSplit`: seconds of an iteration in environments, inference, learning, evaluation, waiting.

Runners and learners may work at the same time, so the parts do not necessarily sum up to the total:
the runners' seconds are averages over the runners. `bottleneck` finds the limiting part.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from syncline.rl.runners.sample import Sample

TIME_SPLIT = "time_split"
"""Key of results: a dictionary with the fields of `Seconds`."""
STEPS_PER_S = "num_env_steps_sampled_throughput_per_sec"
"""Key of results: sampled environment steps per second of the iteration, without evaluation."""


@dataclass(frozen=True, kw_only=True)
class RunnerSeconds:
    """Summed seconds of one runner."""

    environment_s: float = 0.0
    inference_s: float = 0.0
    other_s: float = 0.0
    """Seconds in bookkeeping, connectors and callbacks of the runner."""

    @property
    def busy_s(self) -> float:
        """Seconds of sampling."""
        return self.environment_s + self.inference_s + self.other_s

    def plus(self, sample: Sample) -> RunnerSeconds:
        """Return the sums including another sample."""
        times = sample.times
        return RunnerSeconds(
            environment_s=self.environment_s + times.env_s,
            inference_s=self.inference_s + times.inference_s,
            other_s=self.other_s + max(0.0, times.total_s - times.env_s - times.inference_s),
        )


class TimeSplit:
    """Sums of one iteration. Not thread-safe.

    Args:
        clock: Source of time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Begin an iteration."""
        self._began = self._clock()
        self._runners: dict[int, RunnerSeconds] = {}
        self._spent = {"sampling": 0.0, "learning": 0.0, "evaluation": 0.0}

    @property
    def runners(self) -> Mapping[int, RunnerSeconds]:
        """Seconds of this iteration by the index of the runner."""
        return self._runners

    def add_samples(self, samples: Iterable[Sample]) -> None:
        """Add the seconds of samples."""
        for sample in samples:
            before = self._runners.get(sample.runner, RunnerSeconds())
            self._runners[sample.runner] = before.plus(sample)

    @contextmanager
    def measure(self, activity: str) -> Iterator[None]:
        """Add the seconds of a block to "sampling", "learning" or "evaluation" of the driver."""
        began = self._clock()
        try:
            yield
        finally:
            self._spent[activity] += self._clock() - began

    def add(self, activity: str, seconds: float) -> None:
        """Add seconds of the driver that were measured elsewhere."""
        self._spent[activity] += seconds

    def seconds(self, num_runners: int) -> dict[str, float]:
        """Return the seconds of the iteration so far.

        Args:
            num_runners: Number of runners, including those that have not delivered samples.

        Returns:
            Averages over runners: `environment_s`, `inference_s`, `sampling_other_s`. Totals of the
            algorithm: `sampling_s` (including waiting for samples), `learning_s`, `evaluation_s`,
            `total_s`.
        """
        count = max(num_runners, len(self._runners), 1)
        found = self._runners.values()
        return {
            "environment_s": sum(each.environment_s for each in found) / count,
            "inference_s": sum(each.inference_s for each in found) / count,
            "sampling_other_s": sum(each.other_s for each in found) / count,
            **{f"{name}_s": spent for name, spent in self._spent.items()},
            "total_s": self._clock() - self._began,
        }
