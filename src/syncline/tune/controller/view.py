"""`ControllerView`: what schedulers may ask of the controller, and may have it do."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.experiment.trial import Trial


class ControllerView(Protocol):
    """A search as its scheduler sees it. Every method may be called from within the scheduler's own
    methods, and returns at once: what is asked for happens after the scheduler's method has
    returned.
    """

    @property
    def search_alg(self) -> Any:
        """The searcher in use."""

    @property
    def searcher_finished(self) -> bool:
        """Whether no further trials come."""

    @property
    def total_resources(self) -> Mapping[str, float]:
        """Everything that the machines have, by resource."""

    def get_trials(self) -> Sequence[Trial]:
        """All trials, in the order in which they were made. With thousands of them, not to be
        walked through at each result.
        """

    def get_live_trials(self) -> Collection[Trial]:
        """Those that have not ended."""

    def pending_trials(self) -> Iterable[Trial]:
        """Those that have never run, or wait to run again, in the order in which they came to
        wait.
        """

    def paused_trials(self) -> Iterable[Trial]:
        """Those that were paused, in the order of pausing."""

    def get_trial(self, trial_id: str) -> Trial | None:
        """The trial of that id."""

    def stop_trial(self, trial: Trial) -> None:
        """End a trial, whatever its state, as one that has finished; its resources are free at
        once.
        """

    def pause_trial(self, trial: Trial, should_checkpoint: bool = True) -> None:
        """Take a trial out of its process, with a checkpoint of now if it is a class;
        `choose_trial_to_run` may name it again.
        """

    def save_trial(self, trial: Trial) -> None:
        """Have a class trainable save a checkpoint before it goes on. A function has reported those
        that it wants to.
        """

    def exploit(
        self, trial: Trial, donor: Trial, *, config: Mapping[str, Any], tag: str = ""
    ) -> None:
        """`trial` goes on from the latest checkpoint of `donor` with another configuration. The
        checkpoint that it gets is compared with the donor's by hash.
        """

    def update_resources(self, trial: Trial, factory: PlacementGroupFactory) -> None:
        """`trial` holds something else from now on: it is paused, and starts again from its
        checkpoint.
        """
