"""Tasks in this process: on threads of the execution, or, in local mode, one turn after the other
in the program's own thread.

Python cannot interrupt a thread: a task that is cancelled in the middle of a turn is dropped when
the turn ends, and time limits of functions have no effect here (functions with one run in worker
processes, except in local mode).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeAlias

import pyarrow as pa

from syncline.core import api
from syncline.core.refs import ObjectRef
from syncline.data.columnar import block as blocks
from syncline.data.execute.block_store import Stored
from syncline.data.execute.data_worker import WorkKey
from syncline.data.execute.messages import TaskId
from syncline.data.execute.program import Actors, ExchangeRows, ExecutorKind, Program, Workers
from syncline.data.execute.task_attempts import Job, Listener, Post
from syncline.data.execute.task_run import (
    Aside,
    ChainWork,
    ExchangeWork,
    Running,
    Turn,
    Work,
    cut,
    draws_of,
    failure,
)
from syncline.data.execute.worker_handles import warm
from syncline.data.execute.worker_pools import ActorExecutor, WorkerExecutor

Submit: TypeAlias = Callable[[Callable[[], None]], None]
"""Has a call made some time soon, by some thread or by this one."""


class DaemonThreads:
    """Threads that make calls; as many as calls wait at once. They never hold up the program's
    exit.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._free = 0
        """Threads that wait, less the calls that wait for one."""
        self._closed = False

    def submit(self, call: Callable[[], None]) -> None:
        """Have `call`, which must not raise, made by one of the threads."""
        with self._lock:
            if self._closed:
                return
            self._free -= 1
            grows = self._free < 0
            if grows:
                self._free += 1
                self._threads += 1
                number = self._threads
        self._calls.put(call)
        if grows:
            threading.Thread(target=self._run, name=f"{self._name}-{number}", daemon=True).start()

    def close(self) -> None:
        """The threads end when their calls have; calls that wait are not made."""
        with self._lock:
            self._closed = True
            count, self._threads = self._threads, 0
        for _ in range(count):
            self._calls.put(None)

    def _run(self) -> None:
        while True:
            call = self._calls.get()
            if call is None:
                return
            if not self._closed:
                call()
            del call  # what it refers to is not kept while the thread waits
            with self._lock:
                self._free += 1


class ThreadExecutor:
    """Runs tasks in this process."""

    def __init__(
        self, submit: Submit, post: Post, listener: Listener, *, beside_program: bool
    ) -> None:
        """`beside_program`: in the program's own thread, which is where user functions run then."""
        self._beside_program = beside_program
        self._submit = submit
        self._post = post
        self._listener = listener
        self._opened: dict[int, Work] = {}
        self._opening = threading.Lock()

    def start(self, job: Job, work: Work, inputs: Sequence[ObjectRef[Any] | pa.Table]) -> None:
        """Begin a task: its first turn."""
        self._submit(partial(self._begin, job, work, inputs))

    def resume(self, job: Job) -> None:
        """The next turn."""
        self._submit(partial(self._turn, job, job.place))

    def cancel(self, job: Job) -> None:
        """Let go of a task; one in the middle of a turn is dropped at its end."""
        running, job.place = job.place, None
        if running is not None and not job.in_turn:
            self._submit(running.close)

    def tick(self, now: float) -> None:
        """Nothing to do from time to time."""

    def close(self) -> None:
        """No more tasks."""
        with self._opening:
            works, self._opened = list(self._opened.values()), {}
        for work in works:
            work.close()

    def _begin(self, job: Job, work: Work, inputs: Sequence[ObjectRef[Any] | pa.Table]) -> None:
        try:
            tables = [api.get(value) if isinstance(value, ObjectRef) else value for value in inputs]
        except Exception as error:
            self._post(partial(self._listener.lost, job, error))
            return
        raised = self._open(work)
        if raised is not None:
            self._post(partial(self._listener.turned, job, Turn(error=raised), None))
            return
        running = Running(
            work, job.request, cut(tables, job.layout), draws=self._draws(work, job.request.number)
        )
        job.place = running
        self._turn(job, running)

    def _open(self, work: Work) -> BaseException | None:
        """Prepare for the tasks of a work, once. What the user's class raised, if it did."""
        with self._opening:
            if id(work) not in self._opened:
                try:
                    with self._draws(work):
                        work.open()
                except (Exception, SystemExit) as error:
                    return failure(work.name, error)
                self._opened[id(work)] = work
        return None

    def _draws(self, work: Work, task: int | None = None) -> AbstractContextManager[None]:
        numbers = draws_of(work, task)
        return Aside(*numbers) if self._beside_program and numbers else nullcontext()

    def _turn(self, job: Job, running: Running) -> None:
        turn, table = running.turn()
        value: pa.Table | ObjectRef[Any] | None = table
        if table is not None and job.stores:
            try:
                value = api.put(blocks.compact(table))
            except Exception as error:  # no room, or the engine has ended
                self._post(partial(self._listener.lost, job, error))
                return
        self._post(partial(self._listener.turned, job, turn, value))


