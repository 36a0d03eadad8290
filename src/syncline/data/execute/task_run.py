"""One task, turn by turn: each turn makes a block, and between turns the task rests. The same code
in threads and in worker processes.

Covered: what a stage's tasks work with (`Work`), one running task (`Running`), what a turn tells
(`Turn`), and the error that the program gets of a failing one. Not covered: who takes turns when
(the scheduler), and where (the lanes).
"""

from __future__ import annotations

import math
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from syncline.core.tracebacks import says_all, user_traceback
from syncline.data.columnar import block as block_functions
from syncline.data.columnar.kernels.partition import Partitioned
from syncline.data.context import DataContext
from syncline.data.execute.program import Chain, Output, Ports, SkippedRows, TaskState
from syncline.data.execute.steps.user_functions import UserFunctionError, UserStep, one_line
from syncline.data.io.sinks.datasink import TaskContext
from syncline.data.plan.seeds import derived
from syncline.exceptions import UserCodeException


class Request(NamedTuple):
    """A task, as whoever runs it needs to know it; small, and pickled for each task."""

    number: int
    payload: Any = None
    skip_rows: int = 0
    port: int = 0
    parts: int = 0
    failing: frozenset[tuple[str, int]] = frozenset()


class Part(NamedTuple):
    """Where a partition lies in the table that holds them all."""

    start: int
    stop: int
    size_bytes: int


class Turn(NamedTuple):
    """What came of one turn; the block itself travels beside it."""

    rows: int | None = None
    """Rows of the block; None if the turn made none."""
    size_bytes: int = 0
    is_last: bool = False
    """The task has ended with it. A turn without a block is the last one, too."""
    parts: tuple[Part, ...] = ()
    """Of a "partition" task."""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    read_s: float = 0.0
    function_s: float = 0.0
    skipped: tuple[SkippedRows, ...] = ()
    """Rows left out in this turn."""
    error: BaseException | None = None
    """What the program would get: the task has failed."""
    hangs: bool = False
    """A call exceeded its time, and still runs: the process is of no more use."""
    stuck: tuple[str, int] | None = None
    """(step, first row) of that call, if its rows are to be left out when the task runs again."""


@dataclass(frozen=True, kw_only=True)
class ChainWork:
    """The tasks of a stage."""

    name: str
    chain: Chain
    seed: int
    epoch: int
    place: int = 0
    """The number of the stage, counted from the last one: caches before it, filled or not, do not
    change it.
    """

    def open(self) -> None:
        """Before the first task in this process."""
        open_chain(self.chain)

    def close(self) -> None:
        """After the last one."""
        close_chain(self.chain)

    def begin(self, request: Request, ports: Ports, state: TaskState) -> Iterator[Output]:
        """The blocks of a task."""
        return run_chain(self.chain, ports, request.payload, state, skip_rows=request.skip_rows)


@dataclass(frozen=True, kw_only=True)
class ExchangeWork:
    """The first two steps of an exchange; `sample` or `partition` is set."""

    name: str
    context: DataContext
    seed: int = 0
    epoch: int = 0
    sample: Callable[[pa.Table, int], pa.Table] | None = None
    partition: tuple[Callable[[pa.Table, int, Any, int], Partitioned], ...] = ()
    prepared: Any = None

    def open(self) -> None:
        """Functions need no preparation."""

    def close(self) -> None:
        """And hold nothing."""

    def begin(
        self, request: Request, ports: Ports, state: TaskState
    ) -> Iterator[Output | Partitioned]:
        """The sample, or the rows by partition."""
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


Work: TypeAlias = ChainWork | ExchangeWork


def draws_of(work: Work, task: int | None = None) -> tuple[int, ...]:
    """Numbers that stand for what the user functions of a task draw, or (None) their objects while
    they are constructed.

    Exchanges call no user functions.
    """
    if isinstance(work, ExchangeWork):
        return ()
    return (work.seed, work.place) if task is None else (work.seed, work.place, work.epoch, task)


Clock: TypeAlias = Callable[[], float]


