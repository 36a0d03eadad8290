"""From a source to read tasks: how many are asked for, how many are needed for a limit, and their
order.
"""

from __future__ import annotations

import functools

import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar.kernels import partition
from syncline.data.context import DataContext
from syncline.data.execute.shape import Shape
from syncline.data.io.sources.datasource import BlockMetadata, ReadTask, limit_tasks
from syncline.data.plan import seeds
from syncline.data.plan.nodes import Read

# Readers that end at different times leave no CPU without work.
_TASKS_PER_CPU = 2


def parallelism(estimated_bytes: int | None, context: DataContext, shape: Shape) -> int:
    """Read tasks to ask a source for.

    `read_op_min_num_blocks` of them, or fewer if they were smaller than `target_min_block_size`;
    more where they were larger than a block; and in any case two for each CPU.
    """
    wanted = context.read_op_min_num_blocks
    if wanted == DataContext.read_op_min_num_blocks:
        wanted = context.min_parallelism  # the older name counts where only it was changed
    if estimated_bytes is None:
        return max(wanted, _TASKS_PER_CPU * shape.cpus)
    not_too_small = estimated_bytes // max(1, context.target_min_block_size)
    not_too_large = -(-estimated_bytes // shape.block_bytes(context))
    return max(min(wanted, not_too_small), not_too_large, _TASKS_PER_CPU * shape.cpus)


def read_tasks(
    node: Read, limit: int | None, context: DataContext, shape: Shape, *, seed: int, epoch: int
) -> list[ReadTask]:
    """The tasks of a read, as many as the first `limit` rows may need; `context` is that of the
    epoch.

    If there is nothing to read, one task without rows stands for the columns.
    """
    count = node.parallelism or parallelism(
        node.source.estimate_inmemory_data_size(), context, shape
    )
    tasks = node.source.get_read_tasks(count, limit, context)
    if node.task_order is not None:
        state = partition.random_state(
            seeds.resolved(node.task_order.seed, execution_seed=seed, epoch=epoch)
        )
        tasks = [tasks[index] for index in state.permutation(len(tasks)).tolist()]
    needed = tasks if limit is None else limit_tasks(tasks, limit)
    schema = None if needed else node.source.schema()
    return (
        needed
        if schema is None
        else [ReadTask(functools.partial(_nothing, schema), BlockMetadata(0, 0), schema)]
    )


def _nothing(schema: pa.Schema) -> list[pa.Table]:
    return [blocks.empty(schema)]


def rows_of_each(tasks: list[ReadTask]) -> int | None:
    """Rows that every task but the last has at least; None where it is not known."""
    counts = [task.num_rows for task in tasks]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts) or not known:
        return None
    return min(known[:-1], default=sum(known))
