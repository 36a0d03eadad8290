"""What people see of the hub's tables: its actors and its tasks, named up to a limit. Called under
the hub's lock; nothing is changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from syncline.core.embedded.actor_table import Actor
from syncline.core.embedded.actors import ActorState
from syncline.core.embedded.records import Process, Task
from syncline.core.engine import (
    ActorFacts,
    ActorListing,
    TaskCount,
    TaskFacts,
    TaskListing,
    TaskStateName,
)

if TYPE_CHECKING:
    from syncline.core.embedded.hub import Hub


def actors(hub: Hub, limit: int) -> ActorListing:
    """The actors that live or are to live, in the order in which they were made."""
    living = [
        actor for actor in hub.actors.actors.values() if actor.life.state is not ActorState.DEAD
    ]
    return ActorListing(
        actors=tuple(_actor(hub, actor) for actor in living[:limit]), total=len(living)
    )


def tasks(hub: Hub, limit: int) -> TaskListing:
    """The tasks and calls that have not ended."""
    table = hub.tasks.tasks
    running = {
        task.id: process
        for process in hub.processes.values()
        for task in _running(hub, process)
        if task.id in table
    }
    counts: Counter[tuple[str, TaskStateName]] = Counter()
    for task in table.values():
        counts[_name(hub, task), _state(task, is_running=task.id in running)] += 1
    return TaskListing(
        counts=tuple(
            TaskCount(name=name, state=state, count=count)
            for (name, state), count in counts.most_common(limit)
        ),
        running=tuple(
            _task(hub, table[id], process) for id, process in islice(running.items(), limit)
        ),
        total=len(table),
    )


def _actor(hub: Hub, actor: Actor) -> ActorFacts:
    pid = hub.actors.pid_of(actor.id)
    spec, life = actor.spec, actor.life
    return ActorFacts(
        actor_id=f"{actor.id:032x}",
        class_name=spec.class_name,
        name=spec.name or None,
        state=life.state.value,  # type: ignore[arg-type]  # the dead are left out
        pid=pid,
        node_id=None if pid is None else str(hub.node["NodeID"]),
        resources=dict(spec.resources),
        restarts=life.restarts,
        pending_calls=life.unanswered + len(actor.waiting),
    )


def _running(hub: Hub, process: Process) -> Iterator[Task]:
    """What a process is at; the rest of what was handed to it waits there."""
    return islice(process.tasks.values(), _at_once(hub, process))


def _at_once(hub: Hub, process: Process) -> int:
    actor = hub.actors.actors.get(process.actor_id)
    if actor is None or actor.in_order:
        return 1
    return actor.spec.max_concurrency + sum(limit for _, limit in actor.spec.concurrency_groups)


def _name(hub: Hub, task: Task) -> str:
    if task.plan is not None:
        return task.plan.spec.name
    actor = hub.actors.actors.get(task.actor_id)
    return task.method if actor is None else f"{actor.spec.class_name}.{task.method}"


def _state(task: Task, *, is_running: bool) -> TaskStateName:
    if is_running:
        return "RUNNING"
    return "WAITING" if task.missing else "QUEUED"


def _task(hub: Hub, task: Task, process: Process) -> TaskFacts:
    return TaskFacts(
        task_id=f"{task.id:032x}",
        name=_name(hub, task),
        state="RUNNING",
        pid=process.pid or None,
        node_id=str(hub.node["NodeID"]),
        started=process.since if _at_once(hub, process) == 1 else None,
    )
