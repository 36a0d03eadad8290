"""All rows as a few numbers (sum, mean, …), or as one row for each group (`groupby`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from syncline.data.columnar import block as blocks
from syncline.data.columnar.aggregate import (
    AggregateFn,
    AggregateFnV2,
    Max,
    Mean,
    Min,
    Std,
    Sum,
    Unique,
)
from syncline.data.columnar.aggregate.summary import DatasetSummary, aggregators_of, summarized
from syncline.data.columnar.datatype import DataType
from syncline.data.grouped_data import GroupedData
from syncline.data.methods import checks
from syncline.data.methods.inspecting import InspectingMethods

if TYPE_CHECKING:
    from syncline.data.dataset import Dataset


class AggregatingMethods(InspectingMethods):
    """Methods that execute the plan and return numbers. For one column that is the value, for
    several a dict with names as `sum(x)`.

    Without any rows the results are None.
    """

    def groupby(
        self, key: str | list[str] | None, num_partitions: int | None = None
    ) -> GroupedData:
        """The rows in groups of equal values.

        Args:
            key: The column or columns; None makes all rows one group.
            num_partitions: Number of blocks that groups are spread over.

        Raises:
            ValueError: A column that the data is known not to have (also a KeyError).
            TypeError: A column whose values cannot be compared.
        """
        keys = () if key is None else checks.column_names("key", key)
        checks.keys(self._known_schema(), keys, "group by")
        num_blocks = (
            None
            if num_partitions is None
            else checks.count("num_partitions", num_partitions, least=1)
        )
        return GroupedData(cast("Dataset", self), key if key else None, num_partitions=num_blocks)

    def aggregate(self, *aggs: AggregateFn) -> dict[str, Any]:
        """The results of aggregators on all rows, by their names."""
        (row,) = (
            row
            for table in self._tables(self.groupby(None).aggregate(*aggs)._node)
            for row in blocks.rows(table)
        )
        return row

    def unique(self, column: str, ignore_nulls: bool = False) -> list[Any]:
        """The distinct values of a column, in order of first appearance."""
        values: list[Any] = self._result(
            Unique(checks.column_name("column", column), ignore_nulls=ignore_nulls)
        )
        return values

    def sum(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Any:
        """Sums of columns, of all if `on` is None. Without `ignore_nulls` a null makes the result
        None.
        """
        return self._result(*(Sum(name, ignore_nulls=ignore_nulls) for name in self._targets(on)))

    def min(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Any:
        """Least values of columns, of all if `on` is None."""
        return self._result(*(Min(name, ignore_nulls=ignore_nulls) for name in self._targets(on)))

    def max(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Any:
        """Greatest values of columns, of all if `on` is None."""
        return self._result(*(Max(name, ignore_nulls=ignore_nulls) for name in self._targets(on)))

    def mean(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Any:
        """Means of columns, of all if `on` is None."""
        return self._result(*(Mean(name, ignore_nulls=ignore_nulls) for name in self._targets(on)))

    def std(
        self, on: str | list[str] | None = None, ddof: int = 1, ignore_nulls: bool = True
    ) -> Any:
        """Standard deviations of columns, of all if `on` is None; the sum of squares is divided by
        the count minus `ddof`.
        """
        return self._result(
            *(Std(name, ddof=ddof, ignore_nulls=ignore_nulls) for name in self._targets(on))
        )

    def summary(
        self,
        columns: list[str] | None = None,
        override_dtype_agg_mapping: Mapping[
            DataType, Callable[[str], list[AggregateFnV2[Any, Any]]]
        ]
        | None = None,
    ) -> DatasetSummary:
        """Statistics of the columns that suit their types: counts, extremes, means, quantiles,
        missing values, frequent values.

        Args:
            columns: Those to describe; all if None. override_dtype_agg_mapping: By type, a function
            from a column's name to other aggregators.
        """
        schema = self.schema()
        if schema is None:
            raise ValueError("there is nothing to describe: the dataset has no columns")
        names = schema.names if columns is None else list(checks.column_names("columns", columns))
        checks.known_columns(schema.base_schema, names)
        aggregators = aggregators_of(schema.base_schema, names, override_dtype_agg_mapping or {})
        return summarized(schema.base_schema, names, aggregators, self.aggregate(*aggregators))

    def _targets(self, on: Any) -> tuple[str, ...]:
        names = checks.column_names("on", (self.columns() or []) if on is None else on)
        if not names:
            raise ValueError(f"on={on!r} names no column: give at least one")
        return names

    def _result(self, *aggregators: AggregateFn) -> Any:
        found = self.aggregate(*aggregators)
        return next(iter(found.values())) if len(found) == 1 else found
