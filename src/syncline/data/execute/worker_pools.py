"""Executors that run tasks in worker processes: shared workers, and actor pools of one stage.

Covered: assigning tasks to processes, growing and shrinking pools, restarting actors, processes
that die or hang. Replies arrive on threads of the engine and are passed to the driver's thread. Not
covered: which task runs when (`scheduler`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeAlias

from syncline.core import api
from syncline.core.refs import ObjectRef
from syncline.data.execute.block_store import TableRef
from syncline.data.execute.data_worker import PlainTuple, TaskCodeKey
from syncline.data.execute.physical_plan import Actors, PhysicalPlan, Workers
from syncline.data.execute.task_attempts import ActiveTask, ExecutorListener, Post, is_listed
from syncline.data.execute.task_run import TaskCode, TaskReport
from syncline.data.execute.worker_handles import WarmWorkers, WorkerHandle, options_of
from syncline.exceptions import GetTimeoutError, ObjectStoreFullError, OutOfDiskError, RayTaskError

CodeRef: TypeAlias = ObjectRef[TaskCode]
Inputs: TypeAlias = Sequence[TableRef]
Waiting: TypeAlias = tuple[ActiveTask, CodeRef, Inputs]
"""A task without a process so far."""

ACTOR_IDLE_S = 10.0
"""Seconds that an actor above `min_size` may be idle."""
WORKER_IDLE_S = 1.0
"""Seconds that a worker with special resources, such as GPUs, may be idle."""
_MAX_CRASHES_AT_START = 3


class _ProcessExecutor:
    """Base class: assigns tasks to processes and interprets their replies."""

    def __init__(
        self,
        execution: int,
        executor: Workers | Actors,
        post: Post,
        listener: ExecutorListener,
        clock: Callable[[], float],
        may_use_torch: bool,
    ) -> None:
        self._execution = execution
        self._may_use_torch = may_use_torch
        self._resources, self._resources_fn = executor.resources, executor.resources_fn
        self._post = post
        self._listener = listener
        self._clock = clock
        self._queue: deque[Waiting] = deque()
        self._starting: set[WorkerHandle] = set()
        self._idle: deque[WorkerHandle] = deque()
        """Idle workers; the last used is the last."""
        self._busy: set[WorkerHandle] = set()

    @property
    def size(self) -> int:
        """Number of processes, including starting ones."""
        return len(self._starting) + len(self._idle) + len(self._busy)

    def resume(self, active: ActiveTask) -> None:
        """Produce the next block of a task in its process."""
        worker: WorkerHandle = active.runner
        self._listen(worker, active, worker.resume.remote())

    def lost(self, active: ActiveTask, error: BaseException) -> None:
        """Report a task whose input is lost."""
        self._listener.lost(active, error)

    def cancel(self, active: ActiveTask) -> None:
        """Cancel a task. A busy process is killed: nothing else stops a running function."""
        worker, active.runner = active.runner, None
        if worker is None:
            self._queue = deque(entry for entry in self._queue if entry[0] is not active)
        elif active.is_running:
            self._end(worker)
        else:
            worker.actor.abandon.remote()
            self._free(worker)

    def waits_for(self) -> str | None:
        """Describe what tasks without a process wait for."""
        return _missing_resources(options_of(self._resources, None)) if self._starting else None

    def _new_worker(self) -> WorkerHandle:
        options = options_of(self._resources, self._resources_fn)
        worker = WorkerHandle(options, may_use_torch=self._may_use_torch)
        self._starting.add(worker)
        return worker

    def _begin(
        self, worker: WorkerHandle, active: ActiveTask, code: CodeRef, inputs: Inputs
    ) -> None:
        active.runner, worker.active = worker, active
        self._busy.add(worker)
        sent = None
        if active.key not in worker.known:
            worker.known.add(active.key)
            sent = code
        call = worker.begin
        if active.separate_partitions:
            call = worker.actor.partition.options(num_returns=1 + active.request.parts)
        self._listen(
            worker,
            active,
            call.remote(tuple(active.key), sent, tuple(active.request), active.layout, *inputs),
        )

    def _listen(
        self, worker: WorkerHandle, active: ActiveTask, replies: Sequence[ObjectRef[Any]]
    ) -> None:
        report, *values = replies
        report.future().add_done_callback(
            lambda future: self._post(partial(self._replied, worker, active, future, values))
        )

    def _replied(
        self,
        worker: WorkerHandle,
        active: ActiveTask,
        future: Future[PlainTuple],
        values: Sequence[TableRef],
    ) -> None:
        if active.runner is not worker:  # cancelled
            return
        error = future.exception()
        if isinstance(error, RayTaskError) and isinstance(
            error.cause, ObjectStoreFullError | OutOfDiskError
        ):
            active.runner = None
            self._free(worker)
            self._listener.lost(active, error.cause)
            return
        if isinstance(error, RayTaskError):  # an argument could not be unpickled in the process
            report = TaskReport(error=error)
        elif error is not None:
            active.runner = None
            self._check_idle()
            self._end(worker)
            self._listener.lost(active, error)
            return
        else:
            report = TaskReport(*future.result())
        if report.error is not None:
            worker.known.discard(active.key)  # the code may be missing there, or not open
        if report.timed_out:
            self._end(worker)
        elif report.rows is None or report.is_last:
            self._free(worker)
        self._listener.reported(
            active,
            report,
            None if report.rows is None else values if active.separate_partitions else values[0],
        )

    def _free(self, worker: WorkerHandle) -> None:
        """Make a worker available, after a task or after its start."""
        self._busy.discard(worker)
        worker.active = None
        worker.idle_since = self._clock()
        self._idle.append(worker)
        self._assign()

    def _assign(self) -> None:
        while self._queue and self._idle:
            self._begin(self._idle.pop(), *self._queue.popleft())

    def _end(self, worker: WorkerHandle) -> None:
        """Kill a worker that cannot be used any more."""
        self._busy.discard(worker)
        worker.kill()
        self._gone(worker)

    def _gone(self, worker: WorkerHandle) -> None:
        """Handle the end of a process."""
        raise NotImplementedError

    def _check_idle(self) -> None:
        """Check the idle workers after the death of another: the whole node may have failed."""
        idle, self._idle = self._idle, deque()
        for worker in idle:
            self._starting.add(worker)
            self._ping(worker, self._checked)

    def _ping(
        self, worker: WorkerHandle, then: Callable[[WorkerHandle, Future[None]], None]
    ) -> None:
        """Call `then` when a worker replies or is known to have died."""
        answer: ObjectRef[None] = worker.actor.abandon.remote()
        answer.future().add_done_callback(lambda future: self._post(partial(then, worker, future)))

    def _checked(self, worker: WorkerHandle, future: Future[None]) -> None:
        if worker not in self._starting:  # closed
            return
        self._starting.discard(worker)
        if future.exception() is None:
            self._free(worker)
        else:
            self._gone(worker)

    def _close_idle(self, most: int, now: float, idle_s: float) -> None:
        """Release workers that were idle for more than `idle_s`, down to `most` workers."""
        while self._idle and self.size > most and now - self._idle[0].idle_since > idle_s:
            self._idle.popleft().close(self._execution)


class WorkerExecutor(_ProcessExecutor):
    """Workers that run tasks of several stages, as many as concurrent tasks.

    A worker with special resources may have to wait for them; its task goes to the first free
    worker.
    """

    def __init__(
        self,
        execution: int,
        post: Post,
        listener: ExecutorListener,
        executor: Workers,
        warm_workers: WarmWorkers,
        clock: Callable[[], float] = time.monotonic,
        may_use_torch: bool = True,
    ) -> None:
        super().__init__(execution, executor, post, listener, clock, may_use_torch)
        self._warm_workers = warm_workers
        resources = executor.resources
        self._plain = not (
            resources.num_gpus or resources.memory or resources.options or executor.resources_fn
        )

    def serves(self, executor: Workers) -> bool:
        """Return True if the workers have the resources of another executor kind."""
        return executor.resources == self._resources and executor.resources_fn is self._resources_fn

    def start(self, active: ActiveTask, code: CodeRef, inputs: Inputs) -> None:
        """Start a task."""
        if self._plain and not self._idle:
            worker = self._warm_workers.take(may_use_torch=self._may_use_torch)
            self._begin(worker, active, code, inputs)
            return
        self._queue.append((active, code, inputs))
        self._assign()
        if len(self._queue) > len(self._starting):
            self._start_one()

    def tick(self, now: float) -> None:
        """Release idle workers that hold special resources."""
        if not self._plain:
            self._close_idle(0, now, WORKER_IDLE_S)

    def close(self) -> None:
        """Kill busy workers and keep the others idle."""
        self._queue.clear()
        for worker in self._starting:
            worker.kill()
        for worker in self._busy:
            if worker.active is not None and worker.active.is_running:
                worker.kill()
            else:
                self._idle.append(worker)
        for worker in self._idle:
            worker.close(self._execution)
            if self._plain:
                self._warm_workers.give(worker)
        self._starting, self._busy = set(), set()
        self._idle.clear()

    def _check_idle(self) -> None:
        super()._check_idle()
        self._warm_workers.clear()

    def _start_one(self) -> None:
        self._ping(self._new_worker(), self._has_started)

    def _has_started(self, worker: WorkerHandle, future: Future[None]) -> None:
        if worker not in self._starting:  # closed
            return
        self._starting.discard(worker)
        error = future.exception()
        if error is None:
            self._free(worker)
        elif self._queue:
            self._listener.lost(self._queue.popleft()[0], error)

    def _gone(self, worker: WorkerHandle) -> None:
        """Start another worker if a task needs it."""
        if len(self._queue) > len(self._starting):
            self._start_one()


class ActorExecutor(_ProcessExecutor):
    """Actor pool of one stage: each process constructs the user's object once and keeps it."""

    def __init__(
        self,
        key: TaskCodeKey,
        executor: Actors,
        code: CodeRef,
        plan: PhysicalPlan,
        post: Post,
        listener: ExecutorListener,
        *,
        idle_s: float = ACTOR_IDLE_S,
        clock: Callable[[], float] = time.monotonic,
        may_use_torch: bool = True,
    ) -> None:
        super().__init__(key.execution, executor, post, listener, clock, may_use_torch)
        self._executor = executor
        self._context = plan.context
        self._key = key
        self._name = plan.stages[key.stage].name
        self._code = code
        self._idle_s = idle_s
        self._began = clock()
        self._failures = 0
        """Consecutive failed starts."""
        self._reached_min_size = False
        for _ in range(executor.initial_size):
            self._start_one()

    def start(self, active: ActiveTask, code: CodeRef, inputs: Inputs) -> None:
        """Start a task once an actor is free."""
        self._queue.append((active, code, inputs))
        self._assign()
        self._grow()

    def tick(self, now: float) -> None:
        """Release idle actors; fail if the pool does not reach its minimum size in time."""
        self._close_idle(self._executor.min_size, now, self._idle_s)
        limit_s = self._context.wait_for_min_actors_s
        if not self._reached_min_size and 0 <= limit_s < now - self._began:
            self._reached_min_size = True  # report once
            started = len(self._idle) + len(self._busy)
            self._listener.executor_failed(
                GetTimeoutError(
                    f"{self._name} has {started} of at least {self._executor.min_size} actors "
                    f"after wait_for_min_actors_s={limit_s} s: {self.waits_for()}. Request fewer "
                    "resources, free some, or raise the limit."
                )
            )

    def close(self) -> None:
        """End all actors: kill busy ones, and let idle ones release their objects first."""
        self._queue.clear()
        for worker in (*self._starting, *self._busy):
            worker.kill()
        for worker in self._idle:
            worker.close(self._execution)
        self._starting, self._busy = set(), set()
        self._idle.clear()

    # -- processes

    def _start_one(self) -> None:
        worker = self._new_worker()
        worker.known.add(self._key)
        opened: ObjectRef[BaseException | None] = worker.actor.open.remote(
            tuple(self._key), self._code
        )
        opened.future().add_done_callback(
            lambda future: self._post(partial(self._opened, worker, future))
        )

    def _opened(self, worker: WorkerHandle, future: Future[BaseException | None]) -> None:
        if worker not in self._starting:  # closed
            return
        self._starting.discard(worker)
        crash = future.exception()
        if isinstance(crash, RayTaskError):
            error: BaseException | None = crash
        else:
            error = None if crash is not None else future.result()
        if error is None and crash is None:
            self._failures = 0
            self._free(worker)
            return
        self._failures += 1
        worker.kill()
        if self._can_start_again(error):
            self._start_one()
        elif error is not None:
            self._listener.executor_failed(error)
        else:
            self._listener.executor_failed(
                RuntimeError(
                    f"The actors of {self._name} died {self._failures} times in a row in their "
                    f"constructor: {crash}"
                )
            )

    def _can_start_again(self, error: BaseException | None) -> bool:
        if error is None:
            return self._failures < _MAX_CRASHES_AT_START
        most = self._context.actor_init_max_retries
        return is_listed(error, self._context.actor_init_retry_on_errors) and (
            most < 0 or self._failures <= most
        )

    def _grow(self) -> None:
        most = self._executor.max_size
        if self._queue and not self._starting and (most is None or self.size < most):
            self._start_one()

    def _free(self, worker: WorkerHandle) -> None:
        super()._free(worker)
        self._reached_min_size = (
            self._reached_min_size or len(self._idle) + len(self._busy) >= self._executor.min_size
        )
        self._grow()

    def _gone(self, worker: WorkerHandle) -> None:
        if self.size < self._executor.min_size:
            self._start_one()
        self._grow()


def _missing_resources(options: Mapping[str, Any]) -> str:
    free = {
        name: amount
        for name, amount in api.available_resources().items()
        if not name.startswith("node:")
    }
    return (
        f"a process with {dict(options)} has not started; free resources: {free}"
        if options
        else "the constructor has not returned"
    )
