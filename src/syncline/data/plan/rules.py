"""Optimizer rules: one pure function per rule, and `optimize`, which applies them in order.

Predicate pushdown and column pruning are in files of their own. Here: projections, limits, nodes
without effect, the order of blocks. A rule may change the split of rows into blocks and the random
order of a shuffle, but never the set of rows. Nothing moves across a cache, whose rows other plans
share.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable

from syncline.data.columnar.aggregate import (
    AbsMax,
    Count,
    CountDistinct,
    Max,
    Mean,
    Min,
    MissingValuePercentage,
    Quantile,
    Std,
    Sum,
    ZeroPercentage,
)
from syncline.data.columnar.expressions import (
    AliasExpr,
    ColumnExpr,
    Expr,
    LiteralExpr,
    StarExpr,
    UnnestExpr,
)
from syncline.data.context import DataContext
from syncline.data.plan import properties, seeds
from syncline.data.plan.column_pruning import drop_trivial_projections, prune_columns
from syncline.data.plan.nodes import (
    Aggregate,
    FilterExpr,
    HashPartition,
    Join,
    Limit,
    MapBatches,
    MapGroups,
    Mapped,
    MapRows,
    Node,
    Project,
    RandomizeBlocks,
    RandomShuffle,
    Read,
    Repartition,
    Sort,
    Union,
    rewrite_bottom_up,
)
from syncline.data.plan.predicate_pushdown import input_of, push_filters

# Aggregators whose results do not depend on the order of rows.
_ORDER_INDEPENDENT = (
    AbsMax,
    Count,
    CountDistinct,
    Max,
    Mean,
    Min,
    MissingValuePercentage,
    Quantile,
    Std,
    Sum,
    ZeroPercentage,
)


def optimize(node: Node, context: DataContext) -> Node:
    """Return an equivalent plan that is cheaper to execute. Apply only once."""
    node = seeds.with_indices(node)
    node = everywhere(node, name_columns)
    node = push_filters(node)
    node = everywhere(node, merge_projections)
    node = everywhere(node, drop_without_effect)
    node = prune_columns(node)
    node = push_limits(node, context)
    node = everywhere(node, flatten_unions)
    node = everywhere(node, order_reads)
    return everywhere(node, drop_trivial_projections)


def everywhere(node: Node, rule: Callable[[Node], Node]) -> Node:
    """Apply a rule to every node, inputs before their consumers."""
    return rewrite_bottom_up(node, lambda each, original: rule(each))


# -- projections


def name_columns(node: Node) -> Node:
    """Turn `drop_columns` and `rename_columns` into selections by name, if the columns of the input
    are known.
    """
    if not isinstance(node, Project) or node.expressions or not (node.dropped or node.renamed):
        return node
    schema = properties.known_schema(node.input)
    if schema is None or not set(node.dropped or node.renamed or ()) <= set(schema.names):
        return node
    new = dict(node.renamed or {})
    remaining = [name for name in schema.names if name not in node.dropped]
    names = [new.get(name, name) for name in remaining]
    if not remaining or len(set(names)) < len(names):
        return node
    selected = tuple(
        _named(ColumnExpr(old), name) for old, name in zip(remaining, names, strict=True)
    )
    return dataclasses.replace(node, expressions=selected, dropped=(), renamed=None)


def merge_projections(node: Node) -> Node:
    """Merge a projection of a projection, unless a value would be computed twice or a user function
    moved.
    """
    if not isinstance(node, Project) or not isinstance(node.input, Project):
        return node
    lower = node.input
    plain = all(
        properties.is_idempotent(each) and not properties.functions_of(each)
        for each in (node, lower)
    )
    if not plain or node.resources != lower.resources or not node.expressions or node.dropped:
        return node
    merged: list[Expr] = []
    for expr in node.expressions:
        if isinstance(expr, StarExpr):
            if not lower.expressions or lower.dropped:
                return node
            merged.extend(lower.expressions)
            continue
        below = _on_input_of(lower, expr)
        if below is None:
            return node
        merged.append(below)
    if _computes_more(node, lower):
        return node
    return dataclasses.replace(node, input=lower.input, expressions=_last_of_each_name(merged))


def _on_input_of(lower: Project, expr: Expr) -> Expr | None:
    """Rewrite an expression on a projection in terms of its input; None if that is impossible."""
    found = {name: input_of(lower, name) for name in expr.columns()}
    if any(source is None for source in found.values()):
        return None
    below = expr.substituted({name: source for name, source in found.items() if source is not None})
    return below if expr.name is None else _named(below, expr.name)


def _computes_more(upper: Project, lower: Project) -> bool:
    """Return True if a value that `lower` computes once would be computed several times."""
    replaced = {expr.name for expr in upper.expressions}
    has_star = any(isinstance(expr, StarExpr) for expr in upper.expressions)
    uses = Counter(
        each.name
        for expr in upper.expressions
        for each in expr.walk()
        if isinstance(each, ColumnExpr)
    )
    for expr in lower.expressions:
        value = expr.expr if isinstance(expr, AliasExpr) else expr
        uses_by_star = has_star and expr.name not in replaced
        if (
            not isinstance(value, ColumnExpr | LiteralExpr | StarExpr)
            and expr.name is not None
            and uses[expr.name] + uses_by_star > 1
        ):
            return True
    return False


def _named(expr: Expr, name: str) -> Expr:
    return expr if expr.name == name else expr.alias(name)


def _last_of_each_name(expressions: list[Expr]) -> tuple[Expr, ...]:
    """Drop expressions that a later one of the same name replaces; keep all up to the last star or
    unnest.
    """
    multiple = [
        index for index, expr in enumerate(expressions) if isinstance(expr, StarExpr | UnnestExpr)
    ]
    start = multiple[-1] + 1 if multiple else 0
    by_name = {expr.name: expr for expr in expressions[start:]}
    return (*expressions[:start], *by_name.values())


# -- nodes without effect


def drop_without_effect(node: Node) -> Node:
    """Drop nodes whose work their consumer undoes: an order before another order, blocks before
    other blocks, anything before a count of rows.
    """
    if properties.counts_rows(node):
        return dataclasses.replace(node, input=_same_count(node.input))
    if isinstance(
        node, (Sort, RandomShuffle, HashPartition, Aggregate, MapGroups, Join, Repartition)
    ):
        return node.with_inputs([_without(each, node) for each in node.inputs])
    return node


def _same_count(node: Node) -> Node:
    """Return a cheaper node with the same number of rows; user functions are kept."""
    while (
        properties.keeps_rows(node)
        and isinstance(node, (Project, *properties.SAME_ROWS))
        and not properties.functions_of(node)
    ):
        (node,) = node.inputs
    return node


def _without(node: Node, consumer: Node) -> Node:
    """Return the input of a consumer without the nodes that have no effect on it."""
    while isinstance(node, properties.SAME_ROWS) and _has_no_effect(node, consumer):
        node = node.input
    return node


def _has_no_effect(node: Node, consumer: Node) -> bool:
    if isinstance(node, Repartition):
        return True  # it keeps the order, and all consumers make their own blocks
    if isinstance(consumer, Sort):
        # Sorting is stable: rows with equal keys keep the order of the node's other keys.
        return not isinstance(node, Sort) or set(node.keys) <= set(consumer.keys)
    if isinstance(consumer, RandomShuffle):
        # A sort before a shuffle with a fixed seed makes the result independent of files and
        # blocks.
        fixed = isinstance(consumer.seed, int)
        return isinstance(node, RandomShuffle | RandomizeBlocks) or not fixed
    return isinstance(consumer, Aggregate) and all(
        type(aggregate) in _ORDER_INDEPENDENT for aggregate in consumer.aggregates
    )


def flatten_unions(node: Node) -> Node:
    """Merge nested unions."""
    if not isinstance(node, Union) or not any(isinstance(part, Union) for part in node.parts):
        return node
    nested = (part.parts if isinstance(part, Union) else (part,) for part in node.parts)
    return Union(parts=tuple(itertools.chain.from_iterable(nested)))


# -- limits and order


def push_limits(node: Node, context: DataContext) -> Node:
    """Move limits below nodes that keep the number of rows, into every input of a union, and into
    the source.
    """
    return everywhere(
        node, lambda each: _limited(each, context) if isinstance(each, Limit) else each
    )


def _limited(node: Limit, context: DataContext) -> Node:
    below = node.input
    passed: list[Node] = []
    while isinstance(below, Limit) or _commutes_with_limit(below, context):
        if isinstance(below, Limit):
            node = Limit(input=below.input, limit=min(node.limit, below.limit))
        else:
            passed.append(below)
            node = Limit(input=below.inputs[0], limit=node.limit)
        below = node.input
    result = _limited_source(node, context)
    for each in reversed(passed):
        result = each.with_inputs([result])
    return result


def _commutes_with_limit(node: Node, context: DataContext) -> bool:
    keeps_rows = (
        isinstance(node, Project | MapRows | MapBatches)
        and properties.keeps_rows(node)
        and context.max_errored_blocks == 0
    )
    return keeps_rows or isinstance(node, Repartition)


def _limited_source(node: Limit, context: DataContext) -> Node:
    below = node.input
    if isinstance(below, Union):
        # Each input needs at most as many rows as the union.
        parts = [_limited(Limit(input=part, limit=node.limit), context) for part in below.parts]
        return node.with_inputs([below.with_inputs(parts)])
    if isinstance(below, Read) and below.source.supports_limit_pushdown():
        source = below.source.apply_limit(node.limit)
        return node.with_inputs([dataclasses.replace(below, source=source)])
    return node


def order_reads(node: Node) -> Node:
    """Shuffle read tasks instead of blocks, also below nodes that work row by row."""
    if not isinstance(node, RandomizeBlocks):
        return node
    below = node.input
    passed: list[Node] = []
    while (
        isinstance(below, FilterExpr | Project | Mapped)
        and not isinstance(below, MapGroups)
        and properties.is_idempotent(below)
    ):
        passed.append(below)
        below = below.input
    if not isinstance(below, Read) or below.task_order is not None:
        return node
    result: Node = dataclasses.replace(below, task_order=node)
    for each in reversed(passed):
        result = each.with_inputs([result])
    return result
