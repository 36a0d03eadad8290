"""Free and held resources of one machine: the node, the bundles of placement groups, the holders.

A `Pool` is a set of free amounts that holders take from: the node, or a bundle carved out of it.
Amounts are lists of units indexed by resource (CPU first), because the scheduler reads them for
every task. GPUs are also counted per device: a fraction goes to the fullest device with room, so
that whole devices stay whole; more than one GPU takes whole devices. The scheduler decides which
holder may take resources, and when.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from syncline import settings
from syncline.core import cgroups, gpus
from syncline.core.config import EngineConfig
from syncline.core.resources import (
    CPU,
    GPU,
    HEAD_NODE,
    MEMORY,
    OBJECT_STORE_MEMORY,
    UNIT,
    Infeasible,
    Resources,
    infeasible_message,
    to_amount,
)

CPU_INDEX = 0
OBJECT_SHARE = 0.3
"""Default share of memory for objects in shared memory."""
MEMORY_SHARE = 0.7
"""Default share of memory that tasks may reserve."""


class Demand:
    """Amounts of one request, prepared for fast access: `items` are (resource index, units)."""

    __slots__ = ("cpu", "gpu", "gpu_count", "gpu_share", "items", "resources")

    def __init__(self, resources: Resources, indices: Mapping[str, int]) -> None:
        self.resources = resources
        self.items: tuple[tuple[int, int], ...] = tuple(
            sorted((indices[name], units) for name, units in resources.items())
        )
        self.cpu = resources.units(CPU)
        self.gpu = resources.units(GPU)
        self.gpu_share = min(self.gpu, UNIT)
        self.gpu_count = -(-self.gpu // UNIT)


class Pool:
    """Free amounts, and the free units of each GPU (0 for devices outside the pool)."""

    __slots__ = ("free", "gpus", "successor", "usable")

    def __init__(self, free: list[int], gpus: list[int], *, usable: bool = True) -> None:
        self.free = free
        self.gpus = gpus
        self.usable = usable
        """False for a bundle before it is reserved and after its group was removed.

        Then not even an empty demand fits.
        """
        self.successor: Pool | None = None
        """Pool that receives returned amounts after this one was dissolved."""

    def fit(self, demand: Demand, reserved: Sequence[int] | None = None) -> tuple[int, ...] | None:
        """Return the GPU positions for the demand (none: ``()``), or None if it does not fit.

        `reserved` holds units per resource that must stay free.
        """
        if not self.usable:
            return None
        free = self.free
        if reserved is None:
            for index, units in demand.items:
                if free[index] < units:
                    return None
        else:
            for index, units in demand.items:
                if free[index] - reserved[index] < units:
                    return None
        return self._choose_gpus(demand) if demand.gpu else ()

    def count_fits(self, demand: Demand, reserved: Sequence[int] | None = None) -> int:
        """Return how often the demand fits; a very large number for an empty demand."""
        if not self.usable:
            return 0
        counts = [
            (self.free[index] - (reserved[index] if reserved else 0)) // units
            for index, units in demand.items
        ]
        if demand.gpu:
            counts.append(sum(units // demand.gpu_share for units in self.gpus) // demand.gpu_count)
        return max(0, min(counts, default=1 << 30))

    def take(self, demand: Demand, positions: Sequence[int]) -> None:
        free = self.free
        for index, units in demand.items:
            free[index] -= units
        for position in positions:
            self.gpus[position] -= demand.gpu_share

    def give(self, demand: Demand, positions: Sequence[int]) -> None:
        free = self.free
        for index, units in demand.items:
            free[index] += units
        for position in positions:
            self.gpus[position] += demand.gpu_share

    def dissolve_into(self, successor: Pool) -> None:
        """Move all free amounts to `successor` now, and held amounts when they are returned."""
        for index, units in enumerate(self.free):
            successor.free[index] += units
        for position, units in enumerate(self.gpus):
            successor.gpus[position] += units
        self.free = [0] * len(self.free)
        self.gpus = [0] * len(self.gpus)
        self.successor = successor
        self.usable = False

    def copy(self) -> Pool:
        return Pool(list(self.free), list(self.gpus))

    def _choose_gpus(self, demand: Demand) -> tuple[int, ...] | None:
        share = demand.gpu_share
        fitting = [(units, position) for position, units in enumerate(self.gpus) if units >= share]
        if len(fitting) < demand.gpu_count:
            return None
        return tuple(position for _, position in sorted(fitting)[: demand.gpu_count])


class Holding:
    """The amounts that one task slot or actor has taken from a pool."""

    __slots__ = ("cpu_released", "demand", "pool", "positions")

    def __init__(self, pool: Pool, demand: Demand, positions: tuple[int, ...]) -> None:
        self.pool = pool
        self.demand = demand
        self.positions = positions
        self.cpu_released = False
        """True while the CPU is released because the process waits."""
        pool.take(demand, positions)

    @property
    def source(self) -> Pool:
        """The pool to return amounts to: the successor if this one was dissolved."""
        return self.pool if self.pool.successor is None else self.pool.successor

    def release_cpu(self) -> None:
        self.cpu_released = True
        self.source.free[CPU_INDEX] += self.demand.cpu

    def reclaim_cpu(self) -> None:
        """Take the CPU again. Never refused: the pool may be overcommitted for a while."""
        self.cpu_released = False
        self.source.free[CPU_INDEX] -= self.demand.cpu

    def shrink(self, demand: Demand) -> None:
        """Keep only `demand`, which has the same GPUs and not more of anything."""
        kept = dict(demand.items)
        for index, units in self.demand.items:
            self.source.free[index] += units - kept.get(index, 0)
        self.demand = demand

    def release(self) -> None:
        if self.cpu_released:
            self.reclaim_cpu()
        self.source.give(self.demand, self.positions)


class Bundles:
    """The bundles of one placement group: their demands, and a pool for each once reserved."""

    __slots__ = ("demands", "group_id", "machines", "pools", "ready", "taken")

    def __init__(
        self, group_id: int, demands: Sequence[Demand], node: Pool, *, machines: int = 1
    ) -> None:
        """`machines`: number of machines that the bundles need; there is one."""
        self.group_id = group_id
        self.machines = machines
        self.demands = tuple(demands)
        self.pools = tuple(
            Pool([0] * len(node.free), [0] * len(node.gpus), usable=False) for _ in demands
        )
        self.taken: list[tuple[int, ...]] = []
        self.ready = False

    def find(
        self, node: Pool, reserved: Sequence[int] | None = None
    ) -> list[tuple[int, ...]] | None:
        """Return GPU positions for each bundle so that all fit into `node`, or None.

        Whole GPUs are placed before fractions.
        """
        if self.machines > 1:
            return None
        trial = node.copy()
        found: dict[int, tuple[int, ...]] = {}
        for number in sorted(
            range(len(self.demands)), key=lambda bundle: -self.demands[bundle].gpu
        ):
            positions = trial.fit(self.demands[number], reserved)
            if positions is None:
                return None
            trial.take(self.demands[number], positions)
            found[number] = positions
        return [found[number] for number in range(len(self.demands))]

    def reserve(self, node: Pool, found: list[tuple[int, ...]]) -> None:
        for demand, pool, positions in zip(self.demands, self.pools, found, strict=True):
            node.take(demand, positions)
            pool.give(demand, positions)
            pool.usable = True
        self.taken = found
        self.ready = True


def fitting_bundles(group: Bundles, bundle: int, resources: Resources) -> tuple[Pool, ...]:
    """Return the pools of the group that can hold `resources`; `bundle` -1 means any.

    Raises `Infeasible` or `ValueError`.
    """
    count = len(group.demands)
    if not -1 <= bundle < count:
        raise ValueError(
            f"bundle {bundle} does not exist: the placement group has {count} bundles. Use an "
            f"index from 0 to {count - 1}, or -1 for any"
        )
    chosen = range(count) if bundle == -1 else [bundle]
    pools = tuple(
        group.pools[number]
        for number in chosen
        if resources.fits_in(group.demands[number].resources)
    )
    if not pools:
        largest = max(
            (group.demands[number].resources for number in chosen),
            key=lambda spec: sum(spec.units(name) for name in resources),
        )
        where = (
            "the largest bundle of the placement group"
            if bundle == -1
            else f"bundle {bundle} of the placement group"
        )
        raise Infeasible(infeasible_message(resources, largest, where=where))
    return pools


def check_group(specs: Sequence[Resources], strategy: str, total: Resources) -> None:
    """Raise `Infeasible` for bundles that a machine with `total` can never hold."""
    if strategy == "STRICT_SPREAD" and len(specs) > 1:
        raise Infeasible(
            f"STRICT_SPREAD puts each of the {len(specs)} bundles on a machine of its own, but "
            "there is one machine: use strategy='SPREAD' or 'PACK', or connect to a cluster"
        )
    together = sum(specs, Resources())
    if not together.fits_in(total):
        raise Infeasible(infeasible_message(together, total))


def gpu_split_message(specs: Sequence[Resources], gpus: int) -> str:
    """Return the error for bundles whose sum fits but whose GPU fractions do not."""
    asked = [to_amount(spec.units(GPU)) for spec in specs]
    return (
        f"bundles with {asked} GPUs do not fit on {gpus} GPUs, because each fraction must be on a "
        "single GPU: choose fractions that divide 1, or fewer bundles"
    )


def machine_resources(
    config: EngineConfig, found: Sequence[gpus.Gpu] | None = None
) -> tuple[dict[str, float], list[str]]:
    """Return the machine's amounts, from the configuration or measured, and the GPUs' ids.

    `found` are the GPUs that this process may use, the preferred ones first.
    """
    machine = cgroups.machine_limits()
    if found is None:
        found = gpus.discover(settings.visible_gpus())
    gpu_count = len(found) if config.num_gpus is None else config.num_gpus
    devices = math.ceil(gpu_count)
    gpu_ids = [gpu.id for gpu in found][:devices]
    gpu_ids += [str(number) for number in range(len(gpu_ids), devices)]
    total: dict[str, float] = {
        CPU: machine.cpus if config.num_cpus is None else config.num_cpus,
        MEMORY: config.memory or int(machine.memory_bytes * MEMORY_SHARE),
        OBJECT_STORE_MEMORY: config.object_store_memory or int(machine.memory_bytes * OBJECT_SHARE),
        "node:127.0.0.1": 1.0,
        HEAD_NODE: 1.0,
        **config.resources,
    }
    if gpu_count:
        total[GPU] = gpu_count
    total |= {f"accelerator_type:{gpu.model}": 1.0 for gpu in found if gpu.model}
    return total, gpu_ids
