"""The driver of an execution: feeds events to the scheduler and carries out its instructions.

One thread per execution runs calls from a queue: task reports, blocks taken by the consumer, the
end. In local mode there is no thread: the user's thread runs the calls while it waits for a block.
Covered: launching and retrying tasks, numbering blocks, the clock. Not covered: what runs next
(`scheduler`), where tasks run (`executors`), what a task does (`task_run`).
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

import pyarrow as pa

from syncline.core import api, lifecycle
from syncline.core.refs import ObjectRef
from syncline.data.context import DataContext
from syncline.data.execute import messages as m
from syncline.data.execute.block_store import (
    BlockStore,
    BlockValue,
    OutputBlock,
    RecomputeRows,
    TableRef,
)
from syncline.data.execute.data_worker import TaskCodeKey
from syncline.data.execute.driver_queues import CacheWriters, CallQueue, OutputQueue
from syncline.data.execute.execution_journal import Outcome, background_writer
from syncline.data.execute.execution_recorder import ExecutionRecorder, recorder_for
from syncline.data.execute.executors import Executors
from syncline.data.execute.physical_plan import (
    ExchangeRows,
    PhysicalPlan,
    Prepared,
    held_blocks,
    stages_to_store,
)
from syncline.data.execute.progress_display import ProgressLines
from syncline.data.execute.scheduler import Counts, Scheduler
from syncline.data.execute.stats import ExecutionStats, OperatorMeter
from syncline.data.execute.task_attempts import (
    ActiveTask,
    can_restart,
    crash_error,
    should_retry,
    user_error,
)
from syncline.data.execute.task_run import TaskReport, TaskRequest, task_error
from syncline.data.iterate.position import Restart

logger = logging.getLogger("syncline")

TICK_S = 1.0
"""Seconds between updates of the free CPUs and of other time-dependent state."""
_CLOSE_S = 10.0
"""Seconds that `close` waits for the driver's thread to release its resources."""
_numbers = count(1)


