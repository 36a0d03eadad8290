"""What a process can ask the hub and get an answer to at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from syncline.core.embedded import listings
from syncline.core.embedded.messages import ActorSpec, TaskSpec, Value
from syncline.core.embedded.records import Process
from syncline.core.embedded.store import Segment

if TYPE_CHECKING:
    from syncline.core.embedded.hub import Hub


class Requests:
    """The operations by name. Called under the hub's lock."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._operations: dict[str, Callable[..., Any]] = {
            "actor_pid": lambda _, actor_id: hub.actors.pid_of(actor_id),
            "actors": lambda _, limit: listings.actors(hub, limit),
            "allocate": self._allocate,
            "available": lambda _: {
                name: amount for name, amount in hub.scheduler.available().items() if amount
            },
            "cancel": self._cancel,
            "create_actor": self._create_actor,
            "create_group": lambda _, *arguments: hub.groups.create(*arguments),
            "groups": lambda _: hub.groups.all(),
            "kill_actor": lambda _, actor_id, no_restart: hub.actors.kill(
                actor_id, no_restart=no_restart
            ),
            "named_actor": lambda process, name, namespace: hub.actors.find(
                process, name, namespace
            ),
            "named_actors": lambda _: hub.actors.names(),
            "nodes": lambda _: [{**hub.node, "Resources": hub.scheduler.total()}],
            "register_plan": self._register_plan,
            "remove_group": lambda _, group_id: hub.groups.remove(group_id),
            "resize": lambda _, amounts: hub.carry_out(hub.scheduler.resize(amounts)),
            "statistics": self._statistics,
            "tasks": lambda _, limit: listings.tasks(hub, limit),
            "timeline": lambda _: hub.tasks.trace(),
            "total": lambda _: hub.scheduler.total(),
        }

    def perform(self, process: Process, operation: str, arguments: tuple[Any, ...]) -> Any:
        """The answer; raises what the operation raises."""
        return self._operations[operation](process, *arguments)

    def _allocate(self, process: Process, nbytes: int) -> Segment:
        segment = self._hub.store.create(nbytes)
        process.segments[segment.name] = segment
        return segment

    def _cancel(self, process: Process, id: int, force: bool, recursive: bool) -> None:
        self._hub.tasks.cancel(id, force=force, recursive=recursive)

    def _create_actor(
        self,
        process: Process,
        id: int,
        spec: ActorSpec,
        args: Value,
        top: tuple[int, ...],
        held: tuple[int, ...],
        parent: int,
    ) -> bytes | None:
        return self._hub.actors.create(process, id, spec, args, top, held)

    def _register_plan(self, process: Process, plan_id: int, spec: TaskSpec) -> None:
        self._hub.tasks.register_plan(plan_id, spec)

    def _statistics(self, process: Process) -> Mapping[str, Any]:
        hub = self._hub
        return {
            "hub": hub.statistics,
            "objects": hub.objects.statistics,
            "output": hub.output.statistics,
            "processes": hub.workers.statistics,
            "scheduler": hub.scheduler.statistics(),
            "store": hub.store.statistics(),
        }
