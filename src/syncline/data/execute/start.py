"""From a plan to its execution: optimize, lower, run."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import Any

from syncline.data.context import DataContext
from syncline.data.execute.cache import Origin, settle
from syncline.data.execute.execution import Execution
from syncline.data.execute.program import Program, restart_point
from syncline.data.execute.shape import Shape, shape_for
from syncline.data.execute.stages import Keeping
from syncline.data.iterate.position import Restart
from syncline.data.plan import explain, seeds
from syncline.data.plan.lowering import lower
from syncline.data.plan.nodes import Node
from syncline.data.plan.rules import optimize

logger = logging.getLogger("syncline")


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
    shape = shape_for(context)
    recorded: list[Any] | None = None
    if restart is not None and restart.point is not None:
        cpus, budget_bytes, point, *states = restart.point
        shape = Shape(cpus=cpus, budget_bytes=budget_bytes)
        recorded = states[0] if states else None
    seed = seeds.of_execution(context) if seed is None else seed
    caches = settle(node, Origin(seed=seed, shape=shape), recorded)
    if not caches.as_recorded:
        point = None
    caches = replace(caches, keeps=point is None)
    stages = lower(
        optimize(node, context), context.for_tasks(), shape, seed=seed, epoch=epoch, caches=caches
    )
    if context.print_on_execution_start:
        logger.info(
            "%s begins: %s", name or "an execution", " -> ".join(stage.name for stage in stages)
        )
    for stage in stages:
        if isinstance(stage.grouping, Keeping) and stage.grouping.keeper is not None:
            stage.grouping.keeper.begin()
    return Execution(
        Program(
            stages=tuple(stages),
            context=context,
            shape=shape,
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
    shape = shape_for(context)
    caches = settle(node, Origin(seed=seed, shape=shape))
    return Restart(index=0, point=restart_point(shape, None, caches.states))
