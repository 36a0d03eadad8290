"""`DataWorker`: the actor that runs tasks of user functions, one after the other, each turn by
turn.

Covered: keeping works open between tasks, letting go of them, and the watch over functions with a
time limit. A function cannot be interrupted from outside: so its task runs on a thread beside, the
call is answered with the stack of that thread, and the executor ends the process. Functions with a
limit therefore do not run in the main thread of their process.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from syncline.core.termination import outlast_notice
from syncline.core.tracebacks import is_engine_file
from syncline.data.columnar import block as blocks
from syncline.data.execute.steps.user_functions import UserFunctionError, UserStep
from syncline.data.execute.task_run import (
    ChainWork,
    Request,
    Running,
    Turn,
    Work,
    cut,
    draws_of,
    failure,
    seed,
)
from syncline.data.plan.nodes import UserFunction

Layout: TypeAlias = Sequence[Sequence[tuple[int, int, int]]]
"""For each port, for each piece: (number of the table, first row, end)."""

# How often a watched task that is not in a function is looked at, as a part of the time limit.
_LOOKS_PER_LIMIT = 4


class WorkKey(NamedTuple):
    """Which work of which execution."""

    execution: int
    stage: int
    kind: str


Plain: TypeAlias = tuple[Any, ...]
"""A `WorkKey`, `Request` or `Turn` as it travels: without its class, whose name costs more to
pickle than the values.
"""


class DataWorker:
    """Runs one task at a time. Every call answers with what came of the turn, and the block beside
    it, which may be None.
    """

    def __init__(self) -> None:
        self._works: dict[WorkKey, Work] = {}
        self._running: Running | None = None
        self._beside: ThreadPoolExecutor | None = None
        outlast_notice()

    def open(self, key: Plain, work: Work) -> BaseException | None:
        """Prepare for the tasks of a work: construct the user's objects. Returns what they
        raised.
        """
        try:
            _seed(draws_of(work))
            work.open()
        except (Exception, SystemExit) as error:
            return failure(work.name, error)
        self._works[WorkKey(*key)] = work
        return None

    def begin(
        self, key: Plain, work: Work | None, request: Plain, layout: Layout, *tables: pa.Table
    ) -> tuple[Plain, pa.Table | None]:
        """The first turn of a task. `work` comes with the first task of each work, and after
        errors.
        """
        turn, table = self._begin(key, work, request, layout, tables)
        return tuple(turn), table

    def partition(
        self, key: Plain, work: Work | None, request: Plain, layout: Layout, table: pa.Table
    ) -> list[Any]:
        """A "partition" task whose partitions are objects of their own: what came of it, then a
        table or None for each.
        """
        turn, whole = self._begin(key, work, request, layout, [table])
        if whole is None:
            return [tuple(turn), *([None] * Request(*request).parts)]
        return [
            tuple(turn),
            *(
                whole.slice(part.start, part.stop - part.start) if part.stop > part.start else None
                for part in turn.parts
            ),
        ]

    def resume(self) -> tuple[Plain, pa.Table | None]:
        """The next turn."""
        turn, table = self._turn()
        return tuple(turn), table

    def _begin(
        self,
        key: Plain,
        work: Work | None,
        request: Plain,
        layout: Layout,
        tables: Sequence[pa.Table],
    ) -> tuple[Turn, pa.Table | None]:
        if work is not None and WorkKey(*key) not in self._works:
            error = self.open(key, work)
            if error is not None:
                return Turn(error=error), None
        opened, asked = self._works[WorkKey(*key)], Request(*request)
        _seed(draws_of(opened, asked.number))
        self._running = Running(opened, asked, cut(tables, layout), cpu_clock=time.process_time)
        return self._turn()

    def _turn(self) -> tuple[Turn, pa.Table | None]:
        running = self._running
        assert running is not None, "no task is under way"
        limit_s = running.work.chain.timeout_s if isinstance(running.work, ChainWork) else None
        turn, table = running.turn() if limit_s is None else self._watched_turn(running, limit_s)
        if table is None or turn.is_last:
            self._running = None
        return turn, None if table is None else blocks.compact(table)

    def abandon(self) -> None:
        """Let go of the task that is under way."""
        running, self._running = self._running, None
        if running is not None:
            running.close()

    def close(self, execution: int) -> None:
        """Let go of all that belongs to an execution."""
        self.abandon()
        for key in [key for key in self._works if key.execution == execution]:
            self._works.pop(key).close()

    def _watched_turn(self, running: Running, limit_s: float) -> tuple[Turn, pa.Table | None]:
        if self._beside is None:
            self._beside = ThreadPoolExecutor(1, thread_name_prefix="syncline-watched")
        future: Future[tuple[Turn, pa.Table | None]] = self._beside.submit(running.turn)
        while True:
            call = running.state.in_call
            wait_s = limit_s / _LOOKS_PER_LIMIT
            if call is not None:
                key, began, first_row, rows = call
                function = _function(running, key)
                own_limit_s = function.timeout_s
                wait_s = limit_s if own_limit_s is None else began + own_limit_s - time.monotonic()
                if own_limit_s is not None and wait_s <= 0 and not future.done():
                    return self._stuck(running.work.name, key, function, first_row, rows), None
            try:
                return future.result(timeout=max(wait_s, 0.0))
            except NotYet:
                continue

    def _stuck(
        self, stage: str, key: str, function: UserFunction, first_row: int, rows: int
    ) -> Turn:
        assert self._beside is not None
        (thread,) = self._beside._threads
        stack, where = _stack_of(thread.ident)
        late = TimeoutError(
            f"it has worked for more than timeout_s={function.timeout_s:g}, and hangs in {where}: "
            f"give it more time, or leave such rows out with on_error='skip'"
        )
        error = UserFunctionError(key, range(first_row, first_row + rows), late)
        text = f"Traceback of the thread that hangs (most recent call last):\n{stack}"
        stuck = (key, first_row) if function.on_error == "skip" else None
        return Turn(error=failure(stage, error, traceback=text), hangs=True, stuck=stuck)


def _seed(numbers: tuple[int, ...]) -> None:
    """Let the generators of this process, where nobody else draws, begin at a point that these
    numbers stand for.
    """
    if numbers:
        seed(*numbers)


def _stack_of(thread: int | None) -> tuple[str, str]:
    """(the Python stack of a thread without syncline's frames, its innermost line)."""
    frame = sys._current_frames().get(thread) if thread is not None else None
    if frame is None:
        return "", "an unknown line"
    summary = traceback.extract_stack(frame)
    users = [
        line
        for line in summary
        if not is_engine_file(line.filename) and "concurrent/futures" not in line.filename
    ]
    # The thread's own beginning, in `threading`, is not of interest either.
    first = next(
        (at for at, line in enumerate(users) if not line.filename.endswith("threading.py")), 0
    )
    users = users[first:] or list(summary)
    return "".join(
        traceback.StackSummary.from_list(users).format()
    ), f"{users[-1].filename}:{users[-1].lineno} ({users[-1].line})"


def _function(running: Running, key: str) -> UserFunction:
    """The function of the step that `TaskState.in_call` names."""
    assert isinstance(running.work, ChainWork)
    return next(
        step.function
        for step in running.work.chain.steps
        if isinstance(step, UserStep) and step.key == key
    )
