"""Start an execution of a logical plan, and iterate over its blocks.

Covered: optimizing and lowering the plan, taking blocks, ending early, statistics, and recovery
from blocks lost with a node of a cluster: the execution restarts at the first lost row and produces
the same output. Statistics restart with it. Not covered: blocks that the user's program put into
the object store, and output without `preserve_order`, cannot be recomputed.

Dropping the handle ends the execution: its threads, its tasks, and the references that only it
holds.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.context import DataContext
from syncline.data.execute.block_store import OutputBlock
from syncline.data.execute.cache import Origin, uses_of_caches
from syncline.data.execute.driver import Driver
from syncline.data.execute.physical_plan import (
    ExecutionLimits,
    PhysicalPlan,
    SourceBlocks,
    TeeBlocks,
    limits_for,
    point_of,
    restart_point,
)
from syncline.data.execute.scheduler import point_after
from syncline.data.execute.stats import ExecutionStats
from syncline.data.iterate.position import Restart, RestartPoint
from syncline.data.plan import explain, seeds
from syncline.data.plan.lowering import lower
from syncline.data.plan.nodes import Node
from syncline.data.plan.rules import optimize
from syncline.exceptions import ObjectLostError

logger = logging.getLogger("syncline")

_MAX_LOSSES = 3
"""Restarts at the same row before the execution fails."""
_HELD_BLOCKS_HINT = (
    "The dataset is held in memory, by nodes of the cluster and by the program that created it, "
    "and is lost with any of them. Create it again, or read it from files, which can be read again "
    "at any time. "
)


class Execution(Iterator[OutputBlock]):
    """Blocks of a physical plan, in order. One thread at a time may take them.

    On engines with processes, work begins immediately and continues in the background within the
    memory budget. In local mode (`syncline.init(local_mode=True)`), every task runs in the thread
    that takes the next block, so that `breakpoint()` works in functions; their time limits have no
    effect.
    """

    def __init__(self, plan: PhysicalPlan) -> None:
        self._plan = plan
        self._next_row = plan.first_row
        """Number of the next row to deliver."""
        self._last: Restart | None = None
        """Restart of the block that was taken last."""
        self._remainder: OutputBlock | None = None
        """Block to deliver before those of the driver."""
        self._losses = 0
        """Consecutive losses of the same row."""
        self._lost_row: int | None = None
        self._start()

    def __next__(self) -> OutputBlock:
        block = self.next(None)
        assert block is not None
        return block

    def next(self, timeout_s: float | None) -> OutputBlock | None:
        """Return the next block, or None after `timeout_s` seconds; None waits forever.

        Raises the error of the execution once, then StopIteration.
        """
        block, self._remainder = self._remainder, None
        try:
            block = block or self._driver.take(timeout_s)
        except ObjectLostError as error:
            self._check_loss(self._next_row, error)
            if self._last is not None:
                rows = self._next_row - self._last.index
                restart = _restart_after(self._plan, self._last, rows, at_end=True)
                self._plan = _starting_at(self._plan, restart)
            self._restart()
            return self.next(timeout_s)
        if block is not None:
            self._last, self._next_row = block.restart, block.restart.index + block.num_rows
        return block

    def first_rows(self, rows: int) -> pa.Table:
        """Return the next `rows` rows as one table. RuntimeError if there are fewer."""
        tables: list[pa.Table] = []
        missing = rows
        while missing > 0 or not tables:
            block = next(self, None)
            if block is None:
                raise RuntimeError(
                    f"Recomputing {rows} lost rows of a dataset gave {rows - missing} rows. Its "
                    "functions must return the same rows for the same input in every process."
                )
            tables.append(block.table().slice(0, missing))
            if block.num_rows > missing:
                self._put_back(block, missing)
            missing -= tables[-1].num_rows
        return blocks.concat(tables)

    def close(self) -> None:
        """End the execution. Blocks taken before stay valid. May be called repeatedly."""
        self._finalizer.detach()
        self._driver.close()

    def stats(self) -> ExecutionStats:
        """Return the statistics so far."""
        return self._driver.stats()

    def __enter__(self) -> Execution:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _start(self) -> None:
        recompute = partial(_recompute_rows, self._plan, weakref.ref(self))
        self._driver = Driver(self._plan, recompute=recompute)
        self._finalizer = weakref.finalize(self, self._driver.abandon)
        self._driver.start()

    def _restart(self) -> None:
        self.close()
        self._last = None
        self._start()

    def _check_loss(self, row: int, error: ObjectLostError) -> None:
        """Count a loss. Raise ObjectLostError if the rows from `row` on cannot be recomputed."""
        self._losses = self._losses + 1 if row == self._lost_row else 1
        self._lost_row = row
        if not self._plan.context.execution_options.preserve_order:
            raise ObjectLostError(
                f"Rows without a fixed order (preserve_order=False) cannot be recomputed. {error}"
            ) from None
        if self._losses > _MAX_LOSSES:
            is_held = any(isinstance(stage.grouping, SourceBlocks) for stage in self._plan.stages)
            raise ObjectLostError(
                f"Row {row} was lost {self._losses} times. "
                f"{_HELD_BLOCKS_HINT if is_held else ''}{error}"
            ) from None
        logger.warning(
            "Blocks of an execution were lost; it restarts at row %d of its output: %s",
            row,
            str(error).partition("\n")[0],
        )

    def _recompute(self, restart: Restart, rows: int, error: ObjectLostError) -> pa.Table:
        """Return the rows of the last block again. Later blocks may be lost as well."""
        self._check_loss(restart.index, error)
        self._plan = _starting_at(self._plan, restart)
        self._restart()
        self._next_row, self._remainder = restart.index, None
        return self.first_rows(rows)

    def _is_last_delivered(self, restart: Restart, rows: int) -> bool:
        return (
            self._finalizer.alive
            and self._last == restart
            and self._next_row == restart.index + rows
        )

    def _put_back(self, block: OutputBlock, rows: int) -> None:
        """Deliver the last block again, without its first `rows` rows."""
        rest = block.num_rows - rows
        restart = _restart_after(self._plan, block.restart, rows, at_end=False)
        size_bytes = block.size_bytes * rest // block.num_rows
        self._remainder = replace(
            block, num_rows=rest, size_bytes=size_bytes, restart=restart, _start=block._start + rows
        )
        self._next_row = restart.index


def _restart_after(plan: PhysicalPlan, restart: Restart, rows: int, *, at_end: bool) -> Restart:
    """Return the restart `rows` rows after the start of a delivered block, see `point_after`."""
    after = point_after(plan.stages, point_of(restart), rows, at_end=at_end)
    return Restart(index=restart.index + rows, point=plan.restart_at(after))


def _starting_at(plan: PhysicalPlan, restart: Restart) -> PhysicalPlan:
    """Return the plan from a restart on. It fills no caches, because it does not see all rows."""
    stages = tuple(
        replace(stage, grouping=TeeBlocks(writer=None))
        if isinstance(stage.grouping, TeeBlocks)
        else stage
        for stage in plan.stages
    )
    return replace(plan, stages=stages, first_row=restart.index, point=point_of(restart))


def _recompute_rows(
    plan: PhysicalPlan,
    reference: weakref.ref[Execution],
    restart: Restart,
    rows: int,
    error: ObjectLostError,
) -> pa.Table:
    """Return the first rows from a restart on, which an execution delivered and lost."""
    execution = reference()
    if execution is not None and execution._is_last_delivered(restart, rows):
        return execution._recompute(restart, rows, error)
    with Execution(_starting_at(plan, restart)) as separate:
        return separate.first_rows(rows)


def start_execution(
    node: Node,
    context: DataContext,
    *,
    seed: int | None = None,
    epoch: int = 0,
    restart: Restart | None = None,
    name: str = "",
) -> Execution:
    """Start an execution of a logical plan.

    Args:
        node: Logical plan as the user wrote it.
        context: Settings of the dataset.
        seed: Seed of random operators without a seed of their own; None draws one.
        epoch: Number of the pass, for operators that draw anew in each pass.
        restart: Start of the output: an `OutputBlock.restart` of an execution of the same plan with
            the same seed and epoch, on any machine. The execution may begin before that row if a
            cache was filled or emptied since then; its blocks carry their row numbers.
        name: Display name.
    """
    point: RestartPoint = None
    limits = limits_for(context)
    recorded: list[Any] | None = None
    if restart is not None and restart.point is not None:
        cpus, budget_bytes, point, *states = restart.point
        limits = ExecutionLimits(cpus=cpus, budget_bytes=budget_bytes)
        recorded = states[0] if states else None
    seed = seeds.of_execution(context) if seed is None else seed
    caches = uses_of_caches(node, Origin(seed=seed, limits=limits), recorded)
    if not caches.as_recorded:
        point = None
    caches = replace(caches, fills=point is None)
    stages = lower(
        optimize(node, context), context.for_tasks(), limits, seed=seed, epoch=epoch, caches=caches
    )
    if context.print_on_execution_start:
        logger.info(
            "%s starts: %s", name or "an execution", " -> ".join(stage.name for stage in stages)
        )
    for stage in stages:
        if isinstance(stage.grouping, TeeBlocks) and stage.grouping.writer is not None:
            stage.grouping.writer.begin()
    return Execution(
        PhysicalPlan(
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
            describe=partial(explain.executed, node, stages),
        )
    )


def first_restart(node: Node, context: DataContext, *, seed: int) -> Restart:
    """Return the restart at the first row of an execution that would start now.

    An execution with this restart has the same blocks on any machine.
    """
    limits = limits_for(context)
    caches = uses_of_caches(node, Origin(seed=seed, limits=limits))
    return Restart(index=0, point=restart_point(limits, None, caches.states))
