"""One running task, which produces a block per call. The same code runs in threads and workers.

Covered: the code of a stage's tasks (`TaskCode`), a running task (`TaskRun`), its reports
(`TaskReport`), its random numbers, running a chain, and block sizes. Not covered: the order of
tasks (`scheduler`) and where they run (`executors`).

Random numbers: each task seeds the global generators of Python, NumPy and torch, so that user
functions draw the same numbers for the same rows on any worker. A task always runs from its
beginning, also when an execution starts in the middle of its output. In local mode tasks share a
thread with the user's program, whose generator states are saved and restored around each block.
Not covered: generators that functions create, overlapping calls of an async function, and torch if
the first call of a function imports it.
"""

from __future__ import annotations

import math
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from syncline.core import random_states
from syncline.core.random_states import States
from syncline.core.tracebacks import is_self_explanatory, user_traceback
from syncline.data.columnar import block as block_functions
from syncline.data.columnar.kernels.partition import Partitioned
from syncline.data.context import DataContext
from syncline.data.execute.physical_plan import (
    Chain,
    Output,
    Payload,
    Ports,
    Prepared,
    SkippedRows,
    TaskState,
)
from syncline.data.execute.steps.user_functions import UserFunctionError, UserStep, one_line
from syncline.data.io.sinks.datasink import TaskContext
from syncline.data.plan.seeds import derive
from syncline.exceptions import UserCodeException
from syncline.records import dataclass

InputLayout: TypeAlias = Sequence[Sequence[tuple[int, int, int]]]
"""For each port, for each piece: (number of the input table, first row, end)."""


class TaskRequest(NamedTuple):
    """Request to run a task. Small, because it is pickled for each task."""

    number: int
    payload: Payload = None
    skip_rows: int = 0
    port: int = 0
    parts: int = 0
    timed_out_calls: frozenset[tuple[str, int]] = frozenset()


class PartitionRange(NamedTuple):
    """Rows of a partition in the table that holds all partitions."""

    start: int
    stop: int
    size_bytes: int


class TaskReport(NamedTuple):
    """Result of producing one block. The block itself is a separate value."""

    rows: int | None = None
    """Rows of the block; None without a block, which also ends the task."""
    size_bytes: int = 0
    is_last: bool = False
    """True if the task has ended."""
    parts: tuple[PartitionRange, ...] = ()
    """Ranges of the partitions, for a "partition" task."""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    read_s: float = 0.0
    function_s: float = 0.0
    skipped: tuple[SkippedRows, ...] = ()
    """Rows skipped while producing this block."""
    error: BaseException | None = None
    """Error that ended the task."""
    timed_out: bool = False
    """True if a call exceeded its time limit and is still running: the process must be killed."""
    timed_out_call: tuple[str, int] | None = None
    """(step, first row) of that call if the next attempt is to skip its rows."""


@dataclass(frozen=True, kw_only=True)
class ChainCode:
    """Code of the tasks that run a stage's chain."""

    name: str
    chain: Chain
    seed: int
    epoch: int
    distance: int = 0
    """Number of stages after this one. Part of the random seed: it does not change when a cache
    before the stage is filled.
    """
    threads: int = 1
    """Threads that libraries may use in a worker process, see `DataWorker`."""

    def open(self) -> None:
        """Open the steps of the chain."""
        open_chain(self.chain)

    def close(self) -> None:
        """Close the steps of the chain."""
        close_chain(self.chain)

    def begin(self, request: TaskRequest, ports: Ports, state: TaskState) -> Iterator[Output]:
        """Return the blocks of a task lazily."""
        return run_chain(self.chain, ports, request.payload, state, skip_rows=request.skip_rows)


