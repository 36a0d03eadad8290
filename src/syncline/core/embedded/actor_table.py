"""Actors in the hub: their names, their processes, and the way of their calls. Decisions about one
actor's life are in `actors`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from syncline.core import errors, serialization
from syncline.core.embedded import messages as m
from syncline.core.embedded.actors import (
    PROCESS_DEATHS,
    QUEUED,
    REFUSED,
    ActorLife,
    ActorState,
    Cause,
    CauseKind,
    Died,
    FailCall,
    PlaceActor,
    SendCall,
    Step,
    StopProcess,
)
from syncline.core.embedded.endings import Ending
from syncline.core.embedded.instructions import AssignActor
from syncline.core.embedded.messages import ActorSpec, Message, Value
from syncline.core.embedded.records import Process, Task
from syncline.core.embedded.values import error_value
from syncline.exceptions import (
    ActorDiedError,
    ActorOutOfMemoryError,
    ActorPlacementGroupRemoved,
    ActorUnavailableError,
    PendingCallsLimitExceeded,
    RayTaskError,
)

if TYPE_CHECKING:
    from syncline.core.embedded.hub import Hub

LAZY_CALLS = 4
"""A call behind more than this many unanswered ones of an ordinary actor leaves when the actor next
says something.
"""


class Actor:
    """One actor."""

    __slots__ = (
        "args",
        "held",
        "holding",
        "id",
        "in_order",
        "label",
        "life",
        "log_tail",
        "pid",
        "shape",
        "spec",
        "top",
        "waiting",
    )

    def __init__(
        self, id: int, spec: ActorSpec, args: Value, top: tuple[int, ...], held: tuple[int, ...]
    ) -> None:
        self.id = id
        self.spec = spec
        self.args = args
        self.top = top
        self.held = held
        self.life = ActorLife(
            id, max_restarts=spec.max_restarts, max_task_retries=spec.max_task_retries
        )
        self.shape = self.holding = 0
        self.pid = 0
        self.log_tail = ""
        self.in_order = (
            not spec.is_async and spec.max_concurrency == 1 and not spec.concurrency_groups
        )
        self.waiting: deque[Task] = (
            deque()
        )  # calls whose arguments, or those of a call before them, do not exist yet


class ActorTable:
    """Actors by id and by name."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.actors: dict[int, Actor] = {}
        self._names: dict[tuple[str, str], int] = {}

    # -- life

    def create(
        self,
        process: Process,
        actor_id: int,
        spec: ActorSpec,
        args: Value,
        top: tuple[int, ...],
        held: tuple[int, ...],
    ) -> bytes | None:
        """A new actor; or, with `get_if_exists`, the record of the one of that name. ValueError:
        the name is taken, or no room ever.
        """
        hub = self._hub
        key = (spec.namespace, spec.name)
        if spec.name and key in self._names:
            if spec.get_if_exists:
                return self.find(process, spec.name, spec.namespace)
            raise ValueError(
                f"An actor named {spec.name!r} lives already in namespace {spec.namespace!r}: choose another name, "
                f"get that one with `get_actor({spec.name!r})`, or pass `get_if_exists=True`"
            )
        actor = Actor(actor_id, spec, args, top, held)
        actor.shape = hub.scheduler.shape(
            dict(spec.placement), group=spec.group, environment=spec.environment
        )
        actor.holding = hub.scheduler.shape(
            dict(spec.resources), group=spec.group, environment=spec.environment
        )
        entry = hub.objects.add(actor_id, count=2 if spec.detached else 1)
        entry.on_free = self._on_handles_dropped
        hub.hold_for(process, actor_id)
        hub.objects.hold(held)
        self.actors[actor_id] = actor
        if spec.name:
            self._names[key] = actor_id
        self._await_arguments(actor)
        return None

    def find(self, process: Process, name: str, namespace: str) -> bytes:
        """The record of a named actor, one reference to it counted for the process. ValueError with
        the names that exist.
        """
        actor_id = self._names.get((namespace, name))
        if actor_id is None:
            names = sorted(known for space, known in self._names if space == namespace)
            raise ValueError(
                f"There is no actor named {name!r} in namespace {namespace!r}.{errors.did_you_mean(name, names)} "
                f"It has {', '.join(map(repr, names)) or 'no named actors'}; an actor that died loses its name."
            )
        actor = self.actors[actor_id]
        entry = self._hub.objects.entries.get(actor_id)
        if entry is None:  # its last handle is gone, but it still works on its last calls
            entry = self._hub.objects.add(actor_id, count=0)
            entry.on_free = self._on_handles_dropped
            actor.life.handle_regained()
        entry.count += 1
        self._hub.hold_for(process, actor_id)
        return actor.spec.record

    def names(self) -> list[tuple[str, str]]:
        """(namespace, name) of all, sorted."""
        return sorted(self._names)

    def pid_of(self, actor_id: int) -> int | None:
        """The process in which an actor lives; None where it has none."""
        actor = self.actors.get(actor_id)
        worker = None if actor is None else actor.life.worker
        process = None if worker is None else self._hub.processes.get(worker)
        return None if process is None else process.pid or None

    def kill(self, actor_id: int, *, no_restart: bool) -> None:
        """`kill()`."""
        actor = self.actors.get(actor_id)
        if actor is not None:
            self._do(actor, actor.life.killed(no_restart=no_restart))

    def unplace(self, actor_id: int) -> None:
        """The actor's placement group was removed."""
        actor = self.actors.get(actor_id)
        if actor is None:
            return
        worker = actor.life.worker
        self._do(actor, actor.life.unplaceable("its placement group was removed"))
        if worker is not None and worker in self._hub.processes:
            process = self._hub.processes[worker]
            process.actor_id = 0
            self._hub.kill(process, "its placement group was removed")

    def give_up(self, environment: str, reason: str) -> None:
        """Workers of this environment cannot be started: what waits for one is dead."""
        for actor in list(self.actors.values()):
            if actor.spec.environment == environment and actor.life.state in (
                ActorState.PENDING,
                ActorState.RESTARTING,
            ):
                self._do(actor, actor.life.unplaceable(reason))

    def assign(self, step: AssignActor) -> None:
        """The scheduler gives an actor a worker: tell the worker what it is now."""
        hub = self._hub
        process = hub.processes[step.worker]
        actor = self.actors.get(step.actor_id)
        if actor is None:
            hub.let_go(process)
            return
        spec = actor.spec
        process.actor_id = actor.id
        actor.pid = process.pid
        process.label = spec.class_name
        hub.output.name(
            process.number,
            f"{spec.class_name}{f' {spec.name}' if spec.name else ''} pid={process.pid}",
        )
        restarted = actor.life.restarts > 0
        self._do(actor, actor.life.placed(step.worker))
        if spec.class_id not in process.known:
            process.known.add(spec.class_id)
            hub.send(process, (m.DEFINE, spec.class_id, hub.code[spec.class_id]))
        entries = hub.objects.entries
        values = {id: entries[id].value for id in actor.top}
        hub.send(process, (m.ACTOR, actor.id, spec, actor.args, values, step.gpu_ids, restarted))

    def on_constructed(self, process: Process, message: Message) -> None:
        _, actor_id, failed = message
        actor = self.actors.get(actor_id)
        if actor is None or process.actor_id != actor_id:
            return
        actor.pid = process.pid
        self._do(
            actor,
            actor.life.constructed() if failed is None else actor.life.constructor_failed(failed),
        )

    def on_exit(self, process: Process) -> None:
        """The actor has called `exit_actor()`."""
        actor = self.actors.get(process.actor_id)
        if actor is not None:
            self._do(actor, actor.life.exit_requested())
        self._hub.let_go(process)

    def on_process_lost(self, process: Process, ending: Ending) -> None:
        """The actor's process is gone."""
        actor = self.actors.get(process.actor_id)
        if actor is None:
            return
        actor.pid = process.pid
        actor.log_tail = self._hub.output.tail(process.number)
        process.tasks.clear()
        kind = CauseKind.OUT_OF_MEMORY if ending.is_out_of_memory else CauseKind.WORKER_DIED
        self._do(actor, actor.life.worker_died(ending.cause, kind))

    # -- calls

    def on_call(self, process: Process, message: Message) -> None:
        (
            _,
            call_id,
            actor_id,
            method,
            mode,
            args,
            top,
            held,
            extra,
            count,
            parent,
            retries,
            group,
            retry_on,
        ) = message
        hub = self._hub
        call = Task(
            call_id, args, top, held, (call_id, *extra) if count else (), process.number, parent
        )
        call.actor_id = actor_id
        call.method = method
        call.mode = mode
        call.count = count
        call.group = group
        call.retry_on = retry_on
        actor = self.actors.get(actor_id)
        call.retries = (
            retries
            if retries is not None
            else (actor.spec.max_task_retries if actor is not None else 0)
        )
        if actor is None:
            hub.tasks.begin(process, call)
            hub.tasks.fail(
                call,
                error_value(
                    ActorDiedError("The actor is dead: it ended before this call was made.")
                ),
            )
            return
        limit = actor.spec.max_pending_calls
        if 0 < limit <= self._pending(actor_id, process):
            error = PendingCallsLimitExceeded(
                f"{actor.spec.class_name} has max_pending_calls={limit}, and as many wait: get some first."
            )
            if process.channel is None:
                raise error
            hub.tasks.begin(process, call)
            hub.tasks.fail(call, error_value(error))
            return
        if top or actor.waiting:
            actor.waiting.append(call)
            hub.tasks.begin(process, call)
            self._release_waiting(actor)
            return
        hub.tasks.begin(process, call)
        self._pass_on(actor, call)

    def on_arguments(self, call: Task) -> None:
        """All arguments of a call exist."""
        actor = self.actors.get(call.actor_id)
        if actor is not None:
            self._release_waiting(actor)

    def forget_call(self, call: Task) -> None:
        """A call that was not sent is cancelled."""
        actor = self.actors.get(call.actor_id)
        if actor is None:
            return
        actor.life.cancel(call.id)
        if call in actor.waiting:
            actor.waiting.remove(call)

    def on_done(self, process: Process, message: Message) -> None:
        _, call_id, values, failed, retry, started, ended = message
        tasks = self._hub.tasks
        call = process.tasks.pop(call_id, None)
        if call is None or call_id not in tasks.tasks:
            tasks.drop(process, values)
            return
        process.since = ended
        actor = self.actors.get(process.actor_id)
        if actor is not None:
            tasks.timeline.append(
                (f"{actor.spec.class_name}.{call.method}", process.pid, started, ended)
            )
            if failed is not None and retry and call.retries != 0 and not call.cancelled:
                call.retries -= 1 if call.retries > 0 else 0
                self._send(actor, call, process.number)
                return
            steps = actor.life.finished(call_id)
            tasks.finish(process, call, values, failed)
            if steps:
                self._do(actor, steps)
            return
        tasks.finish(process, call, values, failed)

    def _pending(self, actor_id: int, process: Process) -> int:
        """Calls of one caller that have no answer yet."""
        return sum(
            task.actor_id == actor_id and task.owner == process.number
            for task in self._hub.tasks.tasks.values()
        )

    def _release_waiting(self, actor: Actor) -> None:
        """Pass on the calls that can go: in order of submission where calls run in order, else
        whichever are ready.
        """
        if actor.in_order:
            while actor.waiting and (
                actor.waiting[0].missing == 0 or actor.waiting[0].id not in self._hub.tasks.tasks
            ):
                call = actor.waiting.popleft()
                if call.id in self._hub.tasks.tasks:
                    self._pass_on(actor, call)
            return
        for call in [call for call in actor.waiting if call.missing == 0]:
            actor.waiting.remove(call)
            if call.id in self._hub.tasks.tasks:
                self._pass_on(actor, call)

    def _pass_on(self, actor: Actor, call: Task) -> None:
        worker = actor.life.call(call.id, call.retries)
        if worker == REFUSED:
            assert actor.life.death is not None
            self._hub.tasks.fail(call, self._error(actor, actor.life.death, temporary=False))
        elif worker != QUEUED:
            self._send(actor, call, worker)

    def _send(self, actor: Actor, call: Task, worker: int) -> None:
        hub = self._hub
        process = hub.processes[worker]
        call.worker = worker
        if not process.tasks:
            process.since = time.time()
        process.tasks[call.id] = call
        values = hub.tasks.values_of(call)
        message = (
            m.INVOKE,
            call.id,
            call.method,
            call.mode,
            call.args,
            values,
            call.count,
            call.returns[1:],
            call.group,
            call.retry_on,
        )
        if actor.in_order and len(process.tasks) > LAZY_CALLS:
            hub.send_later(process, message)
        else:
            hub.send(process, message)

    # -- what follows from an actor's life

    def _do(self, actor: Actor, steps: Sequence[Step]) -> None:
        hub = self._hub
        for step in steps:
            if isinstance(step, SendCall):
                self._send(actor, hub.tasks.tasks[step.call_id], step.worker)
            elif isinstance(step, FailCall):
                call = hub.tasks.tasks.get(step.call_id)
                if call is not None:
                    hub.tasks.fail(call, self._error(actor, step.cause, temporary=step.temporary))
            elif isinstance(step, PlaceActor):
                hub.carry_out(hub.scheduler.actor_died(actor.id))  # what its last process held
                hub.carry_out(hub.scheduler.reserve_actor(actor.id, actor.shape, actor.holding))
            elif isinstance(step, StopProcess):
                self._stop(actor, step)
            elif isinstance(step, Died):
                self._bury(actor)

    def _stop(self, actor: Actor, step: StopProcess) -> None:
        process = self._hub.processes.get(step.worker)
        if process is None:
            return
        actor.pid = process.pid
        process.actor_id = 0
        process.tasks.clear()
        self._hub.carry_out(self._hub.scheduler.actor_died(actor.id))
        self._hub.let_go(process, at_once=step.force)

    def _bury(self, actor: Actor) -> None:
        hub = self._hub
        key = (actor.spec.namespace, actor.spec.name)
        if self._names.get(key) == actor.id:
            del self._names[key]
        death = actor.life.death
        assert death is not None
        for call in list(actor.waiting):
            hub.tasks.fail(call, self._error(actor, death, temporary=False))
        actor.waiting.clear()
        hub.objects.release(actor.held)
        actor.held = ()
        hub.carry_out(hub.scheduler.release_actor(actor.id))
        if actor.id not in hub.objects.entries:
            self.actors.pop(actor.id, None)

    def _on_handles_dropped(self, actor_id: int) -> None:
        actor = self.actors.get(actor_id)
        if actor is None:
            return
        if actor.life.state is ActorState.DEAD:
            del self.actors[actor_id]
            return
        self._do(actor, actor.life.handle_dropped())

    def _await_arguments(self, actor: Actor) -> None:
        missing = len(actor.top)
        if not missing:
            self._do(actor, actor.life.created())
            return

        def arrive(_: int, value: Value) -> None:
            nonlocal missing
            missing -= 1
            if actor.life.state is ActorState.DEAD:
                return
            if value[0] == m.ERROR:
                self._do(
                    actor,
                    actor.life.unplaceable(
                        f"an argument of its constructor failed: {serialization.unpack_error(value[1])}"
                    ),
                )
            elif missing == 0:
                self._do(actor, actor.life.created())

        for id in actor.top:
            self._hub.await_value(id, arrive)

    def _error(self, actor: Actor, cause: Cause, *, temporary: bool) -> Value:
        spec = actor.spec
        name = spec.name or None
        told = {
            "actor_id": f"{actor.id:032x}",
            "actor_name": name,
            "class_name": spec.class_name,
            "pid": actor.pid or None,
            "exit_cause": cause.detail or cause.kind.value,
            "log_tail": (actor.log_tail or None) if cause.kind in PROCESS_DEATHS else None,
        }
        if temporary:
            message = errors.actor_unavailable(
                spec.class_name, name, actor.pid, cause.detail or "was killed"
            )
            return error_value(ActorUnavailableError(message, **told))  # type: ignore[arg-type]
        who = errors.actor_name(spec.class_name, name)
        if cause.kind is CauseKind.UNPLACEABLE and "placement group" in cause.detail:
            return error_value(
                ActorPlacementGroupRemoved(
                    f"The actor {who} was ended because its placement group was removed."
                )
            )
        if cause.kind is CauseKind.OUT_OF_MEMORY:
            message = errors.actor_out_of_memory(
                spec.class_name, name, actor.pid, cause.detail, max_restarts=spec.max_restarts
            )
            return error_value(ActorOutOfMemoryError(message, **told))  # type: ignore[arg-type]
        if cause.kind is CauseKind.WORKER_DIED:
            message = errors.actor_died(
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
            message = f"The actor {who} is dead: {reason}. Its calls have no answer any more."
        return error_value(ActorDiedError(message, **told))  # type: ignore[arg-type]


def _constructor_message(who: str, error: object) -> str:
    assert isinstance(error, bytes)
    cause = serialization.unpack_error(error)
    text = cause.traceback_str if isinstance(cause, RayTaskError) else str(cause)
    return f"The actor {who} never lived: its constructor raised.\n{text}"
