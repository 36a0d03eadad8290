"""Resources on paper. Nothing waits for resources in this engine; but what could never run is
refused, GPUs get numbers, placement groups are reserved in the order in which they fit, and
programs can ask what is free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from syncline import settings
from syncline.core import gpus
from syncline.core import cgroups
from syncline.core.config import EngineConfig
from syncline.core.embedded.resource_pools import (
    Bundles,
    Demand,
    Holding,
    Pool,
    check_group,
    fitting_bundles,
    gpu_split_message,
)
from syncline.core.resources import (
    CPU,
    GPU,
    MEMORY,
    OBJECT_STORE_MEMORY,
    UNIT,
    Infeasible,
    Resources,
    infeasible_message,
    to_amount,
)

OBJECT_STORE_SHARE = 0.3
"""The part of the memory that objects may take where `init` does not say."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What this machine has to share."""

    total: Resources
    gpu_ids: tuple[str, ...]


def describe_machine(config: EngineConfig) -> Machine:
    """What `config` says, and the machine itself where it says nothing."""
    found = gpus.discover(settings.environment("CUDA_VISIBLE_DEVICES"))
    count = len(found) if config.num_gpus is None else int(config.num_gpus)
    ids = [gpu.id for gpu in found][:count]
    ids += [str(number) for number in range(len(ids), count)]  # GPUs that are pretended
    memory = cgroups.memory_bytes()
    store = (
        config.object_store_memory
        if config.object_store_memory is not None
        else int(memory * OBJECT_STORE_SHARE)
    )
    amounts: dict[str, float] = {
        CPU: cgroups.cpu_count() if config.num_cpus is None else config.num_cpus,
        GPU: count,
        MEMORY: config.memory if config.memory is not None else max(0, memory - store),
        OBJECT_STORE_MEMORY: store,
        "node:127.0.0.1": 1,
        "node:__internal_head__": 1,
        **{f"accelerator_type:{gpu.model}": 1 for gpu in found[:count] if gpu.model},
        **config.resources,
    }
    return Machine(total=Resources.of(amounts), gpu_ids=tuple(ids))


class Group:
    """A placement group."""

    def __init__(
        self, *, name: str, strategy: str, specs: Sequence[Resources], bundles: Bundles
    ) -> None:
        self.name = name
        self.strategy = strategy
        self.specs = tuple(specs)
        self.bundles = bundles
        self.removed = False
        self.when_settled: list[Callable[[], None]] = []

    @property
    def state(self) -> str:
        """PENDING, CREATED or REMOVED."""
        if self.removed:
            return "REMOVED"
        return "CREATED" if self.bundles.ready else "PENDING"

    def settled(self) -> None:
        """It was reserved or removed: tell those who wait."""
        waiting, self.when_settled = self.when_settled, []
        for tell in waiting:
            tell()


class Ledger:
    """Who holds what. Not thread safe: the engine's lock guards it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._indices = {
            name: index for index, name in enumerate(dict.fromkeys([CPU, *machine.total]))
        }
        self._node = self._whole_machine()
        self.groups: dict[int, Group] = {}

    def hold(self, amounts: Mapping[str, float], group: tuple[int, int] | None) -> Holding:
        """Take `amounts` from the machine or from a bundle of a (group, bundle index), though they
        may be in use.

        ValueError where there will never be as much, or no such group.
        """
        resources = Resources.of(amounts)
        pools = self._pools_for(resources, group)
        demand = Demand(resources, self._indices)
        for pool in pools:
            positions = pool.fit(demand)
            if positions is not None:
                return Holding(pool, demand, positions, False)
        fullest_last = sorted(
            range(len(pools[0].gpus)), key=lambda position: -pools[0].gpus[position]
        )
        return Holding(pools[0], demand, tuple(sorted(fullest_last[: demand.gpu_count])), False)

    def check(self, amounts: Mapping[str, float], group: tuple[int, int] | None) -> None:
        """The errors of `hold` alone."""
        self._pools_for(Resources.of(amounts), group)

    def gpu_ids(self, holding: Holding) -> tuple[str, ...]:
        """The GPUs that a holder has."""
        return tuple(self.machine.gpu_ids[position] for position in holding.positions)

    def release(self, holding: Holding) -> None:
        """Give back, and reserve the groups that fit now."""
        holding.release()
        self._reserve_waiting()

    def create_group(
        self, id: int, specs: Sequence[Mapping[str, float]], *, strategy: str, name: str
    ) -> None:
        """Reserve all bundles now, or as soon as they fit. ValueError where they never will."""
        resources = [Resources.of(spec) for spec in specs]
        check_group(resources, strategy, self.machine.total)
        bundles = Bundles(id, [Demand(spec, self._indices) for spec in resources], self._node)
        if bundles.find(self._whole_machine()) is None:
            raise Infeasible(gpu_split_message(resources, len(self.machine.gpu_ids)))
        self.groups[id] = Group(name=name, strategy=strategy, specs=resources, bundles=bundles)
        self._reserve_waiting()

    def remove_group(self, id: int) -> None:
        """Give back what the group does not use now, and the rest when its holders end."""
        group = self.groups.get(id)
        if group is None or group.removed:
            return
        if group.bundles.ready:
            for pool in group.bundles.pools:
                pool.dissolve_into(self._node)
        group.removed = True
        group.settled()
        self._reserve_waiting()

    def available(self) -> dict[str, float]:
        """What is free, by resource; nothing is less than none."""
        free = {
            name: self._node.free[index]
            for name, index in self._indices.items()
            if name in self.machine.total
        }
        return {name: to_amount(max(0, units)) for name, units in free.items()}

    def _pools_for(self, resources: Resources, group: tuple[int, int] | None) -> Sequence[Pool]:
        if group is None:
            if not resources.fits_in(self.machine.total):
                raise Infeasible(infeasible_message(resources, self.machine.total))
            return (self._node,)
        id, bundle = group
        found = self.groups.get(id)
        if found is None or found.removed:
            raise ValueError(
                f"the placement group {id:032x} was removed, so nothing can run in it any more: create another one."
            )
        return fitting_bundles(found.bundles, bundle, resources)

    def _reserve_waiting(self) -> None:
        for group in self._waiting():
            found = group.bundles.find(self._node)
            if found is not None:
                group.bundles.reserve(self._node, found)
                group.settled()

    def _waiting(self) -> Iterable[Group]:
        return [group for group in self.groups.values() if group.state == "PENDING"]

    def _whole_machine(self) -> Pool:
        total = self.machine.total
        return Pool(
            [total.units(name) for name in self._indices], [UNIT] * len(self.machine.gpu_ids)
        )