class Driver:
    """Runs a physical plan.

    Methods belong to the driver's thread, except `post`, `abandon`, `stats` and those of the
    consumer.

    Args:
        plan: The plan.
        recompute: Recomputes delivered rows that were lost.
    """

    def __init__(self, plan: PhysicalPlan, *, recompute: RecomputeRows | None = None) -> None:
        engine = api.ensure_engine()
        self.is_local = engine.is_local_mode
        self.output = OutputQueue()
        self._plan = plan
        self._recompute = recompute
        self._stages = plan.stages
        self._is_cluster = engine.address != "local"
        self._number = next(_numbers)
        self._calls = CallQueue()
        self.post = self._calls.put  # runs a call on the driver's thread
        options = plan.context.execution_options
        self._scheduler = Scheduler(
            plan.stages,
            preserve_order=options.preserve_order,
            max_errored_blocks=plan.context.max_errored_blocks,
            start=plan.point,
        )
        self._store = BlockStore(held_blocks(plan.stages))
        self._stored_stages = stages_to_store(plan.stages)
        self._cache_writers = CacheWriters(plan.stages)
        self._active_tasks: dict[m.TaskId, ActiveTask] = {}
        self._preparing = 0
        self._samples: dict[int, dict[int, BlockValue]] = {}
        self._executors = Executors(
            plan, self._number, self._calls.put, is_local=self.is_local, is_cluster=self._is_cluster
        )
        self._meters = tuple(OperatorMeter(name=stage.name) for stage in plan.stages)
        self._rows = 0
        self._delivered_blocks = self._delivered_bytes = 0
        self._slots = 0.0
        self._began = self._moved_at = self._ticked_at = time.monotonic()
        self._ended_at: float | None = None
        self._progress: ProgressLines | None = None
        self._recorder: ExecutionRecorder | None = None
        self._ended = False
        self._closed_event = threading.Event()

    # -- for the consumer

    def start(self) -> None:
        """Start the execution. In local mode nothing runs until the consumer takes a block."""
        _live.add(self)
        self.post(self._begin)
        if not self.is_local:
            threading.Thread(
                target=self._run, name=f"syncline-data-{self._number}", daemon=True
            ).start()

    def take(self, timeout_s: float | None) -> OutputBlock | None:
        """Return the next block, or None after `timeout_s` seconds.

        Raises the error of the execution once, then StopIteration.
        """
        if self.is_local:
            self._run_until_ready()
        block = self.output.take(timeout_s)
        if block is not None:
            self.post(self._taken)
        return block

    def abandon(self) -> None:
        """End the execution without waiting. Safe from any thread and from a finalizer."""
        if self.is_local:
            self._abandon()
        else:
            self.post(self._abandon)

    def close(self) -> None:
        """End the execution and wait until its resources are released."""
        if not self._closed_event.is_set():
            self.abandon()
            self._closed_event.wait(_CLOSE_S)
        self.output.clear()

    def fail(self, error: BaseException) -> None:
        """End the execution with an error for the consumer. Safe from any thread."""
        self.post(partial(self._end, error, "stopped"))
        if not self.is_local:
            self._closed_event.wait(_CLOSE_S)

    def stats(self) -> ExecutionStats:
        """Return the statistics so far. Safe from any thread."""
        output, counts = self.output, self._scheduler.snapshot().stages
        operators = (
            meter.read()
            if stage.chain is not None
            else meter.read_passed(count.output_blocks, count.output_rows, count.output_bytes)
            for stage, meter, count in zip(self._stages, self._meters, counts, strict=True)
        )
        return ExecutionStats(
            operators=tuple(operators),
            wall_s=(self._ended_at or time.monotonic()) - self._began,
            blocks=self._delivered_blocks,
            rows=self._rows,
            size_bytes=self._delivered_bytes,
            first_block_s=None if output.first_at is None else output.first_at - self._began,
            program_waited_s=output.waited_s,
        )

    def counts(self) -> Counts:
        """Return the scheduler's counts."""
        return self._scheduler.snapshot()

    # -- the loop

    def _run(self) -> None:
        try:
            while not self._ended:
                self._run_once()
        except BaseException as error:  # a bug here, or the engine ended: do not block the consumer
            logger.debug("the driver of an execution failed", exc_info=True)
            self._end(error)

    def _run_once(self) -> None:
        wait_s = (
            max(0.0, self._ticked_at + TICK_S - time.monotonic()) if self._has_to_tick else None
        )
        self._calls.run(wait_s)
        if not self._active_tasks and not self._ended:
            self._check_for_stall()
        if not self._ended and self._has_to_tick and time.monotonic() >= self._ticked_at + TICK_S:
            self._tick()

    def _run_until_ready(self) -> None:
        """Run calls until the consumer has something to take. For local mode."""
        try:
            while self.output.is_open:
                if not self._calls.run_next():
                    self._end(self._stall_error())
        except BaseException:
            self._abandon()
            raise

    def _check_for_stall(self) -> None:
        """Fail the execution if nothing can happen any more, rather than block the consumer."""
        if (
            not self._ended
            and not self._preparing
            and not self._scheduler.snapshot().delivered_blocks
        ):
            self._end(self._stall_error())

    def _stall_error(self) -> BaseException:
        counts = self._scheduler.snapshot()
        return RuntimeError(
            "The execution stalled: no task is running and no block is ready. This is a bug in "
            f"syncline; please report it with this state: {counts}"
        )

    @property
    def _has_to_tick(self) -> bool:
        return self._is_busy or self._recorder is not None

    @property
    def _is_busy(self) -> bool:
        return bool(self._active_tasks) or self._executors.have_pools

    def _begin(self) -> None:
        self._executors.open(self)
        if self._plan.context.enable_progress_bars and not self.is_local:
            self._progress = ProgressLines.on_terminal(self._plan.context, self._plan.name)
        if not self.is_local:
            self._recorder = recorder_for(self._plan)
        self._slots = self._free_slots()
        self._tell(m.Started(slots=self._slots, budget_bytes=self._plan.limits.budget_bytes))

    def _tick(self) -> None:
        now = self._ticked_at = time.monotonic()
        if self._is_busy:
            self._tick_work(now)
        if self._recorder is not None and not self._ended:
            self._recorder.tick(now - self._began, self._scheduler.held_bytes, self)

    def _tick_work(self, now: float) -> None:
        self._executors.tick(now)
        if self._ended:
            return
        slots = self._free_slots()
        if slots != self._slots:
            self._slots = slots
            self._tell(m.Started(slots=slots, budget_bytes=self._plan.limits.budget_bytes))
        self._warn_without_progress(now)
        if self._progress is not None:
            self._progress.show(self.stats(), self._scheduler.snapshot())

    def _free_slots(self) -> float:
        if self.is_local:
            return 1.0
        options = self._plan.context.execution_options
        free = api.available_resources().get("CPU", 0.0) - options.exclude_resources.cpu
        return max(1.0, min(free, options.resource_limits.cpu))

    def _warn_without_progress(self, now: float) -> None:
        limit_s = self._plan.context.execution_no_progress_timeout_s
        if limit_s <= 0 or now - self._moved_at < limit_s:
            return
        oldest = min(
            (active for active in self._active_tasks.values() if active.is_running),
            key=lambda active: active.running_since,
            default=None,
        )
        if oldest is None or now - oldest.running_since < limit_s:
            return  # the consumer took no block for a while
        self._moved_at = now
        task = oldest.launch.task
        busy = f"task {task.number} has worked on one block for {now - oldest.running_since:.0f} s"
        logger.warning(
            "No block was produced for execution_no_progress_timeout_s=%g seconds. %s is the "
            "bottleneck: %s. The execution continues.",
            limit_s,
            self._stages[task.stage].name,
            self._executors.waits_for(oldest) or busy,
        )

    # -- the end

    def _abandon(self) -> None:
        self._end(None, "stopped")

    def _end(self, error: BaseException | None, outcome: Outcome = "errored") -> None:
        if self._ended:
            return
        self._ended = True
        self._ended_at = time.monotonic()
        self._calls.close()
        try:
            self._executors.close()
        except Exception:  # the engine ended, and its processes with it
            logger.debug("the executors of an execution could not be closed", exc_info=True)
        self._active_tasks, self._samples = {}, {}
        self._cache_writers.close()
        self._store.clear()
        # Record and draw the end before the consumer learns of it and exits or prints.
        if self._recorder is not None:
            self._recorder.end(self._ended_at - self._began, outcome, error, self)
        self._scheduler.handle(m.Abandoned())  # releases its state; all tasks are closed already
        try:
            if self._progress is not None:
                self._progress.close(self.stats(), self._scheduler.snapshot())
        finally:
            self.output.end(error)
            self._closed_event.set()
        if self._plan.context.enable_auto_log_stats:
            logger.info("%s has ended:\n%s", self._plan.name or "an execution", self.stats())

    # -- events and instructions

    def _tell(self, event: m.Event) -> None:
        for instruction in self._scheduler.handle(event):
            if self._ended:
                return
            _DO[type(instruction)](self, instruction)

    def _taken(self) -> None:
        if not self._ended:
            self._tell(m.Taken())

    def _launch(self, launch: m.Launch) -> None:
        task = launch.task
        numbers = list(dict.fromkeys(piece.block for port in launch.ports for piece in port))
        indices = {number: index for index, number in enumerate(numbers)}
        key = TaskCodeKey(self._number, task.stage, task.kind)
        active = ActiveTask(
            launch=launch,
            blocks=numbers,
            key=key,
            request=TaskRequest(
                task.number, launch.payload, launch.skip_rows, launch.port, launch.parts
            ),
            layout=tuple(
                tuple((indices[piece.block], piece.start, piece.stop) for piece in port)
                for port in launch.ports
            ),
            needs_store=task.kind == "partition"
            or (task.kind == "task" and task.stage in self._stored_stages),
            separate_partitions=task.kind == "partition" and self._is_cluster,
        )
        self._active_tasks[task] = active
        self._start(active)

    def _start(self, active: ActiveTask) -> None:
        task = active.launch.task
        stored = [self._store[number] for number in active.blocks]
        self._meters[task.stage].begin_attempt(max((each.made_at for each in stored), default=None))
        active.is_running, active.running_since = True, time.monotonic()
        self._executors.start(active, stored)

    def _resume(self, instruction: m.Resume) -> None:
        active = self._active_tasks[instruction.task]
        active.is_running, active.running_since = True, time.monotonic()
        self._meters[instruction.task.stage].begin_block()
        self._executors.resume(active)

    def _cancel(self, instruction: m.Cancel) -> None:
        task = instruction.task
        active = self._active_tasks.pop(task)
        if active.is_running:
            self._meters[task.stage].end_block()
        self._executors.cancel(active)

    def _prepare(self, instruction: m.Prepare) -> None:
        number, parts = instruction.stage, instruction.parts
        stage = self._stages[number]
        assert isinstance(stage.grouping, ExchangeRows)
        function = stage.grouping.prepare
        assert function is not None
        samples = [sample for _, sample in sorted(self._samples.pop(number, {}).items())]

        def prepare() -> None:
            try:
                tables = [
                    api.get(each) if isinstance(each, ObjectRef) else each for each in samples
                ]
                with DataContext.current(self._plan.context):
                    made = function(tables, parts)
            except Exception as error:
                failure = user_error(task_error(stage.name, error), self._plan.context)
                self.post(partial(self._end, failure))
                return
            self.post(partial(prepared, made))

        def prepared(made: Prepared) -> None:
            self._preparing -= 1
            if not self._ended:
                self._executors.keep_prepared(number, made)
                self._tell(m.Prepared(stage=number))

        self._preparing += 1
        self._executors.submit(prepare)

    def _deliver(self, instruction: m.Deliver) -> None:
        piece = instruction.piece
        rows = piece.stop - piece.start
        block = OutputBlock(
            num_rows=rows,
            size_bytes=instruction.size_bytes,
            restart=Restart(
                index=self._plan.first_row + self._rows,
                point=self._plan.restart_at(instruction.point),
            ),
            _stored=self._store[piece.block],
            _start=piece.start,
            _recompute=self._recompute,
        )
        self._rows += rows
        self._delivered_blocks += 1
        self._delivered_bytes += instruction.size_bytes
        self._moved_at = time.monotonic()
        self.output.deliver(block)

    def _tee_block(self, instruction: m.TeeBlock) -> None:
        piece = instruction.piece
        stored, rows = self._store[piece.block], piece.stop - piece.start
        size = stored.size_bytes if rows == stored.rows else stored.size_bytes * rows // stored.rows
        block = OutputBlock(
            num_rows=rows, size_bytes=size, restart=Restart(), _stored=stored, _start=piece.start
        )
        self._cache_writers.add(instruction.stage, block)

    # -- reports of the executors

    def reported(
        self, active: ActiveTask, report: TaskReport, value: BlockValue | Sequence[TableRef] | None
    ) -> None:
        """See `task_attempts.ExecutorListener`."""
        task = active.launch.task
        if self._active_tasks.get(task) is not active:  # cancelled
            return
        active.is_running = False
        self._moved_at = time.monotonic()
        meter = self._meters[task.stage]
        meter.end_block()
        meter.count(report, counts_block=task.kind == "task")
        active.skipped += report.skipped
        if report.error is not None:
            self._task_failed(active, report)
            return
        if report.rows is None or report.is_last:
            del self._active_tasks[task]
            meter.ended(task.number, active.skipped)
        if report.rows is None:
            self._tell(m.Ended(task=task))
        elif task.kind == "sample":
            assert isinstance(value, pa.Table | ObjectRef)
            self._samples.setdefault(task.stage, {})[task.number] = value
            self._tell(m.Ended(task=task))
        elif task.kind == "partition":
            self._tell(self._partitioned(task, report, value))
        else:
            assert isinstance(value, pa.Table | ObjectRef)
            active.produced_rows += report.rows
            info = self._add_block(value, report.rows, report.size_bytes)
            self._tell(m.Produced(task=task, info=info, is_last=report.is_last))

    def _add_block(self, value: BlockValue, rows: int, size_bytes: int) -> m.BlockInfo:
        return m.BlockInfo(self._store.add(value, rows, size_bytes), rows, size_bytes)

    def _partitioned(
        self, task: m.TaskId, report: TaskReport, value: BlockValue | Sequence[TableRef] | None
    ) -> m.Partitioned:
        if isinstance(value, ObjectRef):
            info = self._add_block(value, report.rows or 0, report.size_bytes)
            parts = tuple(
                m.Piece(info.block, part.start, part.stop) if part.stop > part.start else None
                for part in report.parts
            )
            return m.Partitioned(task=task, blocks=(info,), parts=parts)
        assert value is not None, "a report with rows has a value"
        made = [
            None
            if part.stop == part.start
            else self._add_block(ref, part.stop - part.start, part.size_bytes)
            for part, ref in zip(report.parts, value, strict=True)
        ]
        pieces = tuple(None if each is None else m.Piece(each.block, 0, each.rows) for each in made)
        return m.Partitioned(
            task=task, blocks=tuple(each for each in made if each is not None), parts=pieces
        )

    def _task_failed(self, active: ActiveTask, report: TaskReport) -> None:
        error = report.error
        assert error is not None
        if report.timed_out_call is not None:
            timed_out = active.request.timed_out_calls | {report.timed_out_call}
            active.request = active.request._replace(timed_out_calls=timed_out)
        elif should_retry(
            active, error, self._stages[active.launch.task.stage], self._plan.context
        ):
            active.retries += 1
        else:
            del self._active_tasks[active.launch.task]
            self._cache_writers.discard_after(active.launch.task.stage)
            self._tell(
                m.Failed(
                    task=active.launch.task,
                    error=user_error(error, self._plan.context),
                    counts_as_errored_block=True,
                )
            )
            return
        active.next_attempt()
        self._start(active)

    def lost(self, active: ActiveTask, error: BaseException) -> None:
        """See `task_attempts.ExecutorListener`."""
        task = active.launch.task
        if self._active_tasks.get(task) is not active:
            return
        self._meters[task.stage].end_block()
        active.crashes += 1
        if can_restart(active, error):
            active.next_attempt()
            self._start(active)
            return
        del self._active_tasks[task]
        self._tell(
            m.Failed(
                task=task,
                error=crash_error(active, error, self._stages[task.stage]),
                counts_as_errored_block=False,
            )
        )

    def executor_failed(self, error: BaseException) -> None:
        """See `task_attempts.ExecutorListener`."""
        self._end(user_error(error, self._plan.context))


_DO: dict[type, Callable[[Driver, Any], None]] = {
    m.Launch: Driver._launch,
    m.Resume: Driver._resume,
    m.Prepare: Driver._prepare,
    m.Deliver: Driver._deliver,
    m.TeeBlock: Driver._tee_block,
    m.TeeEnded: lambda driver, instruction: driver._cache_writers.complete(instruction.stage),
    m.Drop: lambda driver, instruction: driver._store.drop(instruction.block),
    m.Cancel: Driver._cancel,
    m.Finish: lambda driver, _: driver._end(None, "finished"),
    m.Fail: lambda driver, instruction: driver._end(instruction.error),
}

_live: weakref.WeakSet[Driver] = weakref.WeakSet()
_DRAIN_S = 5.0
"""Seconds that the engine waits at its shutdown for pending records."""


def _end_all() -> None:
    """End all executions at the shutdown of the engine."""
    for driver in list(_live):
        driver.fail(
            RuntimeError(
                "The execution of a dataset ended because syncline was shut down. Finish iterating "
                "before you call `shutdown()`."
            )
        )
    background_writer().drain(_DRAIN_S)


lifecycle.shutdown_hooks.append(_end_all)
