"""Where the tasks of an execution run: on threads of this process, or in workers.

Python cannot interrupt a thread. A task that is cancelled while it produces a block on a thread is
dropped when the block is finished, and time limits of functions have no effect on threads.
Functions with a time limit therefore run in workers, except in local mode.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from queue import SimpleQueue
from typing import TypeAlias

from syncline.core import api, thread_limits
from syncline.core.refs import ObjectRef
from syncline.data.columnar import block as blocks
from syncline.data.execute.block_store import BlockValue, StoredBlock, TableRef
from syncline.data.execute.data_worker import TaskCodeKey
from syncline.data.execute.messages import TaskId
from syncline.data.execute.physical_plan import (
    Actors,
    ExchangeRows,
    ExecutorKind,
    PhysicalPlan,
    Prepared,
    Threads,
    Workers,
)
from syncline.data.execute.task_attempts import ActiveTask, ExecutorListener, Post
from syncline.data.execute.task_run import (
    ChainCode,
    ExchangeCode,
    RandomStateScope,
    TaskCode,
    TaskReport,
    TaskRun,
    random_seed_of,
    slice_inputs,
    task_error,
)
from syncline.data.execute.torch_use import may_use_torch
from syncline.data.execute.worker_handles import warm_workers
from syncline.data.execute.worker_pools import ActorExecutor, WorkerExecutor

Submit: TypeAlias = Callable[[Callable[[], None]], None]
"""Runs a call soon, on another thread or on this one."""


class DaemonThreads:
    """Daemon threads that run calls: as many threads as concurrent calls. They do not delay the
    exit of the program.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._free = 0
        """Idle threads minus waiting calls."""
        self._closed = False

    def submit(self, call: Callable[[], None]) -> None:
        """Run a call, which must not raise, on one of the threads."""
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
        """Drop the waiting calls; the threads end after their current calls."""
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
            del call  # release its references while the thread waits
            with self._lock:
                self._free += 1


class ThreadExecutor:
    """Runs tasks in this process.

    Args:
        submit: Runs a call on a thread.
        post: Runs a call on the driver's thread.
        listener: Receives reports.
        in_user_thread: True if tasks run in the user's thread, whose random state is preserved.
    """

    def __init__(
        self, submit: Submit, post: Post, listener: ExecutorListener, *, in_user_thread: bool
    ) -> None:
        self._in_user_thread = in_user_thread
        self._submit = submit
        self._post = post
        self._listener = listener
        self._opened: dict[int, TaskCode] = {}
        self._opening = threading.Lock()

    def start(self, active: ActiveTask, code: TaskCode, inputs: Sequence[BlockValue]) -> None:
        """Start a task and produce its first block."""
        self._submit(partial(self._begin, active, code, inputs))

    def resume(self, active: ActiveTask) -> None:
        """Produce the next block of a task."""
        self._submit(partial(self._next_block, active, active.runner))

    def cancel(self, active: ActiveTask) -> None:
        """Cancel a task; if it is producing a block, it is dropped afterwards."""
        running, active.runner = active.runner, None
        if running is not None and not active.is_running:
            self._submit(running.close)

    def tick(self, now: float) -> None:
        """Do nothing: threads have no timeouts."""

    def close(self) -> None:
        """Release the code of all tasks."""
        with self._opening:
            codes, self._opened = list(self._opened.values()), {}
        for code in codes:
            code.close()

    def _begin(self, active: ActiveTask, code: TaskCode, inputs: Sequence[BlockValue]) -> None:
        try:
            tables = [api.get(value) if isinstance(value, ObjectRef) else value for value in inputs]
        except Exception as error:
            self._post(partial(self._listener.lost, active, error))
            return
        failure = self._open(code)
        if failure is not None:
            self._post(partial(self._listener.reported, active, TaskReport(error=failure), None))
            return
        running = TaskRun(
            code,
            active.request,
            slice_inputs(tables, active.layout),
            random_state=self._random_state(code, active.request.number),
        )
        active.runner = running
        self._next_block(active, running)

    def _open(self, code: TaskCode) -> BaseException | None:
        """Open the code once. Return the error of a user's constructor, or None."""
        with self._opening:
            if id(code) not in self._opened:
                try:
                    with self._random_state(code):
                        code.open()
                except (Exception, SystemExit) as error:
                    return task_error(code.name, error)
                self._opened[id(code)] = code
        return None

    def _random_state(
        self, code: TaskCode, task: int | None = None
    ) -> AbstractContextManager[None]:
        numbers = random_seed_of(code, task)
        return RandomStateScope(*numbers) if self._in_user_thread and numbers else nullcontext()

    def _next_block(self, active: ActiveTask, running: TaskRun) -> None:
        report, table = running.next_block()
        value: BlockValue | None = table
        if table is not None and active.needs_store:
            try:
                value = api.put(blocks.compact(table))
            except Exception as error:  # the object store is full, or the engine ended
                self._post(partial(self._listener.lost, active, error))
                return
        self._post(partial(self._listener.reported, active, report, value))


