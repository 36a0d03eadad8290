"""Columns that nobody asks for are not read, and expressions that nobody asks for are not computed.

Each node is told which columns of its rows are needed, and tells its inputs. That works as long as
every node on the way says which columns it reads; user functions, writes and caches get all of
them.
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
    Rebuilt,
    Repartition,
    Sort,
    Union,
    rewritten_from_above,
)

Needed = frozenset[str] | None
"""Names of columns; None for all. All of them are there, or the plan fails."""

_PASSING = (Limit, RandomizeBlocks, RandomSample, RandomShuffle, Repartition, Union, Mix)


def prune_columns(node: Node) -> Node:
    """The same plan, which reads and computes only what its result is made of."""
    return rewritten_from_above(node, None, _pruned)


def _pruned(node: Node, needed: Needed) -> Rebuilt[Needed]:
    """The node with at least the columns `needed`; it may still have others."""
    match node:
        case Read():
            read = _read(node, needed)
            return Rebuilt(lambda _: read)
        case Project():
            return _project(node, needed)
        case Join():
            below = _of_join(node, needed)
        case FilterExpr():
            below = [_plus(needed, node.predicate.columns())]
        case Sort() | HashPartition():
            below = [_plus(needed, node.keys)]
        case Aggregate():
            below = [_of_aggregate(node)]
        case _:
            below = [needed if isinstance(node, _PASSING) else None] * len(node.inputs)
    return Rebuilt(node.with_inputs, list(zip(node.inputs, below, strict=True)))


def _plus(needed: Needed, names: Iterable[str]) -> Needed:
    return None if needed is None else needed | frozenset(names)


def _of_aggregate(node: Aggregate) -> Needed:
    if not properties.knows_its_columns(node.aggregates):
        return None
    return frozenset(node.keys).union(*(aggregate.columns() for aggregate in node.aggregates))


def _of_join(node: Join, needed: Needed) -> list[Needed]:
    """A column of the result may have had a name without a suffix; both sides keep it then, so that
    it gets its suffix again.
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


def _project(node: Project, needed: Needed) -> Rebuilt[Needed]:
    expressions = _kept(node.expressions, needed)
    if expressions is not node.expressions:
        node = dataclasses.replace(node, expressions=expressions)
    if properties.is_selection(node):
        selected = _selected(node)
        if selected is not None:
            return Rebuilt(lambda _: selected)
    return Rebuilt(node.with_inputs, [(node.input, _of_project(node, needed))])


def _kept(expressions: tuple[Expr, ...], needed: Needed) -> tuple[Expr, ...]:
    """The expressions whose columns are needed, and those that call user functions; at least one,
    since none would mean all columns.
    """
    if needed is None or not expressions:
        return expressions
    kept = tuple(
        expr
        for expr in expressions
        if expr.name is None or expr.name in needed or properties.calls_function(expr)
    )
    return kept or expressions[:1]


def _of_project(node: Project, needed: Needed) -> Needed:
    if not node.expressions:
        # Columns that are dropped or renamed have to be there.
        olds = {new: old for old, new in (node.renamed or {}).items()}
        return (
            None
            if needed is None
            else frozenset(
                {olds.get(name, name) for name in needed} | set(node.renamed or node.dropped)
            )
        )
    used = frozenset().union(*(expr.columns() for expr in node.expressions), node.dropped)
    stars = [index for index, expr in enumerate(node.expressions) if isinstance(expr, StarExpr)]
    if not stars:
        return used
    if any(isinstance(expr, UnnestExpr) for expr in node.expressions):
        return None  # any of the needed columns may be a field
    replaced = {expr.name for expr in node.expressions[stars[-1] :]}
    return (
        None
        if needed is None
        else frozenset(name for name in needed if name not in replaced) | used
    )


def _selected(node: Project) -> Node | None:
    """A selection that stands on a source, as what the source reads; None where it cannot do
    that.
    """
    names = [expr.name for expr in node.expressions if expr.name is not None]
    read = node.input
    if not isinstance(read, Read) or not read.source.supports_projection_pushdown():
        return None
    schema = read.source.schema()
    if schema is None or not set(names) <= set(schema.names):
        return None
    return _with_columns(read, names, schema)


def _read(node: Read, needed: Needed) -> Node:
    schema = node.source.schema() if node.source.supports_projection_pushdown() else None
    # A name that is not there is a mistake, which is told best beside all names that are.
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
    """A column for plans that only count rows."""
    fixed = [field for field in schema if pa.types.is_primitive(field.type)]
    return [min(fixed, key=lambda field: field.type.bit_width).name] if fixed else schema.names[:1]


def drop_trivial_projections(node: Node) -> Node:
    """A projection that gives the columns that are there already, in their order, is nothing."""
    if not isinstance(node, Project) or not node.expressions or node.dropped:
        return node
    if all(isinstance(expr, StarExpr) for expr in node.expressions):
        return node.input
    schema = properties.known_schema(node.input) if properties.is_selection(node) else None
    return (
        node.input
        if schema is not None and [expr.name for expr in node.expressions] == schema.names
        else node
    )
