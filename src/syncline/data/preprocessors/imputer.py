"""`SimpleImputer`: fill missing values."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from syncline.data.columnar.aggregate import Mean, numeric
from syncline.data.columnar.kernels.group import Measure
from syncline.data.preprocessor import StatComputationPlan
from syncline.data.preprocessors.base import (
    ColumnPreprocessor,
    decoded,
    parameter,
    to_common_type,
    with_columns,
)
from syncline.data.preprocessors.categories import CategoryCounter, Counts, counter_of

Strategy = Literal["mean", "most_frequent", "constant"]


class SimpleImputer(ColumnPreprocessor):
    """Replaces null and NaN by a value. A column that is missing in a batch is filled with it.

    `stats_`: `mean(column)` or `most_frequent(column)`; of equally frequent values the first one.

    Args:
        columns: Names of the columns; columns of numbers for the mean.
        strategy: "mean", "most_frequent" or "constant".
        fill_value: The value for "constant".
        output_columns: Names of the output columns; the input columns by default.
    """

    def __init__(
        self,
        columns: list[str],
        strategy: Strategy = "mean",
        fill_value: str | float | None = None,
        *,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__(columns, output_columns)
        if strategy not in get_args(Strategy):
            choices = ", ".join(map(repr, get_args(Strategy)))
            raise ValueError(f"strategy={strategy!r} is unknown: choose {choices}")
        if strategy == "constant":
            self._is_fittable = False
            if fill_value is None:
                raise ValueError('strategy="constant" needs a value: pass fill_value')
        self._strategy: Strategy = strategy
        self._fill_value = fill_value

    strategy: Strategy = parameter("_strategy")
    fill_value: str | float | None = parameter("_fill_value")

    def _plan_statistics(self, plan: StatComputationPlan) -> None:
        if self._strategy == "mean":
            plan.add_aggregator(aggregator_fn=_MeanOfPresent, columns=self._columns)
        else:
            plan.add_aggregator(
                aggregator_fn=lambda name: CategoryCounter(name, f"most_frequent({name})"),
                columns=self._columns,
                post_process_fn=_most_frequent,
            )

    def _transform_arrow(self, table: pa.Table) -> pa.Table:
        found = {name: table.column(name) for name in self._columns if name in table.column_names}
        written = {}
        for name, output in zip(self._columns, self._output_columns, strict=True):
            value = (
                self._fill_value
                if self._strategy == "constant"
                else self.stats_[f"{self._strategy}({name})"]
            )
            if value is None:
                raise ValueError(
                    f"column {name!r} had no values when the imputer was fitted, so there is no "
                    'value to fill in: use strategy="constant"'
                )
            written[output] = (
                _filled(name, found[name], value)
                if name in found
                else pa.repeat(pa.scalar(value), table.num_rows)
            )
        return with_columns(table, written)

    def _check_columns(self, names: Sequence[str]) -> None:
        """Accept missing columns: they are filled."""


class _MeanOfPresent(Mean):
    """Mean of the values that are neither null nor NaN."""

    def measures(self, column: pa.ChunkedArray | None) -> list[Measure]:
        return super().measures(None if column is None else numeric.nan_as_null(column))


def _most_frequent(found: Counts | None) -> Hashable:
    counts = counter_of(found)
    del counts[None]
    return counts.most_common(1)[0][0] if counts else None


def _filled(name: str, column: pa.ChunkedArray, value: object) -> pa.ChunkedArray:
    """Replace nulls and NaNs; the type of the result can hold the value."""
    plain = decoded(column)
    missing = (
        pc.is_null(plain, nan_is_null=True)
        if pa.types.is_floating(plain.type)
        else pc.is_null(plain)
    )
    both = to_common_type(plain, pa.array([value]))
    if both is None:
        raise TypeError(
            f"column {name!r} is of type {plain.type}, which does not hold {value!r}: choose "
            "another value"
        )
    filled = pc.if_else(missing, both[1][0], both[0])
    return filled.dictionary_encode() if pa.types.is_dictionary(column.type) else filled
