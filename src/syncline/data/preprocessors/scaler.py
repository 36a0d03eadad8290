"""Scalers: shift and scale columns by their statistics.

A column without values in the fitted dataset becomes null. A constant column becomes zeros
(`MaxAbsScaler`: only a column of zeros).
"""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from syncline.data.columnar.aggregate import AbsMax, ApproximateQuantile, Max, Mean, Min, Std
from syncline.data.preprocessor import StatComputationPlan
from syncline.data.preprocessors.base import Column, ColumnPreprocessor, numbers, parameter

# Scales below this value count as zero, so that rounding errors of constant columns are not
# amplified.
_EPSILON = 1e-8


class _Scaler(ColumnPreprocessor):
    """`(x - shift) / scale`, column by column."""

    _keep_float32: ClassVar[bool] = True

    def _shift_and_scale(self, name: str) -> tuple[float, float] | None:
        """Return the shift and the scale of a column; None if it had no values."""
        raise NotImplementedError

    def _transform_column(self, name: str, column: pa.ChunkedArray) -> Column:
        values = numbers(self, name, column, keep_float32=self._keep_float32)
        known = self._shift_and_scale(name)
        if known is None:
            return pa.nulls(len(column), values.type)
        shift, scale = (pa.scalar(float(number), values.type) for number in known)
        return pc.divide(pc.subtract(values, shift), scale)


class StandardScaler(_Scaler):
    """Subtracts the mean and divides by the population standard deviation. Results are float64.

    `stats_`: `mean(column)` and `std(column)`.

    Args:
        columns: Names of columns of numbers.
        output_columns: Names of the output columns; the input columns by default.
    """

    _keep_float32 = False

    def _plan_statistics(self, plan: StatComputationPlan) -> None:
        plan.add_aggregator(aggregator_fn=Mean, columns=self._columns)
        plan.add_aggregator(aggregator_fn=lambda name: Std(name, ddof=0), columns=self._columns)

    def _shift_and_scale(self, name: str) -> tuple[float, float] | None:
        mean, std = self.stats_[f"mean({name})"], self.stats_[f"std({name})"]
        if mean is None or std is None:
            return None
        return mean, 1 if std < _EPSILON else std


class MinMaxScaler(_Scaler):
    """Scales the range of the fitted column to 0 ... 1.

    `stats_`: `min(column)` and `max(column)`.

    Args:
        columns: Names of columns of numbers.
        output_columns: Names of the output columns; the input columns by default.
    """

    def _plan_statistics(self, plan: StatComputationPlan) -> None:
        plan.add_aggregator(aggregator_fn=Min, columns=self._columns)
        plan.add_aggregator(aggregator_fn=Max, columns=self._columns)

    def _shift_and_scale(self, name: str) -> tuple[float, float] | None:
        low, high = self.stats_[f"min({name})"], self.stats_[f"max({name})"]
        if low is None or high is None:
            return None
        return low, 1 if high - low < _EPSILON else high - low


class MaxAbsScaler(_Scaler):
    """Divides by the maximum absolute value, so that zeros stay zeros.

    `stats_`: `abs_max(column)`.

    Args:
        columns: Names of columns of numbers.
        output_columns: Names of the output columns; the input columns by default.
    """

    def _plan_statistics(self, plan: StatComputationPlan) -> None:
        plan.add_aggregator(aggregator_fn=AbsMax, columns=self._columns)

    def _shift_and_scale(self, name: str) -> tuple[float, float] | None:
        high = self.stats_[f"abs_max({name})"]
        return None if high is None else (0, high or 1)


class RobustScaler(_Scaler):
    """Subtracts the median and divides by the distance of two quantiles, which is robust against
    outliers.

    If the quantiles are equal, all results are 0, including those of missing values.
    `stats_`: `low_quantile(column)`, `median(column)` and `high_quantile(column)`.

    Args:
        columns: Names of columns of numbers.
        quantile_range: The two quantiles, between 0 and 1.
        output_columns: Names of the output columns; the input columns by default.
        quantile_precision: Number of values per column in the quantile sketch; quantiles are exact
            up to that many rows.
    """

    DEFAULT_QUANTILE_PRECISION = 800

    def __init__(
        self,
        columns: list[str],
        quantile_range: tuple[float, float] = (0.25, 0.75),
        output_columns: list[str] | None = None,
        quantile_precision: int = DEFAULT_QUANTILE_PRECISION,
    ) -> None:
        super().__init__(columns, output_columns)
        self._quantile_range = quantile_range
        self._quantile_precision = quantile_precision

    quantile_range: tuple[float, float] = parameter("_quantile_range")
    quantile_precision: int = parameter("_quantile_precision")

    def _plan_statistics(self, plan: StatComputationPlan) -> None:
        low, high = self._quantile_range
        plan.add_aggregator(
            aggregator_fn=lambda name: ApproximateQuantile(
                name, [low, 0.5, high], self._quantile_precision
            ),
            columns=self._columns,
        )

    def _learn(self, statistics: dict[str, Any]) -> None:
        for name in self._columns:
            quantiles = statistics[f"approx_quantile({name})"] or (None, None, None)
            for statistic, quantile in zip(
                ("low_quantile", "median", "high_quantile"), quantiles, strict=True
            ):
                self.stats_[f"{statistic}({name})"] = quantile

    def _shift_and_scale(self, name: str) -> tuple[float, float] | None:
        low, median, high = (
            self.stats_[f"{statistic}({name})"]
            for statistic in ("low_quantile", "median", "high_quantile")
        )
        return None if median is None else (median, high - low)

    def _transform_column(self, name: str, column: pa.ChunkedArray) -> Column:
        known = self._shift_and_scale(name)
        if known is not None and known[1] == 0:
            return pa.repeat(pa.scalar(0.0, numbers(self, name, column).type), len(column))
        return super()._transform_column(name, column)
