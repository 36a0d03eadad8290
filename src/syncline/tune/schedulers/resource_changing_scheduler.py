"""`ResourceChangingScheduler`: any other scheduler, and trials whose resources grow and shrink
while they run.

Not covered: how much a trial gets (`allocation.py`, or a function of the user's).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.experiment.trial import Trial
from syncline.tune.schedulers.allocation import (
    DistributeResources,
    DistributeResourcesToTopJob,
    evenly_distribute_cpus_gpus,
    evenly_distribute_cpus_gpus_distributed,
)
from syncline.tune.schedulers.trial_scheduler import FIFOScheduler, TrialScheduler

if TYPE_CHECKING:
    from syncline.tune.schedulers.trial_scheduler import ControllerView

__all__ = [
    "DistributeResources",
    "DistributeResourcesToTopJob",
    "ResourceChangingScheduler",
    "evenly_distribute_cpus_gpus",
    "evenly_distribute_cpus_gpus_distributed",
]

Allocation = Callable[
    ["ControllerView", Trial, dict[str, Any], "ResourceChangingScheduler"],
    PlacementGroupFactory | None,
]
"""(controller, trial, its result, the scheduler) -> what the trial is to hold, or None: what it
has.
"""


class ResourceChangingScheduler(TrialScheduler):
    """Asks the base scheduler for every decision. Where a trial goes on, it may get other
    resources: it is then paused and started again from its checkpoint, so it should save one with
    every result.

    Args:
        base_scheduler: Decides on trials; `FIFOScheduler` if not given.
        resources_allocation_function: What a trial is to hold after a result; None leaves
        everything as it is. If it has attributes
            `metric` and `mode` that are None, they become the search's. It must not ask for more
            than there is.
    """

    _supports_buffered_results = False

    def __init__(
        self,
        base_scheduler: TrialScheduler | None = None,
        resources_allocation_function: Allocation | None = evenly_distribute_cpus_gpus,
    ) -> None:
        self._base_scheduler = base_scheduler or FIFOScheduler()
        # Its metric and mode are this search's, and the default is shared.
        self._allocate = copy.copy(resources_allocation_function)
        self._base_trial_resources: PlacementGroupFactory | None = None
        self._changed: set[str] = set()
        self._given: tuple[str | None, str | None] = (None, None)

    @property
    def metric(self) -> str | None:
        """The base scheduler's."""
        return self._base_scheduler.metric

    @property
    def base_trial_resources(self) -> PlacementGroupFactory | None:
        """What trials start with; None before the first."""
        return self._base_trial_resources

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """As the base scheduler takes it."""
        self._given = (metric, mode)
        return self._base_scheduler.set_search_properties(metric, mode, **spec)

    def on_trial_add(self, tune_controller: ControllerView, trial: Trial) -> None:
        """All trials must start with the same.

        Raises:
            ValueError: This one does not.
        """
        if self._base_trial_resources is None:
            self._base_trial_resources = trial.placement_group_factory
        elif (
            trial.trial_id not in self._changed
            and trial.placement_group_factory != self._base_trial_resources
        ):
            raise ValueError(
                f"Trial {trial} starts with {trial.placement_group_factory}, the first one with {self._base_trial_resources}: "
                f"ResourceChangingScheduler deals out multiples of one base, so all trials must start with the same."
            )
        self._base_scheduler.on_trial_add(tune_controller, trial)

    def on_trial_error(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Tell the base scheduler."""
        self._base_scheduler.on_trial_error(tune_controller, trial)

    def on_trial_result(
        self, tune_controller: ControllerView, trial: Trial, result: dict[str, Any]
    ) -> str:
        """What the base scheduler says; a trial that goes on may get other resources."""
        decision = self._base_scheduler.on_trial_result(tune_controller, trial, result)
        if decision != self.CONTINUE or self._allocate is None:
            return decision
        self._tell_metric()
        wanted = self._allocate(tune_controller, trial, result, self)
        if wanted is None or wanted == trial.placement_group_factory:
            return decision
        self._changed.add(trial.trial_id)
        tune_controller.update_resources(trial, wanted)
        return self.NOOP

    def on_trial_complete(
        self, tune_controller: ControllerView, trial: Trial, result: dict[str, Any]
    ) -> None:
        """Tell the base scheduler."""
        self._base_scheduler.on_trial_complete(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Tell the base scheduler."""
        self._base_scheduler.on_trial_remove(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: ControllerView) -> Trial | None:
        """What the base scheduler says. The controller sees to trials that wait for their new
        resources.
        """
        return self._base_scheduler.choose_trial_to_run(tune_controller)

    def drain_policy_log(self) -> list[tuple[str, str]]:
        """The base scheduler's, if it is population based training."""
        drain = getattr(self._base_scheduler, "drain_policy_log", None)
        return drain() if callable(drain) else []

    def debug_string(self) -> str:
        """The base scheduler's."""
        return f"(ResourceChangingScheduler) {self._base_scheduler.debug_string()}"

    def _tell_metric(self) -> None:
        own = (self._base_scheduler.metric, getattr(self._base_scheduler, "_mode", None))
        for name, base, given in zip(("metric", "mode"), own, self._given, strict=True):
            if getattr(self._allocate, name, "") is None:
                setattr(self._allocate, name, base or given)
