"""Text descriptions of plans and stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from syncline.data.context import DataContext
from syncline.data.execute.cache import Origin, uses_of_caches
from syncline.data.execute.physical_plan import (
    Actors,
    ExchangeRows,
    ExecutionLimits,
    ExecutorKind,
    Grouping,
    RebatchRows,
    RepartitionRows,
    SourceBlocks,
    SourceTasks,
    Stage,
    TeeBlocks,
    Threads,
    Workers,
    limits_for,
)
from syncline.data.plan.lowering import lower
from syncline.data.plan.nodes import (
    Aggregate,
    Cache,
    FilterExpr,
    HashPartition,
    Join,
    MapGroups,
    Node,
    Project,
    RandomSample,
    Read,
    Repartition,
    Sort,
)
from syncline.data.plan.rules import optimize

T = TypeVar("T")


def text(node: Node, context: DataContext, limits: ExecutionLimits | None = None) -> str:
    """Return the text of `Dataset.explain()`: the plan, the optimized plan and the stages.

    Args:
        node: The plan, not optimized.
        context: The dataset's context.
        limits: Resources of the execution; those of this machine or cluster if None.
    """
    optimized = optimize(node, context)
    limits = limits or limits_for(context)
    caches = uses_of_caches(node, Origin(seed=0, limits=limits))
    stages = lower(optimized, context, limits, seed=0, epoch=0, caches=caches)
    return "\n".join(
        [
            *("", "-------- Logical Plan --------", _detailed(node)),
            *("", "-------- Logical Plan (Optimized) --------", _detailed(optimized)),
            *("", "-------- Stages --------", stage_tree(stages)),
            "",
        ]
    )


def executed(node: Node, stages: Sequence[Stage]) -> str:
    """Return the plan and the stages of one execution as text."""
    return "\n".join(
        [
            "-------- Logical Plan --------",
            _detailed(node),
            "",
            "-------- Stages --------",
            stage_tree(stages),
        ]
    )


def chain(node: Node) -> str:
    """Return the operators in one line, from the first source to the result."""
    names = [node.name]
    while node.inputs:
        node = node.inputs[0]
        names.append(node.name)
    return " -> ".join(reversed(names))


def stage_tree(stages: Sequence[Stage]) -> str:
    """Return the stages of an execution as a tree, each above its inputs, with name, grouping and
    executor.
    """
    return _tree(stages[-1], _stage, lambda stage: [stages[number] for number in stage.inputs])


def _detailed(node: Node) -> str:
    def line(each: Node) -> str:
        details = _details(each)
        return f"{each.name}[{details}]" if details else each.name

    return _tree(node, line, lambda each: each.inputs)


def _details(node: Node) -> str:
    """Return the parameters of a node."""
    match node:
        case Read():
            predicate = node.source.get_current_predicate()
            parts = [f"columns={list(node.columns)}"] if node.columns is not None else []
            parts += [f"where {predicate!r}"] if predicate is not None else []
            parts += ["tasks in random order"] if node.task_order is not None else []
            return ", ".join(parts)
        case Project():
            parts = [*map(repr, node.expressions)]
            parts += [f"without {list(node.dropped)}"] if node.dropped else []
            parts += [f"{old!r} as {new!r}" for old, new in (node.renamed or {}).items()]
            return ", ".join(parts)
        case FilterExpr():
            return repr(node.predicate)
        case Repartition():
            if node.num_blocks is not None:
                return f"blocks={node.num_blocks}"
            return f"rows={node.target_num_rows}"
        case RandomSample():
            return f"fraction={node.fraction}"
        case Sort():
            return ", ".join(
                f"{key!r}{' descending' if down else ''}"
                for key, down in zip(node.keys, node.descending, strict=True)
            )
        case Aggregate():
            names = ", ".join(aggregate.name for aggregate in node.aggregates)
            return f"{names} by {list(node.keys)}" if node.keys else names
        case Cache():
            return "in memory" if node.path is None else f"in {node.path}"
        case HashPartition() | MapGroups():
            return f"by {list(node.keys)}"
        case Join():
            return f"{node.join_type}, {list(node.left_on)} = {list(node.right_on)}"
    return ""


def _stage(stage: Stage) -> str:
    executor = _executor(stage.executor) if stage.chain is not None else ""
    details = ", ".join(filter(None, (_grouping(stage.grouping), executor)))
    return f"{stage.name}  ({details})" if details else stage.name


def _grouping(grouping: Grouping) -> str:
    match grouping:
        case SourceTasks():
            return f"{len(grouping.payloads)} tasks"
        case SourceBlocks():
            return f"{len(grouping.blocks)} existing blocks"
        case TeeBlocks():
            return "to be filled"
        case ExchangeRows():
            parts = grouping.default_parts if grouping.parts is None else grouping.parts
            return f"{parts} partitions"
        case RepartitionRows():
            return f"{grouping.parts} blocks"
        case RebatchRows():
            return f"{'' if grouping.strict else 'at most '}{grouping.rows} rows per block"
    return ""


def _executor(executor: ExecutorKind) -> str:
    match executor:
        case Threads():
            return "threads"
        case Workers():
            return "worker processes"
        case Actors():
            least, most = str(executor.min_size), str(executor.max_size or "more")
            return f"{least} actors" if least == most else f"{least} to {most} actors"


def _tree(root: T, line: Callable[[T], str], inputs: Callable[[T], Sequence[T]]) -> str:
    lines = []
    pending = [(root, 0)]
    while pending:
        node, depth = pending.pop()
        lines.append(f"{'   ' * (depth - 1)}+- {line(node)}" if depth else line(node))
        pending.extend((each, depth + 1) for each in reversed(inputs(node)))
    return "\n".join(lines)
