"""Expressions: immutable trees that describe computations on columns.

Covered: the base class with its operators and functions, and the common nodes: columns, literals,
operators, Arrow functions, casts, aliases. Other nodes are in `generated`, `udf` and `projection`.

A tree knows its columns; it can be evaluated on a table, rewritten for other columns, compared,
typed against a schema, and converted for a file scan if it has the same meaning there.
"""

from __future__ import annotations

import dataclasses
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from syncline.data.columnar import block
from syncline.data.columnar.datatype import DataType, as_arrow
from syncline.data.columnar.expressions import operations
from syncline.data.columnar.expressions.namespaces import ExprMethods
from syncline.data.columnar.expressions.operations import (
    ARROW_OPERATORS,
    ATOM,
    OPERATORS,
    Operation,
    Value,
    Values,
)
from syncline.data.columnar.schemas import UnknownColumnError
from syncline.records import dataclass


@dataclass(frozen=True, kw_only=True)
class EvaluationContext:
    """Position of a table in the dataset. Random numbers and ids depend on it, and not on the
    process or time of the evaluation.
    """

    block_index: int = 0
    """Position of the block among the inputs of the operator, from 0."""
    row_offset: int = 0
    """Rows of the block before the table; 0 unless the table is a part of the block."""
    execution_index: int = 0
    """Number of earlier executions: the epoch, for `random(seed)` that reseeds in each execution.
    """


class UndeclaredTypeError(Exception):
    """Raised if the type of a user function's result is not known before it runs."""


def _operator(
    operation: Operation, *, reflected: bool = False
) -> Callable[[Expr, object], BinaryExpr]:
    """Return the method for `self + other` and the like; `reflected` for `other + self`."""

    def operate(self: Expr, other: object) -> BinaryExpr:
        operands = (to_expr(other), self) if reflected else (self, to_expr(other))
        return BinaryExpr(operation, *operands)

    return operate


def _reflected(operation: Operation) -> Callable[[Expr, object], BinaryExpr]:
    return _operator(operation, reflected=True)


def _fields(expr: Expr) -> dict[str, object]:
    return {each.name: getattr(expr, each.name) for each in dataclasses.fields(expr)}  # type: ignore[arg-type]


