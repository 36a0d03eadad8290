"""Functions on rows and batches: `map`, `map_batches`, `flat_map`, `filter`.

A function runs in worker processes, a class in a pool of actors, where it is constructed once each.
All methods take `FunctionOptions`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from syncline.data.columnar.block import BatchFormat, check_batch_format
from syncline.data.columnar.expressions import Expr, parse
from syncline.data.keywords import keywords
from syncline.data.methods import checks
from syncline.data.methods.functions import FUNCTION, FunctionOptions, user_function
from syncline.data.methods.handle import Handle
from syncline.data.plan.nodes import FilterExpr, FilterRows, FlatMap, MapBatches, MapRows

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from syncline.data.dataset import Dataset


class MappingMethods(Handle):
    """Methods that call a function on every row or batch."""

    @keywords(FUNCTION, rest="ray_remote_args")
    def map(
        self, fn: Callable[..., Mapping[str, Any]], **options: Unpack[FunctionOptions]
    ) -> Dataset:
        """A row for each row: `fn` takes a dict and returns one. Prefer `map_batches` where a
        function can work on many rows at once.

        Args:
            fn: A function, or a class with `__call__`.
            **options: `FunctionOptions`, and any option of `remote`.
        """
        return self._derive(MapRows(input=self._node, function=user_function(fn, options)))

    @keywords(FUNCTION, rest="ray_remote_args")
    def flat_map(
        self, fn: Callable[..., Iterable[Mapping[str, Any]]], **options: Unpack[FunctionOptions]
    ) -> Dataset:
        """Any number of rows for each row: `fn` takes a dict and returns a list of dicts, or yields
        them.

        Args:
            fn: A function, or a class with `__call__`.
            **options: `FunctionOptions`, and any option of `remote`.
        """
        return self._derive(FlatMap(input=self._node, function=user_function(fn, options)))

    @keywords(FUNCTION, rest="ray_remote_args")
    def map_batches(
        self,
        fn: Callable[..., Any],
        *,
        batch_size: int | None | Literal["auto"] = None,
        batch_format: BatchFormat = "default",
        zero_copy_batch: bool = True,
        udf_modifying_row_count: bool = True,
        **options: Unpack[FunctionOptions],
    ) -> Dataset:
        """A batch, or a generator of batches, for each batch of rows: the fastest way to run a
        function on data.

        Args:
            fn: Takes a batch; returns a dict of arrays or lists, a DataFrame or a table, or yields
            them. batch_size: Rows of a batch, fewer only where a block ends; None for whole blocks,
            "auto" for a size by bytes. With `num_gpus`
                it has to be an int, since a block may be larger than a GPU's memory.
            batch_format: "default" and "numpy" for a dict of arrays `(rows, ...)`, "pandas",
            "pyarrow", None for the block itself. zero_copy_batch: Whether a batch may be a
            read-only view of the block; False for one that `fn` may write into.
            udf_modifying_row_count: False promises as many rows as before, so that a limit can be
            applied earlier.
            **options: `FunctionOptions`, and any option of `remote`.
        """
        check_batch_format(batch_format)
        return self._derive(
            MapBatches(
                input=self._node,
                function=user_function(fn, options),
                batch_size=_checked_batch_size(batch_size, options.get("num_gpus")),
                batch_format=batch_format,
                zero_copy=zero_copy_batch,
                keeps_row_count=not udf_modifying_row_count,
            )
        )

    @keywords(FUNCTION, rest="ray_remote_args")
    def filter(
        self,
        fn: Callable[..., bool] | Expr | None = None,
        expr: str | Expr | None = None,
        **options: Unpack[FunctionOptions],
    ) -> Dataset:
        """The rows for which a function or an expression is true. An expression is far faster, and
        may be pushed down into files.

        Args:
            fn: Takes a row, returns whether it stays. An expression in its place is taken as
            `expr`. expr: Such as `col("age") > 18`; rows for which it is null are left out. As text
            it still works, but is deprecated.
            **options: `FunctionOptions`, and any option of `remote`, for `fn`.
        """
        if isinstance(fn, Expr) and expr is None:
            fn, expr = None, fn
        if (fn is None) == (expr is None):
            raise ValueError(
                "filter takes a function or an expression: give one of `fn` and `expr`, and not both"
            )
        if expr is None:
            return self._derive(FilterRows(input=self._node, function=user_function(fn, options)))
        unused = [
            name for name, value in options.items() if name.startswith("fn_") and value is not None
        ]
        if unused:
            raise ValueError(f"{', '.join(unused)} go with `fn`, not with `expr`: leave them out")
        if isinstance(expr, str):
            # Two frames up, past the wrapper that checks keywords.
            warnings.warn(
                f"{expr!r} as text is deprecated: write an expression, such as col('age') > 18",
                DeprecationWarning,
                stacklevel=4,
            )
            expr = parse(expr)
        checks.predicate(self._known_schema(), expr)
        return self._derive(FilterExpr(input=self._node, predicate=expr))


def _checked_batch_size(batch_size: Any, num_gpus: float | None) -> int | Literal["auto"] | None:
    if batch_size is not None and batch_size != "auto":
        return checks.count("batch_size", batch_size, least=1)
    if num_gpus:
        raise ValueError(
            f"num_gpus={num_gpus} needs batch_size to be an int, not {batch_size!r}: a block may not fit into a GPU's memory"
        )
    return "auto" if batch_size == "auto" else None
