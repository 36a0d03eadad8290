"""Tasks in the hub: from submission, through waiting for arguments and for a worker, to results,
retries and cancellation.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

from syncline.core import errors
from syncline.core.embedded import messages as m
from syncline.core.embedded.endings import Ending
from syncline.core.embedded.instructions import Assign
from syncline.core.embedded.messages import Message, TaskSpec, Value
from syncline.core.embedded.records import Plan, Process, Task
from syncline.core.embedded.values import error_value
from syncline.exceptions import (
    OutOfMemoryError,
    TaskCancelledError,
    TaskPlacementGroupRemoved,
    WorkerCrashedError,
)

if TYPE_CHECKING:
    from syncline.core.embedded.hub import Hub

SHORT_S = 0.002
"""Tasks shorter than this are handed to a busy worker in advance, so that it need not wait for the
next one.
"""
DEPTH = 32
BUSY_TASKS = 4
"""What is handed in advance beyond this number leaves when the worker next says something."""
TIMELINE_EVENTS = 20_000


class TaskTable:
    """Tasks by id, and what functions and options they run with."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.tasks: dict[int, Task] = {}
        self.plans: dict[int, Plan] = {}
        self._known_short: set[int] = set()  # shapes whose last task was short
        self.timeline: deque[tuple[str, int, float, float]] = deque(maxlen=TIMELINE_EVENTS)

    def register_plan(self, plan_id: int, spec: TaskSpec) -> None:
        """A function with its options; Infeasible where it could never run."""
        shape = self._hub.scheduler.shape(
            dict(spec.resources), group=spec.group, environment=spec.environment
        )
        self.plans[plan_id] = Plan(spec, shape)

    def on_submit(self, process: Process, message: Message) -> None:
        _, task_id, plan_id, args, top, held, extra, parent = message
        plan = self.plans[plan_id]
        spec = plan.spec
        task = Task(
            task_id,
            args,
            top,
            held,
            (task_id, *extra) if spec.num_returns else (),
            process.number,
            parent,
        )
        task.plan = plan
        task.plan_id = plan_id
        task.mode = spec.mode
        task.retries = spec.max_retries
        self.begin(process, task)
        if not top:
            self._queue(task)

    def begin(self, process: Process, task: Task) -> None:
        """Make the entries of the results, hold what the task needs, and count the arguments that
        do not exist yet.
        """
        hub = self._hub
        held = process.held
        for id in task.returns:
            hub.objects.add(id, producer=task)
            held[id] = 1
        if task.mode == m.STREAM:
            hub.open_stream(task.id)
        self.tasks[task.id] = task
        if task.held:
            hub.objects.hold(task.held)
        if task.top:
            task.missing = len(task.top)
            for id in task.top:
                hub.await_value(id, lambda _, value: self._on_argument(task, value))

    def _on_argument(self, task: Task, value: Value) -> None:
        if task.id not in self.tasks:
            return  # cancelled, or failed because of another argument
        task.missing -= 1
        if value[0] == m.ERROR:
            self.fail(task, value)
        elif task.missing == 0 and task.actor_id:
            self._hub.actors.on_arguments(task)
        elif task.missing == 0 and task.worker == 0:
            self._queue(task)

    def _queue(self, task: Task) -> None:
        assert task.plan is not None
        self._hub.carry_out(self._hub.scheduler.submit(task.id, task.plan.shape))

    # -- workers

    def assign(self, step: Assign) -> None:
        """The scheduler gives a task to a worker."""
        hub = self._hub
        worker, task_id, gpu_ids = step
        process = hub.processes[worker]
        task = self.tasks[task_id]
        plan, plan_id = task.plan, task.plan_id
        assert plan is not None
        task.worker = worker
        if not process.tasks:
            process.since = time.time()
        process.tasks[task_id] = task
        known = process.known
        if plan_id not in known:
            known.add(plan_id)
            if plan.spec.function_id not in known:
                known.add(plan.spec.function_id)
                hub.send(
                    process, (m.DEFINE, plan.spec.function_id, hub.code[plan.spec.function_id])
                )
            hub.send(process, (m.DESCRIBE, plan_id, plan.spec))
        if process.label != plan.spec.name:
            process.label = plan.spec.name
            hub.output.name(worker, f"{plan.spec.name} pid={process.pid}")
        message = (
            m.RUN,
            task_id,
            plan_id,
            task.args,
            self.values_of(task),
            task.returns[1:],
            gpu_ids,
        )
        if len(process.tasks) > BUSY_TASKS:
            hub.send_later(process, message)
        else:
            hub.send(process, message)

    def values_of(self, task: Task) -> dict[int, Value]:
        """The values of the references that are arguments themselves."""
        if not task.top:
            return {}
        entries = self._hub.objects.entries
        return {id: entries[id].value for id in task.top}  # type: ignore[misc]  # they exist: the task waited for them

    def on_done(self, process: Process, message: Message) -> None:
        _, task_id, values, failed, retry, started, ended = message
        task = process.tasks.pop(task_id, None)
        if task is None or task_id not in self.tasks:
            self.drop(process, values)
            if task is not None:
                self._hub.carry_out(self._hub.scheduler.finished(process.number, task_id))
            return
        process.since = ended
        plan = task.plan
        assert plan is not None
        self.timeline.append((plan.spec.name, process.pid, started, ended))
        again = failed is not None and retry and task.retries != 0 and not task.cancelled
        if again:
            task.retries -= 1 if task.retries > 0 else 0
            task.worker = 0
        else:
            self.finish(process, task, values, failed)
        self._learn(plan.shape, ended - started)
        hub = self._hub
        if plan.uses_gpu:
            hub.carry_out(
                hub.scheduler.retire(process.number)
            )  # it may keep a CUDA context, and with it GPU memory
        hub.carry_out(hub.scheduler.finished(process.number, task_id))
        if again:
            self._queue(task)

    def finish(
        self, process: Process, task: Task, values: list[Value], failed: bytes | None
    ) -> None:
        """A task or call has ended, well or badly."""
        hub = self._hub
        if failed is not None:
            self.fail(task, m.failure(failed))
            return
        del self.tasks[task.id]
        if task.mode == m.STREAM:
            hub.end_stream(task.id, None)
        for id, value in zip(task.returns, values, strict=True):
            hub.settle(process, id, value)
        if task.held:
            hub.objects.release(task.held)

    def fail(self, task: Task, error: Value) -> None:
        """The task has no result: everybody who asks gets the error."""
        hub = self._hub
        if self.tasks.pop(task.id, None) is None:
            return
        if task.mode == m.STREAM:
            hub.end_stream(task.id, error)
        for id in task.returns:
            hub.objects.settle(id, error)
        if task.held:
            hub.objects.release(task.held)

    def _learn(self, shape: int, duration_s: float) -> None:
        """Short tasks are sent ahead of time, long ones are not."""
        short = duration_s < SHORT_S
        if short == (shape in self._known_short):
            return
        if short:
            self._known_short.add(shape)
        else:
            self._known_short.discard(shape)
        self._hub.scheduler.set_depth(shape, DEPTH if short else 1)

    def drop(self, process: Process, values: list[Value]) -> None:
        """Values of a task that nobody waits for any more."""
        for value in values:
            if value[0] == m.SHARED:
                process.segments.pop(value[1].segment.name, None)
            self._hub.objects.discard(value)

    def on_blocked(self, process: Process, message: Message) -> None:
        returned = self._taken_back(process, message[1])
        if process.environment is None or not process.ready:
            return
        scheduler = self._hub.scheduler
        if process.waits and not process.blocked and not process.expected_end:
            process.blocked = True
            self._hub.carry_out(scheduler.blocked(process.number, returned))
        elif returned:
            self._hub.carry_out(scheduler.returned(process.number, returned))

    def on_unblocked(self, process: Process, message: Message) -> None:
        if process.blocked:
            process.blocked = False
            if not process.expected_end:
                self._hub.carry_out(self._hub.scheduler.unblocked(process.number))

    def on_returned(self, process: Process, message: Message) -> None:
        returned = self._taken_back(process, message[1])
        if returned and not process.expected_end:
            self._hub.carry_out(self._hub.scheduler.returned(process.number, returned))

    def _taken_back(self, process: Process, task_ids: list[int]) -> list[int]:
        returned = []
        for task_id in task_ids:
            task = process.tasks.pop(task_id, None)
            if task is None:
                continue
            task.worker = 0
            if task_id in self.tasks:
                returned.append(task_id)
            else:  # cancelled meanwhile
                self._hub.carry_out(self._hub.scheduler.dropped(process.number, task_id))
        return returned

    def on_worker_lost(self, process: Process, ending: Ending) -> None:
        """The worker is gone: what ran is tried again or fails, what had not begun goes to
        others.
        """
        hub = self._hub
        loss = hub.scheduler.worker_died(process.number)
        if process.actor_id:
            hub.actors.on_process_lost(process, ending)
        running = True
        for task in list(process.tasks.values()):
            if task.actor_id or task.id not in self.tasks:
                continue
            task.worker = 0
            if running and task.cancelled:
                self.fail(task, error_value(TaskCancelledError(task_id=f"{task.id:032x}")))
            elif running and task.retries == 0:
                self.fail(task, error_value(self._crash(process, task, ending)))
            else:
                if running and task.retries > 0:
                    task.retries -= 1
                self._queue(task)
            running = False
        process.tasks.clear()
        hub.carry_out(loss.instructions)

    def _crash(
        self, process: Process, task: Task, ending: Ending
    ) -> WorkerCrashedError | OutOfMemoryError:
        assert task.plan is not None
        spec = task.plan.spec
        cause = process.expected_end or ending.cause
        log_tail = self._hub.output.tail(process.number)
        if ending.is_out_of_memory and not process.expected_end:
            message = errors.task_out_of_memory(
                spec.name, process.pid, cause, attempts=spec.max_retries + 1
            )
            return OutOfMemoryError(message, pid=process.pid, exit_cause=cause, log_tail=log_tail)
        message = errors.worker_crashed(
            spec.name, process.pid, cause, attempts=spec.max_retries + 1
        )
        return WorkerCrashedError(message, pid=process.pid, exit_cause=cause, log_tail=log_tail)

    def give_up(self, environment: str, reason: str) -> None:
        """Workers of this environment cannot be started: what waits for one fails."""
        for task in list(self.tasks.values()):
            plan = task.plan
            if (
                plan is not None
                and plan.spec.environment == environment
                and self._hub.scheduler.cancel(task.id)
            ):
                self.fail(
                    task,
                    error_value(WorkerCrashedError(f"{plan.spec.name}() could not run: {reason}")),
                )

    # -- cancellation

    def cancel(self, id: int, *, force: bool, recursive: bool) -> None:
        """Cancel the task that makes the object `id`; nothing happens if it has ended."""
        entry = self._hub.objects.entries.get(id)
        task: Task | None = entry.producer if entry is not None else None
        if task is None or task.id not in self.tasks:
            return
        if force and task.actor_id:
            raise ValueError(
                "`cancel(force=True)` would end the whole actor: leave out `force`, or use `kill` on the actor"
            )
        if recursive:
            for child in [t for t in self.tasks.values() if t.parent == task.id]:
                self.cancel(
                    child.returns[0] if child.returns else child.id,
                    force=force and not child.actor_id,
                    recursive=True,
                )
        self._cancel(task, force=force)

    def cancel_dropped(self, task_id: int) -> None:
        """Nobody wants the items of a generator any more."""
        task = self.tasks.get(task_id)
        if task is not None:
            self._cancel(task, force=False)

    def _cancel(self, task: Task, *, force: bool) -> None:
        hub = self._hub
        task.cancelled = True
        cancelled = error_value(TaskCancelledError(task_id=f"{task.id:032x}"))
        if task.worker == 0:
            if task.actor_id:
                hub.actors.forget_call(task)
            elif task.missing == 0:
                hub.scheduler.cancel(task.id)
            self.fail(task, cancelled)
            return
        process = hub.processes.get(task.worker)
        if process is None:
            return
        if force:
            hub.kill(process, "was killed by cancel(force=True)")
        else:
            hub.send(process, (m.STOP_TASK, task.id))

    def remove_from_group(self, queued: list[int], running: list[tuple[int, list[int]]]) -> None:
        """A placement group was removed: its tasks end."""
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

    def trace(self) -> list[dict[str, Any]]:
        """The last tasks as Chrome trace events."""
        return [
            {
                "cat": "task",
                "name": name,
                "ph": "X",
                "pid": pid,
                "tid": pid,
                "ts": started * 1e6,
                "dur": (ended - started) * 1e6,
            }
            for name, pid, started, ended in self.timeline
        ]
