"""The scheduler of one machine: a pure state machine from events to instructions.

Each method is an event and returns the instructions that follow from it. No clock, no I/O, no
threads, no processes: the caller reports events and applies the instructions. It submits a task
when the task's arguments are ready.

Policy, in order of precedence:

1. Actors and placement groups that wait are served first, in order. If only running *tasks* delay
   one, its resources are reserved for it; if it waits for other actors, tasks continue meanwhile.
2. Shapes (classes of tasks with the same needs) are served round-robin, so that a shape that
   cannot run now never blocks the others.
3. A task gets an idle worker of its environment. Otherwise a process is started if the resources
   are free. Otherwise, if `set_depth` allows it, the task is queued behind a task of the same
   shape, holds nothing, and runs on that task's resources.
4. A worker that finishes a task continues with its own shape for a while before it releases its
   resources.

Not covered: memory pressure, several machines, priorities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from syncline.core.embedded.instructions import (
    Assign,
    GroupReady,
    GroupRemoval,
    Instruction,
    Instructions,
    StopWorker,
    WorkerLoss,
)
from syncline.core.embedded.resource_pools import (
    Bundles,
    Demand,
    Holding,
    Pool,
    check_group,
    gpu_split_message,
)
from syncline.core.embedded.scheduler_state import (
    GROUP_REMOVED,
    Actor,
    SchedulerState,
    Shape,
    Worker,
)
from syncline.core.placement import check_bundles
from syncline.core.resources import GPU, UNIT, Infeasible, Resources, to_amount

_NOTHING: Instructions = ()
_STREAK = 64
"""Tasks that a worker may run in a row for one shape while other shapes wait."""


class Scheduler(SchedulerState):
    """The state of one machine. The caller chooses worker, task, actor and group ids.

    Not thread-safe.
    """

    # Tasks

    def submit(self, task_id: int, shape: int) -> Instructions:
        """Queue a task whose arguments are ready, and start it if possible."""
        try:
            s = self._shapes[shape]
        except KeyError:
            raise Infeasible(GROUP_REMOVED) from None
        s.queue.append(task_id)
        if s.waiting:
            return _NOTHING  # Nothing became free since the earlier tasks of the shape had to wait.
        out: list[Instruction] = []
        if not self._start(s, out):
            s.waiting = True
            self._round_robin.append(s)
        return out

    def finished(self, worker: int, task_id: int) -> Instructions:
        """Record that the worker ended a task, successfully or not, and runs its next one."""
        w = self._workers[worker]
        tasks = w.tasks
        if tasks[0] == task_id:
            tasks.popleft()
        else:
            tasks.remove(task_id)
        s, holding = w.shape, w.holding
        assert s is not None
        assert holding is not None
        cpu_released = holding.cpu_released
        if cpu_released:
            self._reclaim_cpu(holding, s)
        w.refill = True
        queue = s.queue
        if (
            queue
            and self._reserved is None
            and not w.retiring
            and s.depth > len(tasks)
            and not (self._debts and self._is_in_debt())
        ):
            alone = len(self._round_robin) == 1 and not self._waiting
            if alone or (w.streak < _STREAK and s.depth > 1):
                return self._refill(w, s)
        if tasks:
            if s.depth > len(tasks) and not w.retiring:
                s.refillable[worker] = w
            return _NOTHING
        if w.streak >= _STREAK and self._round_robin and self._round_robin[0] is s:
            self._round_robin.rotate(-1)
        out: list[Instruction] = []
        self._release_worker(w, out)
        self._dispatch(out, task_ended=not cpu_released)
        return out

    def cancel(self, task_id: int) -> bool:
        """Remove a task that no worker has; return False if it is not queued."""
        for s in self._round_robin:
            if task_id in s.queue:
                s.queue.remove(task_id)
                self._update_queue(s)
                return True
        return False

    # Workers

    def prestart(self, environment: str, count: int) -> Instructions:
        """Start up to `count` workers before there is work.

        Idle, starting and new workers together are at most one per CPU.
        """
        wanted = min(count, self._slots - self._idle - self._starting)
        return [self._request(self._environment(environment), wanted)] if wanted > 0 else _NOTHING

    def worker_ready(self, worker: int, environment: str = "") -> Instructions:
        """Add an idle worker, requested or not."""
        assert worker not in self._workers, f"worker {worker} is ready a second time"
        env = self._environment(environment)
        self._finish_start(env)
        w = self._workers[worker] = Worker(worker, env)
        out: list[Instruction] = []
        if env.actors:
            self._actors_without_process -= 1
            self._assign_actor(w, env.actors.popleft(), out)
        else:
            self._make_idle(w)
        self._dispatch(out)
        return out

    def start_failed(self, environment: str) -> Instructions:
        """Record that a requested process will not come.

        Waiting work requests another one, so the caller must give up a broken environment.
        """
        env = self._environment(environment)
        self._finish_start(env)
        out: list[Instruction] = []
        self._request_actor_processes(env, out)
        self._dispatch(out)
        return out

    def worker_died(self, worker: int) -> WorkerLoss:
        """Free the resources of a dead worker. Returns no tasks for a stopped or unknown worker."""
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
        """Give the worker no further task and stop it after its current ones (for `max_calls`)."""
        w = self._workers.get(worker)
        if w is None or w.actor is not None:
            return _NOTHING
        w.retiring = True
        if w.shape is not None:
            w.shape.refillable.pop(worker, None)
            return _NOTHING
        w.env.idle.remove(w)
        self._idle -= 1
        del self._workers[worker]
        return [StopWorker(worker)]

    def blocked(self, worker: int, returned_task_ids: Sequence[int] = ()) -> Instructions:
        """Release the CPU of a worker whose task or actor waits, and requeue unstarted tasks."""
        w = self._workers[worker]
        holding = w.holding if w.actor is None else w.actor.holding
        if holding is None:
            return _NOTHING
        if not holding.cpu_released:
            holding.release_cpu()
            if w.shape is not None and w.shape.zero_cpu:
                self._zero_cpu_running -= 1
        return self.returned(worker, returned_task_ids)

    def unblocked(self, worker: int) -> Instructions:
        """Take the worker's CPU again. Never refused: the machine may be overcommitted."""
        w = self._workers[worker]
        holding = w.holding if w.actor is None else w.actor.holding
        if holding is not None and holding.cpu_released:
            self._reclaim_cpu(holding, w.shape)
        return _NOTHING

    def returned(self, worker: int, task_ids: Sequence[int]) -> Instructions:
        """Requeue tasks that the worker has not started; it gets no more behind its current one."""
        w = self._workers[worker]
        w.refill = False
        s = w.shape
        if s is not None:
            s.refillable.pop(worker, None)
            for task_id in task_ids:
                w.tasks.remove(task_id)
            if s.group_id is None or s.group_id in self._groups:
                s.queue.extendleft(reversed(task_ids))
                self._update_queue(s)
        out: list[Instruction] = []
        if s is not None and not w.tasks:
            self._release_worker(w, out)  # its current task has already ended
        self._dispatch(out)
        return out

    def dropped(self, worker: int, task_id: int) -> Instructions:
        """Remove a task that was cancelled before the worker started it."""
        w = self._workers[worker]
        w.tasks.remove(task_id)
        out: list[Instruction] = []
        if not w.tasks:
            self._release_worker(w, out)
            self._dispatch(out)
        return out

    # Actors

    def reserve_actor(
        self, actor_id: int, shape: int, holding_shape: int | None = None
    ) -> Instructions:
        """Place an actor with `shape`; once it has its process it keeps `holding_shape`.

        The two may differ in amounts other than GPUs; group and environment are the same.
        """
        assert actor_id not in self._actors, f"actor {actor_id} is reserved a second time"
        s = self._shapes.get(shape)
        held = s if holding_shape is None else self._shapes.get(holding_shape)
        if s is None or held is None:
            raise Infeasible(GROUP_REMOVED)
        if (
            not held.demand.resources.fits_in(s.demand.resources)
            or held.demand.gpu != s.demand.gpu
            or held.key[1:] != s.key[1:]
        ):
            raise ValueError(
                f"actor {actor_id} is placed with {s.demand.resources.amounts()} but would keep "
                f"{held.demand.resources.amounts()}: the resources that it keeps must be part of "
                "those it is placed with, with the same GPUs, group and environment"
            )
        actor = self._actors[actor_id] = Actor(actor_id, s, held)
        self._waiting.append(actor)
        out: list[Instruction] = []
        self._dispatch(out)
        return out

    def release_actor(self, actor_id: int) -> Instructions:
        """Free the resources of an actor that ended, or was never placed, and stop its process."""
        return self._end_actor(actor_id, stop=True)

    def actor_died(self, actor_id: int) -> Instructions:
        """Free the resources of an actor whose process is gone."""
        return self._end_actor(actor_id, stop=False)

    # Placement groups

    def create_group(
        self,
        group_id: int,
        bundles: Sequence[Mapping[str, float]],
        strategy: str,
        *,
        is_feasible: bool = True,
    ) -> Instructions:
        """Reserve all bundles together, now or as soon as they fit.

        On one machine PACK, SPREAD and STRICT_PACK are equivalent. Raises `Infeasible` if the
        bundles exceed the machine, or for STRICT_SPREAD with several, unless `is_feasible` is
        False: then the group waits until `resize` makes it feasible. Raises `ValueError` for empty
        bundles.
        """
        check_bundles(bundles, strategy)
        specs = [Resources.of(bundle) for bundle in bundles]
        if is_feasible:
            check_group(specs, strategy, self._total)
        for name in {name for spec in specs for name in spec}.difference(self._indices):
            self._add_resource(name)
        group = Bundles(
            group_id,
            [Demand(spec, self._indices) for spec in specs],
            self._node,
            machines=len(specs) if strategy == "STRICT_SPREAD" else 1,
        )
        pristine = Pool(
            [self._total.units(name) for name in self._names], [UNIT] * len(self._gpu_ids)
        )
        if is_feasible and group.find(pristine) is None:
            raise Infeasible(gpu_split_message(specs, len(self._gpu_ids)))
        assert group_id not in self._groups, f"placement group {group_id} is created a second time"
        self._groups[group_id] = group
        self._waiting.append(group)
        out: list[Instruction] = []
        self._dispatch(out)
        return out

    def remove_group(self, group_id: int) -> GroupRemoval:
        """Release the unused resources of a group now, and the rest with its tasks and actors.

        The result lists these tasks and actors, which the caller kills.
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
            self._update_queue(s)
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
        """Change the machine's amounts of the named resources; others stay.

        With more, waiting work starts. With less, nothing is ended: the excess is owed until it is
        released, and nothing is placed meanwhile. Known shapes that no longer fit wait; new ones
        are refused. Raises `ValueError` for another number of GPUs, and the errors of
        `Resources.of`.
        """
        changed = Resources.of(amounts)
        total = Resources({**self._total, **{name: changed.units(name) for name in amounts}})
        if total.units(GPU) != self._total.units(GPU):
            raise ValueError(
                f"the machine has {to_amount(self._total.units(GPU))} GPUs, and this number is "
                "fixed because each GPU is a device: change CPUs or custom resources"
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

    # Decisions

    def _dispatch(self, out: list[Instruction], *, task_ended: bool = False) -> None:
        """Start everything that can start: reservations first, then tasks, round-robin by shape.

        `task_ended`: the only event was the end of a task. Then the set of items that only tasks
        delay is unchanged, so if nothing is reserved and no waiting item fits now, reservations
        need no new look. This saves most of the cost of a long wait.
        """
        if not self._waiting:
            self._reserved = None
        elif (
            not task_ended
            or self._reserved is not None
            or any(self._fits_now(item) for item in self._waiting)
        ):
            self._serve_reservations(out)
        ring = self._round_robin
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
        """Give the next task of a shape to a worker; return False if it stays queued."""
        if s.zero_cpu and self._zero_cpu_running >= self._zero_cpu_limit:
            return self._pipeline(s, out)
        place = self._find(s)
        if place is None:
            return self._pipeline(s, out)
        idle = s.env.idle
        if not idle:
            return not self._await_process(s, out) and self._pipeline(s, out)
        w = idle.pop()
        self._idle -= 1
        task_id = s.queue.popleft()
        w.shape = s
        pool, positions = place
        w.holding = Holding(pool, s.demand, positions)
        w.gpu_ids = tuple(self._gpu_ids[position] for position in positions) if positions else ()
        w.streak = 1
        w.refill = True
        w.tasks.append(task_id)
        s.running += 1
        if s.zero_cpu:
            self._zero_cpu_running += 1
        if s.depth > 1:
            s.refillable[w.id] = w
        out.append(Assign(w.id, task_id, w.gpu_ids))
        return True

    def _pipeline(self, s: Shape, out: list[Instruction]) -> bool:
        """Queue the next task behind a busy worker of its shape, evenly over the workers."""
        if not s.refillable or self._reserved is not None or (self._debts and self._is_in_debt()):
            return False
        worker = next(iter(s.refillable))
        w = s.refillable.pop(worker)
        if w.streak >= _STREAK and (len(self._round_robin) > 1 or self._waiting):
            s.refillable[worker] = w
            return False
        task_id = s.queue.popleft()
        w.tasks.append(task_id)
        w.streak += 1
        if len(w.tasks) < s.depth:
            s.refillable[worker] = w
        out.append(Assign(worker, task_id, w.gpu_ids))
        return True

    def _refill(self, w: Worker, s: Shape) -> Instructions:
        """Give the worker more tasks of its shape on the resources it holds.

        It takes its fair share of a short queue.
        """
        queue, tasks = s.queue, w.tasks
        room = s.depth - len(tasks)
        if room > 1:
            room = min(room, -(-len(queue) // s.running))
        if s.env.starting:
            room = 0 if tasks else 1  # The others are for the process that is starting.
        out: list[Instruction] = []
        for _ in range(room):
            task_id = queue.popleft()
            tasks.append(task_id)
            out.append(Assign(w.id, task_id, w.gpu_ids))
        w.streak += room
        if s.depth > 1:
            if len(tasks) < s.depth:
                s.refillable[w.id] = w
            else:
                s.refillable.pop(w.id, None)
        if not queue:
            s.waiting = False
            self._round_robin.remove(s)
        return out

    def _serve_reservations(self, out: list[Instruction]) -> None:
        """Reserve for waiting actors and groups, in order; note what to keep for the rest."""
        reserved = [0] * len(self._names)
        later = self._node.copy()
        for w in self._workers.values():
            if (
                w.holding is not None
                and not w.holding.cpu_released
                and w.holding.source is self._node
            ):
                later.give(w.holding.demand, w.holding.positions)
        self._reserved = reserved
        still: list[Actor | Bundles] = []
        reserves_any = False
        for item in self._waiting:
            if self._reserve(item, later, out):
                continue
            still.append(item)
            if self._only_tasks_delay(item, later):
                reserves_any = True
                for demand in item.demands if isinstance(item, Bundles) else (item.shape.demand,):
                    for index, units in demand.items:
                        reserved[index] += units
        self._waiting = still
        self._reserved = reserved if reserves_any else None

    def _reserve(self, item: Actor | Bundles, later: Pool, out: list[Instruction]) -> bool:
        """Take the resources of an actor or group if they are free.

        `later`, the node once all tasks are done, is kept consistent.
        """
        if isinstance(item, Bundles):
            found = item.find(self._node, self._reserved)
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
        pool, positions = place
        item.holding = Holding(pool, item.shape.demand, positions)
        if pool is self._node:
            later.take(item.shape.demand, positions)
        env = item.shape.env
        if env.idle:
            self._idle -= 1
            self._assign_actor(env.idle.pop(), item, out)
        else:
            env.actors.append(item)
            self._actors_without_process += 1
            self._request_actor_processes(env, out)
        return True

    def _fits_now(self, item: Actor | Bundles) -> bool:
        return (
            item.find(self._node) if isinstance(item, Bundles) else self._find(item.shape)
        ) is not None

    def _only_tasks_delay(self, item: Actor | Bundles, later: Pool) -> bool:
        """Return True if the item fits once all tasks are done, and take it from `later`."""
        if isinstance(item, Bundles):
            found = item.find(later)
            if found is None:
                return False
            for demand, positions in zip(item.demands, found, strict=True):
                later.take(demand, positions)
            return True
        if self._node not in item.shape.pools:
            return False
        room = later.fit(item.shape.demand)
        if room is None:
            return False
        later.take(item.shape.demand, room)
        return True

    # Processes

    # Workers and actors that end

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
