"""`DataWorker`: the actor that runs tasks of user functions one after the other, block by block.

Covered: keeping task code open between tasks, the number of threads that libraries use, and the
watchdog for functions with a time limit. A function cannot be interrupted from outside. A watched
task therefore runs on a second thread; on a timeout the call returns the stack of that thread, and
the executor kills the process.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from syncline.core import thread_limits
from syncline.core.termination import ignore_first_sigterm
from syncline.core.tracebacks import is_engine_file
from syncline.data.columnar import block as blocks
from syncline.data.execute.heap import keep_freed_memory
from syncline.data.execute.steps.user_functions import UserFunctionError, UserStep
from syncline.data.execute.task_run import (
    ChainCode,
    ExchangeCode,
    InputLayout,
    TaskCode,
    TaskReport,
    TaskRequest,
    TaskRun,
    random_seed_of,
    seed_generators,
    slice_inputs,
    task_error,
)
from syncline.data.plan.nodes import UserFunction

# Checks of a watched task per time limit while it is not in a user function.
_CHECKS_PER_LIMIT = 4


class TaskCodeKey(NamedTuple):
    """Identity of the code of a stage's tasks."""

    execution: int
    stage: int
    kind: str


PlainTuple: TypeAlias = tuple[Any, ...]
"""A `TaskCodeKey`, `TaskRequest` or `TaskReport` as a plain tuple: pickling the name of a class
takes longer than pickling its values.
"""


