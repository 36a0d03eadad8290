"""Predicates as text: `parse("age > 18 and name in ['a', 'b']")`, for `Dataset.filter(expr=...)`.

Covered: names (dots belong to the name), constants, lists, arithmetic, comparisons and chains of
them, `and`, `or`, `not`, `in`, `not in`, `is None`, and the functions `is_null`, `is_not_null`,
`is_in`, `not_in`. The text is parsed, never executed.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable
from typing import Any

from syncline.data.columnar.expressions.expr import ColumnExpr, Expr, LiteralExpr

_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, values: value.is_in(values),
    ast.NotIn: lambda value, values: value.not_in(values),
}
_METHODS = ("is_null", "is_not_null", "is_in", "not_in")


def parse(text: str) -> Expr:
    """Parse a predicate. Raise ValueError with the part that is not supported."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        raise ValueError(f"{text!r} is not an expression: {error}") from error
    return _visit(tree.body)


def _visit(node: ast.expr) -> Expr:
    match node:
        case ast.Name() | ast.Attribute():
            return ColumnExpr(_column(node))
        case ast.Constant():
            return LiteralExpr(node.value)
        case ast.List() | ast.Tuple():
            return LiteralExpr([_constant(element) for element in node.elts])
        case ast.UnaryOp(op=ast.Not() | ast.Invert()):
            return ~_visit(node.operand)
        case ast.UnaryOp(op=ast.USub()):
            operand = _visit(node.operand)
            return LiteralExpr(-operand.value) if isinstance(operand, LiteralExpr) else -operand
        case ast.BoolOp():
            joined = operator.and_ if isinstance(node.op, ast.And) else operator.or_
            return functools.reduce(joined, map(_visit, node.values))
        case ast.BinOp() if type(node.op) in _OPERATORS:
            return _apply(node.op, _visit(node.left), _visit(node.right))
        case ast.Compare():
            sides = [node.left, *node.comparators]
            parts = [
                _compare(left, op, right)
                for left, op, right in zip(sides, node.ops, sides[1:], strict=False)
            ]
            return functools.reduce(operator.and_, parts)
        case ast.Call(func=ast.Name(id=name)) if (
            name in _METHODS and node.args and not node.keywords
        ):
            result: Expr = getattr(_visit(node.args[0]), name)(*map(_visit, node.args[1:]))
            return result
    raise ValueError(
        f"{ast.unparse(node)!r} is not supported: use column names, constants, comparisons, "
        "and, or, "
        f"not, in, {', '.join(_METHODS)}; or write the expression with col(...)"
    )


def _compare(left: ast.expr, op: ast.cmpop, right: ast.expr) -> Expr:
    if isinstance(op, ast.Is | ast.IsNot):
        if not (isinstance(right, ast.Constant) and right.value is None):
            raise ValueError(f"`is` only goes with None, not with {ast.unparse(right)!r}: use ==")
        return _visit(left).is_null() if isinstance(op, ast.Is) else _visit(left).is_not_null()
    return _apply(op, _visit(left), _visit(right))


def _apply(op: ast.AST, left: Expr, right: Expr) -> Expr:
    result: Expr = _OPERATORS[type(op)](left, right)
    return result


def _column(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_column(node.value)}.{node.attr}"
    raise ValueError(f"{ast.unparse(node)!r} is not the name of a column")


def _constant(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise ValueError(
            f"{ast.unparse(node)!r} is not a constant: list elements must be constants"
        ) from error