class Executors:
    """Executors of one execution. Used by the driver's thread, except submitted calls.

    Arrow kernels and native decoders run on threads of this process; on a cluster they run in
    workers near their blocks. In local mode everything runs on the user's thread.
    """

    def __init__(
        self, plan: PhysicalPlan, number: int, post: Post, *, is_local: bool, is_cluster: bool
    ) -> None:
        self.number = number
        """Number of the execution."""
        self._plan = plan
        self._post = post
        self._is_local = is_local
        self._is_cluster = is_cluster
        self._threads: DaemonThreads | None = None
        self._workers: list[WorkerExecutor] = []
        self._executors: dict[tuple[int, str], AnyExecutor] = {}
        self._codes: dict[TaskCodeKey, TaskCode] = {}
        self._references: dict[TaskCodeKey, ObjectRef[TaskCode]] = {}
        self._prepared: dict[int, Prepared] = {}
        self._may_use_torch = True

    def open(self, listener: ExecutorListener) -> None:
        """Create the executors; pools start their first actors. `listener` receives reports."""
        self._may_use_torch = self._is_local or may_use_torch(self._plan)
        threads = ThreadExecutor(self.submit, self._post, listener, in_user_thread=self._is_local)
        for number, stage in enumerate(self._plan.stages):
            if isinstance(stage.grouping, ExchangeRows):
                kind = stage.grouping.executor
                self._executors[number, "sample"] = self._executors[number, "partition"] = (
                    threads if self._runs_here(kind) else self._worker_executor(kind, listener)
                )
            if stage.chain is None:
                continue
            if self._runs_here(stage.executor):
                self._executors[number, "task"] = threads
            elif isinstance(stage.executor, Actors):
                self._executors[number, "task"] = self._actor_executor(
                    number, stage.executor, listener
                )
            else:
                self._executors[number, "task"] = self._worker_executor(stage.executor, listener)

    @property
    def have_pools(self) -> bool:
        """True if there are actor pools, whose size depends on time."""
        return any(isinstance(executor, ActorExecutor) for executor in self._executors.values())

    def submit(self, call: Callable[[], None]) -> None:
        """Run a call on another thread; in local mode, on the driver's thread."""
        if self._is_local:
            self._post(call)
            return
        if self._threads is None:
            self._threads = DaemonThreads(f"syncline-data-{self.number}-task")
        self._threads.submit(call)

    def start(self, active: ActiveTask, inputs: Sequence[StoredBlock]) -> None:
        """Start a task."""
        executor = self._of(active.launch.task)
        if isinstance(executor, ThreadExecutor):
            executor.start(active, self._code(active.key), [each.value for each in inputs])
        elif all(each.reference is not None for each in inputs):
            executor.start(
                active, self._reference(active.key), [each.in_store() for each in inputs]
            )
        else:
            # Copying large blocks into the object store would block the driver's thread.
            self.submit(partial(self._put, executor, active, inputs))

    def resume(self, active: ActiveTask) -> None:
        """Produce the next block of a task."""
        self._of(active.launch.task).resume(active)

    def cancel(self, active: ActiveTask) -> None:
        """Cancel a task."""
        active.cancelled = True
        self._of(active.launch.task).cancel(active)

    def waits_for(self, active: ActiveTask) -> str | None:
        """Describe why a task has no process yet; None if it has one."""
        executor = self._of(active.launch.task)
        return (
            None
            if isinstance(executor, ThreadExecutor) or active.runner is not None
            else executor.waits_for()
        )

    def keep_prepared(self, stage: int, prepared: Prepared) -> None:
        """Set the prepared value for the "partition" tasks of a stage."""
        self._prepared[stage] = prepared

    def tick(self, now: float) -> None:
        """Apply timeouts."""
        for executor in set(self._executors.values()):
            executor.tick(now)

    def close(self) -> None:
        """End all tasks and release the executors."""
        executors, self._executors, self._workers = set(self._executors.values()), {}, []
        try:
            for executor in executors:
                executor.close()
        finally:
            if self._threads is not None:
                self._threads.close()
            self._codes, self._references, self._prepared = {}, {}, {}

    def _put(
        self,
        executor: WorkerExecutor | ActorExecutor,
        active: ActiveTask,
        inputs: Sequence[StoredBlock],
    ) -> None:
        try:
            references = [each.in_store() for each in inputs]
        except Exception as error:
            self._post(partial(executor.lost, active, error))
            return
        self._post(partial(self._start_with, executor, active, references))

    def _start_with(
        self,
        executor: WorkerExecutor | ActorExecutor,
        active: ActiveTask,
        references: Sequence[TableRef],
    ) -> None:
        if not active.cancelled:
            executor.start(active, self._reference(active.key), references)

    def _of(self, task: TaskId) -> AnyExecutor:
        return self._executors[task.stage, task.kind]

    def _runs_here(self, kind: ExecutorKind) -> bool:
        return self._is_local or not (self._is_cluster or isinstance(kind, Workers | Actors))

    def _worker_executor(self, kind: ExecutorKind, listener: ExecutorListener) -> WorkerExecutor:
        wanted = kind if isinstance(kind, Workers) else Workers()
        found = next((each for each in self._workers if each.serves(wanted)), None)
        if found is None:
            found = WorkerExecutor(
                self.number,
                self._post,
                listener,
                wanted,
                warm_workers,
                may_use_torch=self._may_use_torch,
            )
            self._workers.append(found)
        return found

    def _actor_executor(
        self, number: int, kind: Actors, listener: ExecutorListener
    ) -> ActorExecutor:
        key = TaskCodeKey(self.number, number, "task")
        return ActorExecutor(
            key,
            kind,
            self._reference(key),
            self._plan,
            self._post,
            listener,
            may_use_torch=self._may_use_torch,
        )

    def _code(self, key: TaskCodeKey) -> TaskCode:
        code = self._codes.get(key)
        if code is None:
            code = self._codes[key] = self._new_code(key)
        return code

    def _new_code(self, key: TaskCodeKey) -> TaskCode:
        plan = self._plan
        stage = plan.stages[key.stage]
        if key.kind == "task":
            assert stage.chain is not None
            # Below a cache, the context holds the seed of the execution that filled the cache.
            context = stage.chain.context
            seed, epoch = context._execution_seed, context._execution_idx
            if seed is None:
                seed, epoch = plan.seed, plan.epoch
            return ChainCode(
                name=stage.name,
                chain=stage.chain,
                seed=seed,
                epoch=epoch,
                distance=len(plan.stages) - key.stage,
                threads=_threads_of(stage.executor),
            )
        grouping = stage.grouping
        assert isinstance(grouping, ExchangeRows)
        if key.kind == "sample":
            return ExchangeCode(name=stage.name, context=plan.context, sample=grouping.sample)
        prepared = self._prepared.get(key.stage)
        return ExchangeCode(
            name=stage.name, context=plan.context, partition=grouping.partition, prepared=prepared
        )

    def _reference(self, key: TaskCodeKey) -> ObjectRef[TaskCode]:
        reference = self._references.get(key)
        if reference is None:
            code = self._code(key)
            try:
                reference = self._references[key] = api.put(code)
            except TypeError as error:  # a value used by a user function cannot be pickled
                raise TypeError(f"{code.name} {str(error).removeprefix('value ')}") from None
        return reference


def _threads_of(kind: ExecutorKind) -> int:
    """Return the number of threads of libraries for `num_cpus`, which is 1 if it is not given."""
    return 1 if isinstance(kind, Threads) else thread_limits.threads_for(kind.resources.num_cpus)


AnyExecutor: TypeAlias = ThreadExecutor | WorkerExecutor | ActorExecutor
