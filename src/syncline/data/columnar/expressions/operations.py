"""The operators of expressions: how each is written, which kernel computes it, and what it is to a
file scan.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow.compute as pc


class Operation(str, Enum):
    """The operators of `BinaryExpr` and `UnaryExpr`."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    MOD = "mod"
    FLOORDIV = "floordiv"
    GT = "gt"
    LT = "lt"
    GE = "ge"
    LE = "le"
    EQ = "eq"
    NE = "ne"
    AND = "and"
    OR = "or"
    NOT = "not"
    IS_NULL = "is_null"
    IS_NOT_NULL = "is_not_null"
    IN = "in"
    NOT_IN = "not_in"


@dataclass(frozen=True, kw_only=True)
class Operator:
    """How one operation is written and computed."""

    symbol: str
    """As Python writes it, or the name of the method."""
    function: str
    """The kernel."""
    strength: int = 0
    """What binds stronger has the higher number, as in Python; operands of less strength get
    parentheses.
    """
    boolean: bool = False
    """Whether the result is true or false."""


# What binds as strongly as a name or a call.
ATOM = 8

OPERATORS = {
    Operation.OR: Operator(symbol="|", function="or", strength=2, boolean=True),
    Operation.AND: Operator(symbol="&", function="and", strength=3, boolean=True),
    Operation.GT: Operator(symbol=">", function="greater", strength=1, boolean=True),
    Operation.LT: Operator(symbol="<", function="less", strength=1, boolean=True),
    Operation.GE: Operator(symbol=">=", function="greater_equal", strength=1, boolean=True),
    Operation.LE: Operator(symbol="<=", function="less_equal", strength=1, boolean=True),
    Operation.EQ: Operator(symbol="==", function="equal", strength=1, boolean=True),
    Operation.NE: Operator(symbol="!=", function="not_equal", strength=1, boolean=True),
    Operation.ADD: Operator(symbol="+", function="add", strength=4),
    Operation.SUB: Operator(symbol="-", function="subtract", strength=4),
    Operation.MUL: Operator(symbol="*", function="multiply", strength=5),
    Operation.DIV: Operator(symbol="/", function="divide", strength=5),
    Operation.FLOORDIV: Operator(symbol="//", function="floor_divide", strength=5),
    Operation.MOD: Operator(symbol="%", function="modulo", strength=5),
    Operation.NOT: Operator(symbol="~", function="invert", strength=6, boolean=True),
    Operation.IS_NULL: Operator(symbol="is_null", function="is_null", strength=7, boolean=True),
    Operation.IS_NOT_NULL: Operator(
        symbol="is_not_null", function="is_valid", strength=7, boolean=True
    ),
    Operation.IN: Operator(symbol="is_in", function="is_in", strength=7, boolean=True),
    Operation.NOT_IN: Operator(symbol="not_in", function="not_in", strength=7, boolean=True),
}

# Those operators that mean the same to a file scan. Division does not: integers would be rounded
# towards zero there.
ARROW_OPERATORS: dict[Operation, Callable[[Any, Any], pc.Expression]] = {
    Operation.ADD: pc.add,
    Operation.SUB: pc.subtract,
    Operation.MUL: pc.multiply,
    Operation.GT: operator.gt,
    Operation.LT: operator.lt,
    Operation.GE: operator.ge,
    Operation.LE: operator.le,
    Operation.EQ: operator.eq,
    Operation.NE: operator.ne,
    Operation.AND: operator.and_,
    Operation.OR: operator.or_,
}