@dataclass(frozen=True, kw_only=True)
class ExchangeCode:
    """Code of the sampling or partitioning tasks of an exchange; `sample` or `partition` is set."""

    name: str
    context: DataContext
    seed: int = 0
    epoch: int = 0
    sample: Callable[[pa.Table, int], pa.Table] | None = None
    partition: tuple[Callable[[pa.Table, int, Prepared, int], Partitioned], ...] = ()
    prepared: Prepared = None

    def open(self) -> None:
        """Do nothing: the functions need no preparation."""

    def close(self) -> None:
        """Do nothing: the functions hold no resources."""

    def begin(
        self, request: TaskRequest, ports: Ports, state: TaskState
    ) -> Iterator[Output | Partitioned]:
        """Yield the sample, or the rows by partition."""
        ((table,),) = ports
        made: Output | Partitioned
        with DataContext.current(self.context):
            if self.sample is not None:
                made = Output(table=self.sample(table, request.number), is_last=True)
            else:
                made = self.partition[request.port](
                    table, request.parts, self.prepared, request.number
                )
        yield made


TaskCode: TypeAlias = ChainCode | ExchangeCode


def random_seed_of(code: TaskCode, task: int | None = None) -> tuple[int, ...]:
    """Return the numbers that seed a task, or without `task` the user's constructors.

    Empty for an exchange, which calls no user functions.
    """
    if isinstance(code, ExchangeCode):
        return ()
    stage = (code.seed, code.distance)
    return stage if task is None else (*stage, code.epoch, task)


Clock: TypeAlias = Callable[[], float]


class TaskRun:
    """A running task. Different threads may produce its blocks, one at a time.

    Args:
        code: Code of the task.
        request: The task.
        ports: Input tables, cut to the rows of the task.
        cpu_clock: CPU seconds.
        random_state: Context in which each block is produced.
    """

    def __init__(
        self,
        code: TaskCode,
        request: TaskRequest,
        ports: Ports,
        *,
        cpu_clock: Clock = time.thread_time,
        random_state: AbstractContextManager[None] | None = None,
    ) -> None:
        self.code = code
        self.state = TaskState(
            stage=code.name,
            task=request.number,
            seed=code.seed,
            epoch=code.epoch,
            timed_out_calls=request.timed_out_calls,
        )
        self._outputs = code.begin(request, ports, self.state)
        self._cpu_clock = cpu_clock
        self._random_state = random_state or nullcontext()

    def next_block(self) -> tuple[TaskReport, pa.Table | None]:
        """Produce the next block. An error of the task becomes part of the report."""
        state = self.state
        read_s, function_s, skipped = state.read_s, state.function_s, len(state.skipped)
        wall, cpu = time.perf_counter(), self._cpu_clock()
        try:
            with self._random_state:
                output = next(self._outputs, None)
        except (Exception, SystemExit, GeneratorExit) as error:
            output = None
            report = TaskReport(error=task_error(self.code.name, error))
        else:
            report = _report_of(output)
        report = report._replace(
            wall_s=time.perf_counter() - wall,
            cpu_s=self._cpu_clock() - cpu,
            read_s=state.read_s - read_s,
            function_s=state.function_s - function_s,
            skipped=tuple(state.skipped[skipped:]),
        )
        return report, None if output is None else output.table

    def close(self) -> None:
        """Stop the task and release its resources."""
        close: Callable[[], None] | None = getattr(self._outputs, "close", None)
        if close is not None:
            close()


def _report_of(output: Output | Partitioned | None) -> TaskReport:
    if output is None:
        return TaskReport(is_last=True)
    rows, size = output.table.num_rows, block_functions.size_bytes(output.table)
    if isinstance(output, Output):
        return TaskReport(rows=rows, size_bytes=size, is_last=output.is_last)
    offsets = output.offsets.tolist()
    ranges = zip(offsets, offsets[1:], strict=False)
    per_row = size / rows if rows else 0.0
    parts = tuple(
        PartitionRange(start, stop, int((stop - start) * per_row)) for start, stop in ranges
    )
    return TaskReport(rows=rows, size_bytes=size, is_last=True, parts=parts)


