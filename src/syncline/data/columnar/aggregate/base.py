"""Base classes of aggregators: `AggregateFn` takes functions; `AggregateFnV2` is subclassed; both
use one Python accumulator per group. `ColumnarAggregate`, the base of the built-in aggregators,
computes all groups of a block together.

A columnar aggregator represents a group by a few *states*, Arrow columns with one value per group.
The states of many blocks are concatenated, and another group-by merges them. A subclass names the
measures of Arrow's group_by that it needs and derives states and results from them.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeAlias, TypeGuard, TypeVar, cast

import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar import schemas
from syncline.data.columnar.kernels import group
from syncline.data.columnar.kernels.group import Groups, Measure

Column: TypeAlias = pa.ChunkedArray
Columns: TypeAlias = list[Column]
States: TypeAlias = list[Any]
"""Columns with one value per group: Arrow arrays or chunked arrays."""
Result: TypeAlias = pa.Array | Column
Accumulator: TypeAlias = Any
"""State of an `AggregateFn`, of a type that the program chooses."""
RowFunction: TypeAlias = Callable[[Accumulator, blocks.Row], Accumulator]
BlockFunction: TypeAlias = Callable[[Accumulator, pa.Table], Accumulator]

AccumulatorType = TypeVar("AccumulatorType")
AggOutputType = TypeVar("AggOutputType")


class AggregateFn:
    """An aggregation from functions.

    Args:
        init: Returns an empty accumulator for a group's key (the value of one key, a tuple of
            several, None without keys).
        merge: Merges two accumulators of one group.
        name: Name of the result's column.
        accumulate_row: From an accumulator and a row (a dict) to the next accumulator.
        accumulate_block: From an accumulator and a table to the next accumulator; alternative to
            `accumulate_row`.
        finalize: From the last accumulator to the result; None returns the accumulator.
    """

    def __init__(
        self,
        init: Callable[[Any], Accumulator],
        merge: Callable[[Accumulator, Accumulator], Accumulator],
        name: str,
        accumulate_row: RowFunction | None = None,
        accumulate_block: BlockFunction | None = None,
        finalize: Callable[[Accumulator], object] | None = None,
    ) -> None:
        if (accumulate_row is None) == (accumulate_block is None):
            raise ValueError(
                f"the aggregation {name!r} needs either accumulate_row or accumulate_block"
            )
        if not isinstance(name, str):
            raise TypeError(
                f"the name of an aggregation is a string, not {name!r} of type "
                f"{type(name).__name__}"
            )
        self.name = name
        self.init = init
        self.merge = merge
        self.accumulate_block = accumulate_block or _row_by_row(accumulate_row)
        self._finalize = finalize

    def finalize(self, accumulator: Accumulator) -> Any:
        """Return the result of the last accumulator."""
        return accumulator if self._finalize is None else self._finalize(accumulator)

    def finish(self, accumulator: Accumulator) -> Any:
        """Return the result of a group, or of no rows, as a Python value."""
        return self.finalize(accumulator)

    def columns(self) -> list[str]:
        """Return the names of the columns that the aggregation is known to read."""
        return []

    def check(self, schema: pa.Schema) -> None:
        """Raise UnknownColumnError if the data lacks a column that the aggregation reads."""
        schemas.require_columns(self.columns(), schema.names)


class AggregateFnV2(AggregateFn, abc.ABC, Generic[AccumulatorType, AggOutputType]):
    """An aggregation to subclass: implement `aggregate_block` and `combine`, and `finalize` if the
    accumulator is not the result.

    With `ignore_nulls`, an accumulator of None means a block without values and is skipped; a group
    with only such blocks has the result None. Without `ignore_nulls`, the first accumulator is
    combined with `zero_factory()`, and one None makes the result None.

    Args:
        name: Name of the result's column.
        zero_factory: Returns the accumulator of no rows.
        on: The column, or None for whole rows.
        ignore_nulls: Skip missing values.
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
        """Return the column, or None for whole rows."""
        return self._target_col_name

    def get_agg_name(self) -> str:
        """Return the name of the result's column."""
        return self._agg_name

    @abc.abstractmethod
    def aggregate_block(self, block: pa.Table) -> AccumulatorType:
        """Return the accumulator of the rows of one group in one block."""

    @abc.abstractmethod
    def combine(
        self, current_accumulator: AccumulatorType, new: AccumulatorType
    ) -> AccumulatorType:
        """Combine two accumulators."""

    def finalize(self, accumulator: AccumulatorType) -> AggOutputType | None:
        """Return the result of the last accumulator."""
        return cast("AggOutputType", accumulator)

    def finish(self, accumulator: AccumulatorType | None) -> AggOutputType | None:
        """Return the result of a group; None for the accumulator None."""
        return None if accumulator is None else self.finalize(accumulator)

    def columns(self) -> list[str]:
        """Return the column that the aggregation reads, if any."""
        return [self._target_col_name] if self._target_col_name is not None else []

    def _start(self, key: object) -> AccumulatorType | None:
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


