"""Requests of processes that the hub answers: operations by name, and listings.

Called under the hub's lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from syncline.core.embedded.actor_state_machine import ActorState
from syncline.core.embedded.actor_table import Actor, ActorTable
from syncline.core.embedded.group_table import GroupTable
from syncline.core.embedded.hub_core import HubCore
from syncline.core.embedded.hub_records import Process, Task
from syncline.core.embedded.hub_state import HubState
from syncline.core.embedded.segments import Segment
from syncline.core.embedded.task_table import TaskTable
from syncline.core.engine import ActorInfo, ActorListing, TaskInfo, TaskListing, TaskStateName
from syncline.core.node_rows import with_both_spellings


class HubRequests:
    """The operations by name."""

    def __init__(
        self, hub: HubCore, tasks: TaskTable, actors: ActorTable, groups: GroupTable
    ) -> None:
        self._hub = hub
        self._tasks = tasks
        self._actors = actors
        scheduler = hub.scheduler
        state = HubState(hub, tasks, actors, groups, self._running)
        self._operations: dict[str, Callable[..., object]] = {
            "actor_pid": lambda _, actor_id: actors.pid_of(actor_id),
            "actors": lambda _, limit: self.list_actors(limit),
            "allocate": self._allocate,
            "available": lambda _: {
                name: amount for name, amount in scheduler.available().items() if amount
            },
            "cancel": lambda _, id, force, recursive: tasks.cancel(
                id, force=force, recursive=recursive
            ),
            "create_actor": actors.create,
            "create_group": lambda _, *arguments: groups.create(*arguments),
            "label_output": self._label_output,
            "debugger_waits": lambda _, path: hub.on_debugger(path),
            "free": lambda _, ids: hub.objects.empty(ids),
            "groups": lambda _: groups.all(str(hub.node["NodeID"])),
            "kill_actor": lambda _, actor_id, no_restart: actors.kill(
                actor_id, no_restart=no_restart
            ),
            "named_actor": actors.find,
            "named_actors": lambda _: actors.names(),
            "nodes": lambda _: [with_both_spellings({**hub.node, "Resources": scheduler.total()})],
            "register_definition": lambda _, *arguments: tasks.register_definition(*arguments),
            "remove_group": lambda _, group_id: groups.remove(group_id),
            "resize": lambda _, amounts: hub.apply(scheduler.resize(amounts)),
            "state": lambda _, *arguments: state.listing(*arguments),
            "statistics": self._statistics,
            "tasks": lambda _, limit: self.list_tasks(limit),
            "timeline": lambda _: tasks.trace_events(),
            "total": lambda _: scheduler.total(),
        }

    def perform(self, process: Process, operation: str, arguments: tuple[object, ...]) -> object:
        """Return the answer; raises the errors of the operation."""
        return self._operations[operation](process, *arguments)

    def list_actors(self, limit: int) -> ActorListing:
        """Return the actors that are not dead, in the order of creation."""
        living = [
            actor
            for actor in self._actors.actors.values()
            if actor.lifecycle.state is not ActorState.DEAD
        ]
        return ActorListing(
            actors=tuple(self._describe_actor(actor) for actor in living[:limit]), total=len(living)
        )

    def list_tasks(self, limit: int) -> TaskListing:
        """Return the tasks and calls that have not ended."""
        table = self._tasks.tasks
        running = {
            task.id: process
            for process in self._hub.processes.values()
            for task in self._running(process)
            if task.id in table
        }
        counts: Counter[tuple[str, TaskStateName]] = Counter()
        for task in table.values():
            counts[self._task_name(task), _task_state(task, is_running=task.id in running)] += 1
        described = (self._describe_task(table[id], process) for id, process in running.items())
        return TaskListing.of(counts, described, limit)

    def _label_output(self, process: Process, label: str) -> None:
        self._hub.workers.read_output()  # what was written before has the label before
        self._hub.output.name(process.number, label, always=True)

    def _allocate(self, process: Process, nbytes: int) -> Segment:
        segment = self._hub.store.create(nbytes)
        process.segments[segment.name] = segment
        return segment

    def _statistics(self, process: Process) -> Mapping[str, object]:
        hub = self._hub
        return {
            "hub": hub.statistics,
            "objects": hub.objects.statistics,
            "output": hub.output.statistics,
            "processes": hub.workers.statistics,
            "scheduler": hub.scheduler.statistics(),
            "store": hub.store.statistics(),
        }

    def _describe_actor(self, actor: Actor) -> ActorInfo:
        pid = self._actors.pid_of(actor.id)
        spec, lifecycle = actor.spec, actor.lifecycle
        return ActorInfo(
            actor_id=f"{actor.id:032x}",
            class_name=spec.class_name,
            name=spec.name or None,
            state=lifecycle.state.value,  # type: ignore[arg-type]  # the dead are left out
            pid=pid,
            node_id=None if pid is None else str(self._hub.node["NodeID"]),
            resources=dict(spec.resources),
            restarts=lifecycle.restarts,
            pending_calls=lifecycle.unanswered + sum(map(len, actor.waiting.values())),
        )

    def _running(self, process: Process) -> Iterator[Task]:
        """Yield the tasks that a process runs; the rest of its tasks wait there."""
        return islice(process.tasks.values(), self._concurrency(process))

    def _concurrency(self, process: Process) -> int:
        actor = self._actors.actors.get(process.actor_id)
        if actor is None or actor.in_order:
            return 1
        return actor.spec.max_concurrency + sum(limit for _, limit in actor.spec.concurrency_groups)

    def _task_name(self, task: Task) -> str:
        if task.definition is not None:
            return task.definition.spec.name
        actor = self._actors.actors.get(task.actor_id)
        return task.method if actor is None else f"{actor.spec.class_name}.{task.method}"

    def _describe_task(self, task: Task, process: Process) -> TaskInfo:
        return TaskInfo(
            task_id=f"{task.id:032x}",
            name=self._task_name(task),
            state="RUNNING",
            pid=process.pid or None,
            node_id=str(self._hub.node["NodeID"]),
            started=process.busy_since if self._concurrency(process) == 1 else None,
        )


def _task_state(task: Task, *, is_running: bool) -> TaskStateName:
    if is_running:
        return "RUNNING"
    return "WAITING" if task.pending_args else "QUEUED"