def task_error(
    operator: str, error: BaseException, *, traceback: str | None = None
) -> UserCodeException:
    """Return the error to raise to the user for an error of a task.

    `traceback` is the text of the traceback if `error` has none.
    """
    where = ""
    if isinstance(error, UserFunctionError):
        operator, where, error = error.operator, f" {error.where}", error.original
    if traceback is None and is_self_explanatory(error):
        return UserCodeException(
            operator,
            f"{operator} failed{where} with {type(error).__name__}: {error}",
            error,
            pid=os.getpid(),
        )
    text = user_traceback(error) if traceback is None else traceback
    header = f"{operator} failed{where} with {one_line(error)}"
    return UserCodeException(operator, f"{header}\n\n{text.rstrip()}", error, pid=os.getpid())


def slice_inputs(tables: Sequence[pa.Table], layout: InputLayout) -> list[list[pa.Table]]:
    """Return the input tables of each port, cut to the rows of the task."""
    return [
        [_slice(tables[number], start, stop) for number, start, stop in port] for port in layout
    ]


def _slice(table: pa.Table, start: int, stop: int) -> pa.Table:
    return table if start == 0 and stop >= table.num_rows else table.slice(start, stop - start)


def seed_generators(*numbers: int) -> None:
    """Seed the global random generators from some numbers."""
    number = derive(*numbers)
    random.seed(number)
    np.random.seed(number % 2**32)
    torch = loaded_torch()
    if torch is not None:
        # `torch.manual_seed` would also record a stack for CUDA, which takes 0.1 ms.
        torch.default_generator.manual_seed(number)
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(number)


class RandomStateScope(AbstractContextManager[None]):
    """Context with separate generator states, which continue in the next `with` block.

    On exit the states of the surrounding program are restored. Not reentrant.

    Args:
        *numbers: Seed for the first block.
    """

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers
        self._own: States | None = None
        self._outer: States = {}

    def __enter__(self) -> None:
        self._outer = random_states.capture()
        if self._own is None:
            seed_generators(*self._numbers)
        else:
            random_states.restore(self._own)

    def __exit__(self, *error: object) -> None:
        self._own = random_states.capture()
        random_states.restore(self._outer)


