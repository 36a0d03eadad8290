"""Aggregators, for whole datasets and for groups of their rows.

Files: `base` (`AggregateFn` and `AggregateFnV2`, which programs subclass, and `ColumnarAggregate`),
`numeric` (counts, sums, extremes, means), `values` (quantiles, distinct values, lists), `sketches`
(approximate quantiles and frequent values), `phases` (partial, merge and finalize over many
blocks), `summary` (statistics of columns).
"""

from syncline.data.columnar.aggregate.base import AggregateFn, AggregateFnV2
from syncline.data.columnar.aggregate.numeric import (
    AbsMax,
    Count,
    Max,
    Mean,
    Min,
    MissingValuePercentage,
    Std,
    Sum,
    ZeroPercentage,
)
from syncline.data.columnar.aggregate.sketches import ApproximateQuantile, ApproximateTopK
from syncline.data.columnar.aggregate.values import (
    AsList,
    CountDistinct,
    Quantile,
    Unique,
    ValueCounter,
)

__all__ = [
    "AbsMax",
    "AggregateFn",
    "AggregateFnV2",
    "ApproximateQuantile",
    "ApproximateTopK",
    "AsList",
    "Count",
    "CountDistinct",
    "Max",
    "Mean",
    "Min",
    "MissingValuePercentage",
    "Quantile",
    "Std",
    "Sum",
    "Unique",
    "ValueCounter",
    "ZeroPercentage",
]
