"""What makes a plan cheaper without changing its rows: one pure function per rule, and `optimize`,
which applies them in order.

Filters (`filters`) and columns (`pruning`) have files of their own. Here: projections, limits,
nodes without effect, the order of blocks. A rule may change how rows lie in blocks, and which
random order a shuffle draws, but never which rows there are. Nothing moves across a cache, whose
rows other plans share.
"""

from __future__ import annotations

import dataclasses
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
    rewritten,
)
from syncline.data.plan.predicate_pushdown import input_of, push_filters

# Their results are the same in whatever order the rows come.
_IN_ANY_ORDER = (
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
    """The plan that is executed for a plan: the same rows for less work. It may be lowered, and not
    be optimized again.
    """
    node = seeds.placed(node)
    node = everywhere(node, name_columns)
    node = push_filters(node)
    node = everywhere(node, merge_projections)
    node = everywhere(node, drop_useless)
    node = prune_columns(node)
    node = push_limits(node, context)
    node = everywhere(node, flatten_unions)
    node = everywhere(node, order_reads)
    return everywhere(node, drop_trivial_projections)


def everywhere(node: Node, rule: Callable[[Node], Node]) -> Node:
    """A rule on every node, inputs before those that use them."""
    return rewritten(node, lambda each, original: rule(each))


# -- projections


def name_columns(node: Node) -> Node:
    """`drop_columns` and `rename_columns` as selections by name, where the input's columns are
    known.
    """
    if not isinstance(node, Project) or node.expressions or not (node.dropped or node.renamed):
        return node
    schema = properties.known_schema(node.input)
    if schema is None or not set(node.dropped or node.renamed or ()) <= set(schema.names):
        return node
    new = dict(node.renamed or {})
    left = [name for name in schema.names if name not in node.dropped]
    names = [new.get(name, name) for name in left]
    if not left or len(set(names)) < len(names):
        return node
    selected = tuple(_named(ColumnExpr(old), name) for old, name in zip(left, names, strict=True))
    return dataclasses.replace(node, expressions=selected, dropped=(), renamed=None)


def merge_projections(node: Node) -> Node:
    """A projection of a projection is one, unless something would be computed twice or a user
    function called elsewhere.
    """
    if not isinstance(node, Project) or not isinstance(node.input, Project):
        return node
    lower = node.input
    plain = all(
        properties.is_idempotent(each) and not properties.functions_of(each) for each in (node, lower)
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
    """An expression on a projection as one on its input; None where it cannot be told."""
    found = {name: input_of(lower, name) for name in expr.columns()}
    if any(source is None for source in found.values()):
        return None
    below = expr.substituted({name: source for name, source in found.items() if source is not None})
    return below if expr.name is None else _named(below, expr.name)


def _computes_more(upper: Project, lower: Project) -> bool:
    """Whether something that the lower one computes once would be computed several times."""
    replaced = {expr.name for expr in upper.expressions}
    all_stay = any(isinstance(expr, StarExpr) for expr in upper.expressions)
    uses = Counter(
        each.name
        for expr in upper.expressions
        for each in expr.walk()
        if isinstance(each, ColumnExpr)
    )
    for expr in lower.expressions:
        value = expr.expr if isinstance(expr, AliasExpr) else expr
        stays = all_stay and expr.name not in replaced
        if (
            not isinstance(value, ColumnExpr | LiteralExpr | StarExpr)
            and expr.name is not None
            and uses[expr.name] + stays > 1
        ):
            return True
    return False


def _named(expr: Expr, name: str) -> Expr:
    return expr if expr.name == name else expr.alias(name)


def _last_of_each_name(expressions: list[Expr]) -> tuple[Expr, ...]:
    """The same columns without those that a later expression replaces; what stands before a star or
    unnest is left as it is.
    """
    several = [
        index for index, expr in enumerate(expressions) if isinstance(expr, StarExpr | UnnestExpr)
    ]
    start = several[-1] + 1 if several else 0
    by_name = {expr.name: expr for expr in expressions[start:]}
    return (*expressions[:start], *by_name.values())


# -- nodes without effect


def drop_useless(node: Node) -> Node:
    """Nodes whose work the next one undoes: an order before another order, blocks before other
    blocks, anything before a mere count.
    """
    if properties.counts_rows(node):
        return dataclasses.replace(node, input=_counted(node.input))
    if isinstance(
        node, (Sort, RandomShuffle, HashPartition, Aggregate, MapGroups, Join, Repartition)
    ):
        return node.with_inputs([_without(each, node) for each in node.inputs])
    return node


def _counted(node: Node) -> Node:
    """What has as many rows as a node, without user functions being left out."""
    while (
        properties.keeps_rows(node)
        and isinstance(node, (Project, *properties.SAME_ROWS))
        and not properties.functions_of(node)
    ):
        (node,) = node.inputs
    return node


def _without(node: Node, reader: Node) -> Node:
    """The input of a node that reads it, without what makes no difference to it."""
    while isinstance(node, properties.SAME_ROWS) and _makes_no_difference(node, reader):
        node = node.input
    return node


def _makes_no_difference(node: Node, reader: Node) -> bool:
    if isinstance(node, Repartition):
        return True  # keeps the order, and all readers make blocks of their own
    if isinstance(reader, Sort):
        # Sorting is stable: rows that the reader finds equal stay in the order of the node's other
        # keys.
        return not isinstance(node, Sort) or set(node.keys) <= set(reader.keys)
    if isinstance(reader, RandomShuffle):
        # A sort before a shuffle with a fixed seed gives the shuffle an input that does not depend
        # on files and blocks.
        return isinstance(node, RandomShuffle | RandomizeBlocks) or not isinstance(reader.seed, int)
    return isinstance(reader, Aggregate) and all(
        type(aggregate) in _IN_ANY_ORDER for aggregate in reader.aggregates
    )


def flatten_unions(node: Node) -> Node:
    """A union of unions is one."""
    if not isinstance(node, Union) or not any(isinstance(part, Union) for part in node.parts):
        return node
    return Union(
        parts=tuple(
            each
            for part in node.parts
            for each in (part.parts if isinstance(part, Union) else (part,))
        )
    )


# -- limits and order


def push_limits(node: Node, context: DataContext) -> Node:
    """Limits below nodes that have a row for each row, into every input of a union, and to the
    source.
    """
    return everywhere(
        node, lambda each: _limited(each, context) if isinstance(each, Limit) else each
    )


def _limited(node: Limit, context: DataContext) -> Node:
    below = node.input
    passed: list[Node] = []
    while isinstance(below, Limit) or _lets_limits_pass(below, context):
        if isinstance(below, Limit):
            node = Limit(input=below.input, limit=min(node.limit, below.limit))
        else:
            passed.append(below)
            node = Limit(input=below.inputs[0], limit=node.limit)
        below = node.input
    made = _limited_source(node, context)
    for each in reversed(passed):
        made = each.with_inputs([made])
    return made


def _lets_limits_pass(node: Node, context: DataContext) -> bool:
    has_row_for_row = (
        isinstance(node, Project | MapRows | MapBatches)
        and properties.keeps_rows(node)
        and context.max_errored_blocks == 0
    )
    return has_row_for_row or isinstance(node, Repartition)


def _limited_source(node: Limit, context: DataContext) -> Node:
    below = node.input
    if isinstance(below, Union):
        # No input has to give more than all together.
        return node.with_inputs(
            [
                below.with_inputs(
                    [_limited(Limit(input=part, limit=node.limit), context) for part in below.parts]
                )
            ]
        )
    if isinstance(below, Read) and below.source.supports_limit_pushdown():
        return node.with_inputs(
            [dataclasses.replace(below, source=below.source.apply_limit(node.limit))]
        )
    return node


def order_reads(node: Node) -> Node:
    """Random order of blocks as random order of read tasks, also across what works row by row."""
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
    made: Node = dataclasses.replace(below, task_order=node)
    for each in reversed(passed):
        made = each.with_inputs([made])
    return made
