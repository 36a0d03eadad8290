"""`SearchAlgorithm`, the source of trials for the controller.

Implementations: `BasicVariantGenerator` (grids and random search) and `SearchGenerator` (any
`Searcher`).
"""

from __future__ import annotations

from dataclasses import dataclass

from syncline.tune.result import Config, Metrics
from syncline.tune.search.searcher import MetricNames, Modes


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """A trial to run."""

    config: Config
    """Complete configuration of the trainable."""

    evaluated_params: Config
    """Searched parameters without constants, by flat key ("a/b")."""

    tag: str
    """Number and parameters of the suggestion, for display: "3_lr=0.1,momentum=0.9"."""


class SearchAlgorithm:
    """A source of trials.

    `configure` is called first, once. One thread makes all calls. The cost of `next_trial` does not
    depend on the number of earlier trials. A state of `get_state` can be set on another instance,
    configured or not; both then return the same suggestions for the same calls.
    """

    metric: MetricNames = None
    mode: Modes = None

    def configure(
        self, metric: MetricNames, mode: Modes, param_space: Config, num_samples: int
    ) -> None:
        """Set the search space and the number of samples.

        Args:
            metric: Metric to optimize.
            mode: "min" or "max".
            param_space: The search space.
            num_samples: Number of samples; -1 for no limit.

        Raises:
            ValueError: This algorithm cannot search the space.
        """
        raise NotImplementedError

    def next_trial(self, trial_id: str) -> Suggestion | None:
        """Return the configuration of a new trial; None if there is none until a trial ends."""
        raise NotImplementedError

    def is_finished(self) -> bool:
        """Return True if there are no more trials, unless samples are added."""
        raise NotImplementedError

    def add_samples(self, n: int) -> None:
        """Increase `num_samples` by `n`."""
        raise NotImplementedError

    @property
    def total_samples(self) -> float:
        """Total number of trials; inf without a limit."""
        raise NotImplementedError

    def get_state(self) -> bytes:
        """Return the complete state, including random generators."""
        raise NotImplementedError

    def set_state(self, state: bytes) -> None:
        """Restore a state of `get_state`."""
        raise NotImplementedError

    def on_trial_result(self, trial_id: str, result: Metrics) -> None:
        """Handle a result of a trial."""

    def on_trial_complete(
        self, trial_id: str, result: Metrics | None = None, error: bool = False
    ) -> None:
        """Handle the end of a trial, with its last result; `error` is True if it failed."""

    def on_pause(self, trial_id: str) -> None:
        """Handle a pause of the trial by a scheduler."""

    def on_unpause(self, trial_id: str) -> None:
        """Handle the continuation of a paused trial."""
