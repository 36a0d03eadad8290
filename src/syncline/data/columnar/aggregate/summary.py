"""`DatasetSummary`: statistics of columns, as `Dataset.summary` computes them; and which
aggregators suit a type.

Statistics have the names of their aggregators, such as `mean`; one with several values is numbered:
`approx_quantile[0]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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

if TYPE_CHECKING:
    import pandas as pd

Aggregators = list[AggregateFnV2[Any, Any]]


@dataclass(frozen=True)
class DatasetSummary:
    """Statistics of the columns of a dataset."""

    dataset_schema: pa.Schema
    """Of the dataset."""
    columns: list[str]
    """Those that are described."""
    statistics: Mapping[str, Mapping[str, Any]]
    """By column, values by the statistic's name."""

    STATISTIC_COLUMN = "statistic"

    def to_pandas(self) -> pd.DataFrame:
        """A DataFrame with a row for each statistic, sorted by name, and a column for each of the
        dataset's; None where one has no such.
        """
        names = sorted({name for values in self.statistics.values() for name in values})
        data = {
            column: [self.statistics[column].get(name) for name in names] for column in self.columns
        }
        frame: pd.DataFrame = load_pandas().DataFrame({self.STATISTIC_COLUMN: names, **data})
        return frame

    def get_column_stats(self, column: str) -> pd.DataFrame:
        """A DataFrame with the columns `statistic` and `value`. ValueError for a column that is not
        described.
        """
        if column not in self.statistics:
            raise ValueError(
                f"{column!r} is not described: the columns are {', '.join(map(repr, self.columns))}"
            )
        names = sorted(self.statistics[column])
        values = [self.statistics[column][name] for name in names]
        frame: pd.DataFrame = load_pandas().DataFrame(
            {self.STATISTIC_COLUMN: names, "value": values}
        )
        return frame

    def __repr__(self) -> str:
        return repr(self.to_pandas())


def aggregators_of(
    schema: pa.Schema,
    names: Sequence[str],
    overrides: Mapping[DataType, Callable[[str], Aggregators]],
) -> Aggregators:
    """Those that suit the columns' types, or that the program wants for a type."""
    found: Aggregators = []
    for name in names:
        type_ = DataType.from_arrow(schema.field(name).type)
        found += overrides.get(type_, _usual(type_))(name)
    if not found:
        raise ValueError(
            f"no statistics are asked for of {', '.join(map(repr, names)) or 'no columns'}: name columns, or aggregators"
        )
    return found


def summarized(
    schema: pa.Schema, names: Sequence[str], aggregators: Aggregators, results: Mapping[str, Any]
) -> DatasetSummary:
    """The results of aggregators, column by column."""
    statistics: dict[str, dict[str, Any]] = {name: {} for name in names}
    for aggregator in aggregators:
        column = aggregator.get_target_column()
        if column is not None:
            name = aggregator.name.removesuffix(f"({column})")
            statistics[column].update(_numbered(name, results[aggregator.name]))
    return DatasetSummary(schema, list(names), statistics)


def _numbered(name: str, value: Any) -> dict[str, Any]:
    return (
        {f"{name}[{index}]": each for index, each in enumerate(value)}
        if isinstance(value, list)
        else {name: value}
    )


def _usual(type_: DataType) -> Callable[[str], Aggregators]:
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
