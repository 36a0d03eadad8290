"""Invariants of the scheduler; tests call `check_scheduler` after each step.

They recount everything from workers, actors and groups and compare the scheduler's own counters.
"""

from __future__ import annotations

from collections import Counter

from syncline.core.embedded.resource_pools import CPU_INDEX, Bundles, Holding, Pool
from syncline.core.embedded.scheduler import Scheduler
from syncline.core.embedded.scheduler_state import Actor
from syncline.core.resources import UNIT, Resources


def check_scheduler(scheduler: Scheduler) -> None:
    """Raise `AssertionError` for the first violated invariant."""
    holdings = _check_workers(scheduler)
    _check_actors(scheduler)
    _check_queues(scheduler)
    _check_amounts(scheduler, holdings)
    _check_progress(scheduler)


def _check_workers(scheduler: Scheduler) -> list[Holding]:
    """Check that each worker is in exactly one state; return all holdings, also of actors."""
    idle = [w.id for env in scheduler._environments.values() for w in env.idle]
    assert len(idle) == len(set(idle)) == scheduler._idle, "the idle workers are counted wrongly"
    for w in scheduler._workers.values():
        states = [w.id in idle, w.holding is not None, w.actor is not None]
        assert sum(states) == 1, f"worker {w.id} is in the states (idle, busy, actor) = {states}"
        assert (w.holding is not None) == bool(w.tasks) == (w.shape is not None), (
            f"worker {w.id} has a shape or a slot but no task"
        )
        if w.shape is not None and w.id in w.shape.refillable:
            assert (w.refill, w.retiring, len(w.tasks) < w.shape.depth) == (True, False, True), (
                f"worker {w.id} is refillable without room"
            )
    for env in scheduler._environments.values():
        assert all(scheduler._workers.get(w.id) is w and w.env is env for w in env.idle), (
            f"environment {env.key!r} has a foreign worker"
        )
        assert env.starting >= len(env.actors), (
            f"environment {env.key!r} has actors without a starting process"
        )
    assert scheduler._starting == sum(env.starting for env in scheduler._environments.values())
    assert scheduler._actors_without_process == sum(
        len(env.actors) for env in scheduler._environments.values()
    )
    busy = [w for w in scheduler._workers.values() if w.holding is not None]
    running = Counter(id(w.shape) for w in busy)
    for s in scheduler._shapes.values():
        assert s.running == running[id(s)], (
            f"shape {s.key} counts {s.running} workers, but {running[id(s)]} run it"
        )
        assert all(w.shape is s for w in s.refillable.values()), (
            f"shape {s.key} has a worker of another shape in `refillable`"
        )
    holdings = [w.holding for w in busy if w.holding is not None]
    zero_cpu = sum(
        w.shape.zero_cpu and not w.holding.cpu_released for w in busy if w.shape and w.holding
    )
    assert scheduler._zero_cpu_running == zero_cpu, "the tasks without CPU are counted wrongly"
    holdings += [actor.holding for actor in scheduler._actors.values() if actor.holding is not None]
    return holdings


def _check_actors(scheduler: Scheduler) -> None:
    """Check that each actor waits for resources, waits for a process, or has one."""
    waiting = [actor.id for env in scheduler._environments.values() for actor in env.actors]
    for actor in scheduler._actors.values():
        stages = [
            any(item is actor for item in scheduler._waiting),
            actor.id in waiting,
            actor.worker is not None,
        ]
        assert sum(stages) == 1, (
            f"actor {actor.id} is in the stages (waits, placed, alive) = {stages}"
        )
        assert (actor.holding is None) == stages[0], (
            f"actor {actor.id} waits and holds resources at the same time"
        )
        if actor.worker is not None:
            assert scheduler._workers.get(actor.worker.id) is actor.worker, (
                f"actor {actor.id} has a worker that is gone"
            )
            assert actor.worker.actor is actor, (
                f"worker {actor.worker.id} does not know its actor {actor.id}"
            )
    for w in scheduler._workers.values():
        assert w.actor is None or scheduler._actors.get(w.actor.id) is w.actor, (
            f"worker {w.id} has an actor that has ended"
        )


