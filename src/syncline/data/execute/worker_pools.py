"""Tasks in worker processes: those that any stage may use, and the pools of actors that belong to
one stage.

Covered: which process runs a task, growing and shrinking of pools, starting actors again, processes
that die or hang. The answers of processes arrive on threads of the engine and are passed to the
driver's. Not covered: which task runs when (the scheduler).
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
from syncline.data.execute.data_worker import Plain, WorkKey
from syncline.data.execute.program import Actors, Program, Workers
from syncline.data.execute.task_attempts import Job, Listener, Post, is_listed
from syncline.data.execute.task_run import Turn
from syncline.data.execute.worker_handles import Process, WarmProcesses, options_of
from syncline.exceptions import GetTimeoutError, ObjectStoreFullError, OutOfDiskError, RayTaskError

Inputs: TypeAlias = Sequence[ObjectRef[Any]]
Waiting: TypeAlias = tuple[Job, ObjectRef[Any], Inputs]
"""A task that no process has got yet."""

ACTOR_IDLE_S = 10.0
"""How long an actor above `min_size` may be without a task."""
WORKER_IDLE_S = 1.0
"""The same for processes of tasks that hold more than a place, such as GPUs: other stages may wait
for them.
"""
_DEATHS_AT_START = 3


class _ProcessExecutor:
    """What both kinds of lanes have in common: the calls of processes, and what their answers
    mean.
    """

    def __init__(
        self,
        execution: int,
        executor: Workers | Actors,
        post: Post,
        listener: Listener,
        clock: Callable[[], float],
    ) -> None:
        self._execution = execution
        self._resources, self._resources_fn = executor.resources, executor.resources_fn
        self._post = post
        self._listener = listener
        self._clock = clock
        self._queue: deque[Waiting] = deque()
        self._starting: set[Process] = set()
        self._idle: deque[Process] = deque()
        """The one that was used last is the last."""
        self._busy: set[Process] = set()

    @property
    def size(self) -> int:
        """Processes, those that are starting too."""
        return len(self._starting) + len(self._idle) + len(self._busy)

    def resume(self, job: Job) -> None:
        """The next turn of a task, by the process that runs it."""
        process: Process = job.place
        self._listen(process, job, process.resume.remote())

    def lost(self, job: Job, error: BaseException) -> None:
        """The input of a task could not be had."""
        self._listener.lost(job, error)

    def cancel(self, job: Job) -> None:
        """Let go of a task. A process in the middle of a turn is ended: nothing else stops a
        function that runs.
        """
        process, job.place = job.place, None
        if process is None:
            self._queue = deque(entry for entry in self._queue if entry[0] is not job)
        elif job.in_turn:
            self._end(process)
        else:
            process.actor.abandon.remote()
            self._free(process)

    def waits_for(self) -> str | None:
        """What tasks that no process runs are waiting for."""
        return _what_is_missing(options_of(self._resources, None)) if self._starting else None

    def _new_process(self) -> Process:
        process = Process(options_of(self._resources, self._resources_fn))
        self._starting.add(process)
        return process

    def _begin(self, process: Process, job: Job, work: ObjectRef[Any], inputs: Inputs) -> None:
        job.place, process.job = process, job
        self._busy.add(process)
        sent = None
        if job.key not in process.known:
            process.known.add(job.key)
            sent = work
        call = process.begin
        if job.apart:
            call = process.actor.partition.options(num_returns=1 + job.request.parts)
        self._listen(
            process, job, call.remote(tuple(job.key), sent, tuple(job.request), job.layout, *inputs)
        )

    def _listen(self, process: Process, job: Job, answers: Sequence[ObjectRef[Any]]) -> None:
        told, *values = answers
        told.future().add_done_callback(
            lambda future: self._post(partial(self._answered, process, job, future, values))
        )

    def _answered(
        self, process: Process, job: Job, future: Future[Plain], values: Sequence[ObjectRef[Any]]
    ) -> None:
        if job.place is not process:  # cancelled meanwhile
            return
        error = future.exception()
        if isinstance(error, RayTaskError) and isinstance(
            error.cause, ObjectStoreFullError | OutOfDiskError
        ):  # no room for its block
            job.place = None
            self._free(process)
            self._listener.lost(job, error.cause)
            return
        if isinstance(
            error, RayTaskError
        ):  # the call itself: an argument could not be unpickled there
            turn = Turn(error=error)
        elif error is not None:
            job.place = None
            self._doubt_the_idle()
            self._end(process)
            self._listener.lost(job, error)
            return
        else:
            turn = Turn(*future.result())
        if turn.error is not None:
            process.known.discard(job.key)  # the work may not have arrived, or not be open
        if turn.hangs:
            self._end(process)
        elif turn.rows is None or turn.is_last:
            self._free(process)
        self._listener.turned(
            job, turn, None if turn.rows is None else values if job.apart else values[0]
        )

    def _free(self, process: Process) -> None:
        """A process has no task any more, or has just started."""
        self._busy.discard(process)
        process.job = None
        process.idle_since = self._clock()
        self._idle.append(process)
        self._assign()

    def _assign(self) -> None:
        while self._queue and self._idle:
            self._begin(self._idle.pop(), *self._queue.popleft())

    def _end(self, process: Process) -> None:
        """A process that has a task is of no more use."""
        self._busy.discard(process)
        process.kill()
        self._gone(process)

    def _gone(self, process: Process) -> None:
        """A process has ended."""
        raise NotImplementedError

    def _doubt_the_idle(self) -> None:
        """A process has died, perhaps with its node: those that answer no more shall get no
        tasks.
        """
        idle, self._idle = self._idle, deque()
        for process in idle:
            self._starting.add(process)
            self._ask(process, self._has_answered)

    def _ask(self, process: Process, then: Callable[[Process, Future[None]], None]) -> None:
        """Have `then` called when a process answers, or is known to have died."""
        answer: ObjectRef[None] = process.actor.abandon.remote()
        answer.future().add_done_callback(lambda future: self._post(partial(then, process, future)))

    def _has_answered(self, process: Process, future: Future[None]) -> None:
        """A process that was doubted lives, or does not."""
        if process not in self._starting:  # closed meanwhile
            return
        self._starting.discard(process)
        if future.exception() is None:
            self._free(process)
        else:
            self._gone(process)

    def _close_idle(self, most: int, now: float, idle_s: float) -> None:
        """Let processes go that have had nothing to do for so long, but for the last ones."""
        while self._idle and self.size > most and now - self._idle[0].idle_since > idle_s:
            self._idle.popleft().close(self._execution)


class WorkerExecutor(_ProcessExecutor):
    """Any process runs any task; there are as many as the scheduler starts tasks at once.

    A process that holds GPUs or other resources may have to wait for them: its task is taken by
    whichever process is free first.
    """

    def __init__(
        self,
        execution: int,
        post: Post,
        listener: Listener,
        executor: Workers,
        warm: WarmProcesses,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(execution, executor, post, listener, clock)
        self._warm = warm
        resources = executor.resources
        self._plain = not (
            resources.num_gpus or resources.memory or resources.options or executor.resources_fn
        )

    def serves(self, executor: Workers) -> bool:
        """Whether the processes of `executor` are like those of this one."""
        return executor.resources == self._resources and executor.resources_fn is self._resources_fn

    def start(self, job: Job, work: ObjectRef[Any], inputs: Inputs) -> None:
        """Begin a task."""
        if self._plain and not self._idle:
            self._begin(self._warm.take(), job, work, inputs)
            return
        self._queue.append((job, work, inputs))
        self._assign()
        if len(self._queue) > len(self._starting):
            self._start_one()

    def tick(self, now: float) -> None:
        """Give back what idle processes hold."""
        if not self._plain:
            self._close_idle(0, now, WORKER_IDLE_S)

    def close(self) -> None:
        """End those that work, keep the others warm."""
        self._queue.clear()
        for process in self._starting:
            process.kill()
        for process in self._busy:
            if process.job is not None and process.job.in_turn:
                process.kill()
            else:
                self._idle.append(process)
        for process in self._idle:
            process.close(self._execution)
            if self._plain:
                self._warm.give(process)
        self._starting, self._busy = set(), set()
        self._idle.clear()

    def _doubt_the_idle(self) -> None:
        super()._doubt_the_idle()
        self._warm.clear()

    def _start_one(self) -> None:
        self._ask(self._new_process(), self._has_started)

    def _has_started(self, process: Process, future: Future[None]) -> None:
        if process not in self._starting:  # closed meanwhile
            return
        self._starting.discard(process)
        error = future.exception()
        if error is None:
            self._free(process)
        elif self._queue:
            self._listener.lost(self._queue.popleft()[0], error)

    def _gone(self, process: Process) -> None:
        """Another one is started when there is a task for it."""
        if len(self._queue) > len(self._starting):
            self._start_one()


class ActorExecutor(_ProcessExecutor):
    """A pool of one stage: each process has constructed the user's object and keeps it."""

    def __init__(
        self,
        key: WorkKey,
        executor: Actors,
        work: ObjectRef[Any],
        program: Program,
        post: Post,
        listener: Listener,
        *,
        idle_s: float = ACTOR_IDLE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(key.execution, executor, post, listener, clock)
        self._executor = executor
        self._context = program.context
        self._key = key
        self._name = program.stages[key.stage].name
        self._work = work
        self._idle_s = idle_s
        self._began = clock()
        self._failures = 0
        """Starts in a row that failed."""
        self._was_complete = False
        for _ in range(executor.initial_size):
            self._start_one()

    def start(self, job: Job, work: ObjectRef[Any], inputs: Inputs) -> None:
        """Begin a task, once an actor is free."""
        self._queue.append((job, work, inputs))
        self._assign()
        self._grow()

    def tick(self, now: float) -> None:
        """Let actors go that have had nothing to do for a while; give up if too few come up."""
        self._close_idle(self._executor.min_size, now, self._idle_s)
        limit_s = self._context.wait_for_min_actors_s
        if not self._was_complete and 0 <= limit_s < now - self._began:
            self._was_complete = True  # said once
            self._listener.broken(
                GetTimeoutError(
                    f"{self._name} has {len(self._idle) + len(self._busy)} of at least {self._executor.min_size} actors after "
                    f"wait_for_min_actors_s={limit_s} s; {self.waits_for()}: ask for less, free what others hold, or wait longer"
                )
            )

    def close(self) -> None:
        """End all actors: those that work at once, the others when they have let go of their
        objects.
        """
        self._queue.clear()
        for process in (*self._starting, *self._busy):
            process.kill()
        for process in self._idle:
            process.close(self._execution)
        self._starting, self._busy = set(), set()
        self._idle.clear()

    # -- processes

    def _start_one(self) -> None:
        process = self._new_process()
        process.known.add(self._key)
        opened: ObjectRef[Any] = process.actor.open.remote(tuple(self._key), self._work)
        opened.future().add_done_callback(
            lambda future: self._post(partial(self._opened, process, future))
        )

    def _opened(self, process: Process, future: Future[BaseException | None]) -> None:
        if process not in self._starting:  # closed meanwhile
            return
        self._starting.discard(process)
        died = future.exception()
        raised = (
            died
            if isinstance(died, RayTaskError)
            else None
            if died is not None
            else future.result()
        )
        if raised is None and died is None:
            self._failures = 0
            self._free(process)
            return
        self._failures += 1
        process.kill()
        if self._starts_again(raised):
            self._start_one()
        elif raised is not None:
            self._listener.broken(raised)
        else:
            self._listener.broken(
                RuntimeError(
                    f"the actors of {self._name} died {self._failures} times in a row while they were constructed: {died}"
                )
            )

    def _starts_again(self, raised: BaseException | None) -> bool:
        if raised is None:
            return self._failures < _DEATHS_AT_START
        most = self._context.actor_init_max_retries
        return is_listed(raised, self._context.actor_init_retry_on_errors) and (
            most < 0 or self._failures <= most
        )

    def _grow(self) -> None:
        most = self._executor.max_size
        if self._queue and not self._starting and (most is None or self.size < most):
            self._start_one()

    def _free(self, process: Process) -> None:
        super()._free(process)
        self._was_complete = (
            self._was_complete or len(self._idle) + len(self._busy) >= self._executor.min_size
        )
        self._grow()

    def _gone(self, process: Process) -> None:
        if self.size < self._executor.min_size:
            self._start_one()
        self._grow()


def _what_is_missing(options: Mapping[str, Any]) -> str:
    free = {
        name: amount
        for name, amount in api.available_resources().items()
        if not name.startswith("node:")
    }
    return (
        f"a process with {dict(options)} has not started; free are {free}"
        if options
        else "its constructor has not returned"
    )
