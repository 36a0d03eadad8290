"""Expressions: computations on columns as data that plans can inspect.

    ds.with_column("total", col("price") * col("quantity")).filter(col("total") > 10)

Files, from the bottom up: `operations` (operators, and functions on Arrow arrays), `namespaces`
(`.str`, `.list`, `.arr`, `.struct`, `.map`, `.dt`, numbers), `expr` (the base class and the common
nodes), `generated` (random numbers, UUIDs, ids, downloads), `udf` (user functions), `projection`
(lists of expressions: tables to tables), `parsing` (predicates as text).
"""

from typing import Any

from syncline.data.columnar.expressions.expr import (
    AliasExpr,
    BinaryExpr,
    CastExpr,
    ColumnExpr,
    EvaluationContext,
    Expr,
    FunctionExpr,
    LiteralExpr,
    UnaryExpr,
)
from syncline.data.columnar.expressions.generated import (
    DownloadExpr,
    MonotonicallyIncreasingIdExpr,
    RandomExpr,
    UUIDExpr,
    download,
    monotonically_increasing_id,
    random,
    uuid,
)
from syncline.data.columnar.expressions.operations import Operation
from syncline.data.columnar.expressions.parsing import parse
from syncline.data.columnar.expressions.projection import (
    StarExpr,
    UnnestExpr,
    filter_rows,
    project,
    projected_schema,
    star,
    unnest,
)
from syncline.data.columnar.expressions.udf import UDFExpr, pyarrow_udf, udf

__all__ = [
    "AliasExpr",
    "BinaryExpr",
    "CastExpr",
    "ColumnExpr",
    "DownloadExpr",
    "EvaluationContext",
    "Expr",
    "FunctionExpr",
    "LiteralExpr",
    "MonotonicallyIncreasingIdExpr",
    "Operation",
    "RandomExpr",
    "StarExpr",
    "UDFExpr",
    "UUIDExpr",
    "UnaryExpr",
    "UnnestExpr",
    "col",
    "download",
    "filter_rows",
    "lit",
    "monotonically_increasing_id",
    "parse",
    "project",
    "projected_schema",
    "pyarrow_udf",
    "random",
    "star",
    "udf",
    "unnest",
    "uuid",
]


def col(name: str) -> ColumnExpr:
    """Return an expression for the column of this name: `col("price") * 2`."""
    if not isinstance(name, str):
        raise TypeError(
            f"col takes the name of a column, not {name!r}: for a constant write lit({name!r})"
        )
    return ColumnExpr(name)


def lit(value: Any) -> LiteralExpr:
    """Return an expression for one value in all rows: a number, text, date, list, dict or None.
    Operators and methods of expressions accept plain values too.
    """
    return LiteralExpr(value)