class Running:
    """A task that runs. Its turns may be taken by different threads, one at a time."""

    def __init__(
        self,
        work: Work,
        request: Request,
        ports: Ports,
        *,
        cpu_clock: Clock = time.thread_time,
        draws: AbstractContextManager[None] | None = None,
    ) -> None:
        """`ports`: the tables of the task, cut to their pieces. `draws`: each turn runs within
        it.
        """
        self.work = work
        self.state = TaskState(
            stage=work.name,
            task=request.number,
            seed=work.seed,
            epoch=work.epoch,
            failing=request.failing,
        )
        self._outputs = work.begin(request, ports, self.state)
        self._cpu_clock = cpu_clock
        self._draws = draws or nullcontext()

    def turn(self) -> tuple[Turn, pa.Table | None]:
        """Make the next block. Errors of the task are part of what is told."""
        state = self.state
        read_s, function_s, skipped = state.read_s, state.function_s, len(state.skipped)
        wall, cpu = time.perf_counter(), self._cpu_clock()
        try:
            with self._draws:
                output = next(self._outputs, None)
        except (Exception, SystemExit, GeneratorExit) as error:
            output = None
            turn = Turn(error=failure(self.work.name, error))
        else:
            turn = _told(output)
        told = turn._replace(
            wall_s=time.perf_counter() - wall,
            cpu_s=self._cpu_clock() - cpu,
            read_s=state.read_s - read_s,
            function_s=state.function_s - function_s,
            skipped=tuple(state.skipped[skipped:]),
        )
        return told, None if output is None else output.table

    def close(self) -> None:
        """No further turns: what the task holds is let go."""
        close: Callable[[], None] | None = getattr(self._outputs, "close", None)
        if close is not None:
            close()


def _told(output: Output | Partitioned | None) -> Turn:
    if output is None:
        return Turn(is_last=True)
    rows, size = output.table.num_rows, block_functions.size_bytes(output.table)
    if isinstance(output, Output):
        return Turn(rows=rows, size_bytes=size, is_last=output.is_last)
    offsets = output.offsets.tolist()
    ranges = zip(offsets, offsets[1:], strict=False)
    per_row = size / rows if rows else 0.0
    parts = tuple(Part(start, stop, int((stop - start) * per_row)) for start, stop in ranges)
    return Turn(rows=rows, size_bytes=size, is_last=True, parts=parts)


def failure(
    operator: str, error: BaseException, *, traceback: str | None = None
) -> UserCodeException:
    """What the program gets for an error of a task. `traceback`: as text, where `error` has
    none.
    """
    where = ""
    if isinstance(error, UserFunctionError):
        operator, where, error = error.operator, f" {error.where}", error.original
    if traceback is None and says_all(error):
        return UserCodeException(
            operator,
            f"{operator} failed{where} with {type(error).__name__}: {error}",
            error,
            pid=os.getpid(),
        )
    text = user_traceback(error) if traceback is None else traceback
    header = f"{operator} failed{where} with {one_line(error)}"
    return UserCodeException(operator, f"{header}\n\n{text.rstrip()}", error, pid=os.getpid())


def cut(
    tables: Sequence[pa.Table], layout: Sequence[Sequence[tuple[int, int, int]]]
) -> list[list[pa.Table]]:
    """The tables of each port: `layout` has a (number of the table, first row, end) for each
    piece.
    """
    return [
        [_slice(tables[number], start, stop) for number, start, stop in port] for port in layout
    ]


def _slice(table: pa.Table, start: int, stop: int) -> pa.Table:
    return table if start == 0 and stop >= table.num_rows else table.slice(start, stop - start)


def seed(*numbers: int) -> None:
    """Let the generators begin at a point that these numbers stand for."""
    number = derived(*numbers)
    random.seed(number)
    np.random.seed(number % 2**32)
    torch = _torch()
    if torch is not None:
        torch.default_generator.manual_seed(
            number
        )  # `torch.manual_seed` would note the stack for CUDA, which takes a tenth of a millisecond
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(number)


class Aside(AbstractContextManager[None]):
    """Within the block the generators are those of a task; before and after it, those of the
    program. One block at a time.
    """

    def __init__(self, *numbers: int) -> None:
        """`numbers` stand for the point where they begin in the first block."""
        self._numbers = numbers
        self._own: list[Callable[[], Any]] = []
        self._programs: list[Callable[[], Any]] = []

    def __enter__(self) -> None:
        self._programs = _restorers()
        if self._own:
            _call(self._own)
        else:
            seed(*self._numbers)

    def __exit__(self, *error: object) -> None:
        self._own = _restorers()
        _call(self._programs)


def _restorers() -> list[Callable[[], Any]]:
    """What brings each generator back to where it is now."""
    python, numpy, torch = random.getstate(), np.random.get_state(), _torch()
    restorers: list[Callable[[], Any]] = [
        lambda: random.setstate(python),
        lambda: np.random.set_state(numpy),
    ]
    if torch is not None:
        state = torch.get_rng_state()
        restorers.append(lambda: torch.set_rng_state(state))
    return restorers


