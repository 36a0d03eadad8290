"""User functions in expressions: `udf` and `pyarrow_udf`, on functions and on classes.

A function gets one Arrow array per column (literals as the plain value) and returns a column of as
many rows: an Arrow array, an ndarray, a list or a Series. A class is constructed once per process,
where it is first used.
"""

from __future__ import annotations

import functools
import inspect
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from syncline.data.columnar import block
from syncline.data.columnar.datatype import DataType, as_arrow
from syncline.data.columnar.expressions import operations
from syncline.data.columnar.expressions.expr import (
    EvaluationContext,
    Expr,
    LiteralExpr,
    UndeclaredTypeError,
    to_expr,
)
from syncline.data.columnar.expressions.operations import ATOM, Value

# The instances of user classes in this process, by the key of the call that describes them.
_instances: dict[str, Any] = {}


@dataclass(frozen=True, eq=False)
class ClassFunction:
    """A class with the arguments to construct it with: a function that makes its instance when
    first called in a process.
    """

    cls: type
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    key: str
    """Tells it apart from all others, in whatever process it is unpickled."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.key not in _instances:
            _instances[self.key] = self.cls(*self.args, **self.kwargs)
        return _instances[self.key](*args, **kwargs)

    @property
    def __name__(self) -> str:
        return self.cls.__name__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClassFunction) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True, eq=False, repr=False)
class UDFExpr(Expr):
    """A user function of expressions."""

    fn: Callable[..., Any]
    args: tuple[Expr, ...]
    kwargs: Mapping[str, Expr]
    return_dtype: DataType

    @property
    def children(self) -> tuple[Expr, ...]:
        return (*self.args, *self.kwargs.values())

    @property
    def data_type(self) -> DataType:
        return self.return_dtype

    @property
    def is_class(self) -> bool:
        """Whether the function is a class's instance, which plans run in processes that stay."""
        return isinstance(self.fn, ClassFunction)

    def _own(self) -> tuple[Any, ...]:
        return (self.fn, tuple(self.kwargs), self.return_dtype)

    def _with_children(self, children: tuple[Expr, ...]) -> Expr:
        count = len(self.args)
        return UDFExpr(
            self.fn,
            children[:count],
            dict(zip(self.kwargs, children[count:], strict=True)),
            self.return_dtype,
        )

    def _sample(self, empty: pa.Table) -> Value:
        if self.return_dtype.is_python_type():
            raise UndeclaredTypeError
        for child in self.children:
            child._sample(empty)
        return block.empty(pa.schema([("", as_arrow(self.return_dtype))])).column(0)

    def _compute(
        self, values: tuple[Value, ...], table: pa.Table, context: EvaluationContext
    ) -> Value:
        given = [
            _argument(child, value) for child, value in zip(self.children, values, strict=True)
        ]
        count = len(self.args)
        result = self.fn(*given[:count], **dict(zip(self.kwargs, given[count:], strict=True)))
        if inspect.isawaitable(result):
            import asyncio  # half of what importing this package would cost, for a rare case

            result = asyncio.run(_awaited(result))
        column = self._column(result)
        if len(column) != table.num_rows:
            raise ValueError(
                f"{self!r} returned {len(column)} values for {table.num_rows} rows: a user function returns one value per row"
            )
        return column

    def _column(self, result: Any) -> pa.Array | pa.ChunkedArray:
        """What the function returned as a column of the declared type."""
        try:
            column = block.to_column(self.fn.__name__, result)
        except ValueError as error:
            raise TypeError(
                f"{self!r} returned {type(result).__name__}: a user function returns an array with one value per row"
            ) from error
        if self.return_dtype.is_python_type() or column.type == as_arrow(self.return_dtype):
            return column
        try:
            return column.cast(as_arrow(self.return_dtype))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise TypeError(
                f"{self!r} returned {column.type}, which does not become the declared {as_arrow(self.return_dtype)}: {error}"
            ) from error

    def _text(self) -> tuple[str, int]:
        named = [f"{name}={value!r}" for name, value in self.kwargs.items()]
        return f"{self.fn.__name__}({', '.join([*map(repr, self.args), *named])})", ATOM


def udf(return_dtype: DataType | pa.DataType) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator that makes expressions of a function on columns, or of a class with `__call__`.

        @udf(return_dtype=DataType.int64())
        def plus_one(x: pa.Array) -> pa.Array:
            return pc.add(x, 1)

        ds.with_column("y", plus_one(col("x")))

    A class is given its constructor's arguments first: `Scale(3)(col("x"))`; it is constructed once
    per process, and may be async.
    """
    declared = return_dtype if isinstance(return_dtype, DataType) else DataType(return_dtype)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if not isinstance(function, type):
            return _expression_maker(function, declared)
        if not issubclass(function, Callable):  # type: ignore[arg-type]
            raise TypeError(
                f"the class {function.__name__} has no __call__, which a user function needs"
            )

        @functools.wraps(function, updated=())
        def construct(*args: Any, **kwargs: Any) -> Callable[..., UDFExpr]:
            return _expression_maker(
                ClassFunction(function, args, kwargs, uuid.uuid4().hex), declared
            )

        return construct

    return decorate


def pyarrow_udf(
    return_dtype: DataType | pa.DataType,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """As `udf`: all columns are Arrow arrays here."""
    return udf(return_dtype)


def _expression_maker(
    function: Callable[..., Any], return_dtype: DataType
) -> Callable[..., UDFExpr]:
    def make(*args: Any, **kwargs: Any) -> UDFExpr:
        named = {name: to_expr(value) for name, value in kwargs.items()}
        return UDFExpr(function, tuple(map(to_expr, args)), named, return_dtype)

    return functools.wraps(function)(make) if inspect.isfunction(function) else make


def _argument(expr: Expr, value: Value) -> Any:
    if isinstance(expr, LiteralExpr):
        return expr.value
    return value if isinstance(value, pa.Scalar) else operations.one_chunk(value)


async def _awaited(awaitable: Any) -> Any:
    return await awaitable
