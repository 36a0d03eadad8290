"""How resources are dealt out to running trials: `DistributeResources`,
`DistributeResourcesToTopJob`.

Both are functions for `ResourceChangingScheduler`, with options. A trial holds what it started
with, its base, and a whole number of increments. Not covered: when a trial gets its new resources
(`resource_changing_scheduler.py`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.experiment.trial import Trial
from syncline.tune.schedulers.trial_scheduler import checked_mode

if TYPE_CHECKING:
    from syncline.tune.schedulers.trial_scheduler import ControllerView
    from syncline.tune.schedulers.resource_changing_scheduler import ResourceChangingScheduler

Amounts = Mapping[str, float]
_ROUNDING = 1e-9


class DistributeResources:
    """Deals the machine's resources out evenly among the trials that have not ended.

    Args:
        add_bundles: Whether an increment is a bundle of its own, for further processes; else it is
            added to the trial's one bundle.
        increase_by: The increment, such as `{"CPU": 1, "GPU": 0.5}`; if not given, the last bundle
            of the base with `add_bundles`, otherwise one GPU or CPU, whichever the base has.
        increase_by_times: At most so many increments for a trial; no limit if below 1.
        reserve_resources: What is not dealt out.

    Raises:
        ValueError: `increase_by` has an amount below 0, or none above.
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
                f"increase_by={increase_by!r} must have amounts of 0 or more, and one above 0: trials grow by it."
            )
        self.add_bundles = add_bundles
        self.increase_by = increase_by or {}
        self.increase_by_times = increase_by_times
        self.reserve_resources = reserve_resources or {}

    def __call__(
        self,
        tune_controller: ControllerView,
        trial: Trial,
        result: dict[str, Any],
        scheduler: ResourceChangingScheduler,
    ) -> PlacementGroupFactory | None:
        """What `trial` is to hold from now on; None if nothing is known of its base.

        Raises:
            ValueError: A trial has several bundles, and increments are not to be bundles.
        """
        base = scheduler.base_trial_resources
        if base is None:
            return None
        if not self.add_bundles and len(base.bundles) > 1:
            raise ValueError(
                f"{type(self).__name__}(add_bundles=False) adds to the one bundle of a trial, but trials have {len(base.bundles)}: set "
                f"add_bundles=True, so that a trial grows by whole bundles."
            )
        increment = self._increment(base)
        times = self._times(tune_controller, trial, result, base, increment)
        return self._grown(base, increment, times)

    def _times(
        self,
        controller: ControllerView,
        trial: Trial,
        result: Mapping[str, Any],
        base: PlacementGroupFactory,
        increment: Amounts,
    ) -> int:
        """How many increments the trial is to have: its even share, as far as there is room for it
        now.
        """
        del result
        live = controller.get_live_trials()
        available = self._available(controller)
        shared = _whole_times(_less(available, base.required_resources, len(live)), increment)
        share = math.ceil(max(shared, 0) / max(len(live), 1))
        room = self._room(available, live, increment)
        return self._limited(min(self._present_times(trial, base, increment) + room, share))

    def _available(self, controller: ControllerView) -> Amounts:
        return _less(controller.total_resources, self.reserve_resources)

    def _room(self, available: Amounts, live: Collection[Trial], increment: Amounts) -> int:
        """So many increments are free; below 0 if more is held than there is."""
        for trial in live:
            available = _less(available, trial.placement_group_factory.required_resources)
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
    def _present_times(trial: Trial, base: PlacementGroupFactory, increment: Amounts) -> int:
        return _whole_times(
            _less(trial.placement_group_factory.required_resources, base.required_resources),
            increment,
        )

    def _grown(
        self, base: PlacementGroupFactory, increment: Amounts, times: int
    ) -> PlacementGroupFactory:
        bundles = base.bundles
        if self.add_bundles:
            bundles += [dict(increment) for _ in range(times)]
        else:
            bundles = [_less(bundles[0], increment, -times)]
        return PlacementGroupFactory(bundles, strategy=base.strategy)


class DistributeResourcesToTopJob(DistributeResources):
    """Gives everything that is free to the best trial. Others keep what they have, unless more is
    held than there is.

    Args:
        add_bundles: As for `DistributeResources`.
        increase_by: As for `DistributeResources`.
        increase_by_times: As for `DistributeResources`; a trial that has so many is passed over for
            the next best.
        reserve_resources: As for `DistributeResources`.
        metric: What trials are compared by; the scheduler's if not given.
        mode: `"min"` or `"max"`; the scheduler's if not given.
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
        result: Mapping[str, Any],
        base: PlacementGroupFactory,
        increment: Amounts,
    ) -> int:
        live = controller.get_live_trials()
        present = self._present_times(trial, base, increment)
        room = self._room(self._available(controller), live, increment)
        if room > 0 and trial.trial_id != self._best(live, trial, result, base, increment):
            return present
        return self._limited(present + room)

    def _best(
        self,
        live: Collection[Trial],
        trial: Trial,
        result: Mapping[str, Any],
        base: PlacementGroupFactory,
        increment: Amounts,
    ) -> str | None:
        """The id of the best trial that may still grow."""
        if not self.metric or not self.mode:
            raise ValueError(
                f"{type(self).__name__} compares trials, but has metric={self.metric!r} and mode={self.mode!r}: give both to it, to the "
                f"base scheduler, or to `TuneConfig`."
            )
        best: tuple[float, str] | None = None
        for other in live:
            value = (result if other.trial_id == trial.trial_id else other.last_result).get(
                self.metric
            )
            present = self._present_times(other, base, increment)
            if value is None or value != value or self._limited(present + 1) <= present:
                continue
            score = value if self.mode == "max" else -value
            if best is None or score > best[0]:
                best = (score, other.trial_id)
        return best[1] if best is not None else None


evenly_distribute_cpus_gpus = DistributeResources(add_bundles=False)
"""Older name."""
evenly_distribute_cpus_gpus_distributed = DistributeResources(add_bundles=True)
"""Older name."""


def _less(amounts: Amounts, taken: Amounts, times: int = 1) -> dict[str, float]:
    return {
        name: amounts.get(name, 0) - times * taken.get(name, 0) for name in {**amounts, **taken}
    }


def _whole_times(amounts: Amounts, increment: Amounts) -> int:
    """How often `increment` goes into `amounts`, rounded down; negative where they are."""
    return min(
        math.floor(amounts.get(name, 0) / amount + _ROUNDING)
        for name, amount in increment.items()
        if amount
    )
