"""Columns: choose, leave out, rename, compute. All of it is one node, `Project`; only `add_column`
calls a function on batches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar import expressions, frames
from syncline.data.columnar.expressions import Expr, UnnestExpr, star
from syncline.data.keywords import keywords
from syncline.data.methods import checks
from syncline.data.methods.functions import (
    PROJECT,
    NotAFunctionError,
    ProjectOptions,
    resources_of,
    strategy_of_project,
)
from syncline.data.methods.inspecting import InspectingMethods
from syncline.data.methods.mapping import MappingMethods
from syncline.data.plan.nodes import Project

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from syncline.data.dataset import Dataset


class ColumnMethods(MappingMethods, InspectingMethods):
    """Methods that work on columns. Unknown columns are an UnknownColumnError (a KeyError) at the
    call where the schema is known.
    """

    @keywords(PROJECT, rest="ray_remote_args")
    def select_columns(self, cols: str | list[str], **options: Unpack[ProjectOptions]) -> Dataset:
        """These columns alone, in this order."""
        names = checks.column_names("cols", cols)
        checks.known_columns(self._known_schema(), names)
        if not names:  # a projection on nothing leaves the columns alone
            return self._projected(
                options, expressions=(star(),), dropped=tuple(self.columns() or ())
            )
        return self._projected(options, expressions=tuple(map(expressions.col, names)))

    @keywords(PROJECT, rest="ray_remote_args")
    def drop_columns(self, cols: list[str], **options: Unpack[ProjectOptions]) -> Dataset:
        """All columns but these."""
        names = checks.column_names("cols", cols)
        checks.known_columns(self._known_schema(), names)
        return self._projected(options, expressions=(star(),), dropped=names)

    @keywords(PROJECT, without=("compute",), rest="ray_remote_args")
    def rename_columns(
        self, names: list[str] | dict[str, str], **options: Unpack[ProjectOptions]
    ) -> Dataset:
        """The same columns under other names.

        Args:
            names: New names by old name; or one name for each column, for which the schema has to
            be known or is found out.
            **options: `ProjectOptions`, and any option of `remote`.
        """
        return self._projected(options, renamed=self._new_names(names))

    @keywords(PROJECT, without=("concurrency",), rest="ray_remote_args")
    def with_column(
        self, column_name: str, expr: Expr, **options: Unpack[ProjectOptions]
    ) -> Dataset:
        """A column more, computed by an expression such as `col("a") * 2`; a column of this name is
        replaced.
        """
        return self.with_columns({column_name: expr}, **options)

    @keywords(PROJECT, without=("concurrency",), rest="ray_remote_args")
    def with_columns(
        self,
        exprs: Mapping[str, Expr] | UnnestExpr | None = None,
        *more_exprs: Mapping[str, Expr] | UnnestExpr,
        **options: Unpack[ProjectOptions],
    ) -> Dataset:
        """Several columns more, all computed from the columns as they were: expressions by name, or
        `unnest(...)` for a struct's fields.
        """
        given = [] if exprs is None else [exprs]
        computed = [each for argument in (*given, *more_exprs) for each in _named(argument)]
        if not computed:
            return self._derive(self._node)
        checks.expressions(self._known_schema(), [star(), *computed])
        return self._projected(options, expressions=(star(), *computed))

    @keywords(PROJECT, rest="ray_remote_args")
    def add_column(
        self,
        col: str,
        fn: Callable[[Any], Any],
        *,
        batch_format: Literal["pandas", "numpy", "pyarrow"] = "pandas",
        **options: Unpack[ProjectOptions],
    ) -> Dataset:
        """A column more that a function computes of whole batches. `with_column` with an expression
        is faster.

        Args:
            col: Its name; a column of this name is replaced.
            fn: Takes a batch, returns its column: a Series, array or list with one value per row.
            batch_format: "pandas", "numpy" or "pyarrow".
            **options: `ProjectOptions`, and any option of `remote`.
        """
        if batch_format not in ("pandas", "numpy", "pyarrow"):
            raise ValueError(
                f"batch_format={batch_format!r} is not known: choose 'pandas', 'numpy' or 'pyarrow'"
            )
        if not callable(fn):
            raise NotAFunctionError(
                f"fn={fn!r} is of type {type(fn).__name__}: give a function that takes a batch and returns a column"
            )
        function = functools.partial(add_column, checks.column_name("col", col), fn)
        return self.map_batches(
            function, batch_format=batch_format, udf_modifying_row_count=False, **options
        )

    def _projected(self, options: Mapping[str, Any], **what: Any) -> Dataset:
        compute = strategy_of_project(options.get("compute"), options.get("concurrency"))
        return self._derive(
            Project(input=self._node, resources=resources_of(options), compute=compute, **what)
        )

    def _new_names(self, names: Any) -> dict[str, str]:
        """New names by old name, checked against the columns as far as they are known."""
        if not isinstance(names, dict | list):
            raise TypeError(
                f"names={names!r} is of type {type(names).__name__}: give new names by old name, or a list of all names"
            )
        if not names:
            raise ValueError(f"names={names!r} renames nothing: give at least one name")
        new = checks.column_names(
            "names", list(names.values()) if isinstance(names, dict) else names
        )
        if isinstance(names, list):
            columns = self.columns() or []
            if len(columns) != len(new):
                raise ValueError(
                    f"{len(new)} names do not fit {len(columns)} columns ({', '.join(columns)}): give one for each, or a dict"
                )
            return dict(zip(columns, new, strict=True))
        old = checks.column_names("names", list(names))
        schema = self._known_schema()
        checks.known_columns(schema, old)
        taken = [
            name for name in new if schema is not None and name in schema.names and name not in old
        ]
        if taken:
            raise ValueError(
                f"names={names} gives the name {taken[0]!r} to a second column: rename or drop the one that has it"
            )
        return dict(zip(old, new, strict=True))


def add_column(column: str, function: Callable[[Any], Any], batch: Any) -> Any:
    """The batch with the column that `function` computes from it; the batch itself is not
    changed.
    """
    values = function(batch)
    if isinstance(batch, pa.Table):
        added = blocks.to_column(column, values)
        index = batch.schema.get_field_index(column)
        return (
            batch.append_column(column, added)
            if index < 0
            else batch.set_column(index, column, added)
        )
    if frames.is_frame(batch):
        # By position: a Series that the function made anew has an index of its own.
        return batch.assign(
            **{column: values.set_axis(batch.index) if frames.is_series(values) else values}
        )
    return {**batch, column: values}


def _named(argument: Any) -> list[Expr]:
    """The expressions of one argument of `with_columns`, each with its name."""
    if isinstance(argument, UnnestExpr):
        return [argument]
    if not isinstance(argument, Mapping):
        raise TypeError(
            f"with_columns takes expressions by name, or unnest(...), not {argument!r} ({type(argument).__name__})"
        )
    for name, expr in argument.items():
        checks.column_name("column_name", name)
        checks.expression(name, expr)
    return [expr.alias(name) for name, expr in argument.items()]
