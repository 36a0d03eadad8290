"""The driver of an execution: it does what the scheduler says, and tells the scheduler what came of
it.

One thread per execution takes one thing after the other from a queue: answers of tasks, blocks that
the program took, the end. In local mode there is no thread: the program's own thread takes them
while it waits for a block. Covered: launching tasks and trying them again, blocks by number, the
clock. Not covered: what runs next (`scheduler`), where (`executors`), what a task does (`turns`).
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
from syncline.data.execute.block_store import BlockStore, MadeAgain, OutputBlock
from syncline.data.execute.data_worker import WorkKey
from syncline.data.execute.driver_queues import CacheWriters, Inbox, Outbox, Thunk
from syncline.data.execute.execution_journal import Ended, background_writer
from syncline.data.execute.execution_recorder import Recorder, recorder_for
from syncline.data.execute.executors import Executors
from syncline.data.execute.program import ExchangeRows, Program, held_blocks, stages_to_store
from syncline.data.execute.progress_display import Progress
from syncline.data.execute.scheduler import Counts, Scheduler
from syncline.data.execute.stats import ExecutionStats, Meter
from syncline.data.execute.task_attempts import Job, crash, is_tried_again, raised, survives
from syncline.data.execute.task_run import Request, Turn, failure
from syncline.data.iterate.position import Restart

logger = logging.getLogger("syncline")

TICK_S = 1.0
"""How often the number of free CPUs is looked at, and what else depends on the time, while there is
something to do.
"""
_LEAVE_S = 10.0
"""How long the program waits, when it leaves, for the driver's thread to have let go of
everything.
"""
_numbers = count(1)


class Driver:
    """Runs a program. Its methods belong to its own thread, but for `post`, `abandon`, `stats` and
    those of the consumer.
    """

    def __init__(self, program: Program, *, again: MadeAgain | None = None) -> None:
        """`again`: makes delivered rows again when they are lost."""
        engine = api.ensure_engine()
        self.is_local = engine.is_local_mode
        self.outbox = Outbox()
        self._program = program
        self._again = again
        self._stages = program.stages
        self._is_cluster = engine.address != "local"
        self._number = next(_numbers)
        self._inbox = Inbox()
        options = program.context.execution_options
        self._scheduler = Scheduler(
            program.stages,
            preserve_order=options.preserve_order,
            max_errored_blocks=program.context.max_errored_blocks,
            start=program.point,
        )
        self._store = BlockStore(held_blocks(program.stages))
        self._stored_stages = stages_to_store(program.stages)
        self._cache_writers = CacheWriters(program.stages)
        self._jobs: dict[m.TaskId, Job] = {}
        self._preparing = 0
        self._samples: dict[int, dict[int, pa.Table | ObjectRef[Any]]] = {}
        self._executors = Executors(
            program,
            self._number,
            self._inbox.put,
            is_local=self.is_local,
            is_cluster=self._is_cluster,
        )
        self._meters = tuple(Meter(name=stage.name) for stage in program.stages)
        self._rows = 0
        self._delivered_blocks = self._delivered_bytes = 0
        self._slots = 0.0
        self._began = self._moved_at = self._ticked_at = time.monotonic()
        self._ended_at: float | None = None
        self._progress: Progress | None = None
        self._recorder: Recorder | None = None
        self._over = False
        self._has_left = threading.Event()

    # -- for the consumer

    def start(self) -> None:
        """Begin; in local mode nothing runs before the program waits for a block."""
        _live.add(self)
        self.post(self._begin)
        if not self.is_local:
            threading.Thread(
                target=self._run, name=f"syncline-data-{self._number}", daemon=True
            ).start()

    def post(self, thunk: Thunk) -> None:
        """Have something done in the driver's thread."""
        self._inbox.put(thunk)

    def take(self, timeout_s: float | None) -> OutputBlock | None:
        """The next block; None after `timeout_s` seconds. Raises what the execution failed with,
        once, then StopIteration.
        """
        if self.is_local:
            self._run_here()
        block = self.outbox.take(timeout_s)
        if block is not None:
            self.post(self._taken)
        return block

    def abandon(self) -> None:
        """The program wants nothing more. Returns at once; from any thread, also while garbage is
        collected.
        """
        if self.is_local:
            self._leave()
        else:
            self.post(self._leave)

    def close(self) -> None:
        """The same, and returns when everything is let go of."""
        if self._has_left.is_set():
            self.outbox.clear()
            return
        self.abandon()
        self._has_left.wait(_LEAVE_S)
        self.outbox.clear()

    def fail(self, error: BaseException) -> None:
        """The program gets `error`. From any thread."""
        self.post(partial(self._end, error, "stopped"))
        if not self.is_local:
            self._has_left.wait(_LEAVE_S)

    def stats(self) -> ExecutionStats:
        """What was counted so far. From any thread."""
        outbox, counts = self.outbox, self._scheduler.snapshot().stages
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
            first_block_s=None if outbox.first_at is None else outbox.first_at - self._began,
            program_waited_s=outbox.waited_s,
        )

    def counts(self) -> Counts:
        """Where everything stands. For the driver's thread."""
        return self._scheduler.snapshot()

    # -- the loop

    def _run(self) -> None:
        try:
            while not self._over:
                self._take_turn()
        except (
            BaseException
        ) as error:  # a defect of ours, or the engine is gone: the program must not wait for ever
            logger.debug("the driver of an execution met an error", exc_info=True)
            self._end(error)

    def _take_turn(self) -> None:
        wait_s = (
            max(0.0, self._ticked_at + TICK_S - time.monotonic()) if self._has_to_tick else None
        )
        self._inbox.run(wait_s)
        if not self._jobs and not self._over:
            self._check_that_something_is_left()
        if not self._over and self._has_to_tick and time.monotonic() >= self._ticked_at + TICK_S:
            self._tick()

    def _run_here(self) -> None:
        """In local mode: do what is to be done until the program has something to take."""
        try:
            while self.outbox.is_open:
                if not self._inbox.run_next():
                    self._end(self._stuck())
        except BaseException:
            self._leave()
            raise

    def _check_that_something_is_left(self) -> None:
        """Without a task, and without a block that the program has yet to take, nothing would ever
        happen: better an error than a hang.
        """
        if (
            not self._over
            and not self._preparing
            and not self._scheduler.snapshot().delivered_blocks
        ):
            self._end(self._stuck())

    def _stuck(self) -> BaseException:
        counts = self._scheduler.snapshot()
        return RuntimeError(
            f"the execution has nothing to do, but has not ended; this is a defect of syncline. It stands at {counts}"
        )

    @property
    def _has_to_tick(self) -> bool:
        return self._is_at_work or self._recorder is not None

    @property
    def _is_at_work(self) -> bool:
        return bool(self._jobs) or self._executors.have_pools

    def _begin(self) -> None:
        self._executors.open(self)
        if self._program.context.enable_progress_bars and not self.is_local:
            self._progress = Progress.where_people_look(self._program.context, self._program.name)
        if not self.is_local:
            self._recorder = recorder_for(self._program)
        self._slots = self._free_slots()
        self._tell(m.Started(slots=self._slots, budget_bytes=self._program.limits.budget_bytes))

    def _tick(self) -> None:
        now = self._ticked_at = time.monotonic()
        if self._is_at_work:
            self._work_tick(now)
        if self._recorder is not None and not self._over:
            self._recorder.look(now - self._began, self._scheduler.held_bytes, self)

    def _work_tick(self, now: float) -> None:
        self._executors.tick(now)
        if self._over:
            return
        slots = self._free_slots()
        if slots != self._slots:
            self._slots = slots
            self._tell(m.Started(slots=slots, budget_bytes=self._program.limits.budget_bytes))
        self._watch_progress(now)
        if self._progress is not None:
            self._progress.show(self.stats(), self._scheduler.snapshot())

    def _free_slots(self) -> float:
        if self.is_local:
            return 1.0
        options = self._program.context.execution_options
        free = api.available_resources().get("CPU", 0.0) - options.exclude_resources.cpu
        return max(1.0, min(free, options.resource_limits.cpu))

    def _watch_progress(self, now: float) -> None:
        limit_s = self._program.context.execution_no_progress_timeout_s
        if limit_s <= 0 or now - self._moved_at < limit_s:
            return
        oldest = min(
            (job for job in self._jobs.values() if job.in_turn),
            key=lambda job: job.turn_began,
            default=None,
        )
        if (
            oldest is None or now - oldest.turn_began < limit_s
        ):  # it was the program that took nothing for a while
            return
        self._moved_at = now
        task = oldest.launch.task
        waits_for = self._executors.waits_for(oldest)
        what = f"its task {task.number} has worked for {now - oldest.turn_began:.0f} s on one block"
        logger.warning(
            "no block was made for %.0f s (execution_no_progress_timeout_s=%g): %s holds the others up; %s. The execution goes on.",
            limit_s,
            limit_s,
            self._stages[task.stage].name,
            waits_for or what,
        )

    # -- the end

    def _leave(self) -> None:
        self._end(None, "stopped")

    def _end(self, error: BaseException | None, ended: Ended = "errored") -> None:
        if self._over:
            return
        self._over = True
        self._ended_at = time.monotonic()
        self._inbox.close()
        try:
            self._executors.close()
        except Exception:  # the engine is gone, and with it all processes
            logger.debug("the lanes of an execution could not be closed", exc_info=True)
        self._jobs, self._samples = {}, {}
        self._cache_writers.close()
        self._store.clear()
        if self._recorder is not None:  # before anybody hears of the end, and ends this process
            self._recorder.end(self._ended_at - self._began, ended, error, self)
        self._scheduler.handle(
            m.Abandoned()
        )  # it lets go of everything, too; what is to be done then has been done here
        try:
            if (
                self._progress is not None
            ):  # before the program hears of the end, and writes something of its own
                self._progress.close(self.stats(), self._scheduler.snapshot())
        finally:
            self.outbox.end(error)
            self._has_left.set()
        if self._program.context.enable_auto_log_stats:
            logger.info("%s has ended:\n%s", self._program.name or "an execution", self.stats())

    # -- events and instructions

    def _tell(self, event: m.Event) -> None:
        for instruction in self._scheduler.handle(event):
            if self._over:
                return
            _DO[type(instruction)](self, instruction)

    def _taken(self) -> None:
        if not self._over:
            self._tell(m.Taken())

    def _launch(self, launch: m.Launch) -> None:
        task = launch.task
        numbers = list(dict.fromkeys(piece.block for port in launch.ports for piece in port))
        places = {number: place for place, number in enumerate(numbers)}
        key = WorkKey(self._number, task.stage, task.kind)
        job = Job(
            launch=launch,
            blocks=numbers,
            key=key,
            request=Request(
                task.number, launch.payload, launch.skip_rows, launch.port, launch.parts
            ),
            layout=tuple(
                tuple((places[piece.block], piece.start, piece.stop) for piece in port)
                for port in launch.ports
            ),
            stores=task.kind == "partition"
            or (task.kind == "task" and task.stage in self._stored_stages),
            apart=task.kind == "partition" and self._is_cluster,
        )
        self._jobs[task] = job
        self._start(job)

    def _start(self, job: Job) -> None:
        task = job.launch.task
        stored = [self._store[number] for number in job.blocks]
        meter = self._meters[task.stage]
        meter.attempts += 1
        meter.turn_begins(max((each.made_at for each in stored), default=None))
        job.in_turn, job.turn_began = True, time.monotonic()
        self._executors.start(job, stored)

    def _resume(self, instruction: m.Resume) -> None:
        job = self._jobs[instruction.task]
        job.in_turn, job.turn_began = True, time.monotonic()
        self._meters[instruction.task.stage].turn_begins(None)
        self._executors.resume(job)

    def _cancel(self, instruction: m.Cancel) -> None:
        task = instruction.task
        job = self._jobs.pop(task)
        if job.in_turn:
            self._meters[task.stage].turn_ends()
        self._executors.cancel(job)

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
                    api.get(sample) if isinstance(sample, ObjectRef) else sample
                    for sample in samples
                ]
                with DataContext.current(self._program.context):
                    made = function(tables, parts)
            except Exception as error:
                self.post(
                    partial(self._end, raised(failure(stage.name, error), self._program.context))
                )
                return
            self.post(partial(prepared, made))

        def prepared(made: Any) -> None:
            self._preparing -= 1
            if not self._over:
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
                index=self._program.first_row + self._rows,
                point=self._program.restart_at(instruction.point),
            ),
            _stored=self._store[piece.block],
            _start=piece.start,
            _again=self._again,
        )
        self._rows += rows
        self._delivered_blocks += 1
        self._delivered_bytes += instruction.size_bytes
        self._moved_at = time.monotonic()
        self.outbox.deliver(block)

    def _keep(self, instruction: m.TeeBlock) -> None:
        piece = instruction.piece
        stored, rows = self._store[piece.block], piece.stop - piece.start
        size = stored.size_bytes if rows == stored.rows else stored.size_bytes * rows // stored.rows
        block = OutputBlock(
            num_rows=rows, size_bytes=size, restart=Restart(), _stored=stored, _start=piece.start
        )
        self._cache_writers.add(instruction.stage, block)

    def _keep_all(self, instruction: m.TeeEnded) -> None:
        self._cache_writers.complete(instruction.stage)

    def _drop(self, instruction: m.Drop) -> None:
        self._store.drop(instruction.block)

    def _finish(self, _: m.Finish) -> None:
        self._end(None, "finished")

    def _give_up(self, instruction: m.Fail) -> None:
        self._end(instruction.error)

    # -- what lanes tell

    def turned(
        self,
        job: Job,
        turn: Turn,
        value: pa.Table | ObjectRef[Any] | Sequence[ObjectRef[Any]] | None,
    ) -> None:
        """See `jobs.Listener`."""
        task = job.launch.task
        if self._jobs.get(task) is not job:  # cancelled meanwhile
            return
        job.in_turn = False
        self._moved_at = time.monotonic()
        meter = self._meters[task.stage]
        meter.turn_ends()
        meter.count(turn, counts_block=task.kind == "task")
        job.skipped += turn.skipped
        if turn.error is not None:
            self._erred(job, turn)
            return
        if turn.rows is None or turn.is_last:
            del self._jobs[task]
            meter.ended(task.number, job.skipped)
        if turn.rows is None:
            self._tell(m.Ended(task=task))
        elif task.kind == "sample":
            assert isinstance(value, pa.Table | ObjectRef)
            self._samples.setdefault(task.stage, {})[task.number] = value
            self._tell(m.Ended(task=task))
        elif task.kind == "partition":
            self._tell(self._partitioned(task, turn, value))
        else:
            assert isinstance(value, pa.Table | ObjectRef)
            job.produced_rows += turn.rows
            number = self._store.add(value, turn.rows, turn.size_bytes)
            self._tell(
                m.Produced(
                    task=task,
                    info=m.BlockInfo(number, turn.rows, turn.size_bytes),
                    is_last=turn.is_last,
                )
            )

    def _partitioned(self, task: m.TaskId, turn: Turn, value: Any) -> m.Partitioned:
        add = self._store.add
        if isinstance(value, ObjectRef):
            number = add(value, turn.rows or 0, turn.size_bytes)
            info = (m.BlockInfo(number, turn.rows or 0, turn.size_bytes),)
            parts = tuple(
                m.Piece(number, part.start, part.stop) if part.stop > part.start else None
                for part in turn.parts
            )
            return m.Partitioned(task=task, blocks=info, parts=parts)
        made = [
            None
            if part.stop == part.start
            else m.BlockInfo(
                add(ref, part.stop - part.start, part.size_bytes),
                part.stop - part.start,
                part.size_bytes,
            )
            for part, ref in zip(turn.parts, value, strict=True)
        ]
        pieces = tuple(None if each is None else m.Piece(each.block, 0, each.rows) for each in made)
        return m.Partitioned(
            task=task, blocks=tuple(each for each in made if each is not None), parts=pieces
        )

    def _erred(self, job: Job, turn: Turn) -> None:
        error = turn.error
        assert error is not None
        if turn.stuck is not None:
            job.request = job.request._replace(failing=job.request.failing | {turn.stuck})
        elif is_tried_again(job, error, self._stages[job.launch.task.stage], self._program.context):
            job.retries += 1
        else:
            del self._jobs[job.launch.task]
            self._cache_writers.spoil(job.launch.task.stage)
            self._tell(
                m.Failed(
                    task=job.launch.task,
                    error=raised(error, self._program.context),
                    counts_as_errored_block=True,
                )
            )
            return
        job.again()
        self._start(job)

    def lost(self, job: Job, error: BaseException) -> None:
        """See `jobs.Listener`."""
        task = job.launch.task
        if self._jobs.get(task) is not job:
            return
        self._meters[task.stage].turn_ends()
        job.deaths += 1
        if survives(job, error):
            job.again()
            self._start(job)
            return
        del self._jobs[task]
        self._tell(
            m.Failed(
                task=task,
                error=crash(job, error, self._stages[task.stage]),
                counts_as_errored_block=False,
            )
        )

    def broken(self, error: BaseException) -> None:
        """See `jobs.Listener`."""
        self._end(raised(error, self._program.context))


_DO: dict[type, Callable[[Driver, Any], None]] = {
    m.Launch: Driver._launch,
    m.Resume: Driver._resume,
    m.Prepare: Driver._prepare,
    m.Deliver: Driver._deliver,
    m.TeeBlock: Driver._keep,
    m.TeeEnded: Driver._keep_all,
    m.Drop: Driver._drop,
    m.Cancel: Driver._cancel,
    m.Finish: Driver._finish,
    m.Fail: Driver._give_up,
}

_live: weakref.WeakSet[Driver] = weakref.WeakSet()
_RECORDS_S = 5.0
"""How long the engine waits, when it ends, for what is still to be recorded."""


def _end_all() -> None:
    """The engine ends, and with it all executions."""
    for driver in list(_live):
        driver.fail(
            RuntimeError(
                "the execution of a dataset ended because syncline was shut down: iterate before `shutdown()`"
            )
        )
    background_writer().drain(_RECORDS_S)


lifecycle.shutdown_hooks.append(_end_all)