class Executors:
    """The lanes of one execution. For the driver's thread, but for what is submitted.

    Kernels and native decoders run on threads of this process; on a cluster they run in workers,
    near their blocks. In local mode everything runs in the driver's thread, which is the program's.
    """

    def __init__(
        self, program: Program, number: int, post: Post, *, is_local: bool, is_cluster: bool
    ) -> None:
        self.number = number
        """Of the execution."""
        self._program = program
        self._post = post
        self._is_local = is_local
        self._is_cluster = is_cluster
        self._threads: DaemonThreads | None = None
        self._workers: list[WorkerExecutor] = []
        self._executors: dict[tuple[int, str], ThreadExecutor | WorkerExecutor | ActorExecutor] = {}
        self._works: dict[WorkKey, Work] = {}
        self._references: dict[WorkKey, ObjectRef[Any]] = {}
        self._prepared: dict[int, Any] = {}

    def open(self, listener: Listener) -> None:
        """Begin: pools start their first actors. The lanes tell `listener` what becomes of
        tasks.
        """
        here = ThreadExecutor(self.submit, self._post, listener, beside_program=self._is_local)
        for number, stage in enumerate(self._program.stages):
            if isinstance(stage.grouping, ExchangeRows):
                executor = stage.grouping.executor
                self._executors[number, "sample"] = self._executors[number, "partition"] = (
                    here if self._runs_here(executor) else self._worker_executor(executor, listener)
                )
            if stage.chain is None:
                continue
            if self._runs_here(stage.executor):
                self._executors[number, "task"] = here
            elif isinstance(stage.executor, Actors):
                self._executors[number, "task"] = self._actor_executor(number, stage.executor, listener)
            else:
                self._executors[number, "task"] = self._worker_executor(stage.executor, listener)

    @property
    def have_pools(self) -> bool:
        """Whether actors come and go with time."""
        return any(isinstance(executor, ActorExecutor) for executor in self._executors.values())

    def submit(self, call: Callable[[], None]) -> None:
        """Have a call made outside of the driver's thread; in local mode there is no other."""
        if self._is_local:
            self._post(call)
            return
        if self._threads is None:
            self._threads = DaemonThreads(f"syncline-data-{self.number}-task")
        self._threads.submit(call)

    def start(self, job: Job, inputs: Sequence[Stored]) -> None:
        """Begin a task."""
        executor = self._of(job.launch.task)
        if isinstance(executor, ThreadExecutor):
            executor.start(job, self._work(job.key), [each.value for each in inputs])
        elif all(each.reference is not None for each in inputs):
            executor.start(job, self._reference(job.key), [each.in_store() for each in inputs])
        else:
            # Copying large blocks into the object store takes a while: not in the thread that
            # serves all tasks.
            self.submit(partial(self._put, executor, job, inputs))

    def resume(self, job: Job) -> None:
        """The next turn of a task."""
        self._of(job.launch.task).resume(job)

    def cancel(self, job: Job) -> None:
        """Let go of a task."""
        job.cancelled = True
        self._of(job.launch.task).cancel(job)

    def waits_for(self, job: Job) -> str | None:
        """What a task that no process runs yet is waiting for; None if it runs."""
        executor = self._of(job.launch.task)
        return None if isinstance(executor, ThreadExecutor) or job.place is not None else executor.waits_for()

    def keep_prepared(self, stage: int, prepared: Any) -> None:
        """What the "partition" tasks of a stage work with."""
        self._prepared[stage] = prepared

    def tick(self, now: float) -> None:
        """What depends on the time."""
        for executor in set(self._executors.values()):
            executor.tick(now)

    def close(self) -> None:
        """No more tasks: everything that runs is ended."""
        executors, self._executors, self._workers = set(self._executors.values()), {}, []
        try:
            for executor in executors:
                executor.close()
        finally:
            if self._threads is not None:
                self._threads.close()
            self._works, self._references, self._prepared = {}, {}, {}

    def _put(self, executor: WorkerExecutor | ActorExecutor, job: Job, inputs: Sequence[Stored]) -> None:
        try:
            references = [each.in_store() for each in inputs]
        except Exception as error:
            self._post(partial(executor.lost, job, error))
            return
        self._post(partial(self._start_with, executor, job, references))

    def _start_with(
        self, executor: WorkerExecutor | ActorExecutor, job: Job, references: Sequence[ObjectRef[Any]]
    ) -> None:
        if not job.cancelled:
            executor.start(job, self._reference(job.key), references)

    def _of(self, task: TaskId) -> ThreadExecutor | WorkerExecutor | ActorExecutor:
        return self._executors[task.stage, task.kind]

    def _runs_here(self, executor: ExecutorKind) -> bool:
        return self._is_local or not (self._is_cluster or isinstance(executor, Workers | Actors))

    def _worker_executor(self, executor: ExecutorKind, listener: Listener) -> WorkerExecutor:
        wanted = executor if isinstance(executor, Workers) else Workers()
        found = next((each for each in self._workers if each.serves(wanted)), None)
        if found is None:
            found = WorkerExecutor(self.number, self._post, listener, wanted, warm)
            self._workers.append(found)
        return found

    def _actor_executor(self, number: int, executor: Actors, listener: Listener) -> ActorExecutor:
        key = WorkKey(self.number, number, "task")
        return ActorExecutor(key, executor, self._reference(key), self._program, self._post, listener)

    def _work(self, key: WorkKey) -> Work:
        work = self._works.get(key)
        if work is None:
            work = self._works[key] = self._new_work(key)
        return work

    def _new_work(self, key: WorkKey) -> Work:
        program = self._program
        stage = program.stages[key.stage]
        if key.kind == "task":
            assert stage.chain is not None
            context = (
                stage.chain.context
            )  # below a cache, tasks draw as in the execution that fills it
            seed = program.seed if context._execution_seed is None else context._execution_seed
            epoch = program.epoch if context._execution_seed is None else context._execution_idx
            place = len(program.stages) - key.stage
            return ChainWork(
                name=stage.name, chain=stage.chain, seed=seed, epoch=epoch, place=place
            )
        grouping = stage.grouping
        assert isinstance(grouping, ExchangeRows)
        if key.kind == "sample":
            return ExchangeWork(name=stage.name, context=program.context, sample=grouping.sample)
        prepared = self._prepared.get(key.stage)
        return ExchangeWork(
            name=stage.name,
            context=program.context,
            partition=grouping.partition,
            prepared=prepared,
        )

    def _reference(self, key: WorkKey) -> ObjectRef[Any]:
        reference = self._references.get(key)
        if reference is None:
            work = self._work(key)
            try:
                reference = self._references[key] = api.put(work)
            except TypeError as error:  # something that a function uses cannot be pickled
                raise TypeError(f"{work.name} {str(error).removeprefix('value ')}") from None
        return reference
