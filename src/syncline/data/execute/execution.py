"""`Execution`: an iterator over the blocks that a lowered plan makes. Its driver runs beside the
program; this is the handle.

Covered: taking blocks, leaving early, statistics, and going on when a cluster loses blocks with one
of its nodes: the execution then starts anew at the restart point of the first row that is missing,
so that the output is the same. Statistics begin anew with it. Not covered: blocks that the program
itself put into the object store cannot be made again, nor can any without `preserve_order`.
Dropping the handle (a loop that is left, an error, the end of the program) ends the execution at
once: its threads, its tasks, and the references that nobody else holds.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any

import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.context import DataContext
from syncline.data.execute.block_store import OutputBlock
from syncline.data.execute.cache import Origin, settle
from syncline.data.execute.driver import Driver
from syncline.data.execute.program import (
    ExecutionLimits,
    Program,
    SourceBlocks,
    Stage,
    TeeBlocks,
    limits_for,
    point_of,
    restart_point,
)
from syncline.data.execute.scheduler import point_after
from syncline.data.execute.stats import ExecutionStats
from syncline.data.iterate.position import Restart
from syncline.data.plan import explain, seeds
from syncline.data.plan.lowering import lower
from syncline.data.plan.nodes import Node
from syncline.data.plan.rules import optimize
from syncline.exceptions import ObjectLostError

__all__ = ["Execution", "OutputBlock", "Program"]

logger = logging.getLogger("syncline")

_MOST_LOSSES = 3
"""So often an execution starts anew at the same row."""
_REMEDY_FOR_HELD = (
    "The dataset is kept in memory, by nodes of the cluster and by the program that made it, and is gone when one of them is: make it "
    "again, or use one that is read from files, which can be read again at any time. "
)


class Execution(Iterator[OutputBlock]):
    """The blocks of a program, in order. One thread at a time takes them.

    On engines with processes the work begins at once and goes on beside the program, as far as the
    byte budget allows. In local mode (`syncline.init(local_mode=True)`) every task runs in the
    thread that asks for the next block, so that `breakpoint()` works in functions; time limits of
    functions have no effect there.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._reached = program.first_row
        """Number of the next row that is delivered."""
        self._last: Restart | None = None
        """Where the block that was taken last begins."""
        self._rest: OutputBlock | None = None
        """To be delivered before what the driver has."""
        self._losses = 0
        """Times in a row that the same row was lost."""
        self._lost_at: int | None = None
        self._start()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The operators, inputs before those that read them."""
        return self._program.stages

    @property
    def seed(self) -> int:
        """The seed of this execution, also where it was drawn."""
        return self._program.seed

    def __next__(self) -> OutputBlock:
        block = self.next(None)
        assert block is not None
        return block

    def next(self, timeout_s: float | None) -> OutputBlock | None:
        """The next block, or None if there is none within `timeout_s` seconds; None waits without
        end.

        Raises what the execution failed with (once), and StopIteration at the end.
        """
        block, self._rest = self._rest, None
        try:
            block = block or self._driver.take(timeout_s)
        except ObjectLostError as error:
            self._count_loss(self._reached, error)
            if self._last is not None:
                self._program = _beginning_at(
                    self._program,
                    _after(
                        self._program, self._last, self._reached - self._last.index, at_end=True
                    ),
                )
            self._start_anew()
            return self.next(timeout_s)
        if block is not None:
            self._last, self._reached = block.restart, block.restart.index + block.num_rows
        return block

    def first_rows(self, rows: int) -> pa.Table:
        """The next rows, in one table. RuntimeError if there are fewer."""
        tables: list[pa.Table] = []
        missing = rows
        while missing > 0 or not tables:
            block = next(self, None)
            if block is None:
                raise RuntimeError(
                    f"rows of a dataset were lost and made again, but came out otherwise: {missing} of {rows} are missing. Its functions "
                    "have to return the same rows each time for the same input, wherever they run."
                )
            tables.append(block.table().slice(0, missing))
            if block.num_rows > missing:
                self._put_back(block, missing)
            missing -= tables[-1].num_rows
        return blocks.concat(tables)

    def close(self) -> None:
        """End now: nothing goes on, and nothing is kept. Blocks that were taken stay valid. A
        second call does nothing.
        """
        self._finalizer.detach()
        self._driver.close()

    def stats(self) -> ExecutionStats:
        """What was done so far, or all in all, and where the time went."""
        return self._driver.stats()

    def __enter__(self) -> Execution:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self) -> None:
        again = partial(_made_again, self._program, weakref.ref(self))
        self._driver = Driver(self._program, again=again)
        self._finalizer = weakref.finalize(self, self._driver.abandon)
        self._driver.start()

    def _start_anew(self) -> None:
        self.close()
        self._last = None
        self._start()

    def _count_loss(self, row: int, error: ObjectLostError) -> None:
        """Raises ObjectLostError where rows from `row` on cannot be made again."""
        self._losses = self._losses + 1 if row == self._lost_at else 1
        self._lost_at = row
        if not self._program.context.execution_options.preserve_order:
            raise ObjectLostError(
                f"Rows without a fixed order (preserve_order=False) cannot be made again. {error}"
            ) from None
        if self._losses > _MOST_LOSSES:
            is_held = any(isinstance(stage.grouping, SourceBlocks) for stage in self._program.stages)
            raise ObjectLostError(
                f"Row {row} was lost {self._losses} times. {_REMEDY_FOR_HELD if is_held else ''}{error}"
            ) from None
        logger.warning(
            "blocks of an execution are lost, so it starts anew at row %d of its output: %s",
            row,
            str(error).partition("\n")[0],
        )

    def _again(self, restart: Restart, rows: int, error: ObjectLostError) -> pa.Table:
        """The rows of the block that was taken last, which is lost, as are probably some after
        it.
        """
        self._count_loss(restart.index, error)
        self._program = _beginning_at(self._program, restart)
        self._start_anew()
        self._reached, self._rest = restart.index, None
        return self.first_rows(rows)

    def _stands_behind(self, restart: Restart, rows: int) -> bool:
        return (
            self._finalizer.alive
            and self._last == restart
            and self._reached == restart.index + rows
        )

    def _put_back(self, block: OutputBlock, rows: int) -> None:
        """All but the first rows of the block that was taken last are delivered again."""
        rest = block.num_rows - rows
        restart = _after(self._program, block.restart, rows, at_end=False)
        size_bytes = block.size_bytes * rest // block.num_rows
        self._rest = replace(
            block, num_rows=rest, size_bytes=size_bytes, restart=restart, _start=block._start + rows
        )
        self._reached = restart.index


def _after(program: Program, restart: Restart, rows: int, *, at_end: bool) -> Restart:
    """Where to start for the row that lies so many rows after the first one of a delivered block,
    or (`at_end`) behind it.
    """
    after = point_after(program.stages, point_of(restart), rows, at_end=at_end)
    return Restart(index=restart.index + rows, point=program.restart_at(after))


def _beginning_at(program: Program, restart: Restart) -> Program:
    """The same program from a restart point on; it keeps nothing of what passes, which is not
    all.
    """
    stages = tuple(
        replace(stage, grouping=TeeBlocks(writer=None))
        if isinstance(stage.grouping, TeeBlocks)
        else stage
        for stage in program.stages
    )
    return replace(program, stages=stages, first_row=restart.index, point=point_of(restart))


def _made_again(
    program: Program,
    reference: weakref.ref[Execution],
    restart: Restart,
    rows: int,
    error: ObjectLostError,
) -> pa.Table:
    """The first rows from a restart point on, which an execution has delivered, but lost."""
    execution = reference()
    if execution is not None and execution._stands_behind(restart, rows):
        return execution._again(restart, rows, error)
    with Execution(_beginning_at(program, restart)) as apart:
        return apart.first_rows(rows)


def start(
    node: Node,
    context: DataContext,
    *,
    seed: int | None = None,
    epoch: int = 0,
    restart: Restart | None = None,
    name: str = "",
) -> Execution:
    """Begin to execute a plan.

    Args:
        node: The plan, as the program wrote it. context: The dataset's. seed: What random operators
        without a seed of their own draw from; None for one that is drawn now (`Execution.seed`).
        epoch: Number of the pass: operators that draw anew in each pass depend on it. restart:
        Where to start instead of at the first row: what `OutputBlock.restart` was in an execution
        of the same plan with the same
            seed and epoch, on whatever machine. The execution may begin before that row, if caches
            were filled or emptied meanwhile; its blocks say where they are.
        name: For people, in progress.
    """
    point: Any = None
    limits = limits_for(context)
    recorded: list[Any] | None = None
    if restart is not None and restart.point is not None:
        cpus, budget_bytes, point, *states = restart.point
        limits = ExecutionLimits(cpus=cpus, budget_bytes=budget_bytes)
        recorded = states[0] if states else None
    seed = seeds.of_execution(context) if seed is None else seed
    caches = settle(node, Origin(seed=seed, limits=limits), recorded)
    if not caches.as_recorded:
        point = None
    caches = replace(caches, keeps=point is None)
    stages = lower(
        optimize(node, context), context.for_tasks(), limits, seed=seed, epoch=epoch, caches=caches
    )
    if context.print_on_execution_start:
        logger.info(
            "%s begins: %s", name or "an execution", " -> ".join(stage.name for stage in stages)
        )
    for stage in stages:
        if isinstance(stage.grouping, TeeBlocks) and stage.grouping.writer is not None:
            stage.grouping.writer.begin()
    return Execution(
        Program(
            stages=tuple(stages),
            context=context,
            limits=limits,
            seed=seed,
            epoch=epoch,
            first_row=0 if restart is None or point is None else restart.index,
            point=point,
            caches=caches.states,
            name=name,
            is_pass=restart is not None,
            plan=partial(explain.executed, node, stages),
        )
    )


def first_restart(node: Node, context: DataContext, *, seed: int) -> Restart:
    """The first row of an execution that begins now: with it, a later one has the same blocks, also
    on another machine.
    """
    limits = limits_for(context)
    caches = settle(node, Origin(seed=seed, limits=limits))
    return Restart(index=0, point=restart_point(limits, None, caches.states))
