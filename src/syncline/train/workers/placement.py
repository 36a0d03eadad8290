"""Resources for a whole worker group, reserved together or not at all."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from syncline.core import api
from syncline.core.lifecycle import ensure_engine
from syncline.core.placement import PlacementGroup
from syncline.train.config import ScalingConfig
from syncline.train.controller.policy import group_size

logger = logging.getLogger("syncline")

FIRST_NOTICE_S = 5.0
"""How long a reservation waits before it says what it waits for; after that, at intervals that double."""


class Reservation:
    """Holds the resources of one worker group, over restarts of the group. Not safe for use from several threads."""

    def __init__(self, scaling: ScalingConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._scaling = scaling
        self._clock = clock
        self._group: PlacementGroup | None = None

    @property
    def group(self) -> PlacementGroup:
        """The placement group, one bundle per worker."""
        assert self._group is not None, "reserve comes first"
        return self._group

    def reserve(self) -> int:
        """Hold resources for a group, waiting for them if they are in use now; how many workers it has.

        Raises:
            ValueError: There are not enough resources, whoever uses them now.
        """
        check_feasible(self._scaling, api.cluster_resources())
        if self._group is not None and self._scaling.elasticity_enabled:
            self.release()
        if self._group is None:
            self._group = self._reserve(
                group_size(
                    minimum=self._scaling.min_workers,
                    maximum=self._scaling.max_workers,
                    bundle=self._scaling.bundle(),
                    available=api.available_resources(),
                )
            )
        return self._group.bundle_count

    def release(self) -> None:
        """Give the resources back."""
        if self._group is not None:
            ensure_engine().remove_placement_group(self._group.id)
            self._group = None

    def _reserve(self, workers: int) -> PlacementGroup:
        bundle = self._scaling.bundle()
        bundles = [dict(bundle) for _ in range(workers)]
        engine = ensure_engine()
        group_id = engine.create_placement_group(bundles, strategy=self._scaling.placement_strategy, name="", detached=False)
        group = PlacementGroup(group_id, bundles)
        began, notice_s = self._clock(), FIRST_NOTICE_S
        try:
            while not group.wait(timeout_seconds=notice_s):
                logger.warning(
                    "training waits since %.0f s for resources that are in use: %d workers need %s together, free is %s",
                    self._clock() - began,
                    workers,
                    _amounts({name: amount * workers for name, amount in bundle.items()}),
                    _amounts(api.available_resources()),
                )
                notice_s *= 2
        except BaseException:
            engine.remove_placement_group(group_id)
            raise
        return group


def check_feasible(scaling: ScalingConfig, total: dict[str, float]) -> None:
    """ValueError, with asked-for against available, where `total` can never hold the smallest group that `scaling` allows."""
    workers = scaling.min_workers
    for name, amount in scaling.bundle().items():
        needed, there = amount * workers, total.get(name, 0.0)
        if needed <= there + 1e-9:
            continue
        kind = name + ("s" if name in ("CPU", "GPU", "TPU") and needed != 1 else "")
        remedies = []
        if workers > 1 and there >= amount:
            remedies.append(f"lower `num_workers` to {int((there + 1e-9) / amount)}")
        if name == "GPU":
            remedies.append("train without GPUs (`use_gpu=False`)" if not there else "set `resources_per_worker={'GPU': …}` lower")
            remedies.append("say how many there are with `syncline.init(num_gpus=…)` if they were not found")
        else:
            if there:
                remedies.append(f"set `resources_per_worker={{{name!r}: {there / workers:.3g}}}`")
            declare = "num_cpus=…" if name == "CPU" else f"resources={{{name!r}: …}}"
            remedies.append(f"say how much there is with `syncline.init({declare})`")
        raise ValueError(
            f"`num_workers={scaling.num_workers}` needs {needed:g} {kind} ({amount:g} per worker) but there are {there:g}, so training "
            f"can never start: {', or '.join(remedies)}."
        )


def _amounts(resources: dict[str, float]) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in sorted(resources.items()) if name in ("CPU", "GPU", "TPU")) or "nothing"
