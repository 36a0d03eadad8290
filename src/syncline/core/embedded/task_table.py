"""The hub's table of tasks: submission, arguments, assignment to workers, results, retries and
cancellation.
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from typing import NamedTuple, Protocol

from syncline.core import error_messages
from syncline.core.embedded import messages as m
from syncline.core.embedded.exit_status import ExitStatus
from syncline.core.embedded.hub_core import HubCore
from syncline.core.embedded.hub_records import Definition, Process, Task
from syncline.core.embedded.instructions import Assign
from syncline.core.embedded.messages import Message, TaskSpec, Value, error_value
from syncline.core.engine import Row, trace_event
from syncline.exceptions import (
    OutOfMemoryError,
    TaskCancelledError,
    TaskPlacementGroupRemoved,
    WorkerCrashedError,
)

SHORT_S = 0.002
"""Tasks shorter than this are sent to a busy worker ahead of time, so that it never idles."""
DEPTH = 32
BUSY_TASKS = 4
"""Number of tasks ahead above which a message waits until the worker sends one."""
TIMELINE_EVENTS = 20_000
FAILURES_KEPT = 1000
ERROR_BYTES_KEPT = 16_384
"""Size of a pickled error above which only the fact stays listed."""
FORCE_S = 1.0
"""Seconds for a worker to end a task without a kill after `cancel(force=True)`."""


Attempt = tuple[str, int, float, float, int, int, bool]
"""(name, pid, start and end times, task id, actor id or 0, has failed) of an execution of a task or
call.
"""


class Failure(NamedTuple):
    """The end of a task or call whose result is an error."""

    task_id: int
    name: str
    """The name of the function or method."""
    actor_id: int
    error: bytes
    """The pickled exception; empty if it is large."""


class ActorCalls(Protocol):
    """The actor table, as the task table uses it for calls."""

    def on_arguments(self, call: Task) -> None:
        """Handle that all arguments of a call have values."""

    def on_process_lost(self, process: Process, status: ExitStatus) -> None:
        """Handle the death of an actor's process."""

    def forget_call(self, call: Task) -> None:
        """Remove a call that was not sent and has failed."""


