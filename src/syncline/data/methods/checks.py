"""Checks of arguments, made at the call: TypeError for a wrong type, ValueError for an impossible
value, each with a way out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar.expressions import Expr, StarExpr, UnnestExpr, projected_schema
from syncline.data.columnar.kernels import keys as key_columns
from syncline.data.columnar.schemas import require_columns
from syncline.data.plan.nodes import RandomSeedConfig, Seed


def count(name: str, value: Any, *, least: int) -> int:
    """An integer of at least `least`."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}={value!r} is of type {type(value).__name__}: give an int")
    number: int = value.__index__()
    if number < least:
        raise ValueError(f"{name}={number} is too small: give at least {least}")
    return number


def share(name: str, value: Any) -> float:
    """A number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(
            f"{name}={value!r} is of type {type(value).__name__}: give a number from 0 to 1"
        )
    if not 0 <= value <= 1:
        raise ValueError(f"{name}={value} is a share of the rows: give a number from 0 to 1")
    return float(value)


def seed(value: Any) -> Seed:
    """An int, a RandomSeedConfig or None."""
    if value is None or isinstance(value, RandomSeedConfig):
        return value
    return count("seed", value, least=-(2**63))


def column_name(name: str, value: Any) -> str:
    """Text that is not empty."""
    if not isinstance(value, str):
        raise TypeError(
            f"{name}={value!r} is of type {type(value).__name__}: give the name of a column"
        )
    if not value:
        raise ValueError(f"{name}='' names no column: give it some text")
    return value


def column_names(name: str, value: Any) -> tuple[str, ...]:
    """One name, or a list of different names."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple):
        raise TypeError(
            f"{name}={value!r} is of type {type(value).__name__}: give the name of a column or a list of names"
        )
    for each in value:
        if not isinstance(each, str):
            raise ValueError(
                f"{name} has {each!r} ({type(each).__name__}) among its names: columns are named by strings"
            )
    if len(set(value)) < len(value):
        twice = sorted({each for each in value if value.count(each) > 1})
        raise ValueError(
            f"{name} has {', '.join(map(repr, twice))} more than once: give each column once"
        )
    return tuple(value)


def known_columns(schema: pa.Schema | None, names: Iterable[str]) -> None:
    """UnknownColumnError for a name that a known schema does not have."""
    if schema is not None:
        require_columns(names, schema.names)


def keys(schema: pa.Schema | None, names: Sequence[str], purpose: key_columns.Purpose) -> None:
    """UnknownColumnError for a key that a known schema does not have; TypeError for one that cannot
    be compared.
    """
    if schema is None:
        return
    known_columns(schema, names)
    key_columns.key_table(blocks.empty(schema), names, purpose)


def expressions(schema: pa.Schema | None, given: Sequence[Expr]) -> None:
    """What evaluating them would fail with, on a known schema: UnknownColumnError, TypeError,
    ValueError.
    """
    if schema is None:
        return
    for each in given:
        if not isinstance(each, StarExpr):
            known_columns(
                schema, sorted((each.expr if isinstance(each, UnnestExpr) else each).columns())
            )
    projected_schema(schema, given)


def predicate(schema: pa.Schema | None, given: Expr) -> None:
    """As `expressions`, and a TypeError for an expression that is known not to be true or false."""
    expression("expr", given)
    if isinstance(given, StarExpr | UnnestExpr):
        raise TypeError(
            f"{given!r} stands for several columns: filter by one expression such as col('age') > 18"
        )
    if schema is None:
        return
    known_columns(schema, sorted(given.columns()))
    type_ = given.get_type(schema)
    if type_ is not None and not pa.types.is_boolean(type_) and not pa.types.is_null(type_):
        raise TypeError(
            f"a filter needs an expression that is true or false, but {given!r} is {type_}: compare it with something"
        )


def expression(name: str, value: Any) -> None:
    """TypeError for a plain value in the place of an expression."""
    if not isinstance(value, Expr):
        hint = "write col('name') for a column, lit(...) for a value"
        raise TypeError(
            f"{name}={value!r} is of type {type(value).__name__}, not an expression: {hint}"
        )
