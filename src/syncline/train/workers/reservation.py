"""Reservation of the resources of a whole worker group, all or nothing."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from syncline import settings
from syncline.core import api
from syncline.core.lifecycle import ensure_engine
from syncline.core.placement import PlacementGroup
from syncline.suggestions import did_you_mean
from syncline.train.config import ScalingConfig
from syncline.train.errors import TrainingFailedError

logger = logging.getLogger("syncline")

POLL_S = 0.5
"""Interval at which a reservation checks for missing resources."""
GIVEN_BACK_LIMIT_S = 2.0
"""Seconds that released resources may take to become free; clusters report them with a delay."""
FIRST_NOTICE_S = 5.0
"""Seconds before a reservation logs the missing resources; the interval then doubles."""
HOSTED_PATIENCE = 12
"""Factor on that in a trial of a search, where waiting for resources is normal."""


class ReservationInterrupted(Exception):
    """`interrupt` was called: the resources are not needed any more."""


@dataclass(frozen=True, kw_only=True)
class ReservationHost:
    """Callbacks of a trial of a search, which holds resources for the trainers in its process."""

    before: Callable[[], None]
    """Called before a worker group is reserved; returns when the held resources are free."""
    made: Callable[[PlacementGroup], None]
    """Called when the placement group was created; the end of the process removes it."""
    after: Callable[[], None]
    """Called when the placement group has its resources."""


_host: ReservationHost | None = None


def set_reservation_host(host: ReservationHost | None) -> None:
    """Set the host of the trainers of this process."""
    global _host
    _host = host


def is_hosted() -> bool:
    """Return True if the trainers of this process are part of a trial, which does the display."""
    return _host is not None


class Reservation:
    """Resources of one worker group, kept over its restarts. Only `interrupt` is thread-safe."""

    def __init__(self, scaling: ScalingConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._scaling = scaling
        self._clock = clock
        self._group: PlacementGroup | None = None
        self._nodes: frozenset[str] = frozenset()  # alive when the group was created
        self._fitted_once = False  # a group was created: missing resources may come back
        self._interrupted = threading.Event()

    @property
    def group(self) -> PlacementGroup:
        """Placement group with one bundle per worker."""
        assert self._group is not None, "reserve comes first"
        return self._group

    def reserve(self) -> int:
        """Reserve resources, waiting for those in use; return the number of workers.

        Raises:
            ValueError: There are not enough resources, even if none are in use, and no more are
                expected.
            TrainingFailedError: Nodes have died, or an autoscaler was to bring some, and the
                missing nodes have not arrived in time.
            ReservationInterrupted: `interrupt` was called.
        """
        if self._group is not None and (
            self._scaling.elasticity_enabled
            or self.has_lost_a_node()
            or self._nodes & set(ensure_engine().draining_nodes())
        ):
            # A placement group with a dead node reschedules its bundles, but waits silently while
            # it cannot. On a draining node, no worker starts.
            self._release_and_wait(self._group.bundle_count)
        if self._group is None:
            self._reserve()
        return self.group.bundle_count

    def possible_size(self) -> int:
        """Return the number of workers that a group created now would have.

        The resources of the current group count as free. If the result would be below the minimum,
        the current number is returned, since the group keeps its resources.
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
            maximum=min(scaling.max_workers, self._slots()),
            bundle=bundle,
            available=free,
        )
        return fitting if fitting >= scaling.min_workers else held

    def has_lost_a_node(self) -> bool:
        """Return True if a node has died since the group was created."""
        return bool(self._nodes - living_nodes())

    def release(self) -> None:
        """Release the resources."""
        if self._group is not None:
            ensure_engine().remove_placement_group(self._group.id)
            self._group = None

    def _release_and_wait(self, workers: int) -> None:
        """Release a group; if it is elastic, wait until its resources are reported as free."""
        self.release()
        deadline = self._clock() + GIVEN_BACK_LIMIT_S
        while (
            self._scaling.elasticity_enabled
            and self._size() < min(workers, self._slots())
            and self._clock() < deadline
        ):
            self._interrupted.wait(POLL_S / 5)
            self._check_interrupted()

    def interrupt(self) -> None:
        """End `reserve` and everything that runs in the group. Thread-safe."""
        self._interrupted.set()
        group = self._group
        if group is not None:
            ensure_engine().remove_placement_group(group.id)

    def _reserve(self) -> None:
        """Create a group and wait for its resources; start again if a node dies meanwhile."""
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
        """Create the placement group, whose resources may still be in use.

        Raises:
            ValueError: The cluster does not have the resources.
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
            maximum=min(scaling.max_workers, self._slots())
            if scaling.elasticity_enabled
            else scaling.max_workers,
            bundle=scaling.bundle(),
            available=api.available_resources(),
        )

    def _slots(self) -> int:
        """Return the number of workers that fit on the living nodes if these were idle."""
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
    """Enforces a time limit, and logs at doubling intervals the resources that are waited for."""

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
        """Return the seconds until the next notice."""
        return max(0.0, self._next_notice - self._clock())

    def notice(self, which: str) -> None:
        """Log that resources are missing, if a notice is due.

        Args:
            which: State of the resources, such as "that are in use".

        Raises:
            TrainingFailedError: The limit is reached.
        """
        now = self._clock()
        waited_s = now - self._began
        needed, free = self._needed(), _amounts(api.available_resources())
        if self._limit_s is not None and waited_s >= self._limit_s:
            raise TrainingFailedError(
                f"{needed}, but {free} is free: the cluster has lost nodes, or an autoscaler was "
                f"to add some, and no resources appeared within {waited_s:.0f} s. The checkpoints "
                "of the run are kept. Call `fit()` again with the same name when there are nodes, "
                "lower `num_workers` or give it as (min, max), or raise the limit with "
                "SYNCLINE_TRAIN_RESOURCE_TIMEOUT_S."
            )
        if now < self._next_notice:
            return
        logger.warning(
            "Training has waited %.0f s for resources %s: %s, %s is free",
            waited_s,
            which,
            needed,
            free,
        )
        self._interval_s *= 2
        self._next_notice = now + self._interval_s
        if self._limit_s is not None:
            self._next_notice = min(self._next_notice, self._began + self._limit_s)

    def _needed(self) -> str:
        workers = self._scaling.min_workers
        total = {name: amount * workers for name, amount in self._scaling.bundle().items()}
        return f"{workers} workers need {_amounts(total)}"


def group_size(
    *, minimum: int, maximum: int, bundle: Mapping[str, float], available: Mapping[str, float]
) -> int:
    """Return the number of workers that fit into `available`, between `minimum` and `maximum`."""
    fitting = [
        int((available.get(name, 0.0) + 1e-9) / amount)
        for name, amount in bundle.items()
        if amount > 0
    ]
    return max(minimum, min([maximum, *fitting]))


def living_nodes() -> frozenset[str]:
    """Return the ids of the living nodes."""
    return frozenset(node["NodeID"] for node in api.nodes() if node["Alive"])


def check_feasible(scaling: ScalingConfig, total: dict[str, float]) -> None:
    """Check that the resources `total` suffice for the smallest group that `scaling` allows.

    Raises:
        ValueError: They do not; with needed and available amounts.
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
            remedies.append("declare them with `syncline.init(num_gpus=…)` if they were not found")
        else:
            if there:
                remedies.append(f"set `resources_per_worker={{{name!r}: {there / workers:.3g}}}`")
            declare = "num_cpus=…" if name == "CPU" else f"resources={{{name!r}: …}}"
            remedies.append(f"declare the amount with `syncline.init({declare})`")
        raise ValueError(
            f"`num_workers={scaling.num_workers}` needs {needed:g} {kind} ({amount:g} per worker) "
            f"but there are {there:g}, so training cannot start: {', or '.join(remedies)}."
            f"{did_you_mean(name, total) if not there else ''}"
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
