"""`ColumnarAggregate`: aggregators that work on columns, for all groups of a block at once.

What is known of a group is a few *states*, Arrow columns with one value per group. States of many
blocks are one table below the other; merging them is again a group-by. A subclass says which
measures of Arrow's group_by it needs and makes states and results from them.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeGuard

import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar.aggregate.base import AggregateFn, AggregateFnV2
from syncline.data.columnar.kernels import group
from syncline.data.columnar.kernels.group import Groups, Measure


class ColumnarAggregate(AggregateFnV2[pa.Table, Any]):
    """An aggregator made of columns of states.

    A subclass that overrides `aggregate_block`, `combine` or `finalize`, whose accumulators are
    tables of states, runs group by group.
    """

    needs_rows: ClassVar[bool] = False
    """Whether `summarize` and `unite` need to know which rows make up a group."""
    of_nothing: ClassVar[Any] = None
    """The result where there are no rows at all, and no keys."""

    def __init__(
        self, default_name: str, alias_name: str | None, *, on: str | None, ignore_nulls: bool
    ) -> None:
        name = alias_name or f"{default_name}({'' if on is None else on})"
        super().__init__(name, _no_states, on=on, ignore_nulls=ignore_nulls)

    def measures(self, column: pa.ChunkedArray | None) -> list[Measure]:
        """What Arrow's group_by measures on a block; `column` is the target, None for whole
        rows.
        """
        return []

    def summarize(
        self, measured: list[pa.ChunkedArray], column: pa.ChunkedArray | None, groups: Groups
    ) -> list[Any]:
        """The states of a block's groups from the measures, each `(groups,)`."""
        return list(measured)

    def merges(self, states: list[pa.ChunkedArray]) -> list[Measure]:
        """What group_by measures on states, `(states of all blocks,)` each."""
        return []

    def unite(
        self, measured: list[pa.ChunkedArray], states: list[pa.ChunkedArray], groups: Groups
    ) -> list[Any]:
        """The states of groups from those of all blocks."""
        return list(measured)

    def results(self, states: list[pa.ChunkedArray]) -> pa.Array | pa.ChunkedArray:
        """The result of each group from its states: the first of them, if nothing has to be
        done.
        """
        return states[0]

    def aggregate_block(self, block: pa.Table) -> pa.Table:
        """The states of a table's rows as one group: a table of one row, or of none for no rows."""
        column = None if self._target_col_name is None else block.column(self._target_col_name)
        groups, measured = group.measure(
            block, [], self.measures(column), with_rows=self.needs_rows
        )
        return _numbered(self.summarize(measured, column, groups))

    def combine(self, current_accumulator: pa.Table, new: pa.Table) -> pa.Table:
        """The states of both."""
        both = blocks.concat([current_accumulator, new])
        if not both.num_columns:
            return both
        groups, measured = group.measure(
            both, [], self.merges(both.columns), with_rows=self.needs_rows
        )
        return _numbered(self.unite(measured, both.columns, groups))

    def finalize(self, accumulator: pa.Table) -> Any:
        """The result as a Python value."""
        return (
            self.results(accumulator.columns)[0].as_py()
            if accumulator.num_rows
            else self.of_nothing
        )

    @property
    def by_columns(self) -> bool:
        """Whether its groups may be aggregated all at once, since no subclass has a say in the
        single accumulators.
        """
        own = type(self)
        return (
            own.aggregate_block is ColumnarAggregate.aggregate_block
            and own.combine is ColumnarAggregate.combine
            and own.finalize is ColumnarAggregate.finalize
        )


def works_by_columns(aggregate: AggregateFn) -> TypeGuard[ColumnarAggregate]:
    """Whether an aggregator works on all groups at once; others, such as the program's own, are
    called group by group.
    """
    return isinstance(aggregate, ColumnarAggregate) and aggregate.by_columns


def _no_states() -> pa.Table:
    return pa.table({})


def _numbered(states: list[Any]) -> pa.Table:
    return pa.table({str(index): state for index, state in enumerate(states)})
