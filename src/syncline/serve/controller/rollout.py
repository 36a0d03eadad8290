"""The plan of a deployment: which replicas to start, update and stop next. Pure functions.

An update starts up to `batch` replicas more than wanted, waits until they serve, and drains as many
old ones. Without room for both versions (`surge=False`) it starts one, which waits for resources,
and drains old ones until it is placed. Gangs start and stop as a whole.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from syncline.records import dataclass
from syncline.serve.config import DeploymentConfig
from syncline.serve.controller.replica_state import Replica, ReplicaState, Version
from syncline.serve.gang_config import whole_gangs

PLACE = "max_replicas_per_node"
"""Resource with the amount 1 per node, which limits the replicas of a node."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The next steps of a deployment."""

    start: int = 0
    """Number of replicas of the active version to start."""
    cancel: tuple[Replica, ...] = ()
    """Starting replicas to kill."""
    drain: tuple[Replica, ...] = ()
    """Serving replicas to drain."""
    update: tuple[Replica, ...] = ()
    """Running replicas that get the active user configuration."""
    is_complete: bool = False
    """True if exactly the wanted replicas of the active version serve."""


def batch_size(config: DeploymentConfig, wanted: int) -> int:
    """Return the number of replicas that an update replaces at a time, in whole gangs."""
    surge = math.ceil(wanted * (config.max_surge_percent or 0) / 100)
    least = max(1, surge, math.ceil(wanted * config.rolling_update_percentage))
    return whole_gangs(least, config.gang_size)


