"""Argument checks of the public methods: TypeError for a wrong type, ValueError for an impossible
value. Each message says what to pass instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import SupportsIndex

import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar.expressions import Expr, StarExpr, UnnestExpr, projected_schema
from syncline.data.columnar.kernels import keys as key_columns
from syncline.data.columnar.schemas import require_columns
from syncline.data.plan.nodes import RandomSeedConfig, Seed
from syncline.exceptions import UserCodeException


def count(name: str, value: object, *, least: int) -> int:
    """Return `value` as an int of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise TypeError(f"{name}={value!r} is of type {type(value).__name__}: pass an int")
    number = value.__index__()
    if number < least:
        raise ValueError(f"{name}={number} is too small: pass at least {least}")
    return number


def fraction(name: str, value: object) -> float:
    """Return `value` as a float from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(
            f"{name}={value!r} is of type {type(value).__name__}: pass a number from 0 to 1"
        )
    if not 0 <= value <= 1:
        raise ValueError(f"{name}={value} is not a fraction of the rows: pass a number from 0 to 1")
    return float(value)


def seed(value: object) -> Seed:
    """Return `value`, an int, a RandomSeedConfig or None."""
    if value is None or isinstance(value, RandomSeedConfig):
        return value
    return count("seed", value, least=-(2**63))


def column_name(name: str, value: object) -> str:
    """Return `value`, a string that is not empty."""
    if not isinstance(value, str):
        raise TypeError(
            f"{name}={value!r} is of type {type(value).__name__}: pass the name of a column"
        )
    if not value:
        raise ValueError(f"{name}='' is not a column name: pass a string that is not empty")
    return value


def column_names(name: str, value: object) -> tuple[str, ...]:
    """Return one name, or the different names of a list, as a tuple."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple):
        raise TypeError(
            f"{name}={value!r} is of type {type(value).__name__}: "
            "pass the name of a column or a list of names"
        )
    for each in value:
        if not isinstance(each, str):
            raise ValueError(
                f"{name} contains {each!r} of type {type(each).__name__}: column names are strings"
            )
    if len(set(value)) < len(value):
        twice = sorted({each for each in value if value.count(each) > 1})
        raise ValueError(
            f"{name} contains {', '.join(map(repr, twice))} more than once: pass each column once"
        )
    return tuple(value)


def key_names(name: str, value: object) -> tuple[str, ...]:
    """Return the names of key columns; everything else, such as a function of a row, is a
    ValueError.
    """
    try:
        return column_names(name, value)
    except TypeError as error:
        raise ValueError(str(error)) from None


def projected_columns(schema: pa.Schema | None, names: Iterable[str]) -> None:
    """Raise the UnknownColumnError of `known_columns` as the error of an execution."""
    with _as_in_an_execution("Project"):
        known_columns(schema, names)


def known_columns(schema: pa.Schema | None, names: Iterable[str]) -> None:
    """Raise UnknownColumnError for a name that is not in `schema`. A None schema is unknown."""
    if schema is not None:
        require_columns(names, schema.names)


def keys(schema: pa.Schema | None, names: Sequence[str], purpose: key_columns.Purpose) -> None:
    """Raise UnknownColumnError for an unknown key column and TypeError for one whose values cannot
    be compared.
    """
    if schema is None:
        return
    known_columns(schema, names)
    key_columns.key_table(blocks.empty(schema), names, purpose)


def expressions(schema: pa.Schema | None, given: Sequence[Expr]) -> None:
    """Raise the UnknownColumnError, TypeError or ValueError that evaluation would raise, as the
    UserCodeException that it would be in an execution.
    """
    if schema is None:
        return
    with _as_in_an_execution("Project"):
        for each in given:
            if not isinstance(each, StarExpr):
                known_columns(
                    schema, sorted((each.expr if isinstance(each, UnnestExpr) else each).columns())
                )
        projected_schema(schema, given)


def predicate(schema: pa.Schema | None, given: object) -> Expr:
    """Return a boolean expression. Raise as `expressions`, and TypeError for one that is known not
    to be boolean.
    """
    expr = expression("expr", given)
    if isinstance(expr, StarExpr | UnnestExpr):
        raise TypeError(
            f"{expr!r} means several columns: filter by one expression such as col('age') > 18"
        )
    if schema is None:
        return expr
    with _as_in_an_execution("Filter"):
        known_columns(schema, sorted(expr.columns()))
        type_ = expr.get_type(schema)
        if type_ is not None and not pa.types.is_boolean(type_) and not pa.types.is_null(type_):
            raise TypeError(
                f"a filter needs a boolean expression, but {expr!r} is {type_}: "
                "compare it with a value"
            )
    return expr


@contextmanager
def _as_in_an_execution(operator: str) -> Iterator[None]:
    """Raise an error also as a UserCodeException, so that programs may handle it in one way whether
    or not the schema is known before the execution.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError) as error:
        raise UserCodeException(operator, str(error), error).as_instanceof_cause() from None


def expression(name: str, value: object) -> Expr:
    """Return `value`, an expression; plain values are a TypeError."""
    if not isinstance(value, Expr):
        raise TypeError(
            f"{name}={value!r} is of type {type(value).__name__}, not an expression: "
            "write col('name') for a column, lit(...) for a value"
        )
    return value
