"""Filters as near to the source as they may go, into it where it takes them.

A predicate is taken apart at `&`, so that each part goes as far as it can: through projections (put
into the terms of their inputs), through what only reorders rows, through grouping if it looks at
keys alone, into every input of a union. Nothing goes past a limit, a sample, a cache or a user
function. A part that may fail (a division, a cast) does not go past another filter, which may be
what keeps it from failing, and is not left to the source.
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
    Rebuilt,
    Union,
    rewritten_from_above,
)

_MAY_FAIL = frozenset(
    {Operation.ADD, Operation.SUB, Operation.MUL, Operation.DIV, Operation.FLOORDIV, Operation.MOD}
)


def push_filters(node: Node) -> Node:
    """The same plan with its `FilterExpr`s as near to the sources as they may go."""
    none: Sequence[Expr] = ()
    return rewritten_from_above(node, none, _pushed)


def _pushed(node: Node, above: Sequence[Expr]) -> Rebuilt[Sequence[Expr]]:
    """The node with the predicates `above`, first to be true first, at it or below it."""
    if isinstance(node, FilterExpr):
        return _pushed_filter(node, above)
    if isinstance(node, Read):
        read = _into_read(node, above)
        return Rebuilt(lambda _: read)
    passing, staying = _split(node, above)
    return Rebuilt(
        lambda parts: _placed(staying, node.with_inputs(parts)),
        [(each, passing) for each in node.inputs],
    )


def _pushed_filter(node: FilterExpr, above: Sequence[Expr]) -> Rebuilt[Sequence[Expr]]:
    conjuncts = node.predicate.conjuncts()
    if not node.predicate.is_idempotent():
        # What it draws depends on which rows it gets.
        return Rebuilt(lambda parts: _placed(above, node.with_inputs(parts)), [(node.input, ())])
    functions = [part for part in conjuncts if properties.calls_function(part)]
    safe = [part for part in conjuncts if cannot_fail(part)]
    others = [
        part for part in conjuncts if not cannot_fail(part) and not properties.calls_function(part)
    ]
    going = [*safe, *([_all(others)] if others else [])]
    if not functions:
        return Rebuilt(lambda parts: parts[0], [(node.input, [*going, *above])])
    return Rebuilt(
        lambda parts: _placed(above, FilterExpr(input=parts[0], predicate=_all(functions))),
        [(node.input, going)],
    )


def _split(node: Node, predicates: Sequence[Expr]) -> tuple[list[Expr], list[Expr]]:
    """The predicates as they are below a node, and those that stay above."""
    passing: list[Expr] = []
    staying: list[Expr] = []
    for predicate in predicates:
        below = _below(node, predicate) if not staying or cannot_fail(predicate) else None
        if below is None:
            staying.append(predicate)
        else:
            passing.append(below)
    return passing, staying


def _below(node: Node, predicate: Expr) -> Expr | None:
    """What a predicate on a node's rows is on its inputs' rows; None if it has to stay."""
    if not predicate.is_idempotent():
        return None
    if isinstance(node, (Union, *properties.SAME_ROWS)):
        return predicate
    if isinstance(node, Aggregate):
        return predicate if predicate.columns() and predicate.columns() <= set(node.keys) else None
    if isinstance(node, Project) and properties.is_idempotent(node) and not properties.functions_of(node):
        return _below_projection(node, predicate)
    return None


def _below_projection(node: Project, predicate: Expr) -> Expr | None:
    found: dict[str, Expr] = {}
    for name in predicate.columns():
        source = input_of(node, name)
        # A value that takes long, or may fail, is not worth computing twice.
        if source is None or not cannot_fail(source):
            return None
        found[name] = source
    return predicate.substituted(found)


def input_of(node: Project, name: str) -> Expr | None:
    """What a column of a projection is on the input; None where there is no such column, or only
    running can tell.
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
            # Whether it takes the place of a column of this name that came before, only the input's
            # columns tell.
            if found is not None or name in node.dropped:
                return None
            found = ColumnExpr(name)
        elif expr.name == name:
            found = expr.expr if isinstance(expr, AliasExpr) else expr
    return found


def cannot_fail(expr: Expr) -> bool:
    """Whether an expression has a value for every row, whatever is in it, as comparisons have and
    divisions have not.
    """
    if isinstance(expr, BinaryExpr | UnaryExpr):
        return expr.op not in _MAY_FAIL and all(map(cannot_fail, expr.children))
    return isinstance(expr, ColumnExpr | LiteralExpr) or (
        isinstance(expr, AliasExpr) and cannot_fail(expr.expr)
    )


def _into_read(node: Read, predicates: Sequence[Expr]) -> Node:
    staying = []
    source = node.source
    schema = source.schema()
    for predicate in predicates:
        columns = predicate.columns()
        takes = (
            source.supports_predicate_pushdown()
            and columns
            and (schema is None or columns <= set(schema.names))
        )
        if takes and cannot_fail(predicate) and predicate.to_arrow(schema) is not None:
            source = source.apply_predicate(predicate)
        else:
            staying.append(predicate)
    return _placed(
        staying, node if source is node.source else dataclasses.replace(node, source=source)
    )


def _placed(predicates: Sequence[Expr], node: Node) -> Node:
    """Filters on a node: first one of all that cannot fail, then the others, each on what those
    before it left.
    """
    safe = [predicate for predicate in predicates if cannot_fail(predicate)]
    if safe:
        node = FilterExpr(input=node, predicate=_all(safe))
    for predicate in predicates:
        if not cannot_fail(predicate):
            node = FilterExpr(input=node, predicate=predicate)
    return node


def _all(predicates: Sequence[Expr]) -> Expr:
    return functools.reduce(operator.and_, predicates)