def plan(
    replicas: Collection[Replica],
    *,
    active: Version,
    kept: Collection[int],
    wanted: int,
    batch: int,
    surge: bool = True,
    make_room: bool = False,
) -> Plan:
    """Return the next steps.

    Args:
        replicas: All replicas of the deployment.
        active: Version of the replicas to start.
        kept: Numbers of the versions that count as current.
        wanted: Number of replicas.
        batch: Replicas to replace at a time.
        surge: False if there is no room for more replicas than wanted.
        make_room: True to drain an old replica even if that leaves fewer than wanted.
    """
    serving = [each for each in replicas if each.is_serving]
    fresh = [each for each in serving if not each.retired and each.version.number in kept]
    old = [each for each in serving if each.retired or each.version.number not in kept]
    all_starting = [each for each in replicas if each.is_starting]
    starting = [
        each for each in all_starting if not each.retired and each.version.number == active.number
    ]
    cancel = [each for each in all_starting if each not in starting]
    surplus = max(0, len(fresh) + len(starting) - wanted)
    unneeded = _starts_to_cancel(starting, surplus)
    cancel += unneeded
    drain = _replicas_to_stop(fresh, surplus - len(unneeded))
    need = wanted - len(fresh) - len(starting)
    size = active.target.config.gang_size
    if old and need > 0:
        batch = max(batch, *(len(each.unit) for each in old))  # else no old gang might be spare
        room = wanted + (batch if surge else 0) - len(serving) - len(starting)
        if not surge and not starting:
            room = max(room, 1)
        need = min(need, whole_gangs(room, size))
    old.sort(key=_order_of_replacement)
    spare = _take(old, len(serving) - len(drain) - wanted)
    if make_room and not spare:
        spare = list(old[0].unit) if old else []
    drain += spare
    stale = [
        each
        for each in fresh
        if each.version is not active
        and each.version.number == active.number
        and each.state is ReplicaState.RUNNING
        and each not in drain
    ]
    updating = sum(each.state is ReplicaState.UPDATING for each in replicas)
    return Plan(
        start=max(0, need // size * size),
        cancel=tuple(cancel),
        drain=tuple(drain),
        update=tuple(stale[: max(0, batch - updating)]),
        is_complete=not (old or all_starting or stale or updating or drain)
        and len(fresh) == wanted,
    )


def _order_of_replacement(replica: Replica) -> tuple[bool, float]:
    return not replica.retired, replica.created_at


def _take(ordered: Iterable[Replica], count: int) -> list[Replica]:
    """Return up to `count` replicas in this order; take gangs as a whole."""
    taken: list[Replica] = []
    gangs: set[str] = set()
    for replica in ordered:
        if len(taken) >= count:
            break
        if replica.gang is None:
            taken.append(replica)
        elif replica.gang.id not in gangs:
            gangs.add(replica.gang.id)
            if len(taken) + len(replica.unit) <= count:
                taken += replica.unit
    return taken


def _starts_to_cancel(starting: Iterable[Replica], count: int) -> list[Replica]:
    """Return `count` starts, starts that wait for resources first, then the newest."""
    return _take(sorted(starting, key=lambda each: (each.is_placed, -each.created_at)), count)


def _replicas_to_stop(serving: Iterable[Replica], count: int) -> list[Replica]:
    """Return `count` replicas, those on nodes with the fewest replicas first, then the newest."""
    serving = list(serving)
    on_node = Counter(each.node_id for each in serving)
    return _take(sorted(serving, key=lambda each: (on_node[each.node_id], -each.created_at)), count)


def free_ranks(replicas: Iterable[Replica], number: int, count: int) -> list[int]:
    """Return the `count` smallest ranks that no replica of a version has."""
    taken = {
        each.rank
        for each in replicas
        if each.version.number == number
        and each.state not in (ReplicaState.DRAINING, ReplicaState.STOPPED)
    }
    free = (rank for rank in itertools.count() if rank not in taken)
    return list(itertools.islice(free, count))


def contiguous_ranks(serving: Collection[Replica]) -> dict[str, int]:
    """Return ranks 0 to n - 1 by replica id; replicas keep their rank where possible."""
    kept: dict[int, str] = {}
    left: list[Replica] = []
    for replica in sorted(serving, key=lambda each: (each.rank, each.created_at)):
        if replica.rank < len(serving) and replica.rank not in kept:
            kept[replica.rank] = replica.id
        else:
            left.append(replica)
    free = (rank for rank in range(len(serving)) if rank not in kept)
    ranks = {id: rank for rank, id in kept.items()}
    ranks.update((replica.id, rank) for replica, rank in zip(left, free, strict=True))
    return ranks


def demand(config: DeploymentConfig) -> dict[str, float]:
    """Return the resources that a replica, or its gang, reserves together.

    A place among the replicas of its node is one of them.
    """
    bundles = bundles_of(config)
    if bundles:
        total: Counter[str] = Counter()
        for bundle in bundles:
            total.update(bundle)
        return {name: float(amount) for name, amount in total.items() if amount}
    limit = config.max_replicas_per_node
    return {**config.resources, **({PLACE: 1 / limit} if limit is not None else {})}


def bundles_of(config: DeploymentConfig) -> list[dict[str, float]]:
    """Return the bundles that a replica, or its gang, reserves; empty if it needs no group."""
    bundles = [dict(bundle) for bundle in config.placement_group_bundles or ()]
    if not bundles and config.gang_scheduling_config is not None and config.resources:
        bundles = [config.resources]
    return bundles * config.gang_size


def has_resources(node: Mapping[str, float], needed: Mapping[str, float]) -> bool:
    """Return True if a node is large enough for a replica."""
    return all(node.get(name, 0) >= needed[name] for name in needed if name != PLACE)


class Room:
    """Resources for an update: enough for old and new replicas together, or not."""

    def __init__(self) -> None:
        self.is_enough = True
        """False once a start waited for resources while old replicas held some."""
        self._freed: Counter[str] = Counter()

    def reset(self) -> None:
        """Assume that there is room again."""
        self.is_enough = True
        self._freed.clear()

    def free(self, config: DeploymentConfig) -> None:
        """A replica, or its gang, returned its resources."""
        if not self.is_enough:
            self._freed.update(demand(config))

    def use(self, config: DeploymentConfig) -> None:
        """A replica, or its gang, took its resources."""
        if not self.is_enough:
            self._freed.subtract(demand(config))

    def is_missing_for(self, config: DeploymentConfig) -> bool:
        """Return True if old replicas have freed less than a new one needs."""
        return any(amount > self._freed[name] + 1e-9 for name, amount in demand(config).items())
