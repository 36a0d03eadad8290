"""Aggregators, for whole datasets and for groups of their rows.

Files: `base` (`AggregateFn`, `AggregateFnV2`: what programs subclass), `columnar` (those that work
on columns), `numeric` (counts, sums, extremes, means), `spread` and `values` (distinct values,
quantiles, lists), `sketches` (approximate ones), `steps` (partial, merge, finalize over many
blocks).
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