def _check_queues(scheduler: Scheduler) -> None:
    """Check that each task is in one place, and the queue has exactly the shapes with tasks."""
    ring = list(scheduler._round_robin)
    assert len(ring) == len({id(s) for s in ring}), "a shape is in the queue twice"
    for s in scheduler._shapes.values():
        assert bool(s.queue) == s.waiting == any(s is other for other in ring), (
            f"shape {s.key} is in the queue without tasks or the reverse"
        )
    assert all(any(s is known for known in scheduler._shapes.values()) for s in ring), (
        "a removed shape is in the queue"
    )
    tasks = Counter(task for s in ring for task in s.queue)
    tasks.update(task for w in scheduler._workers.values() for task in w.tasks)
    assert all(count == 1 for count in tasks.values()), (
        f"tasks in two places: {[task for task, count in tasks.items() if count > 1]}"
    )


def _check_amounts(scheduler: Scheduler, holdings: list[Holding]) -> None:
    """Check that free, held and reserved amounts add up in the node, each bundle and each GPU."""
    total = Pool(
        [scheduler._total.units(name) for name in scheduler._names],
        [UNIT] * len(scheduler._gpu_ids),
    )
    _check_pool(scheduler, scheduler._node, total, holdings, "the node")
    for group in scheduler._groups.values():
        if not group.ready:
            continue
        for number, (demand, pool, positions) in enumerate(
            zip(group.demands, group.pools, group.taken, strict=True)
        ):
            whole = Pool([0] * len(pool.free), [0] * len(pool.gpus))
            whole.give(demand, positions)
            _check_pool(
                scheduler, pool, whole, holdings, f"bundle {number} of group {group.group_id}"
            )


def _check_pool(
    scheduler: Scheduler, pool: Pool, whole: Pool, holdings: list[Holding], where: str
) -> None:
    left = whole.copy()
    for holding in holdings:
        if holding.source is pool:
            left.take(holding.demand, holding.positions)
            if holding.cpu_released:
                left.free[CPU_INDEX] += holding.demand.cpu
    if pool is scheduler._node:
        for group in scheduler._groups.values():
            if group.ready:
                for demand, positions in zip(group.demands, group.taken, strict=True):
                    left.take(demand, positions)
    names = scheduler._names
    assert left.free == pool.free, (
        f"{where} should have {dict(zip(names, left.free, strict=True))} free, but has {pool.free}"
    )
    assert left.gpus == pool.gpus, (
        f"{where} should have {left.gpus} free on its GPUs, but has {pool.gpus}"
    )
    assert all(0 <= units <= UNIT for units in pool.gpus), (
        f"{where} has {pool.gpus} free on its GPUs"
    )
    debts = (scheduler._debts if pool is scheduler._node else None) or [0] * len(pool.free)
    owed = [-debt <= units for debt, units in zip(debts, pool.free, strict=True)]
    assert all(owed[CPU_INDEX + 1 :]), (
        f"{where} owes more than CPUs and the removed amounts: {pool.free}, debts {debts}"
    )


def _check_progress(scheduler: Scheduler) -> None:
    """Check that no task waits beside an idle worker of its environment and free resources."""
    for s in scheduler._round_robin:
        if s.zero_cpu and scheduler._zero_cpu_running >= scheduler._zero_cpu_limit:
            continue
        if scheduler._find(s) is not None:
            assert not s.env.idle, f"tasks of shape {s.key} wait beside an idle worker"
            assert scheduler._starting or s.running, (
                f"tasks of shape {s.key} wait and no process is starting"
            )
    # An item that waits for a process has one starting; an item that waits for resources waits for
    # their holders, or for a larger machine.
    if any(_would_fit(scheduler, item) for item in scheduler._waiting):
        held = any(w.holding for w in scheduler._workers.values()) or any(
            actor.holding for actor in scheduler._actors.values()
        )
        reserved = any(group.ready for group in scheduler._groups.values())
        assert held or reserved, "actors or groups wait although nothing is held"


def _would_fit(scheduler: Scheduler, item: Actor | Bundles) -> bool:
    """Return True if an actor outside of groups, or a group, would fit the empty machine."""
    if isinstance(item, Actor):
        return item.shape.group_id is None and item.shape.demand.resources.fits_in(scheduler._total)
    return sum((demand.resources for demand in item.demands), Resources()).fits_in(scheduler._total)
