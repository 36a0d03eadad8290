"""One task, turn by turn: each turn makes a block, and between turns the task rests. The same code
in threads and in worker processes.

Covered: what a stage's tasks work with (`Work`), one running task (`Running`), what a turn tells
(`Turn`), and the error that the program gets of a failing one. Not covered: who takes turns when
(the scheduler), and where (the lanes).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from syncline.core.tracebacks import says_all, user_traceback
from syncline.data.columnar import block as blocks
from syncline.data.columnar.kernels.partition import Partitioned
from syncline.data.context import DataContext
from syncline.data.execute.chain import Chain, Output, Ports, SkippedRows, TaskState
from syncline.data.execute.steps.run import close_chain, open_chain, run_chain
from syncline.data.execute.steps.user import UserFunctionError, one_line
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
    rows, size = output.table.num_rows, blocks.size_bytes(output.table)
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