def loaded_torch() -> Any:
    """Return torch if this process has loaded it completely."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "default_generator") else None  # another thread may be importing


def open_chain(chain: Chain) -> None:
    """Open the steps of a chain. If one cannot be opened, close those before it.

    Raises:
        UserFunctionError: A class of the user cannot be constructed.
    """
    names: Counter[str] = Counter()
    with ExitStack() as opened, DataContext.current(chain.context):
        for step in chain.steps:
            if isinstance(step, UserStep):
                names[step.name] += 1
                step.set_key_number(names[step.name])
            step.open()
            opened.callback(step.close)
        opened.pop_all()


def close_chain(chain: Chain) -> None:
    """Close the steps of an open chain. None of its tasks may be running."""
    for step in chain.steps:
        step.close()


def run_chain(
    chain: Chain, ports: Ports, payload: Payload, task: TaskState, *, skip_rows: int = 0
) -> Iterator[Output]:
    """Yield the blocks of a task of an open chain lazily, without the first `skip_rows` rows.

    Block boundaries do not depend on `skip_rows`. Tables may be slices of larger ones. A task
    without rows yields one empty block if its columns are known, so that the schema survives.
    """
    outputs = _without_first(_resized(_blocks(chain, ports, payload, task), chain), skip_rows)
    context = TaskContext(task_idx=task.task, op_name=task.stage)
    with closing(outputs):
        while True:
            # The thread does other work between two blocks, so set the contexts for each block.
            with DataContext.current(chain.context), TaskContext.current(context):
                output = next(outputs, None)
            if output is None:
                return
            yield output


def _blocks(chain: Chain, ports: Ports, payload: Payload, task: TaskState) -> Iterator[pa.Table]:
    blocks = _timed(chain.head(ports, payload, task), task)
    for step in chain.steps:
        blocks = step.run(blocks, task)
    return blocks


def _timed(blocks: Iterator[pa.Table], task: TaskState) -> Iterator[pa.Table]:
    """Yield the same blocks and count the time they take as reading."""
    while True:
        began = time.monotonic()
        try:
            block = next(blocks, None)
        finally:
            task.read_s += time.monotonic() - began
        if block is None:
            return
        yield block


def _resized(blocks: Iterator[pa.Table], chain: Chain) -> Iterator[Output]:
    """Yield the same rows in blocks of the target size: split large blocks, combine small ones."""
    limits = _Limits(
        rows=math.inf if chain.max_block_rows is None else chain.max_block_rows,
        size_bytes=math.inf if chain.max_block_bytes is None else chain.max_block_bytes,
    )
    limit = limits.starting_at(chain.first_block_bytes)
    held: list[pa.Table] = []
    sizes = _Sizes(0, 0)
    without_rows: pa.Table | None = None
    any_rows = False
    for block in blocks:
        if not block.num_rows:
            without_rows = block if without_rows is None and block.num_columns else without_rows
            continue
        any_rows = True
        rest: pa.Table | None = block
        while rest is not None:
            part, rest, added = _cut(rest, limit)
            if held and not limit.hold(sizes.plus(added)):
                yield Output(table=block_functions.concat(held), is_last=False)
                held, sizes, limit = [], _Sizes(0, 0), limit.after(limits)
            held.append(part)
            sizes = sizes.plus(added)
            # Yield now if another part of this size would not fit: waiting would only add latency.
            if not limit.hold(sizes.plus(added)):
                yield Output(table=block_functions.concat(held), is_last=False)
                held, sizes, limit = [], _Sizes(0, 0), limit.after(limits)
    if held:
        yield Output(table=block_functions.concat(held), is_last=True)
    elif not any_rows and without_rows is not None:
        yield Output(table=without_rows, is_last=True)


class _Sizes(NamedTuple):
    rows: int
    size_bytes: int

    def plus(self, other: _Sizes) -> _Sizes:
        return _Sizes(self.rows + other.rows, self.size_bytes + other.size_bytes)


class _Limits(NamedTuple):
    rows: float
    size_bytes: float

    def hold(self, sizes: _Sizes) -> bool:
        return sizes.rows <= self.rows and sizes.size_bytes <= self.size_bytes

    def starting_at(self, first_bytes: int | None) -> _Limits:
        """Return the limits of the first block of a task."""
        return (
            self
            if first_bytes is None
            else self._replace(size_bytes=min(first_bytes, self.size_bytes))
        )

    def after(self, most: _Limits) -> _Limits:
        """Return the limits of the block after one with these limits."""
        return self._replace(size_bytes=min(self.size_bytes * 2, most.size_bytes))


def _cut(block: pa.Table, limit: _Limits) -> tuple[pa.Table, pa.Table | None, _Sizes]:
    """Split a block into about equal parts that meet the limit.

    Returns the first part, which has at least one row, the remaining rows, and the size of the
    first part.
    """
    rows, size_bytes = block.num_rows, block_functions.size_bytes(block)
    parts = min(
        rows, max(math.ceil(rows / limit.rows), math.ceil(size_bytes / limit.size_bytes), 1)
    )
    if parts == 1:
        return block, None, _Sizes(rows, size_bytes)
    part = block.slice(0, rows // parts)
    return part, block.slice(part.num_rows), _Sizes(part.num_rows, block_functions.size_bytes(part))


def _without_first(outputs: Iterator[Output], rows: int) -> Generator[Output, None, None]:
    """Yield the same blocks without the first `rows` rows."""
    for output in outputs:
        skipped = min(rows, output.table.num_rows)
        rows -= skipped
        if not skipped:
            yield output
        elif skipped < output.table.num_rows:
            yield Output(table=output.table.slice(skipped), is_last=output.is_last)
