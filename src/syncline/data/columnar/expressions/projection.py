"""Lists of expressions: the columns of a new table, the rows that a predicate keeps, and the
resulting schema.

`star()` means all columns of the input and `unnest(expr)` the fields of a struct; both are valid
only in projections.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

import pyarrow as pa

from syncline.data.columnar import block
from syncline.data.columnar.expressions.expr import EvaluationContext, Expr
from syncline.data.columnar.expressions.operations import ATOM, Values, one_chunk
from syncline.records import dataclass


@dataclass(frozen=True, eq=False, repr=False)
class StarExpr(Expr):
    """All columns of the input."""

    def _compute(self, values: Values, table: pa.Table, context: EvaluationContext) -> NoReturn:
        raise TypeError(
            "star() means all columns, so it can only be one of the expressions of a projection"
        )

    def _text(self) -> tuple[str, int]:
        return "star()", ATOM


@dataclass(frozen=True, eq=False, repr=False)
class UnnestExpr(Expr):
    """The fields of a struct, each as a column."""

    expr: Expr

    def alias(self, name: str) -> NoReturn:
        raise TypeError(
            f"{self!r} means several columns, which cannot all be named {name!r}: "
            "alias the columns in a second step"
        )

    def _compute(self, values: Values, table: pa.Table, context: EvaluationContext) -> NoReturn:
        raise TypeError(
            f"{self!r} means several columns, so it can only be one of the expressions of a "
            "projection"
        )

    def _text(self) -> tuple[str, int]:
        return f"unnest({self.expr!r})", ATOM


def star() -> StarExpr:
    """Return an expression for all columns of the input, for use in a projection."""
    return StarExpr()


def unnest(expr: Expr) -> UnnestExpr:
    """Return an expression for the fields of a struct as columns. Raise TypeError if `expr` is not
    an expression for one column.
    """
    if not isinstance(expr, Expr):
        raise TypeError(f"unnest takes an expression such as col('user'), not {expr!r}")
    if isinstance(expr, UnnestExpr | StarExpr):
        raise TypeError(f"unnest takes an expression for one column, but {expr!r} means several")
    return UnnestExpr(expr)


def project(
    table: pa.Table, expressions: Iterable[Expr], context: EvaluationContext | None = None
) -> pa.Table:
    """Compute a table from expressions, in their order; of two columns with one name the later
    replaces the earlier.

    Raises:
        ValueError: An expression has no name: add `alias`.
    """
    found: dict[str, pa.Array | pa.ChunkedArray] = {}
    for expr in expressions:
        if isinstance(expr, StarExpr):
            found.update(zip(table.column_names, table.columns, strict=True))
        elif isinstance(expr, UnnestExpr):
            found.update(_fields(expr, expr.expr.evaluate(table, context)))
        else:
            found[column_name(expr)] = expr.evaluate(table, context)
    return block.from_columns(found, table.num_rows)


def projected_schema(schema: pa.Schema, expressions: Iterable[Expr]) -> pa.Schema | None:
    """Return the schema of `project` on data of `schema`, without computing anything; None if it
    depends on a user function.

    Raise the errors of the evaluation: unknown columns, wrong types.
    """
    types: dict[str, pa.DataType] = {}
    for expr in expressions:
        if isinstance(expr, StarExpr):
            types.update((field.name, field.type) for field in schema)
            continue
        type_ = (expr.expr if isinstance(expr, UnnestExpr) else expr).get_type(schema)
        if type_ is None:
            return None
        if isinstance(expr, UnnestExpr):
            types.update((field.name, field.type) for field in _struct(expr, type_))
        else:
            types[column_name(expr)] = type_
    return pa.schema(list(types.items()))


def filter_rows(
    table: pa.Table, predicate: Expr, context: EvaluationContext | None = None
) -> pa.Table:
    """Return the rows for which the predicate is true, not null. Raise TypeError if it is not
    boolean.
    """
    mask = predicate.evaluate(table, context)
    if pa.types.is_null(mask.type):
        return table.slice(0, 0)
    if not pa.types.is_boolean(mask.type):
        raise TypeError(
            f"a filter needs a boolean expression, but {predicate!r} is {mask.type}: "
            "compare it with a value"
        )
    return table.filter(mask)


def column_name(expr: Expr) -> str:
    """Return the name of an expression's column. Raise ValueError if it has none."""
    if expr.name is None:
        raise ValueError(f"{expr!r} has no name for its column: add .alias('name')")
    return expr.name


def _fields(expr: UnnestExpr, column: pa.Array | pa.ChunkedArray) -> dict[str, pa.Array]:
    fields = _struct(expr, column.type)
    # Unlike `field`, `flatten` applies the nulls of the struct to its fields.
    return dict(zip((field.name for field in fields), one_chunk(column).flatten(), strict=True))


def _struct(expr: UnnestExpr, type_: pa.DataType) -> pa.StructType:
    if not pa.types.is_struct(type_):
        raise TypeError(f"{expr!r} needs a struct, but {expr.expr!r} is {type_}")
    return type_
