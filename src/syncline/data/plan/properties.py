"""Properties of plans that are known without running them: rows, schema, size, files, and the
effect of nodes on rows.

None always means unknown. Row counts and schemas are exact; sizes are estimates.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TypeGuard
from weakref import WeakKeyDictionary

import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar import schemas
from syncline.data.columnar.aggregate import AggregateFn, Count, phases
from syncline.data.columnar.aggregate.base import works_by_columns
from syncline.data.columnar.expressions import ColumnExpr, Expr, UDFExpr, projected_schema
from syncline.data.columnar.kernels import join
from syncline.data.plan.nodes import (
    Aggregate,
    Cache,
    FilterExpr,
    FilterRows,
    FlatMap,
    HashPartition,
    Held,
    Join,
    Limit,
    MapBatches,
    MapGroups,
    MapRows,
    Mix,
    Node,
    Project,
    RandomizeBlocks,
    RandomSample,
    RandomShuffle,
    Read,
    Repartition,
    Sort,
    Union,
    Zip,
    walk,
)

# Nodes whose rows are those of the input; order and blocks may differ.
SAME_ROWS = (Sort, RandomShuffle, RandomizeBlocks, Repartition, HashPartition)

_schemas: WeakKeyDictionary[Node, pa.Schema | None] = WeakKeyDictionary()


# -- single nodes


def keeps_rows(node: Node) -> bool:
    """Return True if a node certainly has as many rows as its input; skipped rows
    (`on_error="skip"`) are missing.
    """
    match node:
        case MapRows(function=function):
            return function.on_error == "raise"
        case MapBatches(function=function, keeps_row_count=promised):
            return promised and function.on_error == "raise"
        case _:
            return isinstance(node, (Project, Cache, *SAME_ROWS))


def functions_of(node: Node) -> tuple[UDFExpr, ...]:
    """Return the user functions in a node's expressions."""
    return functions_in(_expressions(node))


def functions_in(expressions: Iterable[Expr]) -> tuple[UDFExpr, ...]:
    """Return the user functions in expressions."""
    return tuple(each for expr in expressions for each in expr.walk() if isinstance(each, UDFExpr))


def calls_function(expr: Expr) -> bool:
    """Return True if an expression calls a user function."""
    return bool(functions_in([expr]))


def is_idempotent(node: Node) -> bool:
    """Return True if a node's expressions depend on the row only: not random numbers or ids."""
    return all(expr.is_idempotent() for expr in _expressions(node))


def is_selection(node: Node) -> bool:
    """Return True if a node only selects columns, each under its own name."""
    if not isinstance(node, Project) or not node.expressions:
        return False
    names = [expr.name for expr in node.expressions]
    distinct = len(set(names)) == len(names)
    return distinct and all(isinstance(expr, ColumnExpr) for expr in node.expressions)


def counts_rows(node: Node) -> TypeGuard[Aggregate]:
    """Return True if a node only counts rows."""
    return (
        isinstance(node, Aggregate)
        and not node.keys
        and all(
            isinstance(aggregate, Count) and not aggregate.columns()
            for aggregate in node.aggregates
        )
    )


def read_named_columns_only(aggregates: Iterable[AggregateFn]) -> bool:
    """Return True if the aggregators read only the columns that they name; those of users may read
    whole rows.
    """
    return all(map(works_by_columns, aggregates))


def _expressions(node: Node) -> tuple[Expr, ...]:
    if isinstance(node, Project):
        return node.expressions
    return (node.predicate,) if isinstance(node, FilterExpr) else ()


# -- whole plans


def known_rows(node: Node) -> int | None:
    """Return the exact number of rows."""
    limit: int | None = None
    while isinstance(node, Limit) or keeps_rows(node):
        if isinstance(node, Limit):
            limit = node.limit if limit is None else min(limit, node.limit)
            if limit == 0:
                return 0
        (node,) = node.inputs
    rows = _rows(node)
    return rows if rows is None or limit is None else min(limit, rows)


def _rows(node: Node) -> int | None:
    """Return the number of rows of a node that creates rows."""
    match node:
        case Read():
            return node.source.num_rows()
        case Held():
            return node.num_rows
        case Union():
            return _sum(map(known_rows, node.parts))
        case Mix(stop_when="longest"):
            return _sum(map(known_rows, node.parts))
        case Zip():
            counts = {known_rows(part) for part in node.parts}
            return counts.pop() if len(counts) == 1 else None
        case Aggregate(keys=()):
            return 1
    return None


