"""Plans and stages as text, for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from syncline.data.context import DataContext
from syncline.data.execute.cache import Origin, settle
from syncline.data.execute.shape import Shape, shape_for
from syncline.data.execute.stages import (
    Actors,
    Cut,
    CutEvenly,
    Exchanged,
    Grouping,
    Keeping,
    Lane,
    Listed,
    Passed,
    Stage,
    Threads,
    Workers,
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


def text(node: Node, context: DataContext, shape: Shape | None = None) -> str:
    """What `Dataset.explain()` prints: the plan as it was written, as it is executed, and the
    stages that do it.

    Args:
        node: The plan, as the program wrote it.
        context: The dataset's.
        shape: What the stages are laid out for; this machine's, or the cluster's, if None.
    """
    optimized = optimize(node, context)
    shape = shape or shape_for(context)
    caches = settle(node, Origin(seed=0, shape=shape))
    stages = lower(optimized, context, shape, seed=0, epoch=0, caches=caches)
    return "\n".join(
        [
            *("", "-------- Logical Plan --------", _detailed(node)),
            *("", "-------- Logical Plan (Optimized) --------", _detailed(optimized)),
            *("", "-------- Stages --------", stage_tree(stages)),
            "",
        ]
    )


def executed(node: Node, stages: Sequence[Stage]) -> str:
    """The plan as it was written, and the stages of one execution of it."""
    return "\n".join(
        [
            "-------- Logical Plan --------",
            _detailed(node),
            "",
            "-------- Stages --------",
            stage_tree(stages),
        ]
    )


def tree(node: Node) -> str:
    """The operators, each above its inputs."""
    return _tree(node, lambda each: each.name, lambda each: each.inputs)


def stage_tree(stages: Sequence[Stage]) -> str:
    """The stages of an execution, each above its inputs: name, how its tasks come about, where they
    run.
    """
    return _tree(stages[-1], _stage, lambda stage: [stages[number] for number in stage.inputs])


def _detailed(node: Node) -> str:
    def line(each: Node) -> str:
        details = _details(each)
        return f"{each.name}[{details}]" if details else each.name

    return _tree(node, line, lambda each: each.inputs)


def _details(node: Node) -> str:
    """What a node does, beyond its name."""
    match node:
        case Read():
            predicate = node.source.get_current_predicate()
            parts = [f"columns={list(node.columns)}"] if node.columns is not None else []
            parts += [f"where {predicate!r}"] if predicate is not None else []
            return ", ".join(
                [*parts, *(["tasks in random order"] if node.task_order is not None else [])]
            )
        case Project():
            parts = [*map(repr, node.expressions)]
            parts += [f"without {list(node.dropped)}"] if node.dropped else []
            return ", ".join(
                parts + [f"{old!r} as {new!r}" for old, new in (node.renamed or {}).items()]
            )
        case FilterExpr():
            return repr(node.predicate)
        case Repartition():
            return (
                f"blocks={node.num_blocks}"
                if node.num_blocks is not None
                else f"rows={node.target_num_rows}"
            )
        case RandomSample():
            return f"fraction={node.fraction}"
        case Sort():
            return ", ".join(
                f"{key!r}{' descending' if down else ''}"
                for key, down in zip(node.keys, node.descending, strict=True)
            )
        case Aggregate():
            made = ", ".join(aggregate.name for aggregate in node.aggregates)
            return f"{made} by {list(node.keys)}" if node.keys else made
        case Cache():
            return "in memory" if node.path is None else f"in {node.path}"
        case HashPartition() | MapGroups():
            return f"by {list(node.keys)}"
        case Join():
            return f"{node.join_type}, {list(node.left_on)} = {list(node.right_on)}"
    return ""


def _stage(stage: Stage) -> str:
    facts = [
        fact
        for fact in (
            _grouping(stage.grouping),
            _lane(stage.lane) if stage.chain is not None else "",
        )
        if fact
    ]
    return f"{stage.name}  ({', '.join(facts)})" if facts else stage.name


def _grouping(grouping: Grouping) -> str:
    match grouping:
        case Listed():
            return f"{len(grouping.payloads)} tasks"
        case Passed():
            return f"{len(grouping.blocks)} blocks that exist"
        case Keeping():
            return "to be filled"
        case Exchanged():
            return (
                f"{grouping.default_parts if grouping.parts is None else grouping.parts} partitions"
            )
        case CutEvenly():
            return f"{grouping.parts} blocks"
        case Cut():
            return f"{'' if grouping.strict else 'at most '}{grouping.rows} rows a block"
    return ""


def _lane(lane: Lane) -> str:
    match lane:
        case Threads():
            return "threads"
        case Workers():
            return "worker processes"
        case Actors():
            most = "more" if lane.max_size is None else str(lane.max_size)
            return (
                f"{lane.min_size} actors"
                if most == str(lane.min_size)
                else f"{lane.min_size} to {most} actors"
            )


def _tree(root: T, line: Callable[[T], str], inputs: Callable[[T], Sequence[T]]) -> str:
    lines = []
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        lines.append(f"{'   ' * (depth - 1)}+- {line(node)}" if depth else line(node))
        waiting.extend((each, depth + 1) for each in reversed(inputs(node)))
    return "\n".join(lines)