def _call(restorers: list[Callable[[], Any]]) -> None:
    for restore in restorers:
        restore()


def _torch() -> Any:
    """torch, if this process has loaded it."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "default_generator") else None  # else another thread is about to


@dataclass(kw_only=True)
class _OpenChain:
    """A chain that this process works on."""

    chain: Chain
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_open: bool = False


_chains: dict[int, _OpenChain] = {}
_chains_lock = threading.Lock()


def open_chain(chain: Chain) -> None:
    """Open the steps of a chain, once in this process; `run_chain` does so too. UserFunctionError
    if a class cannot be constructed.
    """
    with _chains_lock:
        known = _chains.setdefault(id(chain), _OpenChain(chain=chain))
    with known.lock:
        if known.is_open:
            return
        names: Counter[str] = Counter()
        opened = 0
        try:
            with DataContext.current(chain.context):
                for step in chain.steps:
                    if isinstance(step, UserStep):
                        names[step.name] += 1
                        step.tell_apart(names[step.name])
                    step.open()
                    opened += 1
        except BaseException:
            for step in chain.steps[:opened]:
                step.close()
            raise
        known.is_open = True


def close_chain(chain: Chain) -> None:
    """Close the steps of a chain, if they are open. None of its tasks may be running."""
    with _chains_lock:
        known = _chains.pop(id(chain), None)
    if known is not None and known.is_open:
        for step in chain.steps:
            step.close()


def run_chain(
    chain: Chain, ports: Ports, payload: Any, task: TaskState, *, skip_rows: int = 0
) -> Iterator[Output]:
    """The blocks of one task, made as they are asked for, without the first `skip_rows` rows.

    Blocks are cut in the same places whatever is skipped. Tables may be slices of larger ones. A
    task without rows gives one block that has none, as long as its columns are known, so that
    schemas survive.
    """
    open_chain(chain)
    outputs = _without_first(_shaped(_blocks(chain, ports, payload, task), chain), skip_rows)
    context = TaskContext(task_idx=task.task, op_name=task.stage)
    with closing(outputs):
        while True:
            # Between two blocks this thread does other things, so that what is current has to be
            # set anew for each.
            with DataContext.current(chain.context), TaskContext.current(context):
                output = next(outputs, None)
            if output is None:
                return
            yield output


def _blocks(chain: Chain, ports: Ports, payload: Any, task: TaskState) -> Iterator[pa.Table]:
    """What comes out of the last step."""
    blocks = _timed(chain.head(ports, payload, task), task)
    for step in chain.steps:
        blocks = step.run(blocks, task)
    return blocks


def _timed(blocks: Iterator[pa.Table], task: TaskState) -> Iterator[pa.Table]:
    """The same blocks; the time that they take counts as reading."""
    while True:
        began = time.monotonic()
        try:
            block = next(blocks, None)
        finally:
            task.read_s += time.monotonic() - began
        if block is None:
            return
        yield block


def _shaped(blocks: Iterator[pa.Table], chain: Chain) -> Iterator[Output]:
    """The same rows in blocks of the size that the chain asks for: large blocks are cut, small ones
    put together.
    """
    limits = _Limits(
        rows=math.inf if chain.max_block_rows is None else chain.max_block_rows,
        size_bytes=math.inf if chain.max_block_bytes is None else chain.max_block_bytes,
    )
    limit = limits.beginning_at(chain.first_block_bytes)
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
            # Waiting for the next part, only to see that it does not fit, would keep this one from
            # those who need it.
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

    def beginning_at(self, first_bytes: int | None) -> _Limits:
        """What holds for a task's first block."""
        return (
            self
            if first_bytes is None
            else self._replace(size_bytes=min(first_bytes, self.size_bytes))
        )

    def after(self, most: _Limits) -> _Limits:
        """What holds for the block after one for which this held."""
        return self._replace(size_bytes=min(self.size_bytes * 2, most.size_bytes))


def _cut(block: pa.Table, limit: _Limits) -> tuple[pa.Table, pa.Table | None, _Sizes]:
    """The first of as many about equal parts as the limit makes necessary, what is left, and how
    large the part is.

    A part has at least one row.
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
    """The same blocks without the first rows."""
    for output in outputs:
        skipped = min(rows, output.table.num_rows)
        rows -= skipped
        if not skipped:
            yield output
        elif skipped < output.table.num_rows:
            yield Output(table=output.table.slice(skipped), is_last=output.is_last)
