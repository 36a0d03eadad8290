"""Lowering of all-to-all nodes to stages: shuffle, sort, aggregate, partition by keys, map groups,
join.

The number of partitions depends only on the plan and the execution limits, so that a restart has
the same partitions.
"""

from __future__ import annotations

from syncline.data.context import MIB, DataContext
from syncline.data.execute.physical_plan import (
    ExchangeRows,
    ExecutionLimits,
    ExecutorKind,
    Head,
    Threads,
    Workers,
)
from syncline.data.execute.steps.block_steps import AggregateStep
from syncline.data.execute.steps.function_steps import MapGroupsStep
from syncline.data.execute.steps.heads import (
    AggregateHead,
    ChooseBoundaries,
    JoinHead,
    PartitionAtRandom,
    PartitionByHash,
    PartitionByRange,
    PermuteHead,
    SampleKeys,
    SortHead,
    concatenate,
)
from syncline.data.plan import properties
from syncline.data.plan.fusion import StageDraft, StepRequest, function_executor
from syncline.data.plan.nodes import (
    Aggregate,
    HashPartition,
    Join,
    MapGroups,
    Node,
    RandomShuffle,
    Sort,
)

AllToAll = RandomShuffle | Sort | Aggregate | HashPartition | MapGroups | Join

# Each CPU works on one partition, whose rows exist before and after the work, next to rows that
# arrive and leave.
_PARTITIONS_IN_BUDGET_PER_CPU = 3
# Up to this size one task is faster than several. Groups come out in the order of their keys.
_DIRECT_BYTES = 64 * MIB
# Number of partitions for an input of unknown size: enough for more data than memory, and cheap for
# little data.
_PARTS_OF_UNKNOWN = 64
_PARTS_PER_CPU = 2


def partial_step(node: AllToAll) -> StepRequest | None:
    """Return the step on the input blocks before the exchange, which runs in their tasks."""
    if not isinstance(node, Aggregate):
        return None
    return StepRequest(
        name=f"Partial{node.name}",
        step=AggregateStep(name=node.name, keys=node.keys, aggregates=node.aggregates),
        executor=_aggregate_executor(node),
    )


def exchange(
    node: AllToAll,
    inputs: tuple[int, ...],
    seed: int,
    context: DataContext,
    limits: ExecutionLimits,
) -> StageDraft:
    """Return the stage of a node; `seed` is the seed of its random numbers."""
    draft = StageDraft(
        names=[node.name],
        inputs=inputs,
        grouping=_grouping(node, seed, context, limits),
        head=_head(node, seed),
        keeps_rows=isinstance(node, properties.SAME_ROWS),
        whole_blocks=_makes_whole_blocks(node),
    )
    if isinstance(node, Aggregate):
        draft.executor = _aggregate_executor(node)
    elif isinstance(node, MapGroups):
        step = MapGroupsStep(
            function=node.function,
            name=node.name,
            keys=node.keys,
            batch_format=node.batch_format,
            zero_copy=node.zero_copy,
        )
        draft.steps = [step]
        draft.executor, draft.slots = function_executor(node.function, context)
        draft.timeout_s = node.function.timeout_s
    return draft


def _grouping(
    node: AllToAll, seed: int, context: DataContext, limits: ExecutionLimits
) -> ExchangeRows:
    part_bytes = max(
        MIB,
        min(
            limits.budget_bytes // (_PARTITIONS_IN_BUDGET_PER_CPU * limits.cpus),
            context.target_shuffle_max_block_size,
        ),
    )
    parts = _default_parts(node, part_bytes, context, limits)
    direct_bytes = min(_DIRECT_BYTES, part_bytes)
    if isinstance(node, Sort):
        return _sorted(node, parts, direct_bytes)
    if isinstance(node, RandomShuffle):
        return ExchangeRows(
            partition=(PartitionAtRandom(seed=seed),),
            parts=node.num_blocks,
            default_parts=parts,
            direct_bytes=direct_bytes,
        )
    keys = (node.left_on, node.right_on) if isinstance(node, Join) else (node.keys,)
    return ExchangeRows(
        partition=tuple(PartitionByHash(keys=names) for names in keys),
        parts=1 if isinstance(node, Aggregate) and not node.keys else node.num_blocks,
        default_parts=parts,
        # One task for all groups would call the user function for one group after the other.
        direct_bytes=0 if isinstance(node, MapGroups) else direct_bytes,
    )


def _sorted(node: Sort, parts: int, direct_bytes: int) -> ExchangeRows:
    cuts = node.boundaries
    return ExchangeRows(
        partition=(PartitionByRange(keys=node.keys, descending=node.descending, boundaries=cuts),),
        parts=None if cuts is None else len(cuts) + 1,
        default_parts=parts,
        direct_bytes=direct_bytes,
        sample=SampleKeys(keys=node.keys, seed=0) if cuts is None else None,
        prepare=ChooseBoundaries(keys=node.keys, descending=node.descending)
        if cuts is None
        else None,
    )


def _default_parts(
    node: Node, part_bytes: int, context: DataContext, limits: ExecutionLimits
) -> int:
    sizes = [properties.estimated_input_bytes(each) for each in node.inputs]
    known = [size for size in sizes if size is not None]
    wanted = -(-sum(known) // part_bytes) if len(known) == len(sizes) else _PARTS_OF_UNKNOWN
    return max(
        1, min(max(wanted, _PARTS_PER_CPU * limits.cpus), context.default_hash_shuffle_parallelism)
    )


def _head(node: AllToAll, seed: int) -> Head:
    match node:
        case RandomShuffle():
            return PermuteHead(seed=seed)
        case Sort():
            return SortHead(keys=node.keys, descending=node.descending)
        case Aggregate():
            return AggregateHead(keys=node.keys, aggregates=node.aggregates)
        case HashPartition():
            return SortHead(keys=node.keys) if node.sort else concatenate
        case MapGroups():
            return SortHead(keys=node.keys)
        case Join():
            left, right = map(properties.known_schema, node.parts)
            return JoinHead(
                join_type=node.join_type,
                left_on=node.left_on,
                right_on=node.right_on,
                left_suffix=node.left_suffix,
                right_suffix=node.right_suffix,
                left_schema=left,
                right_schema=right,
            )


def _makes_whole_blocks(node: AllToAll) -> bool:
    """Return True if the program requested blocks, so that each partition is one block."""
    if isinstance(node, RandomShuffle):
        return node.num_blocks is not None
    return isinstance(node, HashPartition) or (
        isinstance(node, Sort) and node.boundaries is not None
    )


def _aggregate_executor(node: Aggregate) -> ExecutorKind:
    # User accumulators are user functions.
    return Threads() if properties.read_named_columns_only(node.aggregates) else Workers()