def known_schema(node: Node) -> pa.Schema | None:
    """Return the schema of the rows. Also None if running the plan would fail: its errors are
    raised when it runs.
    """
    pending = [node]
    while pending:
        each = pending[-1]
        unknown = [part for part in each.inputs if part not in _schemas]
        if unknown:
            pending.extend(unknown)
            continue
        pending.pop()
        if each not in _schemas:
            try:
                _schemas[each] = _schema(each, [_schemas[part] for part in each.inputs])
            except (KeyError, TypeError, ValueError, pa.ArrowException):
                _schemas[each] = None
    return _schemas[node]


def _schema(node: Node, inputs: list[pa.Schema | None]) -> pa.Schema | None:
    """Return the schema of a node, given those of its inputs."""
    match node:
        case Read():
            return node.source.schema()
        case Held():
            return schemas.unify(block.schema for block in node.blocks) if node.blocks else None
    known = [schema for schema in inputs if schema is not None]
    if len(known) < len(inputs) or not known:
        return None
    match node:
        case Project():
            return _projected(node, known[0])
        case Aggregate():
            return _aggregated(node, known[0])
        case Union() | Mix():
            return schemas.unify(known)
        case Zip():
            return functools.reduce(join.zip_tables, map(blocks.empty, known)).schema
        case Join():
            return joined_schema(node, known[0], known[1])
        case _:
            same = isinstance(
                node, (FilterExpr, FilterRows, RandomSample, Limit, Cache, *SAME_ROWS)
            )
            return known[0] if same else None


def _projected(node: Project, schema: pa.Schema) -> pa.Schema | None:
    if node.renamed is not None:
        return pa.schema(
            [field.with_name(node.renamed.get(field.name, field.name)) for field in schema]
        )
    remaining = pa.schema([field for field in schema if field.name not in node.dropped])
    return projected_schema(remaining, node.expressions) if node.expressions else remaining


def _aggregated(node: Aggregate, schema: pa.Schema) -> pa.Schema | None:
    # The result types of user accumulators, and of aggregates of no rows, depend on the values.
    if not node.keys or not read_named_columns_only(node.aggregates):
        return None
    return phases.aggregate(blocks.empty(schema), node.keys, node.aggregates).schema


def joined_schema(node: Join, left: pa.Schema, right: pa.Schema) -> pa.Schema:
    """Return the schema of a join. Raise the errors that the execution would raise."""
    return join.join(
        blocks.empty(left),
        blocks.empty(right),
        node.join_type,
        node.left_on,
        node.right_on,
        left_suffix=node.left_suffix,
        right_suffix=node.right_suffix,
    ).schema


def estimated_bytes(node: Node) -> int | None:
    """Estimate the size of the rows in memory from metadata, in bytes."""
    while isinstance(node, (Cache, *SAME_ROWS)):
        node = node.input
    match node:
        case Read():
            return node.source.estimate_inmemory_data_size()
        case Held():
            return sum(block.size_bytes for block in node.blocks)
        case Limit():
            size, rows = estimated_bytes(node.input), known_rows(node.input)
            return None if size is None or not rows else size * min(node.limit, rows) // rows
        case Union() | Zip():
            return _sum(map(estimated_bytes, node.inputs))
    return None


def estimated_input_bytes(node: Node) -> int | None:
    """Estimate the size of the rows in memory, ignoring the effect of expressions, filters and
    groups. None after user functions, whose output size is unknown.
    """
    while not isinstance(node, MapRows | FlatMap | MapBatches | MapGroups):
        known = estimated_bytes(node)
        if known is not None:
            return known
        if len(node.inputs) != 1:
            return _sum(map(estimated_input_bytes, node.inputs)) if node.inputs else None
        (node,) = node.inputs
    return None


def input_files(node: Node) -> list[str]:
    """Return the paths of the files that are read, without duplicates, in plan order."""
    found: dict[str, None] = {}
    for each in walk(node):
        if isinstance(each, Read):
            found.update(dict.fromkeys(each.source.input_files()))
        elif isinstance(each, Held):
            found.update((path, None) for block in each.blocks for path in block.input_files)
    return list(found)


def _sum(numbers: Iterable[int | None]) -> int | None:
    listed = list(numbers)
    return (
        None if any(number is None for number in listed) else sum(number or 0 for number in listed)
    )
