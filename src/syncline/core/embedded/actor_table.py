"""The hub's table of actors: their names, their processes and their calls.

`actor_state_machine` decides about the lifecycle of one actor.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from syncline.core import error_messages, serialization
from syncline.core.embedded import messages as m
from syncline.core.embedded.actor_state_machine import (
    PROCESS_DEATHS,
    QUEUED,
    REFUSED,
    ActorInstruction,
    ActorState,
    ActorStateMachine,
    Cause,
    CauseKind,
    Died,
    FailCall,
    PlaceActor,
    SendCall,
    StopProcess,
)
from syncline.core.embedded.exit_status import ExitStatus
from syncline.core.embedded.hub_core import HubCore
from syncline.core.embedded.hub_records import Process, Task
from syncline.core.embedded.instructions import AssignActor, reject_unknown
from syncline.core.embedded.messages import ActorSpec, Message, Value, error_value
from syncline.core.embedded.task_table import TaskTable
from syncline.exceptions import (
    ActorAlreadyExistsError,
    ActorDiedError,
    ActorOutOfMemoryError,
    ActorPlacementGroupRemoved,
    ActorUnavailableError,
    PendingCallsLimitExceeded,
    RayTaskError,
)

LAZY_CALLS = 4
"""Calls ahead of an ordinary actor above which a message waits until the actor sends one."""


ENDED_KEPT = 1000
"""Number of ended actors that stay listed."""


class EndedActor(NamedTuple):
    """An actor that has ended."""

    id: int
    spec: ActorSpec
    pid: int
    restarts: int
    reason: str


@dataclass(slots=True, eq=False)
class Actor:
    """One actor: its specification, its lifecycle and its calls."""

    id: int
    spec: ActorSpec
    args: Value
    arg_refs: tuple[int, ...]
    held_refs: tuple[int, ...]
    shape: int
    """Shape with which it is placed."""
    holding: int
    """Shape that it keeps."""
    lifecycle: ActorStateMachine = field(init=False)
    in_order: bool = field(init=False)
    pid: int = 0
    log_tail: str = ""
    waiting: dict[int, deque[Task]] = field(default_factory=dict)
    """By caller: calls that wait for arguments, their own or those of an earlier call."""

    def __post_init__(self) -> None:
        spec = self.spec
        self.lifecycle = ActorStateMachine(self.id, max_restarts=spec.max_restarts)
        self.in_order = (
            spec.keeps_order
            and not spec.is_async
            and spec.max_concurrency == 1
            and not spec.concurrency_groups
        )


class ActorTable:
    """Actors by id and by name."""

    def __init__(self, hub: HubCore, tasks: TaskTable) -> None:
        self._hub = hub
        self._tasks = tasks
        self.actors: dict[int, Actor] = {}
        self._names: dict[tuple[str, str], int] = {}
        self.ended: deque[EndedActor] = deque(maxlen=ENDED_KEPT)

    # -- life

    def create(
        self,
        process: Process,
        actor_id: int,
        spec: ActorSpec,
        args: Value,
        arg_refs: tuple[int, ...],
        held_refs: tuple[int, ...],
    ) -> bytes | None:
        """Create an actor. With `get_if_exists`, return the record of an existing one.

        Raises ValueError if the name is taken, and Infeasible if the actor can never be placed.
        """
        hub = self._hub
        key = (spec.namespace, spec.name)
        if spec.name and key in self._names:
            if spec.get_if_exists:
                return self.find(process, spec.name, spec.namespace)
            raise ActorAlreadyExistsError(error_messages.actor_exists(spec.name, spec.namespace))
        shape, holding = (
            hub.scheduler.shape(dict(amounts), group=spec.group, environment=spec.environment)
            for amounts in (spec.placement, spec.resources)
        )
        actor = Actor(actor_id, spec, args, arg_refs, held_refs, shape, holding)
        entry = hub.objects.add(actor_id, count=2 if spec.detached else 1)
        entry.on_free = self._on_handles_dropped
        hub.hold_for(process, actor_id)
        hub.objects.hold(held_refs)
        self.actors[actor_id] = actor
        if spec.name:
            self._names[key] = actor_id
        self._await_arguments(actor)
        return None

    def find(self, process: Process, name: str, namespace: str) -> bytes:
        """Return the record of a named actor, with one reference counted for the process.

        Raises ValueError with the names that exist.
        """
        actor_id = self._names.get((namespace, name))
        if actor_id is None:
            raise ValueError(error_messages.no_such_actor(name, namespace, self._names))
        actor = self.actors[actor_id]
        entry = self._hub.objects.entries.get(actor_id)
        if entry is None:  # its last handle is gone, but its last calls are running
            entry = self._hub.objects.add(actor_id, count=0)
            entry.on_free = self._on_handles_dropped
            actor.lifecycle.handle_regained()
        entry.count += 1
        self._hub.hold_for(process, actor_id)
        return actor.spec.record

    def names(self) -> list[tuple[str, str]]:
        """Return (namespace, name) of all named actors, sorted."""
        return sorted(self._names)

    def pid_of(self, actor_id: int) -> int | None:
        """Return the process id of an actor, or None while it has no process."""
        actor = self.actors.get(actor_id)
        worker = None if actor is None else actor.lifecycle.worker
        process = None if worker is None else self._hub.processes.get(worker)
        return None if process is None else process.pid or None

    def kill(self, actor_id: int, *, no_restart: bool) -> None:
        """End an actor, or its process only if it may restart."""
        actor = self.actors.get(actor_id)
        if actor is not None:
            self._apply(actor, actor.lifecycle.killed(no_restart=no_restart))

    def remove_from_group(self, actor_id: int) -> None:
        """End an actor whose placement group was removed."""
        actor = self.actors.get(actor_id)
        if actor is None:
            return
        worker = actor.lifecycle.worker
        self._apply(actor, actor.lifecycle.unplaceable("its placement group was removed"))
        if worker is not None and worker in self._hub.processes:
            process = self._hub.processes[worker]
            process.actor_id = 0
            self._hub.kill(process, "its placement group was removed")

    def fail_environment(self, environment: str, reason: str) -> None:
        """End the actors that wait for a worker of an environment that cannot start."""
        for actor in list(self.actors.values()):
            if actor.spec.environment == environment and actor.lifecycle.state in (
                ActorState.PENDING,
                ActorState.RESTARTING,
            ):
                self._apply(actor, actor.lifecycle.unplaceable(reason))

    def assign(self, step: AssignActor) -> None:
        """Send an actor's constructor to the worker that the scheduler chose."""
        hub = self._hub
        process = hub.processes[step.worker]
        actor = self.actors.get(step.actor_id)
        if actor is None:
            hub.stop(process)
            return
        spec = actor.spec
        process.actor_id = actor.id
        actor.pid = process.pid
        process.label = spec.class_name
        hub.output.name(
            process.number,
            f"{spec.class_name}{f' {spec.name}' if spec.name else ''} pid={process.pid}",
        )
        restarted = actor.lifecycle.restarts > 0
        self._apply(actor, actor.lifecycle.placed(step.worker))
        hub.send_program(process)
        hub.send_code(process, spec.class_id)
        entries = hub.objects.entries
        values = {id: entries[id].value for id in actor.arg_refs}
        hub.send(
            process, (m.CREATE_ACTOR, actor.id, spec, actor.args, values, step.gpu_ids, restarted)
        )

    def on_constructed(self, process: Process, message: Message) -> None:
        _, actor_id, failed = message
        actor = self.actors.get(actor_id)
        if actor is None or process.actor_id != actor_id:
            return
        actor.pid = process.pid
        self._apply(
            actor,
            actor.lifecycle.constructed()
            if failed is None
            else actor.lifecycle.constructor_failed(failed),
        )

    def on_exit(self, process: Process) -> None:
        """Handle `exit_actor()`."""
        actor = self.actors.get(process.actor_id)
        if actor is not None:
            self._apply(actor, actor.lifecycle.exit_requested())
        process.tasks.clear()  # results of calls that still run do not count
        self._hub.stop(process)

    def on_process_lost(self, process: Process, status: ExitStatus) -> None:
        """Handle the death of an actor's process."""
        actor = self.actors.get(process.actor_id)
        if actor is None:
            return
        actor.pid = process.pid
        actor.log_tail = self._hub.output.tail(process.number)
        process.tasks.clear()
        kind = CauseKind.OUT_OF_MEMORY if status.is_out_of_memory else CauseKind.WORKER_DIED
        self._apply(actor, actor.lifecycle.worker_died(status.cause, kind))

    # -- calls

    def on_call(self, process: Process, message: Message) -> None:
        (
            _, call_id, actor_id, method, mode, args, arg_refs, held_refs, extra, count, parent,
            retries, group, retry_on, more,
        ) = message  # fmt: skip
        call = Task(
            call_id, args, arg_refs, held_refs, (call_id, *extra) if count else (), process.number,
            parent, actor_id=actor_id, method=method, mode=mode, count=count, group=group,
            retry_on=retry_on, more=more,
        )  # fmt: skip
        actor = self.actors.get(actor_id)
        if actor is None:
            self._tasks.register(process, call)
            error = ActorDiedError("The actor is dead: it ended before this call was made.")
            self._tasks.fail(call, error_value(error))
            return
        call.retries = actor.spec.max_task_retries if retries is None else retries
        limit = actor.spec.max_pending_calls
        if 0 < limit <= self._pending(actor_id, process):
            exceeded = PendingCallsLimitExceeded(
                f"{actor.spec.class_name} has max_pending_calls={limit} and {limit} calls are "
                "pending: get some results first, or raise the limit."
            )
            if process.channel is None:
                raise exceeded
            self._tasks.register(process, call)
            self._tasks.fail(call, error_value(exceeded))
            return
        call.caller = _caller(process, call) if actor.in_order else call.id
        if arg_refs or call.caller in actor.waiting:
            actor.waiting.setdefault(call.caller, deque()).append(call)
            self._tasks.register(process, call)
            self._release_waiting(actor, call.caller)
        else:
            self._tasks.register(process, call)
            self._pass_on(actor, call)

    def on_arguments(self, call: Task) -> None:
        """Send a call whose arguments have values, and the calls that waited for it."""
        actor = self.actors.get(call.actor_id)
        if actor is not None:
            self._release_waiting(actor, call.caller)

    def forget_call(self, call: Task) -> None:
        """Remove a call that was not sent and has failed, and send the calls that waited for it."""
        actor = self.actors.get(call.actor_id)
        if actor is not None:
            actor.lifecycle.cancel(call.id)
            self._release_waiting(actor, call.caller)

    def on_done(self, process: Process, message: Message) -> None:
        _, call_id, values, failed, retry, started, ended = message
        tasks = self._tasks
        call = process.tasks.pop(call_id, None)
        if call is None or call_id not in tasks.tasks:
            tasks.discard(process, values)
            return
        process.busy_since = ended
        actor = self.actors.get(process.actor_id)
        if actor is not None:
            tasks.timeline.append(
                (
                    f"{actor.spec.class_name}.{call.method}", process.pid, started, ended, call_id,
                    actor.id, failed is not None,
                )
            )  # fmt: skip
            if failed is not None and retry and call.retries != 0 and not call.cancelled:
                tasks.discard(process, values)
                call.retries -= 1 if call.retries > 0 else 0
                self._send(actor, call, process.number)
                return
            steps = actor.lifecycle.finished(call_id)
            tasks.finish(process, call, values, failed)
            if steps:
                self._apply(actor, steps)
            return
        tasks.finish(process, call, values, failed)

    def _pending(self, actor_id: int, process: Process) -> int:
        """Return the number of a caller's calls without a result."""
        return sum(
            task.actor_id == actor_id and task.owner == process.number
            for task in self._tasks.tasks.values()
        )

    def _release_waiting(self, actor: Actor, caller: int) -> None:
        """Send a caller's calls, in order, up to the first whose arguments have no values."""
        tasks = self._tasks.tasks
        while calls := actor.waiting.get(caller):
            if calls[0].pending_args and calls[0].id in tasks:
                return
            call = calls.popleft()
            if not calls:
                del actor.waiting[caller]
            if call.id in tasks:
                self._pass_on(actor, call)

    def _pass_on(self, actor: Actor, call: Task) -> None:
        worker = actor.lifecycle.call(call.id, call.retries)
        if worker == REFUSED:
            assert actor.lifecycle.death is not None
            self._tasks.fail(call, self._error(actor, actor.lifecycle.death, temporary=False))
        elif worker != QUEUED:
            self._send(actor, call, worker)

    def _send(self, actor: Actor, call: Task, worker: int) -> None:
        hub = self._hub
        process = hub.processes[worker]
        call.worker = worker
        if not process.tasks:
            process.busy_since = time.time()
        process.tasks[call.id] = call
        values = self._tasks.values_of(call)
        message = (
            m.RUN_CALL, call.id, call.method, call.mode, call.args, values, call.count,
            call.result_ids[1:], call.group, call.retry_on, call.more,
        )  # fmt: skip
        if actor.in_order and len(process.tasks) > LAZY_CALLS:
            hub.send_later(process, message)
        else:
            hub.send(process, message)

    # -- lifecycle instructions

    def _apply(self, actor: Actor, steps: Sequence[ActorInstruction]) -> None:
        hub = self._hub
        for step in steps:
            if isinstance(step, SendCall):
                self._send(actor, self._tasks.tasks[step.call_id], step.worker)
            elif isinstance(step, FailCall):
                call = self._tasks.tasks.get(step.call_id)
                if call is not None:
                    self._tasks.fail(call, self._error(actor, step.cause, temporary=step.temporary))
            elif isinstance(step, PlaceActor):
                hub.apply(hub.scheduler.actor_died(actor.id))  # frees its last holding
                hub.apply(hub.scheduler.reserve_actor(actor.id, actor.shape, actor.holding))
            elif isinstance(step, StopProcess):
                self._stop(actor, step)
            elif isinstance(step, Died):
                self._remove_dead(actor)
            else:
                reject_unknown(step)

    def _stop(self, actor: Actor, step: StopProcess) -> None:
        process = self._hub.processes.get(step.worker)
        if process is None:
            return
        actor.pid = process.pid
        process.actor_id = 0
        process.tasks.clear()
        self._hub.apply(self._hub.scheduler.actor_died(actor.id))
        self._hub.stop(process, force=step.force)

    def _remove_dead(self, actor: Actor) -> None:
        hub = self._hub
        key = (actor.spec.namespace, actor.spec.name)
        if self._names.get(key) == actor.id:
            del self._names[key]
        death = actor.lifecycle.death
        assert death is not None
        self.ended.append(
            EndedActor(
                actor.id, actor.spec, actor.pid, actor.lifecycle.restarts,
                death.detail or death.kind.value,
            )
        )  # fmt: skip
        waiting = [call for calls in actor.waiting.values() for call in calls]
        actor.waiting.clear()
        for call in waiting:
            self._tasks.fail(call, self._error(actor, death, temporary=False))
        hub.objects.release(actor.held_refs)
        actor.held_refs = ()
        hub.apply(hub.scheduler.release_actor(actor.id))
        if actor.spec.detached:
            hub.objects.release((actor.id,))  # what kept it alive without a handle
        if actor.id not in hub.objects.entries:
            self.actors.pop(actor.id, None)

    def _on_handles_dropped(self, actor_id: int) -> None:
        actor = self.actors.get(actor_id)
        if actor is None:
            return
        if actor.lifecycle.state is ActorState.DEAD:
            del self.actors[actor_id]
            return
        self._apply(actor, actor.lifecycle.handle_dropped())

    def _await_arguments(self, actor: Actor) -> None:
        missing = len(actor.arg_refs)
        if not missing:
            self._apply(actor, actor.lifecycle.created())
            return

        def on_value(_: int, value: Value) -> None:
            nonlocal missing
            missing -= 1
            if actor.lifecycle.state is ActorState.DEAD:
                return
            if value[0] == m.ERROR:
                self._apply(
                    actor,
                    actor.lifecycle.unplaceable(
                        "an argument of its constructor failed: "
                        f"{serialization.unpack_error(value[1])}"
                    ),
                )
            elif missing == 0:
                self._apply(actor, actor.lifecycle.created())

        for id in actor.arg_refs:
            self._hub.subscribe(id, on_value)

    def _error(self, actor: Actor, cause: Cause, *, temporary: bool) -> Value:
        spec = actor.spec
        name = spec.name or None
        details: dict[str, str | int | None] = {
            "actor_id": f"{actor.id:032x}",
            "actor_name": name,
            "class_name": spec.class_name,
            "pid": actor.pid or None,
            "exit_cause": cause.detail or cause.kind.value,
            "log_tail": (actor.log_tail or None) if cause.kind in PROCESS_DEATHS else None,
        }
        if temporary:
            message = error_messages.actor_unavailable(
                spec.class_name, name, actor.pid, cause.detail or "was killed"
            )
            return error_value(ActorUnavailableError(message, **details))  # type: ignore[arg-type]
        who = error_messages.actor_name(spec.class_name, name)
        if cause.kind is CauseKind.UNPLACEABLE and "placement group" in cause.detail:
            return error_value(
                ActorPlacementGroupRemoved(
                    f"The actor {who} was ended because its placement group was removed."
                )
            )
        if cause.kind is CauseKind.OUT_OF_MEMORY:
            message = error_messages.actor_out_of_memory(
                spec.class_name, name, actor.pid, cause.detail, max_restarts=spec.max_restarts
            )
            return error_value(ActorOutOfMemoryError(message, **details))  # type: ignore[arg-type]
        if cause.kind is CauseKind.WORKER_DIED:
            message = error_messages.actor_died(
                spec.class_name, name, actor.pid, cause.detail, max_restarts=spec.max_restarts
            )
        elif cause.kind is CauseKind.CONSTRUCTOR_FAILED:
            message = _constructor_message(who, cause.error)
        else:
            reason = {
                CauseKind.KILLED: "it was killed with `kill`",
                CauseKind.EXITED: "it ended itself with `exit_actor()`",
                CauseKind.HANDLES_DROPPED: "its last handle was dropped",
                CauseKind.UNPLACEABLE: cause.detail,
            }[cause.kind]
            message = f"The actor {who} is dead: {reason}. Its calls have no result."
        return error_value(ActorDiedError(message, **details))  # type: ignore[arg-type]


def _caller(process: Process, call: Task) -> int:
    """Return whose calls keep their order: an actor's and a program's, but a worker's by task.

    A worker runs unrelated tasks one after the other, and a later one may make the argument that an
    earlier one's call waits for.
    """
    runs_tasks = process.environment is not None and not process.actor_id
    return call.parent if runs_tasks else -process.number


def _constructor_message(who: str, error: object) -> str:
    assert isinstance(error, bytes)
    cause = serialization.unpack_error(error)
    text = cause.traceback_str if isinstance(cause, RayTaskError) else str(cause)
    return f"The actor {who} was not created: its constructor raised.\n{text}"