class Expr(ExprMethods, ABC):
    """A computation on columns. `col`, `lit`, operators and methods create expressions, which are
    immutable.

    `==` creates an expression, so expressions are compared with `structurally_equals` and hashed by
    identity.
    """

    __hash__ = object.__hash__

    # -- nodes

    @property
    def children(self) -> tuple[Expr, ...]:
        """Expressions that this one is computed from: by default its fields that are ones."""
        return tuple(value for value in _fields(self).values() if isinstance(value, Expr))

    @property
    def name(self) -> str | None:
        """Name of the resulting column; None unless this is a column or an alias."""
        return None

    @property
    def data_type(self) -> DataType:
        """Type of the result if it is known without a schema; otherwise `DataType(object)`."""
        return DataType(object)

    def _own(self) -> tuple[object, ...]:
        """Return the fields that are not expressions, which are compared with ==."""
        return tuple(value for value in _fields(self).values() if not isinstance(value, Expr))

    def _with_children(self, children: tuple[Expr, ...]) -> Expr:
        """Return the same node with other children."""
        names = [name for name, value in _fields(self).items() if isinstance(value, Expr)]
        return dataclasses.replace(self, **dict(zip(names, children, strict=True)))  # type: ignore[type-var]

    @abstractmethod
    def _compute(self, values: Values, table: pa.Table, context: EvaluationContext) -> Value:
        """Compute the node's value for `table` from its children's."""

    def _sample(self, empty: pa.Table) -> Value:
        """Return a value of the right type for a table without rows."""
        return self._compute(
            tuple(child._sample(empty) for child in self.children), empty, EvaluationContext()
        )

    def _arrow(self) -> pc.Expression | None:
        """Return the node for a file scan; None if its meaning differs there."""
        return None

    @abstractmethod
    def _text(self) -> tuple[str, int]:
        """Return the notation and its strength."""

    def _heading(self) -> str:
        """Return the line of a node that has children in the tree that `print` shows."""
        return type(self).__name__.removesuffix("Expr").lower()

    def _roles(self) -> tuple[str, ...]:
        """Return a word for each child in that tree; none if their order says enough."""
        return ()

    # -- questions of plans

    def evaluate(
        self, table: pa.Table, context: EvaluationContext | None = None
    ) -> pa.Array | pa.ChunkedArray:
        """Compute the column, one value per row of `table`.

        UnknownColumnError names the nearest column; TypeError, ValueError and ZeroDivisionError
        name the expression.
        """
        value = self._value(table, context or EvaluationContext())
        if not isinstance(value, pa.Scalar):
            return value
        return pa.repeat(value, table.num_rows) if table.num_rows else pa.array([], value.type)

    def get_type(self, schema: pa.Schema) -> pa.DataType | None:
        """Return the Arrow type of the result on data of this schema; None if it depends on a user
        function.

        Raise the errors of `evaluate` for missing columns and wrong types.
        """
        indices = [schema.get_field_index(name) for name in self.columns()]
        # A smaller schema is faster; the error for a missing column lists all of them.
        if all(index >= 0 for index in indices):
            schema = pa.schema([schema.field(index) for index in indices])
        try:
            return self._sample(block.empty(schema)).type
        except UndeclaredTypeError:
            return None

    def columns(self) -> frozenset[str]:
        """Return the names of all columns that are read. `star()` has none; the projection knows
        its columns.
        """
        return frozenset(node.name for node in self.walk() if isinstance(node, ColumnExpr))

    def walk(self) -> Iterator[Expr]:
        """Yield this node and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    def renamed(self, mapping: Mapping[str, str]) -> Expr:
        """Return the expression with columns renamed by `mapping`."""
        return self.substituted({old: ColumnExpr(new) for old, new in mapping.items()})

    def substituted(self, mapping: Mapping[str, Expr]) -> Expr:
        """Return the expression with columns replaced by expressions, to move a filter below a
        projection.
        """
        if not self.children:
            return self
        children = tuple(child.substituted(mapping) for child in self.children)
        unchanged = all(new is old for new, old in zip(children, self.children, strict=True))
        return self if unchanged else self._with_children(children)

    def structurally_equals(self, other: object) -> bool:
        """Return True if both trees are equal node by node."""
        return (
            isinstance(other, Expr)
            and type(self) is type(other)
            and self._own() == other._own()
            and len(self.children) == len(other.children)
            and all(
                mine.structurally_equals(its)
                for mine, its in zip(self.children, other.children, strict=True)
            )
        )

    def is_idempotent(self) -> bool:
        """Return True if another evaluation gives the same result: False for random numbers, UUIDs
        and ids.
        """
        return all(child.is_idempotent() for child in self.children)

    def conjuncts(self) -> list[Expr]:
        """Return the operands of a conjunction by `&`, which can be pushed down separately;
        otherwise [self].
        """
        return [self]

    def to_arrow(self, schema: pa.Schema | None = None) -> pc.Expression | None:
        """Return the expression for `pyarrow.dataset` scans; None if it has another meaning there.

        With the `schema` of the scanned data also None if a scan would reject the columns' types.
        """
        expression = self._arrow()
        if expression is not None and schema is not None:
            try:
                block.empty(schema).filter(expression.is_null())
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
                return None
        return expression

    def to_pyarrow(self) -> pc.Expression:
        """Return `to_arrow`. Raise ValueError if it is None."""
        expression = self.to_arrow()
        if expression is None:
            raise ValueError(f"{self!r} has no pyarrow equivalent: evaluate it on tables instead")
        return expression

    def _value(self, table: pa.Table, context: EvaluationContext) -> Value:
        return self._compute(
            tuple(child._value(table, context) for child in self.children), table, context
        )

    def __repr__(self) -> str:
        return self._text()[0]

    def __str__(self) -> str:
        return "\n".join(self._tree())

    def _tree(self) -> list[str]:
        """Return the lines of the tree: each node above its children."""
        if not self.children:
            return [repr(self)]
        lines = [self._heading()]
        roles = self._roles() or ("",) * len(self.children)
        for number, (child, role) in enumerate(zip(self.children, roles, strict=True), 1):
            last = number == len(self.children)
            first, *rest = child._tree()
            lines.append(f"{'└──' if last else '├──'} {f'{role}: ' if role else ''}{first}")
            lines += [f"{'    ' if last else '│   '}{line}" for line in rest]
        return lines

    # -- mistakes

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} has no truth value because it is a column: write & | ~ with parentheses "
            "around "
            "comparisons instead of and, or, not; (a < b) & (b < c) instead of a < b < c; "
            "is_in([...]) instead of in"
        )

    def __contains__(self, value: object) -> NoReturn:
        raise TypeError(
            f"`in` does not work on the column {self!r}: use {self!r}.is_in([...]), "
            f"or {self!r}.list for the elements of lists"
        )

    # -- operators

    __add__, __radd__ = _operator(Operation.ADD), _reflected(Operation.ADD)
    __sub__, __rsub__ = _operator(Operation.SUB), _reflected(Operation.SUB)
    __mul__, __rmul__ = _operator(Operation.MUL), _reflected(Operation.MUL)
    __truediv__, __rtruediv__ = _operator(Operation.DIV), _reflected(Operation.DIV)
    __floordiv__, __rfloordiv__ = _operator(Operation.FLOORDIV), _reflected(Operation.FLOORDIV)
    __mod__, __rmod__ = _operator(Operation.MOD), _reflected(Operation.MOD)
    __and__, __rand__ = _operator(Operation.AND), _reflected(Operation.AND)
    __or__, __ror__ = _operator(Operation.OR), _reflected(Operation.OR)
    __lt__ = _operator(Operation.LT)
    __le__ = _operator(Operation.LE)
    __gt__ = _operator(Operation.GT)
    __ge__ = _operator(Operation.GE)
    __eq__ = _operator(Operation.EQ)  # type: ignore[assignment]
    __ne__ = _operator(Operation.NE)  # type: ignore[assignment]

    def __invert__(self) -> UnaryExpr:
        return UnaryExpr(Operation.NOT, self)

    def __neg__(self) -> FunctionExpr:
        return self.negate()

    # -- methods for columns of any type

    def is_null(self) -> UnaryExpr:
        """Return True where the value is null."""
        return UnaryExpr(Operation.IS_NULL, self)

    def is_not_null(self) -> UnaryExpr:
        """Return True where the value is not null."""
        return UnaryExpr(Operation.IS_NOT_NULL, self)

    def is_in(self, values: Sequence[object] | Expr) -> BinaryExpr:
        """Return True where the value is one of `values`; null only if None is among them."""
        return BinaryExpr(Operation.IN, self, _value_list(values))

    def not_in(self, values: Sequence[object] | Expr) -> BinaryExpr:
        """Return True where the value is none of `values`; null too unless None is among them."""
        return BinaryExpr(Operation.NOT_IN, self, _value_list(values))

    def alias(self, name: str) -> AliasExpr:
        """Name the resulting column."""
        return AliasExpr(self, name)

    def cast(self, target_type: DataType | pa.DataType, *, safe: bool = True) -> CastExpr:
        """Convert the values to another type. Raise ValueError for values that it cannot hold
        exactly, unless `safe` is off.
        """
        return CastExpr(self, as_arrow(target_type), safe)

    def compute(self, function: str, *arguments: object, **options: object) -> FunctionExpr:
        """Apply an Arrow compute function with options to this value and `arguments`, which may be
        expressions.
        """
        return FunctionExpr(function, (self, *map(to_expr, arguments)), options)


@dataclass(frozen=True, eq=False, repr=False)
class ColumnExpr(Expr):
    """A column of the table."""

    column: str
    """Name; dots have no meaning."""

    @property
    def name(self) -> str:
        return self.column

    def substituted(self, mapping: Mapping[str, Expr]) -> Expr:
        return mapping.get(self.column, self)

    def _compute(self, values: Values, table: pa.Table, context: EvaluationContext) -> Value:
        if self.column not in table.column_names:
            raise UnknownColumnError(self.column, table.column_names)
        column = table.column(self.column)
        return column.chunk(0) if column.num_chunks == 1 else column

    def _arrow(self) -> pc.Expression | None:
        return pc.field(self.column)

    def _text(self) -> tuple[str, int]:
        return f"col({self.column!r})", ATOM


@dataclass(frozen=True, eq=False, repr=False)
class LiteralExpr(Expr):
    """One value for all rows."""

    value: Any
    """A Python value with an Arrow type; TypeError otherwise."""

    def __post_init__(self) -> None:
        try:
            _ = self.scalar
        except (pa.ArrowException, OverflowError) as error:
            raise TypeError(
                f"{self.value!r} cannot be a literal because it has no Arrow type: {error}"
            ) from error

    @functools.cached_property
    def scalar(self) -> pa.Scalar:
        """The value as an Arrow scalar."""
        return pa.scalar(self.value)

    @property
    def data_type(self) -> DataType:
        return DataType(self.scalar.type)

    def _own(self) -> tuple[object, ...]:
        return (self.scalar,)

    def _compute(self, values: Values, table: pa.Table, context: EvaluationContext) -> Value:
        return self.scalar

    def _arrow(self) -> pc.Expression | None:
        return pc.scalar(self.scalar)

    def _text(self) -> tuple[str, int]:
        return repr(self.value), ATOM


@dataclass(frozen=True, eq=False, repr=False)
class BinaryExpr(Expr):
    """An operator between two expressions."""

    op: Operation
    left: Expr
    right: Expr

    @property
    def data_type(self) -> DataType:
        return DataType(pa.bool_()) if OPERATORS[self.op].boolean else DataType(object)

    def conjuncts(self) -> list[Expr]:
        both = self.op is Operation.AND
        return [*self.left.conjuncts(), *self.right.conjuncts()] if both else [self]

    def _compute(self, values: Values, table: pa.Table, context: EvaluationContext) -> Value:
        return _run(self, OPERATORS[self.op].function, values, {})

    def _arrow(self) -> pc.Expression | None:
        left, right = self.left._arrow(), self.right._arrow()
        if left is None or right is None:
            return None
        if isinstance(self.right, LiteralExpr) and self.op in (Operation.IN, Operation.NOT_IN):
            among = left.isin(self.right.scalar.values)
            return ~among if self.op is Operation.NOT_IN else among
        if self.op is Operation.ADD and not any(_is_number(side) for side in self.children):
            return None  # may be text, which a scan cannot concatenate
        build = ARROW_OPERATORS.get(self.op)
        return None if build is None else build(left, right)

    def _text(self) -> tuple[str, int]:
        written = OPERATORS[self.op]
        if self.op in (Operation.IN, Operation.NOT_IN):
            return (
                f"{_within(self.left, written.strength)}.{written.symbol}({self.right!r})",
                written.strength,
            )
        # The right side needs parentheses at equal strength too: a - (b - c).
        left, right = (
            _within(self.left, written.strength),
            _within(self.right, written.strength + 1),
        )
        if written.strength == 1:
            left = _within(self.left, 2)  # Python would read a < b < c as a chain
        return f"{left} {written.symbol} {right}", written.strength

    def _heading(self) -> str:
        return OPERATORS[self.op].symbol

    def _roles(self) -> tuple[str, ...]:
        return ("left", "right")


@dataclass(frozen=True, eq=False, repr=False)
class UnaryExpr(Expr):
    """An operator on one expression."""

    op: Operation
    operand: Expr

    data_type = DataType(pa.bool_())

    def _compute(self, values: Values, table: pa.Table, context: EvaluationContext) -> Value:
        return _run(self, OPERATORS[self.op].function, values, {})

    def _arrow(self) -> pc.Expression | None:
        operand = self.operand._arrow()
        if operand is None:
            return None
        if self.op is Operation.NOT:
            return ~operand
        return operand.is_null() if self.op is Operation.IS_NULL else operand.is_valid()

    def _text(self) -> tuple[str, int]:
        written = OPERATORS[self.op]
        operand = _within(self.operand, written.strength)
        return (
            f"~{operand}" if self.op is Operation.NOT else f"{operand}.{written.symbol}()"
        ), written.strength

    def _heading(self) -> str:
        return OPERATORS[self.op].symbol


@dataclass(frozen=True, eq=False, repr=False)
class FunctionExpr(Expr):
    """A function of Arrow or of `operations` on expressions."""

    function: str
    arguments: tuple[Expr, ...]
    options: Mapping[str, object]

    def __post_init__(self) -> None:
        if not operations.is_known(self.function):
            raise ValueError(
                f"pyarrow has no compute function {self.function!r}: choose one of "
                "pyarrow.compute.list_functions()"
            )

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.arguments

    def _own(self) -> tuple[object, ...]:
        return (self.function, dict(self.options))

    def _with_children(self, children: tuple[Expr, ...]) -> Expr:
        return FunctionExpr(self.function, children, self.options)

    def _compute(self, values: Values, table: pa.Table, context: EvaluationContext) -> Value:
        return _run(self, self.function, values, dict(self.options))

    def _arrow(self) -> pc.Expression | None:
        arguments = [argument._arrow() for argument in self.arguments]
        if not operations.is_arrow(self.function) or any(
            argument is None for argument in arguments
        ):
            return None
        return getattr(pc, self.function)(*arguments, **self.options)

    def _text(self) -> tuple[str, int]:
        options = [f"{name}={value!r}" for name, value in self.options.items()]
        return f"{self.function}({', '.join([*map(repr, self.arguments), *options])})", ATOM

    def _heading(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{self.function}({options})" if options else self.function


@dataclass(frozen=True, eq=False, repr=False)
class CastExpr(Expr):
    """An expression converted to another type."""

    operand: Expr
    target: pa.DataType
    safe: bool = True

    @property
    def data_type(self) -> DataType:
        return DataType(self.target)

    def _compute(self, values: Values, table: pa.Table, context: EvaluationContext) -> Value:
        return _run(self, "cast", values, {"target_type": self.target, "safe": self.safe})

    def _arrow(self) -> pc.Expression | None:
        operand = self.operand._arrow()
        return None if operand is None else operand.cast(self.target, safe=self.safe)

    def _text(self) -> tuple[str, int]:
        return f"{_within(self.operand, ATOM - 1)}.cast({self.target})", ATOM - 1

    def _heading(self) -> str:
        return f"cast({self.target})"


@dataclass(frozen=True, eq=False, repr=False)
class AliasExpr(Expr):
    """An expression with a name for its column."""

    expr: Expr
    alias_name: str

    @property
    def name(self) -> str:
        return self.alias_name

    @property
    def data_type(self) -> DataType:
        return self.expr.data_type

    def alias(self, name: str) -> AliasExpr:
        return AliasExpr(self.expr, name)

    def _compute(self, values: Values, table: pa.Table, context: EvaluationContext) -> Value:
        return values[0]

    def _arrow(self) -> pc.Expression | None:
        return self.expr._arrow()

    def _text(self) -> tuple[str, int]:
        return f"{_within(self.expr, ATOM - 1)}.alias({self.alias_name!r})", ATOM - 1

    def _heading(self) -> str:
        return f"alias({self.alias_name!r})"


def to_expr(value: object) -> Expr:
    """Return an expression unchanged and any other value as a literal."""
    return value if isinstance(value, Expr) else LiteralExpr(value)


def _value_list(values: Sequence[object] | Expr) -> LiteralExpr:
    if isinstance(values, Expr):
        if isinstance(values, LiteralExpr) and isinstance(values.value, list | tuple):
            return values
        raise TypeError(
            f"is_in and not_in take a list of values, not {values!r}: "
            "a block would compare with its own rows only"
        )
    if isinstance(values, str | bytes):
        raise TypeError(
            f"is_in and not_in take a list of values, not {values!r}: "
            f"write [{values!r}], or .str.contains for parts of text"
        )
    return LiteralExpr(
        values.to_pylist() if isinstance(values, pa.Array | pa.ChunkedArray) else list(values)
    )


def _run(expr: Expr, function: str, values: Values, options: Mapping[str, object]) -> Value:
    try:
        return operations.run(function, values, options)
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise type(error)(f"in {expr!r}: {error}") from error


def _is_number(expr: Expr) -> bool:
    return isinstance(expr, LiteralExpr) and expr.data_type.is_numerical_type()


def _within(expr: Expr, strength: int) -> str:
    text, own = expr._text()
    return text if own >= strength else f"({text})"
