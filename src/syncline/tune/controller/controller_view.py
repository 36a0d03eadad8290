"""`ControllerView`: the interface of the controller for schedulers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.experiment.trial import Trial


class ControllerView(Protocol):
    """A search as its scheduler sees it.

    Every method may be called from a method of the scheduler and returns immediately. Changes
    happen after the scheduler's method returns.
    """

    @property
    def search_alg(self) -> Any:
        """The searcher in use."""

    @property
    def searcher_finished(self) -> bool:
        """True if no further trials will come."""

    @property
    def total_resources(self) -> Mapping[str, float]:
        """Resources of all nodes together, by name."""

    def get_trials(self) -> Sequence[Trial]:
        """Return all trials in the order of their creation. Do not walk through them at each
        result: there may be thousands.
        """

    def get_live_trials(self) -> Collection[Trial]:
        """Return the trials that have not ended."""

    def pending_trials(self) -> Iterable[Trial]:
        """Return the trials that wait to start: restarts first, then new ones in order."""

    def paused_trials(self) -> Iterable[Trial]:
        """Return the paused trials in the order of pausing."""

    def get_trial(self, trial_id: str) -> Trial | None:
        """Return a trial; None for an unknown id."""

    def stop_trial(self, trial: Trial) -> None:
        """End a trial in any state as terminated, and release its resources."""

    def pause_trial(self, trial: Trial, should_checkpoint: bool = True) -> None:
        """End the process of a trial, after a checkpoint if it is a class. `choose_trial_to_run`
        may return the trial again.
        """

    def save_trial(self, trial: Trial) -> None:
        """Save a checkpoint of a class trainable before its next step. No effect on functions."""

    def exploit(
        self, trial: Trial, donor: Trial, *, config: Mapping[str, Any], tag: str = ""
    ) -> None:
        """Continue `trial` from the latest checkpoint of `donor` with another configuration. The
        checkpoint is copied and the hashes are compared.
        """

    def update_resources(self, trial: Trial, factory: PlacementGroupFactory) -> None:
        """Change the resources of `trial`. If it runs, it is paused and restarts from its
        checkpoint.
        """
