"""Nodes that bring rows from everywhere together, as stages: shuffle, sort, aggregate, partition by
keys, map groups, join.

How many partitions there are follows from the plan and the shape of the execution alone, so that a
restart has the same ones.
"""

from __future__ import annotations

from typing import cast

from syncline.data.columnar.kernels.join import JoinType
from syncline.data.context import MIB, DataContext
from syncline.data.execute.chain import Head
from syncline.data.execute.shape import Shape
from syncline.data.execute.stages import Exchanged, Lane, Threads, Workers
from syncline.data.execute.steps.aggregate import AggregateStep
from syncline.data.execute.steps.groups import MapGroupsStep
from syncline.data.execute.steps.heads import (
    AggregateHead,
    GroupsHead,
    HashPartitionHead,
    JoinHead,
    MergeSortedHead,
    PermuteHead,
)
from syncline.data.execute.steps.partition import (
    ChooseBoundaries,
    PartitionAtRandom,
    PartitionByHash,
    PartitionByRange,
    SampleKeys,
)
from syncline.data.plan import properties
from syncline.data.plan.fusion import Draft, Work, function_lane
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

# Each CPU works on one partition, whose rows exist before and after the work, beside those on their
# way in and out.
_PARTITIONS_IN_BUDGET_PER_CPU = 3
# One task is quicker than many for so many bytes; a million groups, whose states fit, come out in
# order of their keys.
_DIRECT_BYTES = 64 * MIB
# Partitions where nothing is known of the input: enough for data far larger than memory, and cheap
# for little.
_PARTS_OF_UNKNOWN = 64
_PARTS_PER_CPU = 2


def first_work(node: AllToAll) -> Work | None:
    """What is done to the blocks of the input before they are exchanged, in the tasks that made
    them.
    """
    if not isinstance(node, Aggregate):
        return None
    lane = _aggregate_lane(node)
    return Work(
        name=f"Partial{node.name}",
        step=AggregateStep(name=node.name, keys=node.keys, aggregates=node.aggregates),
        lane=lane,
    )


def exchange(
    node: AllToAll, inputs: tuple[int, ...], seed: int, context: DataContext, shape: Shape
) -> Draft:
    """The stage of a node; `seed` is what it draws from."""
    draft = Draft(
        names=[node.name],
        inputs=inputs,
        grouping=_grouping(node, seed, context, shape),
        head=_head(node, seed),
        keeps_rows=isinstance(node, properties.SAME_ROWS),
        whole_blocks=_makes_whole_blocks(node),
    )
    if isinstance(node, Aggregate):
        draft.lane = _aggregate_lane(node)
    elif isinstance(node, MapGroups):
        step = MapGroupsStep(
            function=node.function,
            name=node.name,
            keys=node.keys,
            batch_format=node.batch_format,
            zero_copy=node.zero_copy,
        )
        draft.steps = [step]
        draft.lane, draft.slots = function_lane(node.function, context)
        draft.timeout_s = node.function.timeout_s
    return draft


def _grouping(node: AllToAll, seed: int, context: DataContext, shape: Shape) -> Exchanged:
    part_bytes = max(
        MIB,
        min(
            shape.budget_bytes // (_PARTITIONS_IN_BUDGET_PER_CPU * shape.cpus),
            context.target_shuffle_max_block_size,
        ),
    )
    parts = _default_parts(node, part_bytes, context, shape)
    direct_bytes = min(_DIRECT_BYTES, part_bytes)
    if isinstance(node, Sort):
        return _sorted(node, parts, direct_bytes)
    if isinstance(node, RandomShuffle):
        at_random = PartitionAtRandom(seed=seed)
        return Exchanged(
            partition=(at_random,),
            parts=node.num_blocks,
            default_parts=parts,
            direct_bytes=direct_bytes,
        )
    keys = (node.left_on, node.right_on) if isinstance(node, Join) else (node.keys,)
    return Exchanged(
        partition=tuple(PartitionByHash(keys=names) for names in keys),
        parts=1 if isinstance(node, Aggregate) and not node.keys else node.num_blocks,
        default_parts=parts,
        # One task for all groups would call the program's function for one group after the other.
        direct_bytes=0 if isinstance(node, MapGroups) else direct_bytes,
    )


def _sorted(node: Sort, parts: int, direct_bytes: int) -> Exchanged:
    partition = PartitionByRange(
        keys=node.keys, descending=node.descending, boundaries=node.boundaries
    )
    if node.boundaries is not None:
        return Exchanged(
            partition=(partition,),
            parts=len(node.boundaries) + 1,
            default_parts=parts,
            direct_bytes=direct_bytes,
        )
    return Exchanged(
        partition=(partition,),
        parts=None,
        default_parts=parts,
        direct_bytes=direct_bytes,
        sample=SampleKeys(keys=node.keys, seed=0),
        prepare=ChooseBoundaries(keys=node.keys, descending=node.descending),
    )


def _default_parts(node: Node, part_bytes: int, context: DataContext, shape: Shape) -> int:
    """Partitions where the program gave no number."""
    sizes = [properties.bytes_at_most(each) for each in node.inputs]
    known = [size for size in sizes if size is not None]
    wanted = -(-sum(known) // part_bytes) if len(known) == len(sizes) else _PARTS_OF_UNKNOWN
    return max(
        1, min(max(wanted, _PARTS_PER_CPU * shape.cpus), context.default_hash_shuffle_parallelism)
    )


def _head(node: AllToAll, seed: int) -> Head:
    match node:
        case RandomShuffle():
            return PermuteHead(seed=seed)
        case Sort():
            return MergeSortedHead(keys=node.keys, descending=node.descending)
        case Aggregate():
            return AggregateHead(keys=node.keys, aggregates=node.aggregates)
        case HashPartition():
            return HashPartitionHead(keys=node.keys, sort=node.sort)
        case MapGroups():
            return GroupsHead(keys=node.keys)
        case Join():
            left, right = map(properties.known_schema, node.parts)
            return JoinHead(
                join_type=cast("JoinType", node.join_type),
                left_on=node.left_on,
                right_on=node.right_on,
                left_suffix=node.left_suffix,
                right_suffix=node.right_suffix,
                left_schema=left,
                right_schema=right,
            )


def _makes_whole_blocks(node: AllToAll) -> bool:
    """Whether the program asked for blocks, so that there is one for each partition."""
    if isinstance(node, RandomShuffle):
        return node.num_blocks is not None
    return isinstance(node, HashPartition) or (
        isinstance(node, Sort) and node.boundaries is not None
    )


def _aggregate_lane(node: Aggregate) -> Lane:
    """Accumulators of the program's are user functions."""
    return Threads() if properties.knows_its_columns(node.aggregates) else Workers()
