"""`ResourceChangingScheduler` changes the resources of running trials and leaves all other
decisions to another scheduler. `DistributeResources` and `DistributeResourcesToTopJob` compute how
much each trial gets.

A trial has its base resources, with which it starts, plus a whole number of increments.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Mapping

from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import Metrics
from syncline.tune.schedulers.trial_scheduler import (
    ControllerView,
    FIFOScheduler,
    TrialScheduler,
    checked_mode,
)

__all__ = [
    "DistributeResources",
    "DistributeResourcesToTopJob",
    "ResourceChangingScheduler",
    "evenly_distribute_cpus_gpus",
    "evenly_distribute_cpus_gpus_distributed",
]

Amounts = Mapping[str, float]
_ROUNDING = 1e-9


class DistributeResources:
    """Distribute the available resources evenly among the trials that have not ended.

    Args:
        add_bundles: If True, each increment is a separate bundle for further processes; otherwise
            it is added to the trial's only bundle.
        increase_by: Increment, such as `{"CPU": 1, "GPU": 0.5}`. Default: the last bundle of the
            base resources with `add_bundles`, otherwise one GPU if the base has GPUs, else one CPU.
        increase_by_times: Maximal number of increments of a trial; values below 1 mean no limit.
        reserve_resources: Resources to leave unused.

    Raises:
        ValueError: `increase_by` has a negative amount, or no positive one.
    """

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: dict[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: dict[str, float] | None = None,
    ) -> None:
        if increase_by and (min(increase_by.values()) < 0 or not any(increase_by.values())):
            raise ValueError(
                f"increase_by={increase_by!r} is the increment of a trial's resources: it needs "
                f"amounts of 0 or more, at least one of them above 0."
            )
        self.add_bundles = add_bundles
        self.increase_by = increase_by or {}
        self.increase_by_times = increase_by_times
        self.reserve_resources = reserve_resources or {}

    def __call__(
        self,
        tune_controller: ControllerView,
        trial: Trial,
        result: Metrics,
        scheduler: ResourceChangingScheduler,
    ) -> PlacementGroupFactory | None:
        """Return the new resources of `trial`; None if no trial has been added yet.

        Raises:
            ValueError: Trials have several bundles and `add_bundles` is False.
        """
        base = scheduler.base_trial_resources
        if base is None:
            return None
        if not self.add_bundles and len(base.bundles) > 1:
            raise ValueError(
                f"{type(self).__name__}(add_bundles=False) enlarges the only bundle of a trial, "
                f"but trials have {len(base.bundles)} bundles. Set add_bundles=True to add whole "
                f"bundles."
            )
        increment = self._increment(base)
        times = self._times(tune_controller, trial, result, base, increment)
        return self._enlarged(base, increment, times)

    def _times(
        self,
        controller: ControllerView,
        trial: Trial,
        result: Metrics,
        base: PlacementGroupFactory,
        increment: Amounts,
    ) -> int:
        """Return the number of increments for `trial`: an even share of the free resources."""
        del result
        live = controller.get_live_trials()
        available = self._available(controller)
        shared = _whole_times(_minus(available, base.required_resources, len(live)), increment)
        share = math.ceil(max(shared, 0) / max(len(live), 1))
        free = self._free_times(available, live, increment)
        return self._limited(min(self._current_times(trial, base, increment) + free, share))

    def _available(self, controller: ControllerView) -> Amounts:
        return _minus(controller.total_resources, self.reserve_resources)

    def _free_times(self, available: Amounts, live: Collection[Trial], increment: Amounts) -> int:
        """Return the number of free increments; negative if trials use more than is available."""
        for trial in live:
            available = _minus(available, trial.placement_group_factory.required_resources)
        return _whole_times(available, increment)

    def _limited(self, times: int) -> int:
        return max(0, min(times, self.increase_by_times) if self.increase_by_times >= 1 else times)

    def _increment(self, base: PlacementGroupFactory) -> Amounts:
        if self.increase_by:
            return self.increase_by
        if self.add_bundles:
            return base.bundles[-1]
        return {"GPU": 1} if base.required_resources.get("GPU") else {"CPU": 1}

    @staticmethod
    def _current_times(trial: Trial, base: PlacementGroupFactory, increment: Amounts) -> int:
        return _whole_times(
            _minus(trial.placement_group_factory.required_resources, base.required_resources),
            increment,
        )

    def _enlarged(
        self, base: PlacementGroupFactory, increment: Amounts, times: int
    ) -> PlacementGroupFactory:
        bundles = base.bundles
        if self.add_bundles:
            bundles += [dict(increment) for _ in range(times)]
        else:
            bundles = [_minus(bundles[0], increment, -times)]
        return PlacementGroupFactory(bundles, strategy=base.strategy)


class DistributeResourcesToTopJob(DistributeResources):
    """Give all free resources to the best trial. Other trials keep their resources unless the
    trials use more than is available.

    Args:
        add_bundles: See `DistributeResources`.
        increase_by: See `DistributeResources`.
        increase_by_times: See `DistributeResources`. Trials at the limit are skipped in favor of
            the next best one.
        reserve_resources: See `DistributeResources`.
        metric: Metric that trials are compared by; default is the scheduler's.
        mode: `"min"` or `"max"`; default is the scheduler's.
    """

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: dict[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: dict[str, float] | None = None,
        metric: str | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__(add_bundles, increase_by, increase_by_times, reserve_resources)
        self.metric = metric
        self.mode = checked_mode(mode)

    def _times(
        self,
        controller: ControllerView,
        trial: Trial,
        result: Metrics,
        base: PlacementGroupFactory,
        increment: Amounts,
    ) -> int:
        live = controller.get_live_trials()
        current = self._current_times(trial, base, increment)
        free = self._free_times(self._available(controller), live, increment)
        if free > 0 and trial.trial_id != self._best(live, trial, result, base, increment):
            return current
        return self._limited(current + free)

    def _best(
        self,
        live: Collection[Trial],
        trial: Trial,
        result: Metrics,
        base: PlacementGroupFactory,
        increment: Amounts,
    ) -> str | None:
        """Return the id of the best trial below its limit."""
        if not self.metric or not self.mode:
            raise ValueError(
                f"{type(self).__name__} compares trials, but has metric={self.metric!r} and "
                f"mode={self.mode!r}. Pass both to it, to the base scheduler, or to `TuneConfig`."
            )
        best: tuple[float, str] | None = None
        for other in live:
            value = (result if other.trial_id == trial.trial_id else other.last_result).get(
                self.metric
            )
            current = self._current_times(other, base, increment)
            if value is None or value != value or self._limited(current + 1) <= current:
                continue
            score = value if self.mode == "max" else -value
            if best is None or score > best[0]:
                best = (score, other.trial_id)
        return best[1] if best is not None else None


evenly_distribute_cpus_gpus = DistributeResources(add_bundles=False)
"""Deprecated alias."""
evenly_distribute_cpus_gpus_distributed = DistributeResources(add_bundles=True)
"""Deprecated alias."""


def _minus(amounts: Amounts, other: Amounts, times: int = 1) -> dict[str, float]:
    return {
        name: amounts.get(name, 0) - times * other.get(name, 0) for name in {**amounts, **other}
    }


def _whole_times(amounts: Amounts, increment: Amounts) -> int:
    """Return how many whole increments fit into `amounts`; negative if an amount is negative."""
    return min(
        math.floor(amounts.get(name, 0) / amount + _ROUNDING)
        for name, amount in increment.items()
        if amount
    )


class ResourceChangingScheduler(TrialScheduler):
    """Change the resources of trials that the base scheduler lets continue. Such a trial is paused
    and restarts from its checkpoint, so it should save one with every result.

    Args:
        base_scheduler: Scheduler of the trials; default is `FIFOScheduler`.
        resources_allocation_function: Function of controller, trial, its result and this scheduler
            that returns the trial's resources, or None for no change. It must not return more than
            the available resources. If it has attributes `metric` and `mode` that are None, they
            are set to those of the search. None disables changes.
    """

    _supports_buffered_results = False

    def __init__(
        self,
        base_scheduler: TrialScheduler | None = None,
        resources_allocation_function: Allocation | None = evenly_distribute_cpus_gpus,
    ) -> None:
        self._base_scheduler = base_scheduler or FIFOScheduler()
        # Metric and mode are set on the function, and the default function is shared.
        self._allocate = copy.copy(resources_allocation_function)
        self._base_trial_resources: PlacementGroupFactory | None = None
        self._changed: set[str] = set()
        self._search_properties: tuple[str | None, str | None] = (None, None)

    @property
    def metric(self) -> str | None:
        """Metric of the base scheduler."""
        return self._base_scheduler.metric

    @property
    def base_trial_resources(self) -> PlacementGroupFactory | None:
        """Resources with which trials start; None before the first trial."""
        return self._base_trial_resources

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: object) -> bool:
        """Set the properties of the base scheduler."""
        self._search_properties = (metric, mode)
        return self._base_scheduler.set_search_properties(metric, mode, **spec)

    def on_trial_add(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Add the trial to the base scheduler.

        Raises:
            ValueError: The trial does not start with the same resources as the first one.
        """
        if self._base_trial_resources is None:
            self._base_trial_resources = trial.placement_group_factory
        elif (
            trial.trial_id not in self._changed
            and trial.placement_group_factory != self._base_trial_resources
        ):
            raise ValueError(
                f"Trial {trial} starts with {trial.placement_group_factory}, but the first trial "
                f"started with {self._base_trial_resources}. ResourceChangingScheduler adds to "
                f"common base resources, so all trials must start with the same resources."
            )
        self._base_scheduler.on_trial_add(tune_controller, trial)

    def on_trial_error(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Notify the base scheduler."""
        self._base_scheduler.on_trial_error(tune_controller, trial)

    def on_trial_result(
        self, tune_controller: ControllerView, trial: Trial, result: Metrics
    ) -> str:
        """Return the base scheduler's decision; change the resources of a trial that continues."""
        decision = self._base_scheduler.on_trial_result(tune_controller, trial, result)
        if decision != self.CONTINUE or self._allocate is None:
            return decision
        self._set_objective_of_allocation()
        wanted = self._allocate(tune_controller, trial, result, self)
        if wanted is None or wanted == trial.placement_group_factory:
            return decision
        self._changed.add(trial.trial_id)
        tune_controller.update_resources(trial, wanted)
        return self.NOOP

    def on_trial_complete(
        self, tune_controller: ControllerView, trial: Trial, result: Metrics
    ) -> None:
        """Notify the base scheduler."""
        self._base_scheduler.on_trial_complete(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Notify the base scheduler."""
        self._base_scheduler.on_trial_remove(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: ControllerView) -> Trial | None:
        """Return the base scheduler's choice. The controller restarts trials whose resources
        change.
        """
        return self._base_scheduler.choose_trial_to_run(tune_controller)

    def drain_policy_log(self) -> list[tuple[str, str]]:
        """Return the policy lines of the base scheduler if it is population based training."""
        drain = getattr(self._base_scheduler, "drain_policy_log", None)
        return drain() if callable(drain) else []

    def debug_string(self) -> str:
        """Return the status of the base scheduler."""
        return f"(ResourceChangingScheduler) {self._base_scheduler.debug_string()}"

    def _set_objective_of_allocation(self) -> None:
        own = (self._base_scheduler.metric, getattr(self._base_scheduler, "_mode", None))
        for name, base, given in zip(("metric", "mode"), own, self._search_properties, strict=True):
            if getattr(self._allocate, name, "") is None:
                setattr(self._allocate, name, base or given)


Allocation = Callable[
    [ControllerView, Trial, Metrics, ResourceChangingScheduler], PlacementGroupFactory | None
]
