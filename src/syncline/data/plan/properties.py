"""What is known of a plan without running it: rows, schema, bytes, files; and what its nodes do to
rows.

None always means "not known". Questions about a whole plan follow its nodes only as far as the
answer is certain (rows, schema), or reasonable (bytes).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TypeGuard, cast
from weakref import WeakKeyDictionary

import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar import schemas
from syncline.data.columnar.aggregate import AggregateFn, Count, steps
from syncline.data.columnar.aggregate.columnar import works_by_columns
from syncline.data.columnar.expressions import ColumnExpr, Expr, UDFExpr, projected_schema
from syncline.data.columnar.kernels import combine, join
from syncline.data.columnar.kernels.join import JoinType
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

# Nodes whose rows are those of the input, whatever their order and blocks.
SAME_ROWS = (Sort, RandomShuffle, RandomizeBlocks, Repartition, HashPartition)

_schemas: WeakKeyDictionary[Node, pa.Schema | None] = WeakKeyDictionary()


# -- single nodes


def keeps_rows(node: Node) -> bool:
    """Whether a node has as many rows as its input, for certain; skipped rows (`on_error="skip"`)
    are none.
    """
    match node:
        case MapRows(function=function):
            return function.on_error == "raise"
        case MapBatches(function=function, keeps_row_count=promised):
            return promised and function.on_error == "raise"
        case _:
            return isinstance(node, (Project, Cache, *SAME_ROWS))


def functions_of(node: Node) -> tuple[UDFExpr, ...]:
    """The user functions in a node's expressions."""
    return functions_in(_expressions(node))


def functions_in(expressions: Iterable[Expr]) -> tuple[UDFExpr, ...]:
    """The user functions in expressions."""
    return tuple(each for expr in expressions for each in expr.walk() if isinstance(each, UDFExpr))


def calls_function(expr: Expr) -> bool:
    """Whether a user function is called in an expression."""
    return bool(functions_in([expr]))


def is_idempotent(node: Node) -> bool:
    """Whether a node's expressions give the same for a row wherever it lies: false for random
    numbers and ids.
    """
    return all(expr.is_idempotent() for expr in _expressions(node))


def is_selection(node: Node) -> bool:
    """Whether a node does nothing but keep some columns, each under its name."""
    if not isinstance(node, Project) or not node.expressions:
        return False
    names = [expr.name for expr in node.expressions]
    return all(isinstance(expr, ColumnExpr) for expr in node.expressions) and len(
        set(names)
    ) == len(names)


def counts_rows(node: Node) -> TypeGuard[Aggregate]:
    """Whether a node only asks how many rows there are."""
    return (
        isinstance(node, Aggregate)
        and not node.keys
        and all(
            isinstance(aggregate, Count) and not aggregate.columns()
            for aggregate in node.aggregates
        )
    )


def knows_its_columns(aggregates: Iterable[AggregateFn]) -> bool:
    """Whether aggregators read the columns that they name and no others; those of the program's may
    look into whole rows.
    """
    return all(map(works_by_columns, aggregates))


def _expressions(node: Node) -> tuple[Expr, ...]:
    if isinstance(node, Project):
        return node.expressions
    return (node.predicate,) if isinstance(node, FilterExpr) else ()


# -- whole plans


def known_rows(node: Node) -> int | None:
    """Exact number of rows."""
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
    """Those of a node that makes rows of its own."""
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
    """Schema of the rows, also None where running the plan would fail: this is no place for its
    errors.
    """
    waiting = [node]
    while waiting:
        each = waiting[-1]
        unknown = [part for part in each.inputs if part not in _schemas]
        if unknown:
            waiting.extend(unknown)
            continue
        waiting.pop()
        if each not in _schemas:
            try:
                _schemas[each] = _schema(each, [_schemas[part] for part in each.inputs])
            except (KeyError, TypeError, ValueError, pa.ArrowException):
                _schemas[each] = None
    return _schemas[node]


def _schema(node: Node, inputs: list[pa.Schema | None]) -> pa.Schema | None:
    """The schema of a node from those of its inputs."""
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
            return functools.reduce(combine.zip_tables, map(blocks.empty, known)).schema
        case Join():
            return _joined(node, known[0], known[1])
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
    left = pa.schema([field for field in schema if field.name not in node.dropped])
    return projected_schema(left, node.expressions) if node.expressions else left


def _aggregated(node: Aggregate, schema: pa.Schema) -> pa.Schema | None:
    # Only the values tell the types of what a program's own accumulators become, and of what stands
    # for no rows.
    if not node.keys or not knows_its_columns(node.aggregates):
        return None
    return steps.aggregate(blocks.empty(schema), node.keys, node.aggregates).schema


def _joined(node: Join, left: pa.Schema, right: pa.Schema) -> pa.Schema:
    return join.join(
        blocks.empty(left),
        blocks.empty(right),
        cast("JoinType", node.join_type),
        node.left_on,
        node.right_on,
        left_suffix=node.left_suffix,
        right_suffix=node.right_suffix,
    ).schema


def estimated_bytes(node: Node) -> int | None:
    """About how many bytes the rows take in memory, from metadata."""
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
        case _:
            return (
                _sum(map(estimated_bytes, node.inputs)) if isinstance(node, Union | Zip) else None
            )


def bytes_at_most(node: Node) -> int | None:
    """About how many bytes the rows take, where what expressions, filters and groups do to that is
    left out.

    User functions may make anything of what they get: None behind them.
    """
    while not isinstance(node, MapRows | FlatMap | MapBatches | MapGroups):
        known = estimated_bytes(node)
        if known is not None:
            return known
        if len(node.inputs) != 1:
            return _sum(map(bytes_at_most, node.inputs)) if node.inputs else None
        (node,) = node.inputs
    return None


def input_files(node: Node) -> list[str]:
    """Paths of the files that are read, each once, in the order of the plan."""
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
