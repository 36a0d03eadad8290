"""User functions in expressions: `udf` and `pyarrow_udf`, for functions and classes.

A function receives one Arrow array per column (literals as plain values) and returns a column of
equally many rows: an Arrow array, an ndarray, a list or a Series. A class is constructed once per
process, on first use.
"""

from __future__ import annotations

import functools
import inspect
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, TypeVar

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
from syncline.data.columnar.expressions.operations import ATOM, Value, Values
from syncline.records import dataclass

T = TypeVar("T")
Function: TypeAlias = Callable[..., Any]

# Instances of user classes in this process, by `ClassFunction.key`.
_instances: dict[str, Function] = {}


@dataclass(frozen=True, eq=False)
class ClassFunction:
    """A class with its constructor arguments: a function that constructs the instance on the first
    call in a process.
    """

    cls: type
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    key: str
    """Identifies the instance in every process."""

    def __call__(self, *args: object, **kwargs: object) -> Any:
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
    """A user function on expressions."""

    fn: Function
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
        """True if the function is an instance of a class, which plans run in actors."""
        return isinstance(self.fn, ClassFunction)

    def _own(self) -> tuple[object, ...]:
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

    def _compute(self, values: Values, table: pa.Table, context: EvaluationContext) -> Value:
        given = [
            _argument(child, value) for child, value in zip(self.children, values, strict=True)
        ]
        count = len(self.args)
        result = self.fn(*given[:count], **dict(zip(self.kwargs, given[count:], strict=True)))
        if inspect.isawaitable(result):
            import asyncio  # slow to import, and rarely needed

            result = asyncio.run(_awaited(result))
        column = self._column(result)
        if len(column) != table.num_rows:
            raise ValueError(
                f"{self!r} returned {len(column)} values for {table.num_rows} rows: "
                "return one value per row"
            )
        return column

    def _column(self, result: object) -> pa.Array | pa.ChunkedArray:
        """Convert the result of the function to a column of the declared type."""
        try:
            column = block.to_column(self.fn.__name__, result)
        except ValueError as error:
            raise TypeError(
                f"{self!r} returned {type(result).__name__}: return an array with one value per row"
            ) from error
        if self.return_dtype.is_python_type() or column.type == as_arrow(self.return_dtype):
            return column
        try:
            return column.cast(as_arrow(self.return_dtype))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise TypeError(
                f"{self!r} returned {column.type}, which cannot be cast to the declared "
                f"{as_arrow(self.return_dtype)}: {error}"
            ) from error

    def _text(self) -> tuple[str, int]:
        named = [f"{name}={value!r}" for name, value in self.kwargs.items()]
        return f"{self.fn.__name__}({', '.join([*map(repr, self.args), *named])})", ATOM

    def _heading(self) -> str:
        return f"{self.fn.__name__}()"

    def _roles(self) -> tuple[str, ...]:
        return ("",) * len(self.args) + tuple(self.kwargs)


def udf(return_dtype: DataType | pa.DataType) -> Callable[[Function], Function]:
    """Return a decorator that makes a function on columns, or a class with `__call__`, usable in
    expressions.

        @udf(return_dtype=DataType.int64())
        def plus_one(x: pa.Array) -> pa.Array:
            return pc.add(x, 1)

        ds.with_column("y", plus_one(col("x")))

    A class takes its constructor arguments first: `Scale(3)(col("x"))`; it is constructed once per
    process, and its `__call__` may be async.
    """
    declared = return_dtype if isinstance(return_dtype, DataType) else DataType(return_dtype)

    def decorate(function: Function) -> Function:
        if not isinstance(function, type):
            return _expression_maker(function, declared)
        if not issubclass(function, Callable):  # type: ignore[arg-type]
            raise TypeError(
                f"the class {function.__name__} has no __call__: add one that takes columns"
            )

        @functools.wraps(function, updated=())
        def construct(*args: object, **kwargs: object) -> Callable[..., UDFExpr]:
            return _expression_maker(
                ClassFunction(function, args, kwargs, uuid.uuid4().hex), declared
            )

        return construct

    return decorate


def pyarrow_udf(return_dtype: DataType | pa.DataType) -> Callable[[Function], Function]:
    """Return `udf`; all columns are Arrow arrays here."""
    return udf(return_dtype)


def _expression_maker(function: Function, return_dtype: DataType) -> Callable[..., UDFExpr]:
    def make(*args: object, **kwargs: object) -> UDFExpr:
        named = {name: to_expr(value) for name, value in kwargs.items()}
        return UDFExpr(function, tuple(map(to_expr, args)), named, return_dtype)

    return functools.wraps(function)(make) if inspect.isfunction(function) else make


def _argument(expr: Expr, value: Value) -> object:
    if isinstance(expr, LiteralExpr):
        return expr.value
    return value if isinstance(value, pa.Scalar) else operations.one_chunk(value)


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable
