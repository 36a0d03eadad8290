"""Resources for a whole worker group, reserved together or not at all."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from syncline import settings
from syncline.core import api
from syncline.core.lifecycle import ensure_engine
from syncline.core.placement import PlacementGroup
from syncline.train.config import ScalingConfig
from syncline.train.controller.policy import group_size
from syncline.train.errors import TrainingFailedError

logger = logging.getLogger("syncline")

POLL_S = 0.5
"""How often a reservation looks whether resources that are not there have come."""
GIVEN_BACK_LIMIT_S = 2.0
"""How long resources that were given back may take to be free again; on a cluster, they are told of
with a delay.
"""
FIRST_NOTICE_S = 5.0
"""How long a reservation waits before it says what it waits for; after that, at intervals that
double.
"""
HOSTED_PATIENCE = 12
"""By how much longer it waits in a trial of a search, where others have the resources as a matter
of course.
"""


class ReservationInterrupted(Exception):
    """Nobody wants the resources any more."""


@dataclass(frozen=True, kw_only=True)
class ReservationHost:
    """What surrounds the trainers of this process and holds resources for them: a trial of a
    search.
    """

    before: Callable[[], None]
    """Called when a worker group is about to be reserved: returns when what is held for it is
    free.
    """
    made: Callable[[PlacementGroup], None]
    """Called when the group was asked for: whoever ends this process removes it."""
    after: Callable[[], None]
    """Called when the group has its resources."""


_host: ReservationHost | None = None


def set_reservation_host(host: ReservationHost | None) -> None:
    """Say what surrounds the trainers of this process."""
    global _host
    _host = host


def is_hosted() -> bool:
    """Whether the trainers of this process are part of something larger, which shows what is to be
    seen.
    """
    return _host is not None


class Reservation:
    """Holds the resources of one worker group, over restarts of the group. Only `interrupt` may be
    called from another thread.
    """

    def __init__(self, scaling: ScalingConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._scaling = scaling
        self._clock = clock
        self._group: PlacementGroup | None = None
        self._nodes: frozenset[str] = frozenset()  # those that were alive when the group was made
        self._fitted_once = (
            False  # a group could be made: what is missing since then was there, and may come back
        )
        self._interrupted = threading.Event()

    @property
    def group(self) -> PlacementGroup:
        """The placement group, one bundle per worker."""
        assert self._group is not None, "reserve comes first"
        return self._group

    def reserve(self) -> int:
        """Hold resources for a group, waiting for them if they are in use now; how many workers it
        has.

        Raises:
            ValueError: There are not enough resources, whoever uses them now, and no reason to
            expect more. TrainingFailedError: Nodes have died, or an autoscaler was to bring some,
            and what is missing has not come in time. ReservationInterrupted: `interrupt` was
            called.
        """
        if self._group is not None and (
            self._scaling.elasticity_enabled or self.has_lost_a_node() or self._loses_a_node()
        ):
            # A group with a dead node would move its bundles by itself, but says nothing while it
            # cannot; nothing starts on one that goes.
            self._give_back(self._group.bundle_count)
        if self._group is None:
            self._reserve()
        return self.group.bundle_count

    def possible_size(self) -> int:
        """How many workers the group would have if it were made now, its own resources counted as
        free; as many as it has where that is fewer than allowed: what it holds is its own until it
        lets go.
        """
        scaling, bundle = self._scaling, self._scaling.bundle()
        held = self.group.bundle_count
        free = {
            name: amount + held * bundle.get(name, 0.0)
            for name, amount in api.available_resources().items()
        }
        free |= {name: held * amount for name, amount in bundle.items() if name not in free}
        fitting = group_size(
            minimum=0,
            maximum=min(scaling.max_workers, self._places()),
            bundle=bundle,
            available=free,
        )
        return fitting if fitting >= scaling.min_workers else held

    def has_lost_a_node(self) -> bool:
        """Whether a node that was there when the group was made is not there any more."""
        return bool(self._nodes - living_nodes())

    def _loses_a_node(self) -> bool:
        """Whether a node that was there when the group was made is about to go."""
        return bool(self._nodes & set(ensure_engine().draining_nodes()))

    def release(self) -> None:
        """Give the resources back."""
        if self._group is not None:
            ensure_engine().remove_placement_group(self._group.id)
            self._group = None

    def _give_back(self, workers: int) -> None:
        """Release a group of so many workers, and wait until its resources are seen to be free, as
        an elastic group must.
        """
        self.release()
        deadline = self._clock() + GIVEN_BACK_LIMIT_S
        while (
            self._scaling.elasticity_enabled
            and self._size() < min(workers, self._places())
            and self._clock() < deadline
        ):
            self._interrupted.wait(POLL_S / 5)
            self._check_interrupted()

    def interrupt(self) -> None:
        """End `reserve`, and whatever runs in the group."""
        self._interrupted.set()
        group = self._group
        if group is not None:
            ensure_engine().remove_placement_group(group.id)

    def _reserve(self) -> None:
        """Make a group and wait until its resources are held; again whenever a node dies meanwhile,
        with which it may have become too large, or be in vain.
        """
        if _host is not None:
            _host.before()
        while not self._held():
            self.release()
        if _host is not None:
            _host.after()

    def _held(self) -> bool:
        waiting = _Waiting(
            self._scaling,
            self._clock,
            limit_s=settings.train_resource_timeout_s() if self._more_may_come() else None,
        )
        while True:
            self._nodes = living_nodes()
            try:
                self._group = self._created()
                self._fitted_once = True
                break
            except ValueError:
                if not self._more_may_come():
                    raise
            waiting.notice("that are not there")
            self._interrupted.wait(POLL_S)
            self._check_interrupted()
        if _host is not None:
            _host.made(self._group)
        ready = self._group.ready()
        try:
            while not api.wait([ready], timeout=min(POLL_S, waiting.until_notice_s()))[0]:
                self._check_interrupted()
                waiting.notice("that are in use")
                if self.has_lost_a_node():
                    return False
        except BaseException:
            self.release()
            raise
        self._check_interrupted()
        return True

    def _created(self) -> PlacementGroup:
        """The group, for which the resources may still be in use. ValueError where there are not
        enough.
        """
        engine = ensure_engine()
        if not engine.may_grow:
            check_feasible(self._scaling, api.cluster_resources())
        bundles = [self._scaling.bundle() for _ in range(self._size())]
        group_id = engine.create_placement_group(
            bundles, strategy=self._scaling.placement_strategy, name="", detached=False
        )
        return PlacementGroup(group_id, bundles)

    def _size(self) -> int:
        scaling = self._scaling
        return group_size(
            minimum=scaling.min_workers,
            maximum=min(scaling.max_workers, self._places())
            if scaling.elasticity_enabled
            else scaling.max_workers,
            bundle=scaling.bundle(),
            available=api.available_resources(),
        )

    def _places(self) -> int:
        """For how many workers the living nodes have room, each worker on one node, if nobody else
        used them.
        """
        nodes = [node["Resources"] for node in api.nodes() if node["Alive"]]
        return sum(
            group_size(
                minimum=0,
                maximum=self._scaling.max_workers,
                bundle=self._scaling.bundle(),
                available=node,
            )
            for node in nodes
        )

    def _more_may_come(self) -> bool:
        return self._fitted_once or ensure_engine().may_grow

    def _check_interrupted(self) -> None:
        if self._interrupted.is_set():
            raise ReservationInterrupted


class _Waiting:
    """Says what is waited for, at intervals that double, and ends it at the limit if there is
    one.
    """

    def __init__(
        self, scaling: ScalingConfig, clock: Callable[[], float], *, limit_s: float | None
    ) -> None:
        self._scaling = scaling
        self._clock = clock
        self._limit_s = limit_s
        self._began = clock()
        self._interval_s = FIRST_NOTICE_S * (HOSTED_PATIENCE if is_hosted() else 1)
        self._next_notice = self._began + self._interval_s

    def until_notice_s(self) -> float:
        """Seconds until there is something to say."""
        return max(0.0, self._next_notice - self._clock())

    def notice(self, which: str) -> None:
        """Say that resources, `which`, are waited for, if it is time to. TrainingFailedError at the
        limit.
        """
        now = self._clock()
        waited_s = now - self._began
        asked, free = self._asked(), _amounts(api.available_resources())
        if self._limit_s is not None and waited_s >= self._limit_s:
            raise TrainingFailedError(
                f"{asked} together, free is {free}: the cluster has lost nodes, or an autoscaler was to bring some, and what is missing "
                f"has not come within {waited_s:.0f} s. The run has its checkpoints: call `fit()` again with the same name when there are "
                f"nodes, lower `num_workers` or give it as (min, max), or raise the limit with SYNCLINE_TRAIN_RESOURCE_TIMEOUT_S."
            )
        if now < self._next_notice:
            return
        logger.warning(
            "training waits since %.0f s for resources %s: %s together, free is %s",
            waited_s,
            which,
            asked,
            free,
        )
        self._interval_s *= 2
        self._next_notice = now + self._interval_s
        if self._limit_s is not None:
            self._next_notice = min(self._next_notice, self._began + self._limit_s)

    def _asked(self) -> str:
        workers = self._scaling.min_workers
        return f"{workers} workers need {_amounts({name: amount * workers for name, amount in self._scaling.bundle().items()})}"


def living_nodes() -> frozenset[str]:
    """Ids of the nodes that are there."""
    return frozenset(node["NodeID"] for node in api.nodes() if node["Alive"])


def check_feasible(scaling: ScalingConfig, total: dict[str, float]) -> None:
    """ValueError, with asked-for against available, where `total` can never hold the smallest group
    that `scaling` allows.
    """
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
            remedies.append(
                "train without GPUs (`use_gpu=False`)"
                if not there
                else "set `resources_per_worker={'GPU': …}` lower"
            )
            remedies.append(
                "say how many there are with `syncline.init(num_gpus=…)` if they were not found"
            )
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
    return (
        ", ".join(
            f"{amount:g} {name}"
            for name, amount in sorted(resources.items())
            if name in ("CPU", "GPU", "TPU")
        )
        or "nothing"
    )
