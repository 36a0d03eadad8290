"""`Execution`: an iterator over the blocks that a lowered plan makes. Its driver runs beside the program; this is the handle.

Covered: taking blocks, leaving early, statistics, and going on when a cluster loses blocks with one of its nodes: what was not taken yet
is then executed again, from the restart point of the next row on, and so comes out as it would have. Rows that were taken, but not fetched,
are made again alone. Blocks that the program itself put into the object store cannot be made again.
Dropping the handle (a loop that is left, an error, the end of the program) ends the execution at once: its threads, its tasks, and the
references that nobody else holds.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import TracebackType

import pyarrow as pa

from syncline.data import block as blocks
from syncline.data.execute.driver import Driver
from syncline.data.execute.outbox import OutputBlock
from syncline.data.execute.program import Program
from syncline.data.execute.stages import Keeping, Stage
from syncline.data.execute.stats import ExecutionStats
from syncline.data.iterate.position import Restart
from syncline.exceptions import ObjectLostError

__all__ = ["Execution", "OutputBlock", "Program"]

logger = logging.getLogger("syncline")

_MOST_LOSSES = 3
"""So often in a row, without a block in between, an execution goes on after it has lost blocks."""


class Execution(Iterator[OutputBlock]):
    """The blocks of a program, in order. One thread at a time takes them.

    On engines with processes the work begins at once and goes on beside the program, as far as the byte budget allows. In local mode
    (`syncline.init(local_mode=True)`) every task runs in the thread that asks for the next block, so that `breakpoint()` works in
    functions; time limits of functions have no effect there.
    """

    def __init__(self, program: Program, *, makes_again: bool = True) -> None:
        """`makes_again`: whether what is lost is made again, where that is possible."""
        self._program = program
        self._makes_again = makes_again and program.context.execution_options.preserve_order
        self._taken: tuple[Restart, int] | None = None
        """Restart point and rows of the block that was taken last."""
        self._losses = 0
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
        """The next block, or None if there is none within `timeout_s` seconds; None waits without end.

        Raises what the execution failed with (once), and StopIteration at the end.
        """
        try:
            block = self._driver.take(timeout_s)
        except ObjectLostError as error:
            self._go_on_after(error)
            return self.next(timeout_s)
        if block is not None:
            self._taken, self._losses = (block.restart, block.num_rows), 0
        return block

    def close(self) -> None:
        """End now: nothing goes on, and nothing is kept. Blocks that were taken stay valid. A second call does nothing."""
        self._finalizer.detach()
        self._driver.close()

    def stats(self) -> ExecutionStats:
        """What was done so far, or all in all, and where the time went."""
        return self._driver.stats()

    def __enter__(self) -> Execution:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None) -> None:
        self.close()

    def _start(self) -> None:
        again = partial(_made_again, self._program) if self._makes_again else None
        self._driver = Driver(self._program, again=again)
        self._finalizer = weakref.finalize(self, self._driver.abandon)
        self._driver.start()

    def _go_on_after(self, error: ObjectLostError) -> None:
        """Execute what was not taken yet once more. Raises `error` where that is not possible."""
        if not self._makes_again or self._losses >= _MOST_LOSSES:
            raise error
        self._losses += 1
        if self._taken is not None:
            self._program = _beginning_at(self._program, self._driver.after(*self._taken))
            self._taken = None
        logger.warning("blocks of an execution are lost, so it goes on from row %d of its output: %s", self._program.first_row, error)
        self._finalizer.detach()
        self._start()


def _beginning_at(program: Program, restart: Restart) -> Program:
    """The same program from a restart point on; it keeps nothing of what passes, which is not all."""
    _cpus, _budget_bytes, point = restart.point
    stages = tuple(
        replace(stage, grouping=Keeping(keeper=None)) if isinstance(stage.grouping, Keeping) else stage for stage in program.stages
    )
    return replace(program, stages=stages, first_row=restart.index, point=point)


def _made_again(program: Program, restart: Restart, rows: int, lost: ObjectLostError) -> pa.Table:
    """The first rows from a restart point on, whose block is lost."""
    logger.warning("the block with the rows %d to %d is lost, and is made again: %s", restart.index, restart.index + rows - 1, lost)
    with Execution(_beginning_at(program, restart), makes_again=False) as execution:
        return first_rows(execution, rows)


def first_rows(execution: Execution, rows: int) -> pa.Table:
    """So many rows of an execution, in one table."""
    tables: list[pa.Table] = []
    missing = rows
    while missing > 0:
        table = next(execution).table().slice(0, missing)
        tables.append(table)
        missing -= table.num_rows
    return blocks.concat(tables)
