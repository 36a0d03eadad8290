"""Stages built by hand, and executions of them: what the tests of the driver run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from syncline.data.context import DataContext
from syncline.data.execute.execution import Execution
from syncline.data.execute.physical_plan import (
    Actors,
    BundleBlocks,
    Chain,
    ExecutionLimits,
    ExecutorKind,
    PhysicalPlan,
    SourceBlocks,
    SourceTasks,
    Stage,
    Threads,
    Workers,
)
from syncline.data.execute.steps.function_steps import MapBatchesStep
from syncline.data.execute.steps.heads import pass_blocks, read_payload
from syncline.data.io.sources.range import RangeDatasource
from syncline.data.plan.compute import Resources
from syncline.data.plan.nodes import HeldBlock, UserFunction

MIB = 2**20


def numbers(
    rows: int,
    tasks: int,
    *,
    executor: ExecutorKind | None = None,
    steps: Sequence[Any] = (),
    **chain: Any,
) -> Stage:
    """Reads `id` from 0 to `rows - 1` in so many tasks."""
    return Stage(
        name="ReadRange",
        grouping=SourceTasks(
            payloads=RangeDatasource(rows, column_name="id").get_read_tasks(tasks)
        ),
        chain=Chain(head=read_payload, steps=tuple(steps), context=DataContext(), **chain),
        executor=executor or Threads(),
    )


def held(*tables: pa.Table) -> Stage:
    """Blocks that are there."""
    blocks = [
        HeldBlock(
            value=table, num_rows=table.num_rows, size_bytes=table.nbytes, schema=table.schema
        )
        for table in tables
    ]
    return Stage(name="InputData", grouping=SourceBlocks(blocks=blocks))


def batch_step(
    function: Callable[..., Any], *, batch_size: int | None = None, name: str = "", **spec: Any
) -> MapBatchesStep:
    """Calls a function of batches."""
    user = UserFunction(function=function, **spec)
    return MapBatchesStep(
        function=user, name=name or f"MapBatches({user.name})", batch_size=batch_size
    )


def mapped(
    function: Callable[..., Any],
    *,
    on: int = 0,
    executor: ExecutorKind | None = None,
    batch_size: int | None = None,
    context: Any = None,
    **spec: Any,
) -> Stage:
    """Apply a function to the batches of stage `on`, by default in workers."""
    step = batch_step(function, batch_size=batch_size, **spec)
    chain = Chain(
        head=pass_blocks,
        steps=(step,),
        context=context or DataContext(),
        timeout_s=spec.get("timeout_s"),
    )
    return Stage(
        name=step.name,
        inputs=(on,),
        grouping=BundleBlocks(),
        chain=chain,
        executor=executor or Workers(),
    )


def actors(
    least: int = 1, most: int | None = None, *, first: int | None = None, **resources: Any
) -> Actors:
    """A pool."""
    return Actors(
        min_size=least,
        max_size=most or least,
        initial_size=first or least,
        resources=Resources(**resources),
    )


def execute(
    *stages: Stage, context: DataContext | None = None, budget_bytes: int = 64 * MIB, **plan: Any
) -> Execution:
    """Runs stages."""
    limits = ExecutionLimits(cpus=2, budget_bytes=budget_bytes)
    return Execution(
        PhysicalPlan(
            stages=stages, context=context or DataContext(), limits=limits, **{"seed": 7, **plan}
        )
    )


def ids(execution: Execution) -> list[int]:
    """The column `id` of all that is left, and the end of the execution."""
    with execution:
        return [value for block in execution for value in block.table()["id"].to_pylist()]
