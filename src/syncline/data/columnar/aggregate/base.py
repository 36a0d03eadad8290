"""The base classes of aggregators: what programs subclass, and how an accumulator is started, fed,
combined and finished.

`AggregateFn` takes functions, `AggregateFnV2` is subclassed. Both work on one Python accumulator
per group; the built-in aggregators (`columnar`) work on columns instead and share the names.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar import schemas

AccumulatorType = TypeVar("AccumulatorType")
AggOutputType = TypeVar("AggOutputType")


class AggregateFn:
    """An aggregation made of functions.

    Args:
        init: From a group's key (the value of one key, a tuple of several, None without keys) to an
        empty accumulator. merge: Joins two accumulators of one group. name: Name of the result's
        column. accumulate_row: From an accumulator and a row (a dict) to the next accumulator.
        accumulate_block: From an accumulator and a table to the next one; this or `accumulate_row`
        is given. finalize: From the last accumulator to the result; the accumulator itself if None.
    """

    def __init__(
        self,
        init: Callable[[Any], Any],
        merge: Callable[[Any, Any], Any],
        name: str,
        accumulate_row: Callable[[Any, dict[str, Any]], Any] | None = None,
        accumulate_block: Callable[[Any, pa.Table], Any] | None = None,
        finalize: Callable[[Any], Any] | None = None,
    ) -> None:
        if (accumulate_row is None) == (accumulate_block is None):
            raise ValueError(
                f"the aggregation {name!r} needs accumulate_row or accumulate_block, and not both"
            )
        if not isinstance(name, str):
            raise TypeError(
                f"the name of an aggregation is a string, not {name!r} ({type(name).__name__})"
            )
        self.name = name
        self.init = init
        self.merge = merge
        self.accumulate_block = accumulate_block or _row_by_row(accumulate_row)
        self._finalize = finalize

    def finalize(self, accumulator: Any) -> Any:
        """The result of the last accumulator."""
        return accumulator if self._finalize is None else self._finalize(accumulator)

    def finish(self, accumulator: Any) -> Any:
        """The result of a group, or of no rows at all, as a Python value."""
        return self.finalize(accumulator)

    def columns(self) -> list[str]:
        """Names of the columns that it is known to read."""
        return []

    def check(self, schema: pa.Schema) -> None:
        """UnknownColumnError if the data lacks a column that the aggregation reads."""
        schemas.require_columns(self.columns(), schema.names)


class AggregateFnV2(AggregateFn, abc.ABC, Generic[AccumulatorType, AggOutputType]):
    """An aggregation to subclass: `aggregate_block` and `combine`, and `finalize` where the
    accumulator is not the result.

    With `ignore_nulls`, an accumulator of None says that a block held no values and is left out,
    and a group of nothing else has the result None. Without, the first accumulator is combined with
    `zero_factory()`, and one None makes the result None.

    Args:
        name: Name of the result's column.
        zero_factory: Makes the accumulator of no rows.
        on: The column, or None for whole rows.
        ignore_nulls: Whether missing values are left out.
    """

    def __init__(
        self,
        name: str,
        zero_factory: Callable[[], AccumulatorType],
        *,
        on: str | None,
        ignore_nulls: bool,
    ) -> None:
        if not name:
            raise ValueError(f"an aggregation needs a name for its result, not {name!r}")
        self._target_col_name = on
        self._ignore_nulls = ignore_nulls
        self._agg_name = name
        self._zero_factory = zero_factory
        super().__init__(init=self._start, merge=self._join, name=name, accumulate_block=self._add)

    def get_target_column(self) -> str | None:
        """The column, or None for whole rows."""
        return self._target_col_name

    def get_agg_name(self) -> str:
        """Name of the result's column."""
        return self._agg_name

    @abc.abstractmethod
    def aggregate_block(self, block: pa.Table) -> AccumulatorType:
        """The accumulator of the rows of one group in one block."""

    @abc.abstractmethod
    def combine(
        self, current_accumulator: AccumulatorType, new: AccumulatorType
    ) -> AccumulatorType:
        """Two accumulators as one."""

    def finalize(self, accumulator: AccumulatorType) -> AggOutputType | None:
        """The result of the last accumulator."""
        result: Any = accumulator
        return cast("AggOutputType", result)

    def finish(self, accumulator: AccumulatorType | None) -> AggOutputType | None:
        """The result of a group; None where its accumulator is."""
        return None if accumulator is None else self.finalize(accumulator)

    def columns(self) -> list[str]:
        """The column that it reads, if it reads one."""
        return [self._target_col_name] if self._target_col_name is not None else []

    def _start(self, key: Any) -> AccumulatorType | None:
        return None if self._ignore_nulls else self._zero_factory()

    def _add(self, accumulator: AccumulatorType | None, block: pa.Table) -> AccumulatorType | None:
        return self._join(accumulator, self.aggregate_block(block))

    def _join(
        self, left: AccumulatorType | None, right: AccumulatorType | None
    ) -> AccumulatorType | None:
        if left is not None and right is not None:
            return self.combine(left, right)
        if self._ignore_nulls:
            return right if left is None else left
        return None


def _row_by_row(
    accumulate_row: Callable[[Any, dict[str, Any]], Any] | None,
) -> Callable[[Any, pa.Table], Any]:
    assert accumulate_row is not None

    def accumulate_block(accumulator: Any, block: pa.Table) -> Any:
        for row in blocks.rows(block):
            accumulator = accumulate_row(accumulator, row)
        return accumulator

    return accumulate_block
