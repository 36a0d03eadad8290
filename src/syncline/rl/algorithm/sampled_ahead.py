"""`SampledAhead`: lets runners sample the next batch while the learners train."""

from __future__ import annotations

from syncline.rl.runners.group import EnvRunnerGroup, SamplesAhead
from syncline.rl.runners.sample import Sample
from syncline.rl.value_types import Options


class SampledAhead:
    """Not thread-safe.

    Args:
        runners: Runners in other processes.
    """

    def __init__(self, runners: EnvRunnerGroup) -> None:
        self._runners = runners
        self._begun: SamplesAhead | None = None
        self._samples: list[Sample] | None = None

    def take(self, total: int | None, options: Options) -> list[Sample]:
        """Return a batch, and make the runners start the next one with their current weights.

        Args:
            total: Number of steps; None for the configured number per runner.
            options: Keywords of `EnvRunnerGroup.sample_steps`.
        """
        samples = self._finished()
        if samples is None:
            samples = self._runners.sample_steps(total, **options)
        self._samples = None
        self._begun = self._runners.begin_steps(total, **options)
        return samples

    def get_state(self) -> list[Sample] | None:
        """Wait for the next batch and return it; None if none was requested."""
        return self._finished()

    def set_state(self, state: list[Sample] | None) -> None:
        """Restore the state that `get_state` returned."""
        self._finished()
        self._samples = state

    def _finished(self) -> list[Sample] | None:
        if self._begun is not None:
            self._samples = self._runners.finish_steps(self._begun)
            self._begun = None
        return self._samples
