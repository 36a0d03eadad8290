"""`DatasetSummary`: statistics of columns, and the aggregators for each type.

Statistics have the names of their aggregators, such as `mean`; those with several values are
numbered: `approx_quantile[0]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from syncline.data.columnar.aggregate import (
    AggregateFnV2,
    ApproximateQuantile,
    ApproximateTopK,
    Count,
    Max,
    Mean,
    Min,
    MissingValuePercentage,
    Std,
    ZeroPercentage,
)
from syncline.data.columnar.datatype import DataType
from syncline.data.columnar.frames import load_pandas
from syncline.data.columnar.schemas import require_columns
from syncline.records import dataclass

if TYPE_CHECKING:
    import pandas as pd

Aggregators = list[AggregateFnV2[Any, Any]]


@dataclass(frozen=True)
class DatasetSummary:
    """Statistics of the columns of a dataset."""

    dataset_schema: pa.Schema
    """Schema of the dataset."""
    columns: list[str]
    """Columns with statistics."""
    statistics: Mapping[str, Mapping[str, object]]
    """Values by column and name of the statistic."""

    STATISTIC_COLUMN = "statistic"

    def to_pandas(self) -> pd.DataFrame:
        """Return a DataFrame with a row for each statistic, sorted by name, and a column for each
        column of the dataset; None for statistics that a column does not have.
        """
        names = sorted({name for values in self.statistics.values() for name in values})
        data = {
            column: [self.statistics[column].get(name) for name in names] for column in self.columns
        }
        frame: pd.DataFrame = load_pandas().DataFrame({self.STATISTIC_COLUMN: names, **data})
        return frame

    def get_column_stats(self, column: str) -> pd.DataFrame:
        """Return a DataFrame with the columns `statistic` and `value`. Raise ValueError for a
        column without statistics.
        """
        if column not in self.statistics:
            raise ValueError(
                f"{column!r} is not in the summary: "
                f"its columns are {', '.join(map(repr, self.columns))}"
            )
        names = sorted(self.statistics[column])
        values = [self.statistics[column][name] for name in names]
        frame: pd.DataFrame = load_pandas().DataFrame(
            {self.STATISTIC_COLUMN: names, "value": values}
        )
        return frame

    def __repr__(self) -> str:
        return repr(self.to_pandas())


def summarize(
    schema: pa.Schema | None,
    columns: Sequence[str] | None,
    overrides: Mapping[DataType, Callable[[str], Aggregators]],
    aggregate: Callable[..., Mapping[str, object]],
) -> DatasetSummary:
    """Compute statistics of columns.

    Args:
        schema: Schema of the dataset.
        columns: The columns; None for all.
        overrides: By type, a function from the name of a column to its aggregators.
        aggregate: Returns the results of aggregators by name.

    Raises:
        ValueError: There is no column or no aggregator.
    """
    if schema is None:
        raise ValueError("there is nothing to describe: the dataset has no columns")
    names = list(schema.names if columns is None else columns)
    require_columns(names, schema.names)
    aggregators: Aggregators = []
    for name in names:
        type_ = DataType.from_arrow(schema.field(name).type)
        aggregators += overrides.get(type_, _default_aggregators(type_))(name)
    if not aggregators:
        raise ValueError(
            f"no aggregators for {', '.join(map(repr, names)) or 'no columns'}: "
            "name columns, or pass aggregators for their types"
        )
    results = aggregate(*aggregators)
    statistics: dict[str, dict[str, object]] = {name: {} for name in names}
    for aggregator in aggregators:
        column = aggregator.get_target_column()
        if column is not None:
            name = aggregator.name.removesuffix(f"({column})")
            statistics[column].update(_numbered(name, results[aggregator.name]))
    return DatasetSummary(schema, names, statistics)


def _numbered(name: str, value: object) -> dict[str, object]:
    return (
        {f"{name}[{index}]": each for index, each in enumerate(value)}
        if isinstance(value, list)
        else {name: value}
    )


def _default_aggregators(type_: DataType) -> Callable[[str], Aggregators]:
    if type_.is_numerical_type() or type_.is_boolean_type():
        return _of_numbers
    if type_.is_temporal_type():
        return _of_times
    return _of_others


def _of_numbers(name: str) -> Aggregators:
    return [
        Count(name, ignore_nulls=False),
        Mean(name),
        Min(name),
        Max(name),
        Std(name, ddof=0),
        ApproximateQuantile(name, quantiles=[0.5]),
        MissingValuePercentage(name),
        ZeroPercentage(name),
    ]


def _of_times(name: str) -> Aggregators:
    return [Count(name, ignore_nulls=False), Min(name), Max(name), MissingValuePercentage(name)]


def _of_others(name: str) -> Aggregators:
    return [
        Count(name, ignore_nulls=False),
        MissingValuePercentage(name),
        ApproximateTopK(name, k=10),
    ]
