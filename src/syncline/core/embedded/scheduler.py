"""Which task and which actor runs where on this machine: a pure state machine from events to
instructions.

Each method is an event; it returns what its driver shall do (`instructions`). No clock, no I/O, no
threads, no processes: the driver reports what happened and carries out what it is told. Tasks
arrive here when their arguments are ready.

Policy, in the order in which it decides:

1. Actors and placement groups that wait are served first, in their order. While the *tasks* that
   run are all that stands in the way of one,
   what it needs is kept for it; if it waits for other actors, tasks go on in the meantime.
2. Shapes (classes of tasks with the same needs) take turns, so that one that cannot run now never
   blocks the others.
3. A task gets an idle worker of its environment; else a process is started if the resources are
   free; else, where the driver allows it
   with `set_depth`, it is queued behind a task of the same shape, holds nothing, and runs on that
   task's resources.
4. A worker that finishes goes on with its own shape for a while before it gives its resources back.

Not covered: memory pressure, several machines, priorities.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from syncline.core.embedded.instructions import (
    Assign,
    AssignActor,
    GroupReady,
    GroupRemoval,
    Instruction,
    Instructions,
    PendingDemand,
    SchedulerStatistics,
    StartWorker,
    StopWorker,
    WorkerLoss,
)
from syncline.core.embedded.pools import (
    Bundles,
    Demand,
    Holding,
    Pool,
    check_group,
    fitting_bundles,
    gpu_split_message,
)
from syncline.core.embedded.roster import Actor, Environment, Shape, ShapeKey, Worker
from syncline.core.resources import (
    CPU,
    GPU,
    UNIT,
    Infeasible,
    Resources,
    infeasible_message,
    to_amount,
)

_NOTHING: Instructions = ()
_STREAK = 64
"""Tasks that a worker may run in a row for one shape while other shapes wait."""
_WEIGHTLESS_PER_CPU = 4
"""Tasks without CPU that may run at once, for each CPU: they cost nothing in the books, but each is
a process.
"""

_GROUP_GONE = (
    "the placement group was removed, so nothing can be placed in it any more: create a new one, "
    "or remove it only after its tasks and actors are done"
)

_Place = tuple[Pool, Demand, tuple[int, ...], bool]
"""Where something fits: the pool, what it would take, the GPU positions, and whether that is the
spare slot.
"""


class Scheduler:
    """The state of one machine. Worker, task, actor and group ids are chosen by the driver; not
    thread-safe.
    """

    def __init__(self, total: Mapping[str, float], gpu_ids: Sequence[str] = ()) -> None:
        """``total`` is what the machine has, such as ``{"CPU": 8, "GPU": 2}``; ``gpu_ids`` names
        the GPUs, "0", "1", … by default.
        """
        self._total = Resources.of(total)
        gpus = -(-self._total.units(GPU) // UNIT)
        self._gpu_ids = tuple(gpu_ids) or tuple(str(number) for number in range(gpus))
        if len(self._gpu_ids) != gpus:
            raise ValueError(
                f"{gpus} GPUs have {len(self._gpu_ids)} ids {self._gpu_ids}: pass one id for each GPU"
            )
        self._names = (CPU, GPU, *(name for name in self._total if name not in (CPU, GPU)))
        self._indices = {name: index for index, name in enumerate(self._names)}
        self._node = Pool([self._total.units(name) for name in self._names], [UNIT] * gpus)
        self._count_slots()
        self._debts: list[int] | None = None
        """After the machine has shrunk below what is held: the units of each resource that are owed
        at most; else ``None``.
        """
        self._shapes: dict[int, Shape] = {}
        self._shape_ids: dict[ShapeKey, int] = {}
        self._next_shape = 0
        self._ring: deque[Shape] = deque()
        self._environments: dict[str, Environment] = {}
        self._workers: dict[int, Worker] = {}
        self._actors: dict[int, Actor] = {}
        self._groups: dict[int, Bundles] = {}
        self._waiting: list[Actor | Bundles] = []
        self._kept: list[int] | None = None
        """Units of the node kept for what waits, by resource index; ``None`` while nothing is
        kept.
        """
        self._idle = 0
        self._starting = 0
        self._seats_wanted = 0
        """Actors that wait for a process, over all environments."""
        self._weightless_running = 0
        self._spare_running = 0

    # Shapes

    def shape(
        self,
        resources: Mapping[str, float],
        *,
        group: tuple[int, int] | None = None,
        environment: str = "",
        spare: bool = False,
    ) -> int:
        """The id of a class of tasks; the same arguments give the same id.

        ``group`` is a placement group and the index of its bundle, -1 for any. ``environment`` is
        the key of a runtime environment. A ``spare`` shape may run on one process more even if
        every CPU is held. Raises `Infeasible` at once if the resources exceed the machine, or the
        group's bundles, or the group is gone; `ValueError` and `TypeError` for amounts that mean
        nothing.
        """
        key = (Resources.of(resources), group, environment, spare)
        known = self._shape_ids.get(key)
        if known is not None:
            return known
        pools = self._pools_for(key[0], group)
        demand = Demand(key[0], self._indices)
        bare = Demand(
            Resources({name: units for name, units in key[0].items() if name != CPU}), self._indices
        )
        number = self._next_shape
        self._next_shape += 1
        self._shapes[number] = Shape(key, self._environment(environment), pools, demand, bare)
        self._shape_ids[key] = number
        return number

    def set_depth(self, shape: int, depth: int) -> None:
        """Let up to ``depth`` tasks of a shape be in one worker, the running one included; 1 means
        no pipelining. GPU shapes stay at 1.
        """
        if depth < 1:
            raise ValueError(
                f"depth is {depth}, but a worker holds at least its running task: pass 1 or more"
            )
        s = self._shapes[shape]
        s.depth = 1 if s.demand.gpu else depth
        s.open = {
            w.id: w
            for w in self._workers.values()
            if w.shape is s and w.refill and not w.retiring and len(w.tasks) < s.depth > 1
        }

    # Tasks

    def submit(self, task_id: int, shape: int) -> Instructions:
        """A task is ready to run."""
        try:
            s = self._shapes[shape]
        except KeyError:
            raise Infeasible(_GROUP_GONE) from None
        s.queue.append(task_id)
        if s.waiting:
            return _NOTHING  # Nothing has become free since the tasks before it had to wait.
        out: list[Instruction] = []
        if not self._start(s, out):
            s.waiting = True
            self._ring.append(s)
        return out

    def finished(self, worker: int, task_id: int) -> Instructions:
        """The worker has ended a task, well or badly, and goes on with the next one that it has."""
        w = self._workers[worker]
        tasks = w.tasks
        if tasks[0] == task_id:
            tasks.popleft()
        else:
            tasks.remove(task_id)
        s, holding = w.shape, w.holding
        assert s is not None
        assert holding is not None
        lent = holding.lent
        if lent:
            self._reclaim(holding, s)
        w.refill = True
        queue = s.queue
        if (
            queue
            and self._kept is None
            and not w.retiring
            and s.depth > len(tasks)
            and not (self._debts and self._is_in_debt())
        ):
            alone = len(self._ring) == 1 and not self._waiting
            if alone or (w.streak < _STREAK and s.depth > 1):
                return self._hand_over(w, s)
        if tasks:
            if s.depth > len(tasks) and not w.retiring:
                s.open[worker] = w
            return _NOTHING
        if w.streak >= _STREAK and self._ring and self._ring[0] is s:
            self._ring.rotate(-1)  # It had its turn.
        out: list[Instruction] = []
        self._vacate(w, out)
        self._dispatch(out, task_ended=not lent)
        return out

    def cancel(self, task_id: int) -> bool:
        """Remove a task that no worker has yet; false if it is not queued here."""
        for s in self._ring:
            if task_id in s.queue:
                s.queue.remove(task_id)
                self._settle(s)
                return True
        return False

    # Workers

    def warm(self, environment: str, count: int) -> Instructions:
        """Ask for ``count`` workers before there is work, at most one per CPU together with those
        that are idle or starting.
        """
        wanted = min(count, self._slots - self._idle - self._starting)
        return [self._request(self._environment(environment), wanted)] if wanted > 0 else _NOTHING

    def worker_ready(self, worker: int, environment: str = "") -> Instructions:
        """A process is up and idle, whether it was asked for or not."""
        assert worker not in self._workers, f"worker {worker} is ready a second time"
        env = self._environment(environment)
        self._start_ended(env)
        w = self._workers[worker] = Worker(worker, env)
        out: list[Instruction] = []
        if env.actors:
            self._seats_wanted -= 1
            self._seat(w, env.actors.popleft(), out)
        else:
            self._rest(w)
        self._dispatch(out)
        return out

    def start_failed(self, environment: str) -> Instructions:
        """A process that was asked for will not come. What waits asks again, so the driver must
        give up a broken environment itself.
        """
        env = self._environment(environment)
        self._start_ended(env)
        out: list[Instruction] = []
        self._request_seats(env, out)
        self._dispatch(out)
        return out

    def worker_died(self, worker: int) -> WorkerLoss:
        """The process is gone; its resources are free. A worker that was stopped or is unknown
        leaves nothing.
        """
        w = self._workers.get(worker)
        if w is None:
            return WorkerLoss([], None, _NOTHING)
        tasks, actor, out = list(w.tasks), w.actor, list[Instruction]()
        w.tasks.clear()
        w.retiring = True
        if actor is not None:
            self._drop_actor(actor)
        elif w.holding is not None:
            self._end_holding(w)
        else:
            w.env.idle.remove(w)
            self._idle -= 1
        del self._workers[worker]
        self._dispatch(out)
        return WorkerLoss(tasks, None if actor is None else actor.id, out)

    def retire(self, worker: int) -> Instructions:
        """Give the worker no further task; it is stopped when those that it has are done (for
        ``max_calls``).
        """
        w = self._workers.get(worker)
        if w is None or w.actor is not None:
            return _NOTHING
        w.retiring = True
        if w.shape is not None:
            w.shape.open.pop(worker, None)
            return _NOTHING
        w.env.idle.remove(w)
        self._idle -= 1
        del self._workers[worker]
        return [StopWorker(worker)]

    def remove_environment(self, environment: str) -> Instructions:
        """Stop the workers of an environment: the idle ones now, the busy ones when their tasks are
        done.
        """
        out: list[Instruction] = []
        for w in [w for w in self._workers.values() if w.env.key == environment]:
            out.extend(self.retire(w.id))
        return out

    def blocked(self, worker: int, returned_task_ids: Sequence[int] = ()) -> Instructions:
        """The worker's task or actor waits: its CPU goes to others, and it gives back the tasks
        that it has not started.
        """
        w = self._workers[worker]
        holding = w.holding if w.actor is None else w.actor.holding
        if holding is None:
            return _NOTHING
        if not holding.lent:
            holding.lend_cpu()
            self._count(holding, w.shape, -1)
        return self.returned(worker, returned_task_ids)

    def unblocked(self, worker: int) -> Instructions:
        """The worker goes on and takes its CPU again, which is never refused: for a moment the
        machine may owe one.
        """
        w = self._workers[worker]
        holding = w.holding if w.actor is None else w.actor.holding
        if holding is not None and holding.lent:
            self._reclaim(holding, w.shape)
        return _NOTHING

    def returned(self, worker: int, task_ids: Sequence[int]) -> Instructions:
        """The worker gives back tasks that it has not started: they are next in the queue, and it
        gets no more behind its current one.
        """
        w = self._workers[worker]
        w.refill = False
        s = w.shape
        if s is not None:
            s.open.pop(worker, None)
            for task_id in task_ids:
                w.tasks.remove(task_id)
            if s.group_id is None or s.group_id in self._groups:
                s.queue.extendleft(reversed(task_ids))
                self._settle(s)
        out: list[Instruction] = []
        if s is not None and not w.tasks:
            self._vacate(w, out)  # its current task has ended meanwhile
        self._dispatch(out)
        return out

    def dropped(self, worker: int, task_id: int) -> Instructions:
        """The worker gives back a task that was cancelled before it began."""
        w = self._workers[worker]
        w.tasks.remove(task_id)
        out: list[Instruction] = []
        if not w.tasks:
            self._vacate(w, out)
            self._dispatch(out)
        return out

    # Actors

    def reserve_actor(
        self, actor_id: int, shape: int, holding_shape: int | None = None
    ) -> Instructions:
        """Place an actor: it needs ``shape`` to be placed and keeps ``holding_shape`` (the same by
        default) once it has its process.

        The two differ at most by amounts other than GPUs, and lie in the same group and
        environment.
        """
        assert actor_id not in self._actors, f"actor {actor_id} is reserved a second time"
        s = self._shapes.get(shape)
        keeps = s if holding_shape is None else self._shapes.get(holding_shape)
        if s is None or keeps is None:
            raise Infeasible(_GROUP_GONE)
        if (
            not keeps.demand.resources.fits_in(s.demand.resources)
            or keeps.demand.gpu != s.demand.gpu
            or keeps.key[1:] != s.key[1:]
        ):
            raise ValueError(
                f"actor {actor_id} is placed with {s.demand.resources.amounts()} but would keep {keeps.demand.resources.amounts()}: "
                f"what it keeps must be part of what it is placed with, with the same GPUs, group and environment"
            )
        actor = self._actors[actor_id] = Actor(actor_id, s, keeps)
        self._waiting.append(actor)
        out: list[Instruction] = []
        self._dispatch(out)
        return out

    def release_actor(self, actor_id: int) -> Instructions:
        """The actor is over, or was never wanted: its resources are free, its process is to be
        stopped.
        """
        return self._end_actor(actor_id, stop=True)

    def actor_died(self, actor_id: int) -> Instructions:
        """The actor's process is gone."""
        return self._end_actor(actor_id, stop=False)

    # Placement groups

    def create_group(
        self, group_id: int, bundles: Sequence[Mapping[str, float]], strategy: str
    ) -> Instructions:
        """Reserve all bundles together, now or when they fit. On one machine PACK, SPREAD and
        STRICT_PACK mean the same.

        Raises `Infeasible` if the bundles exceed the machine, or for STRICT_SPREAD with several;
        `ValueError` for empty bundles.
        """
        specs = [Resources.of(bundle) for bundle in bundles]
        check_group(specs, strategy, self._total)
        group = Bundles(group_id, [Demand(spec, self._indices) for spec in specs], self._node)
        pristine = Pool(
            [self._total.units(name) for name in self._names], [UNIT] * len(self._gpu_ids)
        )
        if group.find(pristine) is None:
            raise Infeasible(gpu_split_message(specs, len(self._gpu_ids)))
        assert group_id not in self._groups, f"placement group {group_id} is created a second time"
        self._groups[group_id] = group
        self._waiting.append(group)
        out: list[Instruction] = []
        self._dispatch(out)
        return out

    def remove_group(self, group_id: int) -> GroupRemoval:
        """Give back what the group does not use now, and the rest when its tasks and actors, which
        are returned to be killed, are gone.
        """
        group = self._groups.pop(group_id, None)
        if group is None:
            return GroupRemoval([], [], [], _NOTHING)
        if group.ready:
            for pool in group.pools:
                pool.dissolve_into(self._node)
        self._waiting = [item for item in self._waiting if item is not group]
        queued: list[int] = []
        for number, s in [
            (number, s) for number, s in self._shapes.items() if s.group_id == group_id
        ]:
            queued.extend(s.queue)
            s.queue.clear()
            self._settle(s)
            del self._shapes[number], self._shape_ids[s.key]
        inside = [
            w
            for w in self._workers.values()
            if w.shape is not None and w.shape.group_id == group_id
        ]
        for w in inside:
            self.retire(w.id)
        actors = [actor.id for actor in self._actors.values() if actor.shape.group_id == group_id]
        out: list[Instruction] = []
        self._dispatch(out)
        return GroupRemoval(queued, [(w.id, list(w.tasks)) for w in inside], actors, out)

    # The machine

    def resize(self, amounts: Mapping[str, float]) -> Instructions:
        """The machine has so much of these resources from now on, and of the others what it had.

        With more, what waits starts. With less nothing is ended: what is held beyond it is owed
        until it is given back, and nothing is placed meanwhile; what is known but fits no longer
        waits, and what comes new is refused. `ValueError` for another number of GPUs, and what
        `Resources.of` raises.
        """
        changed = Resources.of(amounts)
        total = Resources({**self._total, **{name: changed.units(name) for name in amounts}})
        if total.units(GPU) != self._total.units(GPU):
            raise ValueError(
                f"the machine has {to_amount(self._total.units(GPU))} GPUs, and their number stays, as each is a device: "
                f"change CPUs or custom resources"
            )
        for name in total:
            if name not in self._indices:
                self._add_resource(name)
        for name, index in self._indices.items():
            self._node.free[index] += total.units(name) - self._total.units(name)
        self._total = total
        self._count_slots()
        debts = [max(0, -units) for units in self._node.free]
        self._debts = debts if any(debts) else None
        out: list[Instruction] = []
        self._dispatch(out)
        return out

    def _add_resource(self, name: str) -> None:
        self._indices[name] = len(self._names)
        self._names = (*self._names, name)
        for pool in (
            self._node,
            *(pool for group in self._groups.values() for pool in group.pools),
        ):
            pool.free.append(0)
        self._kept = None  # it is as long as the names were, and about to be made anew

    def _count_slots(self) -> None:
        self._slots = max(1, -(-self._total.units(CPU) // UNIT))
        self._weightless_limit = self._slots * _WEIGHTLESS_PER_CPU

    def _is_in_debt(self) -> bool:
        """Whether more is held than the machine has since it shrank, so that workers are to give
        back what they hold.
        """
        if min(self._node.free) >= 0:
            self._debts = None
        return self._debts is not None

    # Introspection

    def total(self) -> dict[str, float]:
        """What the machine has."""
        return self._total.amounts()

    def available(self) -> dict[str, float]:
        """What is free and in no placement group's reservation; a debt reads as 0."""
        return {
            name: to_amount(max(0, self._node.free[index]))
            for name, index in self._indices.items()
            if self._total.units(name)
        }

    def demands(self) -> list[PendingDemand]:
        """What waits for resources or for a process, for messages such as "pending: 3 tasks of
        {'GPU': 1}".
        """
        counts: dict[tuple[str, Resources], int] = {}
        for s in self._ring:
            counts[("task", s.key[0])] = counts.get(("task", s.key[0]), 0) + len(s.queue)
        for actor in self._actors.values():
            if actor.worker is None:
                counts[("actor", actor.shape.key[0])] = (
                    counts.get(("actor", actor.shape.key[0]), 0) + 1
                )
        for group in self._groups.values():
            if not group.ready:
                together = sum((demand.resources for demand in group.demands), Resources())
                counts[("placement group", together)] = (
                    counts.get(("placement group", together), 0) + 1
                )
        return [
            PendingDemand(kind=kind, count=count, resources=asked.amounts())
            for (kind, asked), count in counts.items()
        ]

    def statistics(self) -> SchedulerStatistics:
        """Counts of everything that is here now."""
        busy = [w for w in self._workers.values() if w.holding is not None]
        holdings = [w.holding for w in busy] + [actor.holding for actor in self._actors.values()]
        return SchedulerStatistics(
            workers=len(self._workers),
            idle=self._idle,
            running=len(busy),
            blocked=sum(holding is not None and holding.lent for holding in holdings),
            starting=self._starting,
            queued=sum(len(s.queue) for s in self._ring),
            pipelined=sum(len(w.tasks) - 1 for w in busy),
            actors=sum(actor.holding is not None for actor in self._actors.values()),
            actors_waiting=sum(actor.holding is None for actor in self._actors.values()),
            groups=sum(group.ready for group in self._groups.values()),
            groups_waiting=sum(not group.ready for group in self._groups.values()),
        )

    # Decisions

    def _dispatch(self, out: list[Instruction], *, task_ended: bool = False) -> None:
        """Start all that can start: what reserves first, then one task of each shape in turn until
        none can.

        ``task_ended``: nothing else has happened. What only tasks delay is then as before, so while
        nothing is kept and nothing that waits fits now, there is nothing to reconsider, which
        spares most of the cost of a long wait.
        """
        if not self._waiting:
            self._kept = None
        elif (
            not task_ended
            or self._kept is not None
            or any(self._fits_now(item) for item in self._waiting)
        ):
            self._serve_reservations(out)
        ring = self._ring
        stuck = 0
        while stuck < len(ring):
            s = ring[0]
            stuck = 0 if self._start(s, out) else stuck + 1
            if s.queue:
                ring.rotate(-1)
            else:
                ring.popleft()
                s.waiting = False
        if self._idle:
            self._trim(out)

    def _start(self, s: Shape, out: list[Instruction]) -> bool:
        """Give the next task of a shape to a worker; false if it has to stay queued."""
        if s.weightless and self._weightless_running >= self._weightless_limit:
            return self._pipeline(s, out)
        place = self._find(s)
        if place is None:
            return self._pipeline(s, out)
        idle = s.env.idle
        if not idle:
            return not self._await_process(s, place, out) and self._pipeline(s, out)
        w = idle.pop()
        self._idle -= 1
        task_id = s.queue.popleft()
        w.shape = s
        pool, demand, positions, spare = place
        w.holding = Holding(pool, demand, positions, spare)
        w.gpu_ids = tuple(self._gpu_ids[position] for position in positions) if positions else ()
        w.streak = 1
        w.refill = True
        w.tasks.append(task_id)
        s.running += 1
        if spare or s.weightless:
            self._count(w.holding, s, 1)
        if s.depth > 1:
            s.open[w.id] = w
        out.append(Assign(w.id, task_id, w.gpu_ids))
        return True

    def _find(self, s: Shape) -> _Place | None:
        """Where one more of a shape fits now, beside what is kept for others."""
        node = self._node
        demand = s.demand
        for pool in s.pools:
            positions = pool.room(demand, self._kept if pool is node else None)
            if positions is not None:
                return pool, demand, positions, False
        if s.spare and not self._spare_running:
            for pool in s.pools:
                positions = pool.room(s.bare, self._kept if pool is node else None)
                if positions is not None:
                    return pool, s.bare, positions, True
        return None

    def _pipeline(self, s: Shape, out: list[Instruction]) -> bool:
        """Queue the next task behind a busy worker of its shape, spreading them evenly."""
        if not s.open or self._kept is not None or (self._debts and self._is_in_debt()):
            return False
        worker = next(iter(s.open))
        w = s.open.pop(worker)
        if w.streak >= _STREAK and (len(self._ring) > 1 or self._waiting):
            s.open[worker] = w
            return False
        task_id = s.queue.popleft()
        w.tasks.append(task_id)
        w.streak += 1
        if len(w.tasks) < s.depth:
            s.open[worker] = w
        out.append(Assign(worker, task_id, w.gpu_ids))
        return True

    def _hand_over(self, w: Worker, s: Shape) -> Instructions:
        """Let the worker go on with its shape's queue on the resources that it holds; it takes its
        fair part of a short queue.
        """
        queue, tasks = s.queue, w.tasks
        room = s.depth - len(tasks)
        if room > 1:
            room = min(room, -(-len(queue) // s.running))
        if s.env.starting:
            room = 0 if tasks else 1  # The others are for the process that is about to come.
        out: list[Instruction] = []
        for _ in range(room):
            task_id = queue.popleft()
            tasks.append(task_id)
            out.append(Assign(w.id, task_id, w.gpu_ids))
        w.streak += room
        if s.depth > 1:
            if len(tasks) < s.depth:
                s.open[w.id] = w
            else:
                s.open.pop(w.id, None)
        if not queue:
            s.waiting = False
            self._ring.remove(s)
        return out

    def _serve_reservations(self, out: list[Instruction]) -> None:
        """Give actors and groups that wait what they need, in order, and note what is to be kept
        for those that only tasks delay.
        """
        keep = [0] * len(self._names)
        later = self._node.copy()
        for w in self._workers.values():
            if w.holding is not None and not w.holding.lent and w.holding.source is self._node:
                later.give(w.holding.demand, w.holding.positions)
        self._kept = keep
        still: list[Actor | Bundles] = []
        kept_any = False
        for item in self._waiting:
            if self._reserve(item, later, out):
                continue
            still.append(item)
            if self._only_tasks_delay(item, later):
                kept_any = True
                for demand in item.demands if isinstance(item, Bundles) else (item.shape.demand,):
                    for index, units in demand.items:
                        keep[index] += units
        self._waiting = still
        self._kept = keep if kept_any else None

    def _reserve(self, item: Actor | Bundles, later: Pool, out: list[Instruction]) -> bool:
        """Take what an actor or group needs, if it is free; ``later`` (the node once all tasks are
        done) is kept in step.
        """
        if isinstance(item, Bundles):
            found = item.find(self._node, self._kept)
            if found is None:
                return False
            item.reserve(self._node, found)
            for demand, positions in zip(item.demands, found, strict=True):
                later.take(demand, positions)
            out.append(GroupReady(item.group_id))
            return True
        place = self._find(item.shape)
        if place is None:
            return False
        pool, demand, positions, spare = place
        item.holding = Holding(pool, demand, positions, spare)
        self._count(item.holding, None, 1)
        if pool is self._node:
            later.take(demand, positions)
        env = item.shape.env
        if env.idle:
            self._idle -= 1
            self._seat(env.idle.pop(), item, out)
        else:
            env.actors.append(item)
            self._seats_wanted += 1
            self._request_seats(env, out)
        return True

    def _fits_now(self, item: Actor | Bundles) -> bool:
        return (
            item.find(self._node) if isinstance(item, Bundles) else self._find(item.shape)
        ) is not None

    def _only_tasks_delay(self, item: Actor | Bundles, later: Pool) -> bool:
        """Whether the item would fit once the running tasks are done; then ``later`` is less by it
        for those that wait behind.
        """
        if isinstance(item, Bundles):
            found = item.find(later)
            if found is None:
                return False
            for demand, positions in zip(item.demands, found, strict=True):
                later.take(demand, positions)
            return True
        if self._node not in item.shape.pools:
            return False
        room = later.room(item.shape.demand)
        if room is None:
            return False
        later.take(item.shape.demand, room)
        return True

    # Processes

    def _await_process(self, s: Shape, place: _Place, out: list[Instruction]) -> bool:
        """Resources are free, but no worker is: ask for as many processes as tasks could start;
        true if one is on its way.
        """
        _, demand, _, spare = place
        if spare:
            could = 1
        elif s.weightless:
            could = min(
                self._weightless_limit - self._weightless_running,
                sum(pool.copies(demand) for pool in s.pools),
            )
        else:
            could = sum(
                pool.copies(demand, self._kept if pool is self._node else None) for pool in s.pools
            )
        missing = min(len(s.queue), could) - (self._starting - self._seats_wanted)
        if missing > 0:
            out.append(self._request(s.env, missing))
        return s.env.starting > len(s.env.actors)

    def _request(self, env: Environment, count: int) -> StartWorker:
        env.starting += count
        self._starting += count
        return StartWorker(env.key, count)

    def _request_seats(self, env: Environment, out: list[Instruction]) -> None:
        missing = len(env.actors) - env.starting
        if missing > 0:
            out.append(self._request(env, missing))

    def _start_ended(self, env: Environment) -> None:
        if env.starting:
            env.starting -= 1
            self._starting -= 1

    def _seat(self, w: Worker, actor: Actor, out: list[Instruction]) -> None:
        """The actor has its process; from now on it holds only what it keeps."""
        holding = actor.holding
        assert holding is not None
        w.actor, actor.worker = actor, w
        w.gpu_ids = tuple(self._gpu_ids[position] for position in holding.positions)
        if actor.keeps is not actor.shape:
            holding.shrink(actor.keeps.bare if holding.spare else actor.keeps.demand)
        out.append(AssignActor(w.id, actor.id, w.gpu_ids))

    def _rest(self, w: Worker) -> None:
        w.env.idle.append(w)
        self._idle += 1

    def _trim(self, out: list[Instruction]) -> None:
        """Stop the idle workers that exceed one per CPU, counting those that start; the longest
        idle of the largest environment first.
        """
        allowed = max(0, self._slots - self._starting)
        while self._idle > allowed:
            env = max(self._environments.values(), key=lambda env: len(env.idle))
            w = env.idle.popleft()
            self._idle -= 1
            del self._workers[w.id]
            out.append(StopWorker(w.id))

    # Books

    def _vacate(self, w: Worker, out: list[Instruction]) -> None:
        """The worker has no task left: free its resources, and keep or stop the process."""
        self._end_holding(w)
        if w.retiring:
            del self._workers[w.id]
            out.append(StopWorker(w.id))
        else:
            self._rest(w)

    def _end_holding(self, w: Worker) -> None:
        s, holding = w.shape, w.holding
        assert s is not None
        assert holding is not None
        if holding.lent:
            self._reclaim(holding, s)
        if holding.spare or s.weightless:
            self._count(holding, s, -1)
        holding.release()
        s.running -= 1
        s.open.pop(w.id, None)
        w.shape = None
        w.holding = None

    def _end_actor(self, actor_id: int, *, stop: bool) -> Instructions:
        actor = self._actors.get(actor_id)
        if actor is None:
            return _NOTHING
        out: list[Instruction] = []
        if actor.worker is not None:
            del self._workers[actor.worker.id]
            if stop:
                out.append(StopWorker(actor.worker.id))
        self._drop_actor(actor)
        self._dispatch(out)
        return out

    def _drop_actor(self, actor: Actor) -> None:
        """Forget an actor in whatever stage it is."""
        del self._actors[actor.id]
        holding = actor.holding
        if holding is None:
            self._waiting = [item for item in self._waiting if item is not actor]
            return
        if actor.worker is None:
            actor.shape.env.actors.remove(actor)
            self._seats_wanted -= 1
        if holding.lent:
            self._reclaim(holding, None)
        self._count(holding, None, -1)
        holding.release()

    def _reclaim(self, holding: Holding, s: Shape | None) -> None:
        holding.reclaim_cpu()
        self._count(holding, s, 1)

    def _count(self, holding: Holding, s: Shape | None, change: int) -> None:
        """Count what runs beyond the CPUs: the spare slot, and tasks (not actors, whose shape is
        not given) without CPU.
        """
        if holding.spare:
            self._spare_running += change
        elif s is not None and s.weightless:
            self._weightless_running += change

    def _settle(self, s: Shape) -> None:
        """Put a shape into the ring, or take it out, according to whether it has queued tasks."""
        if s.queue and not s.waiting:
            s.waiting = True
            self._ring.append(s)
        elif s.waiting and not s.queue:
            s.waiting = False
            self._ring.remove(s)

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
            raise Infeasible(_GROUP_GONE)
        return fitting_bundles(self._groups[group_id], bundle, resources)
