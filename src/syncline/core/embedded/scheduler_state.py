"""The scheduler's records and its bookkeeping: shapes, environments, workers, actors, resources.

State and accounting only; `scheduler` decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from syncline.core.embedded.instructions import (
    AssignActor,
    Instruction,
    SchedulerStatistics,
    StartWorker,
    StopWorker,
)
from syncline.core.embedded.resource_pools import Bundles, Demand, Holding, Pool, fitting_bundles
from syncline.core.resources import (
    CPU,
    GPU,
    UNIT,
    Infeasible,
    Resources,
    infeasible_message,
    to_amount,
)

_ZERO_CPU_TASKS_PER_CPU = 4
"""Limit of concurrent tasks without CPU, per CPU. They take no resources, but each is a process."""

GROUP_REMOVED = (
    "the placement group was removed, so nothing can be placed in it any more: create a new one, "
    "or remove it only after its tasks and actors are done"
)

ShapeKey = tuple[Resources, tuple[int, int] | None, str]
"""Identity of a shape: resources, (placement group, bundle), environment."""


@dataclass(slots=True, eq=False)
class Shape:
    """A class of tasks with the same needs, and the queue of these tasks."""

    key: ShapeKey
    env: Environment
    pools: tuple[Pool, ...]
    demand: Demand
    group_id: int | None
    zero_cpu: bool
    depth: int = 1
    queue: deque[int] = field(default_factory=deque)
    waiting: bool = False
    """True while the shape is in the round-robin queue, which is while it has queued tasks."""
    refillable: dict[int, Worker] = field(default_factory=dict)
    """Busy workers of this shape that can take another task behind their current ones."""
    running: int = 0


@dataclass(slots=True, eq=False)
class Environment:
    """The workers of one runtime environment."""

    key: str
    idle: deque[Worker] = field(default_factory=deque)
    """Least recently used first; the last one has the warmest caches and is used next."""
    starting: int = 0
    actors: deque[Actor] = field(default_factory=deque)
    """Actors that hold their resources and wait for a worker."""


@dataclass(slots=True, eq=False)
class Worker:
    """One process: idle (no holding, no actor), busy with tasks, or the process of an actor."""

    id: int
    env: Environment
    tasks: deque[int] = field(default_factory=deque)
    shape: Shape | None = None
    holding: Holding | None = None
    gpu_ids: tuple[str, ...] = ()
    actor: Actor | None = None
    streak: int = 0
    """Tasks run in a row for the current shape."""
    refill: bool = True
    """False while the current task is long or blocked; then no more are queued behind it."""
    retiring: bool = False


@dataclass(slots=True, eq=False)
class Actor:
    """An actor that waits for resources (no holding), waits for a worker, or has a worker."""

    id: int
    shape: Shape
    held_shape: Shape
    holding: Holding | None = None
    worker: Worker | None = None


class SchedulerState:
    """The state of one machine and its accounting."""

    def __init__(self, total: Mapping[str, float], gpu_ids: Sequence[str] = ()) -> None:
        """`total` holds the machine's amounts, such as ``{"CPU": 8, "GPU": 2}``.

        `gpu_ids` names the GPUs, "0", "1", … by default.
        """
        self._total = Resources.of(total)
        gpus = -(-self._total.units(GPU) // UNIT)
        self._gpu_ids = tuple(gpu_ids) or tuple(str(number) for number in range(gpus))
        if len(self._gpu_ids) != gpus:
            raise ValueError(
                f"{gpus} GPUs have {len(self._gpu_ids)} ids {self._gpu_ids}: pass one for each GPU"
            )
        self._names = (CPU, GPU, *(name for name in self._total if name not in (CPU, GPU)))
        self._indices = {name: index for index, name in enumerate(self._names)}
        self._node = Pool([self._total.units(name) for name in self._names], [UNIT] * gpus)
        self._count_slots()
        self._debts: list[int] | None = None
        """Maximum overcommitted units of each resource after the machine shrank."""
        self._shapes: dict[int, Shape] = {}
        self._shape_ids: dict[ShapeKey, int] = {}
        self._next_shape = 0
        self._round_robin: deque[Shape] = deque()
        self._environments: dict[str, Environment] = {}
        self._workers: dict[int, Worker] = {}
        self._actors: dict[int, Actor] = {}
        self._groups: dict[int, Bundles] = {}
        self._waiting: list[Actor | Bundles] = []
        self._reserved: list[int] | None = None
        """Units of the node reserved for what waits, by resource index; None if there are none."""
        self._idle = 0
        self._starting = 0
        self._actors_without_process = 0
        """Actors that wait for a process, in all environments."""
        self._zero_cpu_running = 0

    def shape(
        self,
        resources: Mapping[str, float],
        *,
        group: tuple[int, int] | None = None,
        environment: str = "",
    ) -> int:
        """Return the id of a shape; the same arguments give the same id.

        `group` is a placement group and the index of its bundle, -1 for any. `environment` is the
        key of a runtime environment. Raises `Infeasible` if the resources exceed the machine or the
        group's bundles, or the group was removed; `ValueError` and `TypeError` for invalid amounts.
        """
        key = (Resources.of(resources), group, environment)
        known = self._shape_ids.get(key)
        if known is not None:
            return known
        pools = self._pools_for(key[0], group)
        demand = Demand(key[0], self._indices)
        number = self._next_shape
        self._next_shape += 1
        self._shapes[number] = Shape(
            key, self._environment(environment), pools, demand,
            group_id=None if group is None else group[0], zero_cpu=demand.cpu == 0,
        )  # fmt: skip
        self._shape_ids[key] = number
        return number

    def set_depth(self, shape: int, depth: int) -> None:
        """Let one worker have up to `depth` tasks of a shape, including the running one.

        1 disables pipelining. GPU shapes stay at 1.
        """
        if depth < 1:
            raise ValueError(
                f"depth is {depth}, but a worker holds at least its running task: pass 1 or more"
            )
        s = self._shapes[shape]
        s.depth = 1 if s.demand.gpu else depth
        s.refillable = {
            w.id: w
            for w in self._workers.values()
            if w.shape is s and w.refill and not w.retiring and len(w.tasks) < s.depth > 1
        }

    def total(self) -> dict[str, float]:
        """Return the machine's amounts."""
        return self._total.amounts()

    def available(self) -> dict[str, float]:
        """Return the amounts that are free and not reserved by a group; a debt reads as 0."""
        return {
            name: to_amount(max(0, self._node.free[index]))
            for name, index in self._indices.items()
            if self._total.units(name)
        }

    def held(self) -> tuple[float, list[str]]:
        """Return the CPUs and (partly used) GPUs in use or reserved by groups."""
        index = self._indices.get(CPU)
        cpus = 0 if index is None else self._total.units(CPU) - self._node.free[index]
        busy = [
            gpu for gpu, free in zip(self._gpu_ids, self._node.gpus, strict=True) if free < UNIT
        ]
        return to_amount(max(0, cpus)), busy

    def statistics(self) -> SchedulerStatistics:
        """Return the current counts."""
        busy = [w for w in self._workers.values() if w.holding is not None]
        holdings = [w.holding for w in busy] + [actor.holding for actor in self._actors.values()]
        return SchedulerStatistics(
            workers=len(self._workers),
            idle=self._idle,
            running=len(busy),
            blocked=sum(holding is not None and holding.cpu_released for holding in holdings),
            starting=self._starting,
            queued=sum(len(s.queue) for s in self._round_robin),
            pipelined=sum(len(w.tasks) - 1 for w in busy),
            actors=sum(actor.holding is not None for actor in self._actors.values()),
            actors_waiting=sum(actor.holding is None for actor in self._actors.values()),
            groups=sum(group.ready for group in self._groups.values()),
            groups_waiting=sum(not group.ready for group in self._groups.values()),
        )

    def _add_resource(self, name: str) -> None:
        self._indices[name] = len(self._names)
        self._names = (*self._names, name)
        for pool in (
            self._node,
            *(pool for group in self._groups.values() for pool in group.pools),
        ):
            pool.free.append(0)
        self._reserved = None  # has the old length; `_dispatch` computes it again

    def _count_slots(self) -> None:
        self._slots = max(1, -(-self._total.units(CPU) // UNIT))
        self._zero_cpu_limit = self._slots * _ZERO_CPU_TASKS_PER_CPU

    def _is_in_debt(self) -> bool:
        """Return True while more is held than the machine has since it shrank."""
        if min(self._node.free) >= 0:
            self._debts = None
        return self._debts is not None

    def _environment(self, key: str) -> Environment:
        env = self._environments.get(key)
        if env is None:
            env = self._environments[key] = Environment(key)
        return env

    def _pools_for(self, resources: Resources, group: tuple[int, int] | None) -> tuple[Pool, ...]:
        if group is None:
            if not resources.fits_in(self._total):
                raise Infeasible(infeasible_message(resources, self._total))
            return (self._node,)
        group_id, bundle = group
        if group_id not in self._groups:
            raise Infeasible(GROUP_REMOVED)
        return fitting_bundles(self._groups[group_id], bundle, resources)

    def _release_worker(self, w: Worker, out: list[Instruction]) -> None:
        """Free the resources of a worker without tasks, and keep or stop its process."""
        self._end_holding(w)
        if w.retiring:
            del self._workers[w.id]
            out.append(StopWorker(w.id))
        else:
            self._make_idle(w)

    def _end_holding(self, w: Worker) -> None:
        s, holding = w.shape, w.holding
        assert s is not None
        assert holding is not None
        if s.zero_cpu and not holding.cpu_released:
            self._zero_cpu_running -= 1
        holding.release()
        s.running -= 1
        s.refillable.pop(w.id, None)
        w.shape = None
        w.holding = None

    def _drop_actor(self, actor: Actor) -> None:
        """Discard an actor in any stage."""
        del self._actors[actor.id]
        holding = actor.holding
        if holding is None:
            self._waiting = [item for item in self._waiting if item is not actor]
            return
        if actor.worker is None:
            actor.shape.env.actors.remove(actor)
            self._actors_without_process -= 1
        holding.release()

    def _reclaim_cpu(self, holding: Holding, s: Shape | None) -> None:
        """Take a CPU again; `s` is None for actors, which are not counted as tasks."""
        holding.reclaim_cpu()
        if s is not None and s.zero_cpu:
            self._zero_cpu_running += 1

    def _update_queue(self, s: Shape) -> None:
        """Put a shape into the round-robin queue if it has queued tasks, else remove it."""
        if s.queue and not s.waiting:
            s.waiting = True
            self._round_robin.append(s)
        elif s.waiting and not s.queue:
            s.waiting = False
            self._round_robin.remove(s)

    def _make_idle(self, w: Worker) -> None:
        w.env.idle.append(w)
        self._idle += 1

    def _request(self, env: Environment, count: int) -> StartWorker:
        env.starting += count
        self._starting += count
        return StartWorker(env.key, count)

    def _request_actor_processes(self, env: Environment, out: list[Instruction]) -> None:
        missing = len(env.actors) - env.starting
        if missing > 0:
            out.append(self._request(env, missing))

    def _finish_start(self, env: Environment) -> None:
        if env.starting:
            env.starting -= 1
            self._starting -= 1

    def _assign_actor(self, w: Worker, actor: Actor, out: list[Instruction]) -> None:
        """Give the actor its process; from now on it holds only the resources that it keeps."""
        holding = actor.holding
        assert holding is not None
        w.actor, actor.worker = actor, w
        w.gpu_ids = tuple(self._gpu_ids[position] for position in holding.positions)
        if actor.held_shape is not actor.shape:
            holding.shrink(actor.held_shape.demand)
        out.append(AssignActor(w.id, actor.id, w.gpu_ids))

    def _find(self, s: Shape) -> tuple[Pool, tuple[int, ...]] | None:
        """Return a pool, and GPU positions, where one more task of a shape fits now.

        Reserved units stay free.
        """
        node = self._node
        demand = s.demand
        for pool in s.pools:
            positions = pool.fit(demand, self._reserved if pool is node else None)
            if positions is not None:
                return pool, positions
        return None

    def _await_process(self, s: Shape, out: list[Instruction]) -> bool:
        """Request processes for tasks that have resources but no worker.

        Returns True if a process is starting.
        """
        could = sum(
            pool.count_fits(s.demand, self._reserved if pool is self._node else None)
            for pool in s.pools
        )
        if s.zero_cpu:
            could = min(could, self._zero_cpu_limit - self._zero_cpu_running)
        missing = min(len(s.queue), could) - (self._starting - self._actors_without_process)
        if missing > 0:
            out.append(self._request(s.env, missing))
        return s.env.starting > len(s.env.actors)

    def _trim(self, out: list[Instruction]) -> None:
        """Stop idle workers beyond one per CPU, counting starting ones.

        The longest idle worker of the largest environment goes first.
        """
        allowed = max(0, self._slots - self._starting)
        while self._idle > allowed:
            env = max(self._environments.values(), key=lambda env: len(env.idle))
            w = env.idle.popleft()
            self._idle -= 1
            del self._workers[w.id]
            out.append(StopWorker(w.id))
