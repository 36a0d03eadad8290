"""Lists of expressions: the columns of a new table, the rows that a predicate keeps, and the schema
that results.

`star()` stands for all columns of the input and `unnest(expr)` for the fields of a struct; they
have a meaning only here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa

from syncline.data.columnar import block
from syncline.data.columnar.expressions.expr import EvaluationContext, Expr
from syncline.data.columnar.expressions.operations import ATOM, Value, one_chunk


@dataclass(frozen=True, eq=False, repr=False)
class StarExpr(Expr):
    """All columns of the input."""

    def _compute(
        self, values: tuple[Value, ...], table: pa.Table, context: EvaluationContext
    ) -> NoReturn:
        raise TypeError(
            "star() stands for all columns, so it can only be one of the expressions of a projection"
        )

    def _text(self) -> tuple[str, int]:
        return "star()", ATOM


@dataclass(frozen=True, eq=False, repr=False)
class UnnestExpr(Expr):
    """The fields of a struct, each as a column."""

    expr: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.expr,)

    def alias(self, name: str) -> NoReturn:
        raise TypeError(
            f"{self!r} stands for several columns, which cannot all be named {name!r}: alias the columns in a second step"
        )

    def _with_children(self, children: tuple[Expr, ...]) -> Expr:
        return UnnestExpr(children[0])

    def _compute(
        self, values: tuple[Value, ...], table: pa.Table, context: EvaluationContext
    ) -> NoReturn:
        raise TypeError(
            f"{self!r} stands for several columns, so it can only be one of the expressions of a projection"
        )

    def _text(self) -> tuple[str, int]:
        return f"unnest({self.expr!r})", ATOM


def star() -> StarExpr:
    """All columns of the input, in a list of expressions that make the columns of the output."""
    return StarExpr()


def unnest(expr: Expr) -> UnnestExpr:
    """A column for each field of a struct, named like the field. TypeError if `expr` is no
    expression, or several columns already.
    """
    if not isinstance(expr, Expr):
        raise TypeError(f"unnest takes an expression such as col('user'), not {expr!r}")
    if isinstance(expr, UnnestExpr | StarExpr):
        raise TypeError(
            f"unnest takes an expression for one column, but {expr!r} stands for several"
        )
    return UnnestExpr(expr)


def project(
    table: pa.Table, expressions: Iterable[Expr], context: EvaluationContext | None = None
) -> pa.Table:
    """The table that the expressions make, in their order; of two columns with one name the later
    takes the place of the earlier.

    ValueError for an expression without a name: give it one with `alias`.
    """
    found: dict[str, Any] = {}
    for expr in expressions:
        if isinstance(expr, StarExpr):
            found.update(zip(table.column_names, table.columns, strict=True))
        elif isinstance(expr, UnnestExpr):
            found.update(_fields(expr, expr.expr.evaluate(table, context)))
        else:
            found[column_name(expr)] = expr.evaluate(table, context)
    return block.from_columns(found, table.num_rows)


def projected_schema(schema: pa.Schema, expressions: Iterable[Expr]) -> pa.Schema | None:
    """The schema of `project` on data of `schema`, without computing anything; None if only running
    a user function can tell.

    Fails as evaluating would: unknown columns, types that do not fit.
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
    """The rows for which the predicate is true; where it is null the row is dropped. TypeError if
    it is not boolean.
    """
    mask = predicate.evaluate(table, context)
    if pa.types.is_null(mask.type):
        return table.slice(0, 0)
    if not pa.types.is_boolean(mask.type):
        raise TypeError(
            f"a filter needs an expression that is true or false, but {predicate!r} is {mask.type}: compare it with something"
        )
    return table.filter(mask)


def column_name(expr: Expr) -> str:
    """The name of the column that an expression makes. ValueError if it has none."""
    if expr.name is None:
        raise ValueError(f"{expr!r} has no name for its column: add .alias('name')")
    return expr.name


def _fields(expr: UnnestExpr, column: pa.Array | pa.ChunkedArray) -> dict[str, pa.Array]:
    fields = _struct(expr, column.type)
    # `flatten` hands down nulls of the struct itself, as `field` would not.
    return dict(zip((field.name for field in fields), one_chunk(column).flatten(), strict=True))


def _struct(expr: UnnestExpr, type_: pa.DataType) -> pa.StructType:
    if not pa.types.is_struct(type_):
        raise TypeError(f"{expr!r} needs a struct, but {expr.expr!r} is {type_}")
    return type_