def _row_by_row(accumulate_row: RowFunction | None) -> BlockFunction:
    assert accumulate_row is not None

    def accumulate_block(accumulator: Accumulator, block: pa.Table) -> Accumulator:
        for row in blocks.rows(block):
            accumulator = accumulate_row(accumulator, row)
        return accumulator

    return accumulate_block


class ColumnarAggregate(AggregateFnV2[pa.Table, Any]):
    """An aggregator with states in columns.

    A subclass that overrides `aggregate_block`, `combine` or `finalize`, whose accumulators are
    tables of states, is executed group by group.
    """

    needs_rows: ClassVar[bool] = False
    """True if `summarize` and `unite` need the rows of each group."""
    of_nothing: ClassVar[object] = None
    """Result without rows and keys."""

    def __init__(
        self, default_name: str, alias_name: str | None, *, on: str | None, ignore_nulls: bool
    ) -> None:
        name = alias_name or f"{default_name}({'' if on is None else on})"
        super().__init__(name, _no_states, on=on, ignore_nulls=ignore_nulls)

    def measures(self, column: Column | None) -> list[Measure]:
        """Return the measures of Arrow's group_by on a block; `column` is the target, None for
        whole rows.
        """
        return []

    def summarize(self, measured: Columns, column: Column | None, groups: Groups) -> States:
        """Return the states of a block's groups, each `(groups,)`, from the measures."""
        return list(measured)

    def merges(self, states: Columns) -> list[Measure]:
        """Return the measures of group_by on states, each `(states of all blocks,)`."""
        return []

    def unite(self, measured: Columns, states: Columns, groups: Groups) -> States:
        """Return the states of groups from those of all blocks."""
        return list(measured)

    def results(self, states: Columns) -> Result:
        """Return the result of each group from its states; by default the first state."""
        return states[0]

    def aggregate_block(self, block: pa.Table) -> pa.Table:
        """Return the states of a table's rows as one group: a table of one row, or of none for no
        rows.
        """
        column = None if self._target_col_name is None else block.column(self._target_col_name)
        groups, measured = group.measure(
            block, [], self.measures(column), with_rows=self.needs_rows
        )
        return _numbered(self.summarize(measured, column, groups))

    def combine(self, current_accumulator: pa.Table, new: pa.Table) -> pa.Table:
        """Combine the states of both."""
        both = blocks.concat([current_accumulator, new])
        if not both.num_columns:
            return both
        groups, measured = group.measure(
            both, [], self.merges(both.columns), with_rows=self.needs_rows
        )
        return _numbered(self.unite(measured, both.columns, groups))

    def finalize(self, accumulator: pa.Table) -> Any:
        """Return the result as a Python value."""
        return (
            self.results(accumulator.columns)[0].as_py()
            if accumulator.num_rows
            else self.of_nothing
        )

    @property
    def by_columns(self) -> bool:
        """True if all groups can be aggregated together because no subclass overrides single
        accumulators.
        """
        own = type(self)
        return (
            own.aggregate_block is ColumnarAggregate.aggregate_block
            and own.combine is ColumnarAggregate.combine
            and own.finalize is ColumnarAggregate.finalize
        )


def works_by_columns(aggregate: AggregateFn) -> TypeGuard[ColumnarAggregate]:
    """Return True if an aggregator computes all groups together; others, such as custom ones, are
    called group by group.
    """
    return isinstance(aggregate, ColumnarAggregate) and aggregate.by_columns


def _no_states() -> pa.Table:
    return pa.table({})


def _numbered(states: States) -> pa.Table:
    return pa.table({str(index): state for index, state in enumerate(states)})