class DataWorker:
    """Runs one task at a time. Calls return a report and the block, which may be None."""

    def __init__(self) -> None:
        self._codes: dict[TaskCodeKey, TaskCode] = {}
        self._running: TaskRun | None = None
        self._watched_thread: ThreadPoolExecutor | None = None
        self._threads: int | None = None
        ignore_first_sigterm()
        keep_freed_memory()

    def open(self, key: PlainTuple, code: TaskCode) -> BaseException | None:
        """Open task code, which constructs the user's objects. Return their error, or None."""
        try:
            self._limit_threads(code)
            _seed(random_seed_of(code))
            code.open()
        except (Exception, SystemExit) as error:
            return task_error(code.name, error)
        self._codes[TaskCodeKey(*key)] = code
        return None

    def begin(
        self,
        key: PlainTuple,
        code: TaskCode | None,
        request: PlainTuple,
        layout: InputLayout,
        *tables: pa.Table,
    ) -> tuple[PlainTuple, pa.Table | None]:
        """Start a task and produce its first block.

        `code` is sent with the first task that needs it, and again after errors.
        """
        report, table = self._begin(key, code, request, layout, tables)
        return tuple(report), table

    def partition(
        self,
        key: PlainTuple,
        code: TaskCode | None,
        request: PlainTuple,
        layout: InputLayout,
        table: pa.Table,
    ) -> list[PlainTuple | pa.Table | None]:
        """Run a "partition" task; return its report and a table or None per partition."""
        report, whole = self._begin(key, code, request, layout, [table])
        if whole is None:
            return [tuple(report), *([None] * TaskRequest(*request).parts)]
        return [
            tuple(report),
            *(
                whole.slice(part.start, part.stop - part.start) if part.stop > part.start else None
                for part in report.parts
            ),
        ]

    def resume(self) -> tuple[PlainTuple, pa.Table | None]:
        """Produce the next block."""
        report, table = self._next_block()
        return tuple(report), table

    def _begin(
        self,
        key: PlainTuple,
        code: TaskCode | None,
        request: PlainTuple,
        layout: InputLayout,
        tables: Sequence[pa.Table],
    ) -> tuple[TaskReport, pa.Table | None]:
        if code is not None and TaskCodeKey(*key) not in self._codes:
            error = self.open(key, code)
            if error is not None:
                return TaskReport(error=error), None
        opened, asked = self._codes[TaskCodeKey(*key)], TaskRequest(*request)
        self._limit_threads(opened)
        _seed(random_seed_of(opened, asked.number))
        inputs = slice_inputs(tables, layout)
        self._running = TaskRun(opened, asked, inputs, cpu_clock=time.process_time)
        return self._next_block()

    def _limit_threads(self, code: TaskCode) -> None:
        """Let libraries use the threads of the code, unless the program sets OMP_NUM_THREADS.

        With a thread per core in each of the workers, torch's threads would wait for each other
        most of the time. A value that the user's function sets stays until other code needs
        another number.
        """
        if isinstance(code, ExchangeCode) or code.threads == self._threads:
            return
        self._threads = code.threads
        thread_limits.limit(code.threads)

    def _next_block(self) -> tuple[TaskReport, pa.Table | None]:
        running = self._running
        assert running is not None, "no task is running"
        limit_s = running.code.chain.timeout_s if isinstance(running.code, ChainCode) else None
        report, table = (
            running.next_block() if limit_s is None else self._watched_block(running, limit_s)
        )
        if table is None or report.is_last:
            self._running = None
        return report, None if table is None else blocks.compact(table)

    def abandon(self) -> None:
        """Drop the running task."""
        running, self._running = self._running, None
        if running is not None:
            running.close()

    def close(self, execution: int) -> None:
        """Release everything that belongs to an execution."""
        self.abandon()
        for key in [key for key in self._codes if key.execution == execution]:
            self._codes.pop(key).close()

    def _watched_block(
        self, running: TaskRun, limit_s: float
    ) -> tuple[TaskReport, pa.Table | None]:
        if self._watched_thread is None:
            self._watched_thread = ThreadPoolExecutor(1, thread_name_prefix="syncline-watched")
        future: Future[tuple[TaskReport, pa.Table | None]] = self._watched_thread.submit(
            running.next_block
        )
        while True:
            call = running.state.in_call
            wait_s = limit_s / _CHECKS_PER_LIMIT
            if call is not None:
                key, began, first_row, rows = call
                function = _function(running, key)
                own_limit_s = function.timeout_s
                wait_s = limit_s if own_limit_s is None else began + own_limit_s - time.monotonic()
                if own_limit_s is not None and wait_s <= 0 and not future.done():
                    return self._timeout_report(
                        running.code.name, key, function, first_row, rows
                    ), None
            try:
                return future.result(timeout=max(wait_s, 0.0))
            except FutureTimeoutError:
                continue

    def _timeout_report(
        self, stage: str, key: str, function: UserFunction, first_row: int, rows: int
    ) -> TaskReport:
        assert self._watched_thread is not None
        (thread,) = self._watched_thread._threads
        stack, where = _stack_of(thread.ident)
        late = TimeoutError(
            f"The call has worked for more than timeout_s={function.timeout_s:g} and hangs in "
            f"{where}. Raise the time limit, or skip such rows with on_error='skip'."
        )
        error = UserFunctionError(key, range(first_row, first_row + rows), late)
        text = f"Traceback of the hanging thread (most recent call last):\n{stack}"
        timed_out_call = (key, first_row) if function.on_error == "skip" else None
        return TaskReport(
            error=task_error(stage, error, traceback=text),
            timed_out=True,
            timed_out_call=timed_out_call,
        )


def _seed(numbers: tuple[int, ...]) -> None:
    if numbers:
        seed_generators(*numbers)


def _stack_of(thread: int | None) -> tuple[str, str]:
    """Return the Python stack of a thread without syncline's frames, and its innermost line."""
    frame = sys._current_frames().get(thread) if thread is not None else None
    if frame is None:
        return "", "an unknown line"
    summary = traceback.extract_stack(frame)
    users = [
        line
        for line in summary
        if not is_engine_file(line.filename) and "concurrent/futures" not in line.filename
    ]
    # Skip the start of the thread in `threading`.
    first = next(
        (at for at, line in enumerate(users) if not line.filename.endswith("threading.py")), 0
    )
    users = users[first:] or list(summary)
    return "".join(
        traceback.StackSummary.from_list(users).format()
    ), f"{users[-1].filename}:{users[-1].lineno} ({users[-1].line})"


def _function(running: TaskRun, key: str) -> UserFunction:
    """Return the function of the step that `TaskState.in_call` names."""
    assert isinstance(running.code, ChainCode)
    return next(
        step.function
        for step in running.code.chain.steps
        if isinstance(step, UserStep) and step.key == key
    )
