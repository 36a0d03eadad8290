"""`SampledAhead`: the next batch, which runners sample while the learners train."""

from __future__ import annotations

from typing import Any

from syncline.rl.runners.group import EnvRunnerGroup, SamplesAhead
from syncline.rl.runners.sample import Sample


class SampledAhead:
    """Not thread-safe.

    Args:
        runners: Runners in other processes.
    """

    def __init__(self, runners: EnvRunnerGroup) -> None:
        self._runners = runners
        self._begun: SamplesAhead | None = None
        self._samples: list[Sample] | None = None

    def take(self, total: int | None, options: dict[str, Any]) -> list[Sample]:
        """Return a batch, and let the runners begin the next one with their present weights.

        Args:
            total: Steps; None for the configured number of each runner.
            options: Keywords of `EnvRunnerGroup.sample_steps`.
        """
        samples = self._finished()
        if samples is None:
            samples = self._runners.sample_steps(total, **options)
        self._samples = None
        self._begun = self._runners.begin_steps(total, **options)
        return samples

    def get_state(self) -> list[Sample] | None:
        """Return the next batch, once it is sampled; None if there is none."""
        return self._finished()

    def set_state(self, state: list[Sample] | None) -> None:
        """Set what `get_state` returned."""
        self._finished()
        self._samples = state

    def _finished(self) -> list[Sample] | None:
        if self._begun is not None:
            self._samples = self._runners.finish_steps(self._begun)
            self._begun = None
        return self._samples
