"""Predicate pushdown: move filters towards the sources, and into sources that support predicates.

A predicate is split at `&`, so that each part moves as far as possible: through projections
(rewritten in terms of their inputs), through nodes that only reorder rows, through grouping if it
uses keys only, into every input of a union. Nothing moves past a limit, a sample, a cache or a user
function. A part that may fail (a division, a cast) does not move past another filter, which may
prevent the failure, and does not move into the source.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Sequence

from syncline.data.columnar.expressions import (
    AliasExpr,
    BinaryExpr,
    ColumnExpr,
    Expr,
    LiteralExpr,
    Operation,
    StarExpr,
    UnaryExpr,
    UnnestExpr,
)
from syncline.data.plan import properties
from syncline.data.plan.nodes import (
    Aggregate,
    FilterExpr,
    Node,
    Project,
    Read,
    Rewrite,
    Union,
    rewrite_top_down,
)

_MAY_FAIL = frozenset(
    {Operation.ADD, Operation.SUB, Operation.MUL, Operation.DIV, Operation.FLOORDIV, Operation.MOD}
)


def push_filters(node: Node) -> Node:
    """Return the same plan with all `FilterExpr` nodes as close to the sources as possible."""
    none: Sequence[Expr] = ()
    return rewrite_top_down(node, none, _push)


def _push(node: Node, above: Sequence[Expr]) -> Rewrite[Sequence[Expr]]:
    """Apply the predicates `above`, in order of evaluation, at the node or below it."""
    if isinstance(node, FilterExpr):
        return _push_filter(node, above)
    if isinstance(node, Read):
        read = _push_into_read(node, above)
        return Rewrite(lambda _: read)
    moved, kept = _split(node, above)
    return Rewrite(
        lambda parts: _filtered(kept, node.with_inputs(parts)),
        [(each, moved) for each in node.inputs],
    )


def _push_filter(node: FilterExpr, above: Sequence[Expr]) -> Rewrite[Sequence[Expr]]:
    conjuncts = node.predicate.conjuncts()
    if not node.predicate.is_idempotent():
        # Its result depends on the rows that it gets, so no other filter may move below it.
        return Rewrite(lambda parts: _filtered(above, node.with_inputs(parts)), [(node.input, ())])
    functions = [part for part in conjuncts if properties.calls_function(part)]
    safe = [part for part in conjuncts if cannot_fail(part)]
    others = [
        part for part in conjuncts if not cannot_fail(part) and not properties.calls_function(part)
    ]
    moved = [*safe, *([_all(others)] if others else [])]
    if not functions:
        return Rewrite(lambda parts: parts[0], [(node.input, [*moved, *above])])
    return Rewrite(
        lambda parts: _filtered(above, FilterExpr(input=parts[0], predicate=_all(functions))),
        [(node.input, moved)],
    )


def _split(node: Node, predicates: Sequence[Expr]) -> tuple[list[Expr], list[Expr]]:
    """Return the predicates that move, in terms of the node's inputs, and those that stay."""
    moved: list[Expr] = []
    kept: list[Expr] = []
    for predicate in predicates:
        below = _on_inputs(node, predicate) if not kept or cannot_fail(predicate) else None
        if below is None:
            kept.append(predicate)
        else:
            moved.append(below)
    return moved, kept


def _on_inputs(node: Node, predicate: Expr) -> Expr | None:
    """Rewrite a predicate in terms of the node's inputs; None if it must stay above the node."""
    if not predicate.is_idempotent():
        return None
    if isinstance(node, (Union, *properties.SAME_ROWS)):
        return predicate
    if isinstance(node, Aggregate):
        return predicate if predicate.columns() and predicate.columns() <= set(node.keys) else None
    if (
        isinstance(node, Project)
        and properties.is_idempotent(node)
        and not properties.functions_of(node)
    ):
        return _on_projection_input(node, predicate)
    return None


def _on_projection_input(node: Project, predicate: Expr) -> Expr | None:
    found: dict[str, Expr] = {}
    for name in predicate.columns():
        source = input_of(node, name)
        # Do not compute a value twice that is expensive or may fail.
        if source is None or not cannot_fail(source):
            return None
        found[name] = source
    return predicate.substituted(found)


def input_of(node: Project, name: str) -> Expr | None:
    """Return a column of a projection in terms of its input; None if there is no such column, or if
    it is unknown without running.
    """
    if node.renamed is not None:
        old = {new: old for old, new in node.renamed.items()}
        if name in old:
            return ColumnExpr(old[name])
        return None if name in node.renamed else ColumnExpr(name)
    if name in node.dropped and not node.expressions:
        return None
    found: Expr | None = None
    for expr in node.expressions or (StarExpr(),):
        if isinstance(expr, UnnestExpr):
            return None
        if isinstance(expr, StarExpr):
            # If the input has this column, the star replaces the one found so far.
            if found is not None or name in node.dropped:
                return None
            found = ColumnExpr(name)
        elif expr.name == name:
            found = expr.expr if isinstance(expr, AliasExpr) else expr
    return found


def cannot_fail(expr: Expr) -> bool:
    """Return True if an expression has a value for every row, such as a comparison but not a
    division.
    """
    if isinstance(expr, BinaryExpr | UnaryExpr):
        return expr.op not in _MAY_FAIL and all(map(cannot_fail, expr.children))
    return isinstance(expr, ColumnExpr | LiteralExpr) or (
        isinstance(expr, AliasExpr) and cannot_fail(expr.expr)
    )


def _push_into_read(node: Read, predicates: Sequence[Expr]) -> Node:
    kept = []
    source = node.source
    schema = source.schema()
    for predicate in predicates:
        columns = predicate.columns()
        supported = (
            source.supports_predicate_pushdown()
            and columns
            and (schema is None or columns <= set(schema.names))
        )
        if supported and cannot_fail(predicate) and predicate.to_arrow(schema) is not None:
            source = source.apply_predicate(predicate)
        else:
            kept.append(predicate)
    read = node if source is node.source else dataclasses.replace(node, source=source)
    return _filtered(kept, read)


def _filtered(predicates: Sequence[Expr], node: Node) -> Node:
    """Add filters on a node: one of all predicates that cannot fail, then the others one by one."""
    safe = [predicate for predicate in predicates if cannot_fail(predicate)]
    if safe:
        node = FilterExpr(input=node, predicate=_all(safe))
    for predicate in predicates:
        if not cannot_fail(predicate):
            node = FilterExpr(input=node, predicate=predicate)
    return node


def _all(predicates: Sequence[Expr]) -> Expr:
    return functools.reduce(operator.and_, predicates)