class TaskTable:
    """Tasks and actor calls by id, and the definitions of tasks."""

    def __init__(self, hub: HubCore) -> None:
        self._hub = hub
        self.actor_calls: ActorCalls  # assigned by the hub, which makes the actor table later
        self.tasks: dict[int, Task] = {}
        self.definitions: dict[int, Definition] = {}
        self._short_shapes: set[int] = set()  # shapes whose last task was short
        self.timeline: deque[Attempt] = deque(maxlen=TIMELINE_EVENTS)
        self.failures: deque[Failure] = deque(maxlen=FAILURES_KEPT)

    def register_definition(self, definition_id: int, spec: TaskSpec) -> None:
        """Register a function with its options; raises Infeasible if it can never run."""
        shape = self._hub.scheduler.shape(
            dict(spec.resources), group=spec.group, environment=spec.environment
        )
        self.definitions[definition_id] = Definition(spec, shape)

    def on_submit(self, process: Process, message: Message) -> None:
        _, task_id, definition_id, args, arg_refs, held_refs, extra, parent = message
        definition = self.definitions[definition_id]
        spec = definition.spec
        task = Task(
            task_id, args, arg_refs, held_refs, (task_id, *extra) if spec.num_returns else (),
            process.number, parent, definition=definition, definition_id=definition_id,
            mode=spec.mode, retries=spec.max_retries,
        )  # fmt: skip
        self.register(process, task)
        if not arg_refs:
            self._queue(task)

    def register(self, process: Process, task: Task) -> None:
        """Add a task: create its results, hold its references, wait for its arguments."""
        hub = self._hub
        refcounts = process.refcounts
        for id in task.result_ids:
            hub.objects.add(id, producer=task)
            refcounts[id] = 1
        if task.mode == m.STREAM:
            hub.open_stream(task.id)
        self.tasks[task.id] = task
        if task.held_refs:
            hub.objects.hold(task.held_refs)
        if task.arg_refs:
            task.pending_args = len(task.arg_refs)
            for id in task.arg_refs:
                hub.subscribe(id, lambda _, value: self._on_argument(task, value))

    def _on_argument(self, task: Task, value: Value) -> None:
        if task.id not in self.tasks:
            return  # cancelled, or failed because of another argument
        task.pending_args -= 1
        if value[0] == m.ERROR:
            self._fail_unsent(task, value)
        elif task.pending_args == 0 and task.actor_id:
            self.actor_calls.on_arguments(task)
        elif task.pending_args == 0 and task.worker == 0:
            self._queue(task)

    def _queue(self, task: Task) -> None:
        assert task.definition is not None
        self._hub.apply(self._hub.scheduler.submit(task.id, task.definition.shape))

    # -- workers

    def assign(self, step: Assign) -> None:
        """Send a task to the worker that the scheduler chose."""
        hub = self._hub
        worker, task_id, gpu_ids = step
        process = hub.processes[worker]
        task = self.tasks[task_id]
        definition, definition_id = task.definition, task.definition_id
        assert definition is not None
        task.worker = worker
        if not process.tasks:
            process.busy_since = time.time()
        process.tasks[task_id] = task
        known = process.sent_definitions
        if definition_id not in known:
            known.add(definition_id)
            hub.send_program(process)
            hub.send_code(process, definition.spec.function_id)
            hub.send(process, (m.DEFINE_TASK, definition_id, definition.spec))
        if process.label != definition.spec.name:
            process.label = definition.spec.name
            hub.output.name(worker, f"{definition.spec.name} pid={process.pid}")
        message = (
            m.RUN_TASK, task_id, definition_id, task.args, self.values_of(task),
            task.result_ids[1:], gpu_ids,
        )  # fmt: skip
        if len(process.tasks) > BUSY_TASKS:
            hub.send_later(process, message)
        else:
            hub.send(process, message)

    def values_of(self, task: Task) -> dict[int, Value]:
        """Return the values of the arguments that are references."""
        if not task.arg_refs:
            return {}
        entries = self._hub.objects.entries
        return {id: value for id in task.arg_refs if (value := entries[id].value) is not None}

    def on_done(self, process: Process, message: Message) -> None:
        _, task_id, values, failed, retry, started, ended = message
        task = process.tasks.pop(task_id, None)
        if task is None or task_id not in self.tasks:
            self.discard(process, values)
            if task is not None:
                self._hub.apply(self._hub.scheduler.finished(process.number, task_id))
            return
        process.busy_since = ended
        definition = task.definition
        assert definition is not None
        self.timeline.append(
            (definition.spec.name, process.pid, started, ended, task_id, 0, failed is not None)
        )
        again = failed is not None and retry and task.retries != 0 and not task.cancelled
        if again:
            self.discard(process, values)
            task.retries -= 1 if task.retries > 0 else 0
            task.worker = 0
        else:
            self.finish(process, task, values, failed)
        self._adapt_depth(definition.shape, ended - started)
        hub = self._hub
        if definition.uses_gpu:  # the process may keep a CUDA context and its GPU memory
            hub.apply(hub.scheduler.retire(process.number))
        hub.apply(hub.scheduler.finished(process.number, task_id))
        if again:
            self._queue(task)

    def finish(
        self, process: Process, task: Task, values: list[Value], failed: bytes | None
    ) -> None:
        """Settle the results of a task or call that has ended: first the values, then the error."""
        hub = self._hub
        if failed is not None and not values:
            self.fail(task, m.failure(failed))
            return
        del self.tasks[task.id]
        if task.mode == m.STREAM:
            hub.end_stream(task.id, None)
        for id, value in zip(task.result_ids, values, strict=failed is None):
            hub.settle(process, id, value)
        if failed is not None:
            self._note_failure(task, failed)
            for id in task.result_ids[len(values) :]:
                hub.objects.settle(id, m.failure(failed))
        if task.held_refs:
            hub.objects.release(task.held_refs)

    def discard(self, process: Process, values: list[Value]) -> None:
        """Free the values of an attempt whose results do not count."""
        for value in values:
            self._hub.discard(process, value)

    def fail(self, task: Task, error: Value) -> None:
        """Settle all results of a task with an error."""
        hub = self._hub
        if self.tasks.pop(task.id, None) is None:
            return
        self._note_failure(task, error[1])
        if task.mode == m.STREAM:
            hub.end_stream(task.id, error)
        for id in task.result_ids:
            hub.objects.settle(id, error)
        if task.held_refs:
            hub.objects.release(task.held_refs)

    def _note_failure(self, task: Task, error: bytes) -> None:
        definition = task.definition
        name = task.method if definition is None else definition.spec.name
        kept = error if len(error) <= ERROR_BYTES_KEPT else b""
        self.failures.append(Failure(task.id, name, task.actor_id, kept))

    def _fail_unsent(self, task: Task, error: Value) -> None:
        """Fail a task that no worker has; calls of an actor that waited for it may go."""
        self.fail(task, error)
        if task.actor_id:
            self.actor_calls.forget_call(task)

    def _adapt_depth(self, shape: int, duration_s: float) -> None:
        short = duration_s < SHORT_S
        if short == (shape in self._short_shapes):
            return
        if short:
            self._short_shapes.add(shape)
        else:
            self._short_shapes.discard(shape)
        self._hub.scheduler.set_depth(shape, DEPTH if short else 1)

    def on_blocked(self, process: Process, message: Message) -> None:
        returned = self._take_back(process, message[1])
        if process.environment is None or not process.ready:
            return
        scheduler = self._hub.scheduler
        if process.subscriptions and not process.blocked and not process.stop_reason:
            process.blocked = True
            self._hub.apply(scheduler.blocked(process.number, returned))
        elif returned:
            self._hub.apply(scheduler.returned(process.number, returned))

    def on_unblocked(self, process: Process, message: Message) -> None:
        if process.blocked:
            process.blocked = False
            if not process.stop_reason:
                self._hub.apply(self._hub.scheduler.unblocked(process.number))

    def on_returned(self, process: Process, message: Message) -> None:
        returned = self._take_back(process, message[1])
        if returned:
            self._hub.apply(self._hub.scheduler.returned(process.number, returned))

    def _take_back(self, process: Process, task_ids: list[int]) -> list[int]:
        returned = []
        for task_id in task_ids:
            task = process.tasks.pop(task_id, None)
            if task is None:
                continue
            task.worker = 0
            if task_id in self.tasks and not task.cancelled:
                returned.append(task_id)
            else:  # cancelled meanwhile
                self.fail(task, _cancelled(task))
                self._hub.apply(self._hub.scheduler.dropped(process.number, task_id))
        return returned

    def on_worker_lost(self, process: Process, status: ExitStatus) -> None:
        """Retry or fail the running task of a dead worker, and requeue its unstarted ones."""
        hub = self._hub
        loss = hub.scheduler.worker_died(process.number)
        if process.actor_id:
            self.actor_calls.on_process_lost(process, status)
        running = True
        for task in list(process.tasks.values()):
            if task.actor_id or task.id not in self.tasks:
                continue
            task.worker = 0
            if task.cancelled:
                self.fail(task, _cancelled(task))
            elif running and task.retries == 0:
                self.fail(task, error_value(self._crash(process, task, status)))
            else:
                if running and task.retries > 0:
                    task.retries -= 1
                self._queue(task)
            running = False
        process.tasks.clear()
        hub.apply(loss.instructions)

    def _crash(
        self, process: Process, task: Task, status: ExitStatus
    ) -> WorkerCrashedError | OutOfMemoryError:
        assert task.definition is not None
        spec = task.definition.spec
        cause = process.stop_reason or status.cause
        log_tail = self._hub.output.tail(process.number)
        if status.is_out_of_memory and not process.stop_reason:
            message = error_messages.task_out_of_memory(
                spec.name, process.pid, cause, attempts=spec.max_retries + 1
            )
            return OutOfMemoryError(message, pid=process.pid, exit_cause=cause, log_tail=log_tail)
        message = error_messages.worker_crashed(
            spec.name, process.pid, cause, attempts=spec.max_retries + 1
        )
        return WorkerCrashedError(message, pid=process.pid, exit_cause=cause, log_tail=log_tail)

    def fail_environment(self, environment: str, reason: str) -> None:
        """Fail the tasks that wait for a worker of an environment that cannot start."""
        for task in list(self.tasks.values()):
            definition = task.definition
            if (
                definition is not None
                and definition.spec.environment == environment
                and self._hub.scheduler.cancel(task.id)
            ):
                self.fail(
                    task,
                    error_value(
                        WorkerCrashedError(f"{definition.spec.name}() could not run: {reason}")
                    ),
                )

    # -- cancellation

    def cancel(self, id: int, *, force: bool, recursive: bool) -> None:
        """Cancel the task that makes object `id`, unless it has ended."""
        entry = self._hub.objects.entries.get(id)
        task = entry.producer if entry is not None else None
        if not isinstance(task, Task) or task.id not in self.tasks:
            return
        if force and task.actor_id:
            raise ValueError(
                "`cancel(force=True)` on an actor's call would end the whole actor: leave out "
                "`force`, or use `kill` on the actor"
            )
        if recursive:
            for child in [t for t in self.tasks.values() if t.parent == task.id]:
                self.cancel(
                    child.result_ids[0] if child.result_ids else child.id,
                    force=force and not child.actor_id,
                    recursive=True,
                )
        self._cancel(task, force=force)

    def cancel_stream(self, task_id: int) -> None:
        """Cancel a generator task whose items are no longer referenced."""
        task = self.tasks.get(task_id)
        if task is not None:
            self._cancel(task, force=False)

    def _cancel(self, task: Task, *, force: bool) -> None:
        hub = self._hub
        task.cancelled = True
        cancelled = _cancelled(task)
        if task.worker == 0:
            if not task.actor_id and task.pending_args == 0:
                hub.scheduler.cancel(task.id)
            self._fail_unsent(task, cancelled)
            return
        process = hub.processes.get(task.worker)
        if process is None:
            return
        hub.send(process, (m.CANCEL_TASK, task.id, force))
        if force:
            hub.reactor.call_later(FORCE_S, partial(self._kill_if_running, process, task))

    def _kill_if_running(self, process: Process, task: Task) -> None:
        """Kill a worker that could not end its task within `FORCE_S`. Takes the lock."""
        hub = self._hub
        with hub.guard:
            if process.gone or hub.closed or task.id not in process.tasks:
                return
            if next(iter(process.tasks)) == task.id:
                hub.kill(process, "was killed by cancel(force=True)")
            else:  # it waits behind a task that holds the interpreter
                hub.reactor.call_later(FORCE_S, partial(self._kill_if_running, process, task))

    def remove_from_group(self, queued: list[int], running: list[tuple[int, list[int]]]) -> None:
        """Fail the tasks of a removed placement group."""
        error = error_value(
            TaskPlacementGroupRemoved(
                "The placement group of the task was removed, so the task was ended."
            )
        )
        for task_id in queued:
            self.fail(self.tasks[task_id], error)
        for worker, task_ids in running:
            for task_id in task_ids:
                if task_id in self.tasks:
                    self.fail(self.tasks[task_id], error)
            process = self._hub.processes.get(worker)
            if process is not None:
                self._hub.kill(process, "was killed with its placement group")

    def trace_events(self) -> list[Row]:
        """Return the last tasks as Chrome trace events."""
        return [
            trace_event(name, pid=pid, tid=pid, started=started, ended=ended)
            for name, pid, started, ended, *_ in self.timeline
        ]


def _cancelled(task: Task) -> Value:
    return error_value(TaskCancelledError(task_id=f"{task.id:032x}"))
