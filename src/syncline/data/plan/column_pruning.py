"""Column pruning: do not read columns or compute expressions that the result does not need.

Each node gets the columns that its consumer needs and passes the columns that it needs to its
inputs. User functions, writes and caches need all columns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import pyarrow as pa

from syncline.data.columnar.expressions import Expr, StarExpr, UnnestExpr
from syncline.data.plan import properties
from syncline.data.plan.nodes import (
    Aggregate,
    FilterExpr,
    HashPartition,
    Join,
    Limit,
    Mix,
    Node,
    Project,
    RandomizeBlocks,
    RandomSample,
    RandomShuffle,
    Read,
    Repartition,
    Rewrite,
    Sort,
    Union,
    rewrite_top_down,
)

Needed = frozenset[str] | None
"""Names of columns; None for all. A plan without one of them fails."""

_PASS_THROUGH = (Limit, RandomizeBlocks, RandomSample, RandomShuffle, Repartition, Union, Mix)


def prune_columns(node: Node) -> Node:
    """Return the same plan that reads and computes only what its result needs."""
    return rewrite_top_down(node, None, _prune)


def _prune(node: Node, needed: Needed) -> Rewrite[Needed]:
    """Rewrite a node so that it has at least the columns `needed`."""
    match node:
        case Read():
            read = _prune_read(node, needed)
            return Rewrite(lambda _: read)
        case Project():
            return _prune_project(node, needed)
        case Join():
            below = _needed_by_join(node, needed)
        case FilterExpr():
            below = [_plus(needed, node.predicate.columns())]
        case Sort() | HashPartition():
            below = [_plus(needed, node.keys)]
        case Aggregate():
            below = [_needed_by_aggregate(node)]
        case _:
            below = [needed if isinstance(node, _PASS_THROUGH) else None] * len(node.inputs)
    return Rewrite(node.with_inputs, list(zip(node.inputs, below, strict=True)))


def _plus(needed: Needed, names: Iterable[str]) -> Needed:
    return None if needed is None else needed | frozenset(names)


def _needed_by_aggregate(node: Aggregate) -> Needed:
    if not properties.read_named_columns_only(node.aggregates):
        return None
    return frozenset(node.keys).union(*(aggregate.columns() for aggregate in node.aggregates))


def _needed_by_join(node: Join, needed: Needed) -> list[Needed]:
    """Return the columns that each side needs. A needed column may be one without its suffix; both
    sides keep it then, so that it gets the suffix again.
    """
    schemas = [properties.known_schema(part) for part in node.parts]
    if needed is None or any(schema is None for schema in schemas):
        return [None, None]
    names = set(needed)
    for suffix in filter(None, (node.left_suffix, node.right_suffix)):
        names |= {name.removesuffix(suffix) for name in needed if name.endswith(suffix)}
    keys = (node.left_on, node.right_on)
    return [
        frozenset((names | set(own)) & set(schema.names))
        for own, schema in zip(keys, schemas, strict=True)
        if schema is not None
    ]


def _prune_project(node: Project, needed: Needed) -> Rewrite[Needed]:
    expressions = _needed_expressions(node.expressions, needed)
    if expressions is not node.expressions:
        node = dataclasses.replace(node, expressions=expressions)
    if properties.is_selection(node):
        read = _select_in_read(node)
        if read is not None:
            return Rewrite(lambda _: read)
    return Rewrite(node.with_inputs, [(node.input, _needed_by_project(node, needed))])


def _needed_expressions(expressions: tuple[Expr, ...], needed: Needed) -> tuple[Expr, ...]:
    """Return the expressions that are needed or call user functions; at least one, since none would
    mean all columns.
    """
    if needed is None or not expressions:
        return expressions
    kept = tuple(
        expr
        for expr in expressions
        if expr.name is None or expr.name in needed or properties.calls_function(expr)
    )
    return kept or expressions[:1]


def _needed_by_project(node: Project, needed: Needed) -> Needed:
    if not node.expressions:
        if needed is None:
            return None
        # Columns to drop or rename must exist.
        olds = {new: old for old, new in (node.renamed or {}).items()}
        return frozenset(olds.get(name, name) for name in needed) | set(
            node.renamed or node.dropped
        )
    used = frozenset().union(*(expr.columns() for expr in node.expressions), node.dropped)
    stars = [index for index, expr in enumerate(node.expressions) if isinstance(expr, StarExpr)]
    if not stars:
        return used
    if any(isinstance(expr, UnnestExpr) for expr in node.expressions):
        return None  # any of the needed columns may be a field
    replaced = {expr.name for expr in node.expressions[stars[-1] :]}
    if needed is None:
        return None
    return frozenset(name for name in needed if name not in replaced) | used


def _select_in_read(node: Project) -> Node | None:
    """Let the source do the selection; None if it cannot."""
    names = [expr.name for expr in node.expressions if expr.name is not None]
    read = node.input
    if not isinstance(read, Read) or not read.source.supports_projection_pushdown():
        return None
    schema = read.source.schema()
    if schema is None or not set(names) <= set(schema.names):
        return None
    return _with_columns(read, names, schema)


def _prune_read(node: Read, needed: Needed) -> Node:
    schema = node.source.schema() if node.source.supports_projection_pushdown() else None
    # For a missing column keep all others, so that the error can list them.
    if needed is None or schema is None or not needed <= set(schema.names):
        return node
    return _with_columns(
        node, [name for name in schema.names if name in needed] or _cheapest(schema), schema
    )


def _with_columns(node: Read, names: Sequence[str], schema: pa.Schema) -> Read:
    if list(names) == schema.names:
        return node
    return dataclasses.replace(
        node, source=node.source.apply_projection(names), columns=tuple(names)
    )


def _cheapest(schema: pa.Schema) -> list[str]:
    """Return a small column for plans that only count rows."""
    fixed = [field for field in schema if pa.types.is_primitive(field.type)]
    return [min(fixed, key=lambda field: field.type.bit_width).name] if fixed else schema.names[:1]


def drop_trivial_projections(node: Node) -> Node:
    """Drop a projection that returns the columns of its input in the same order."""
    if not isinstance(node, Project) or not node.expressions or node.dropped:
        return node
    if all(isinstance(expr, StarExpr) for expr in node.expressions):
        return node.input
    schema = properties.known_schema(node.input) if properties.is_selection(node) else None
    same = schema is not None and [expr.name for expr in node.expressions] == schema.names
    return node.input if same else node
