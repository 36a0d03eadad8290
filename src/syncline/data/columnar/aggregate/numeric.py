"""Aggregators with one number per group: counts, sums, extremes, means, deviations and percentages.

NaN is a value, as in Arrow: sums and means with it are NaN, extremes skip it. Integer sums are
exact; OverflowError reports a sum that exceeds int64. Null means a missing value; a group without
values has the result null.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncline.data.columnar import tensors
from syncline.data.columnar.aggregate.base import Column, ColumnarAggregate, Columns, States
from syncline.data.columnar.kernels import keys as key_columns
from syncline.data.columnar.kernels.group import Groups, Measure, Options

_VALID = pc.CountOptions(mode="only_valid")
_ADD: Options = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)
# Sums that overflowed int64 differ from the floating-point sum by at least 2**64.
_WRAPPED = 2.0**62


class Count(ColumnarAggregate):
    """Number of rows, or with `on` and `ignore_nulls` the number of values that are not null."""

    of_nothing = 0

    def __init__(
        self, on: str | None = None, ignore_nulls: bool = False, alias_name: str | None = None
    ) -> None:
        super().__init__("count", alias_name, on=on, ignore_nulls=ignore_nulls)

    def measures(self, column: Column | None) -> list[Measure]:
        return [count_measure(column if self._ignore_nulls else None)]

    def merges(self, states: Columns) -> list[Measure]:
        return [(states[0], "sum", _ADD)]


class Sum(ColumnarAggregate):
    """Sum of numbers, booleans or durations."""

    def __init__(
        self, on: str | None = None, ignore_nulls: bool = True, alias_name: str | None = None
    ) -> None:
        super().__init__("sum", alias_name, on=on, ignore_nulls=ignore_nulls)

    def measures(self, column: Column | None) -> list[Measure]:
        values = numbers(self, column, durations=True)
        exact: Measure = (_as_int(values), "sum", null_options(self))
        return (
            [exact]
            if _sums_safely(values)
            else [exact, (values.cast(pa.float64(), safe=False), "sum", null_options(self))]
        )

    def summarize(self, measured: Columns, column: Column | None, groups: Groups) -> States:
        assert column is not None
        exact = measured[0]
        if pa.types.is_duration(column.type):
            return [exact.cast(column.type)]
        if not pa.types.is_integer(exact.type):
            return [exact]
        # The exact sum may overflow; the approximate sum shows it.
        return [exact, measured[1] if len(measured) > 1 else exact.cast(pa.float64(), safe=False)]

    def merges(self, states: Columns) -> list[Measure]:
        return [(_as_int(state), "sum", null_options(self)) for state in states]

    def unite(self, measured: Columns, states: Columns, groups: Groups) -> States:
        return [
            sums.cast(state.type) if pa.types.is_duration(state.type) else sums
            for sums, state in zip(measured, states, strict=True)
        ]

    def results(self, states: Columns) -> Column:
        if len(states) > 1 and pa.types.is_integer(states[0].type):
            error = pc.abs(pc.subtract(states[0].cast(pa.float64(), safe=False), states[1]))
            wrapped = pc.filter(states[1], pc.greater(error, _WRAPPED))
            if len(wrapped):
                raise OverflowError(
                    f"{self.name} is about {wrapped[0].as_py():.6g}, which exceeds "
                    f"{states[0].type}: "
                    f"cast column {self._target_col_name!r} to float64 or decimal before"
                )
        return states[0]


class _Extreme(ColumnarAggregate):
    """Minimum or maximum."""

    def __init__(
        self,
        function: Literal["min", "max"],
        on: str | None,
        ignore_nulls: bool,
        alias_name: str | None,
    ) -> None:
        super().__init__(function, alias_name, on=on, ignore_nulls=ignore_nulls)
        self._function = function

    def measures(self, column: Column | None) -> list[Measure]:
        return [(_ordered(self, target(self, column)), self._function, null_options(self))]

    def summarize(self, measured: Columns, column: Column | None, groups: Groups) -> States:
        assert column is not None
        type_ = key_columns.plain_type(column.type)
        return [measured[0] if measured[0].type == type_ else measured[0].cast(type_)]

    def merges(self, states: Columns) -> list[Measure]:
        return [(_ordered(self, states[0]), self._function, null_options(self))]

    def unite(self, measured: Columns, states: Columns, groups: Groups) -> States:
        return self.summarize(measured, states[0], groups)


class Min(_Extreme):
    """Minimum of numbers, strings, bytes, booleans or times. `zero_factory` is accepted for older
    programs, without effect.
    """

    def __init__(
        self,
        on: str | None = None,
        ignore_nulls: bool = True,
        alias_name: str | None = None,
        zero_factory: Callable[[], object] = lambda: float("+inf"),
    ) -> None:
        super().__init__("min", on, ignore_nulls, alias_name)


class Max(_Extreme):
    """Maximum of numbers, strings, bytes, booleans or times. `zero_factory` is accepted for older
    programs, without effect.
    """

    def __init__(
        self,
        on: str | None = None,
        ignore_nulls: bool = True,
        alias_name: str | None = None,
        zero_factory: Callable[[], object] = lambda: float("-inf"),
    ) -> None:
        super().__init__("max", on, ignore_nulls, alias_name)


class AbsMax(ColumnarAggregate):
    """Maximum absolute value of numbers. `zero_factory` is accepted for older programs, without
    effect.
    """

    def __init__(
        self,
        on: str | None = None,
        ignore_nulls: bool = True,
        alias_name: str | None = None,
        zero_factory: Callable[[], object] = lambda: 0,
    ) -> None:
        super().__init__("abs_max", alias_name, on=on, ignore_nulls=ignore_nulls)

    def measures(self, column: Column | None) -> list[Measure]:
        values, options = numbers(self, column), null_options(self)
        if pa.types.is_signed_integer(values.type):
            values = values.cast(
                pa.int64()
            )  # which holds the absolute value of the minimum of small integers
        return [(values, "min", options), (values, "max", options)]

    def merges(self, states: Columns) -> list[Measure]:
        return [(states[0], "min", null_options(self)), (states[1], "max", null_options(self))]

    def results(self, states: Columns) -> Column:
        return pc.max_element_wise(pc.abs_checked(states[0]), pc.abs_checked(states[1]))


class Mean(ColumnarAggregate):
    """Arithmetic mean, as float64."""

    def __init__(
        self, on: str | None = None, ignore_nulls: bool = True, alias_name: str | None = None
    ) -> None:
        super().__init__("mean", alias_name, on=on, ignore_nulls=ignore_nulls)

    def measures(self, column: Column | None) -> list[Measure]:
        values = floats(self, column)
        return [(values, "sum", null_options(self)), count_measure(values)]

    def merges(self, states: Columns) -> list[Measure]:
        return [(states[0], "sum", null_options(self)), (states[1], "sum", _ADD)]

    def results(self, states: Columns) -> Column:
        return pc.divide(states[0], states[1].cast(pa.float64()))


class Std(ColumnarAggregate):
    """Standard deviation as float64; the divisor is the count minus `ddof`. NaN for groups with at
    most `ddof` values.

    The states are count, mean and sum of squared deviations, merged after Chan, Golub and LeVeque
    (1979), which keeps the precision if the mean is large compared with the deviation.
    """

    needs_rows = True

    def __init__(
        self,
        on: str | None = None,
        ddof: int = 1,
        ignore_nulls: bool = True,
        alias_name: str | None = None,
    ) -> None:
        super().__init__("std", alias_name, on=on, ignore_nulls=ignore_nulls)
        self._ddof = ddof

    def measures(self, column: Column | None) -> list[Measure]:
        values = floats(self, column)
        return [
            count_measure(values),
            (values, "mean", null_options(self)),
            (
                values,
                "variance",
                pc.VarianceOptions(ddof=0, skip_nulls=self._ignore_nulls, min_count=1),
            ),
        ]

    def summarize(self, measured: Columns, column: Column | None, groups: Groups) -> States:
        count, mean, variance = measured
        return [count, mean, pc.multiply(variance, count.cast(pa.float64()))]

    def unite(self, measured: Columns, states: Columns, groups: Groups) -> States:
        unknown = states[1].is_null().to_numpy()
        counts, means, deviations = (
            state.fill_null(0).to_numpy().astype(np.float64) for state in states
        )
        count = _per_group(counts, groups)
        # Means are added as distances from one mean of the group, which keeps their precision.
        nearby = np.zeros(len(groups))
        nearby[groups.ids[~unknown]] = means[~unknown]
        mean = nearby + _per_group(counts * (means - nearby[groups.ids]), groups) / np.maximum(
            count, 1
        )
        deviation = _per_group(deviations + counts * (means - mean[groups.ids]) ** 2, groups)
        # A null mean has no values; with ignore_nulls=False it has a null, so the result is null.
        missing = (_per_group(unknown, groups) > 0) if not self._ignore_nulls else count == 0
        return [
            pa.array(count.astype(np.int64)),
            pa.array(mean, mask=missing),
            pa.array(deviation, mask=missing),
        ]

    def results(self, states: Columns) -> Column:
        free = pc.subtract(states[0], self._ddof).cast(pa.float64())
        return pc.sqrt(pc.divide(states[2], pc.if_else(pc.greater(free, 0), free, float("nan"))))


class MissingValuePercentage(ColumnarAggregate):
    """Percentage of rows that are null or NaN."""

    def __init__(self, on: str, alias_name: str | None = None) -> None:
        super().__init__("missing_pct", alias_name, on=on, ignore_nulls=False)

    def measures(self, column: Column | None) -> list[Measure]:
        values = nan_as_null(target(self, column))
        return [count_measure(None), count_measure(values)]

    def merges(self, states: Columns) -> list[Measure]:
        return [(state, "sum", _ADD) for state in states]

    def results(self, states: Columns) -> Column:
        return _percent(pc.subtract(states[0], states[1]), states[0])


class ZeroPercentage(ColumnarAggregate):
    """Percentage of zeros among the values, or among the rows with `ignore_nulls=False`."""

    def __init__(self, on: str, ignore_nulls: bool = True, alias_name: str | None = None) -> None:
        super().__init__("zero_pct", alias_name, on=on, ignore_nulls=ignore_nulls)

    def measures(self, column: Column | None) -> list[Measure]:
        values = floats(self, column)
        zeros = pc.if_else(pc.equal(values, 0.0), values, pa.scalar(None, values.type))
        return [count_measure(zeros), count_measure(values if self._ignore_nulls else None)]

    def merges(self, states: Columns) -> list[Measure]:
        return [(state, "sum", _ADD) for state in states]

    def results(self, states: Columns) -> Column:
        return _percent(states[0], states[1])


def target(aggregate: ColumnarAggregate, column: Column | None) -> Column:
    """Return the column of an aggregator. Raise ValueError if it has none."""
    if column is None:
        raise ValueError(f"{aggregate.name} needs a column: pass it as on=")
    return column


def numbers(
    aggregate: ColumnarAggregate, column: Column | None, *, durations: bool = False
) -> Column:
    """Return the column as numbers: int64 for booleans and nulls, float32 for half floats. Raise
    TypeError for other types.
    """
    column = target(aggregate, column)
    type_ = key_columns.plain_type(column.type)
    if type_ is not None and type_ != column.type:
        column = column.cast(type_)
    if pa.types.is_boolean(column.type) or pa.types.is_null(column.type):
        return column.cast(pa.int64())
    if pa.types.is_float16(column.type):
        return column.cast(pa.float32())
    if (
        pa.types.is_integer(column.type)
        or pa.types.is_floating(column.type)
        or pa.types.is_decimal(column.type)
    ):
        return column
    if durations and pa.types.is_duration(column.type):
        return column
    raise TypeError(
        f"{aggregate.name} needs numbers, but column {aggregate.get_target_column()!r} is of type "
        f"{column.type}: cast it before"
    )


def floats(aggregate: ColumnarAggregate, column: Column | None) -> Column:
    """Return the column as float64. Raise TypeError for values that are not numbers."""
    values = numbers(aggregate, column)
    return values if pa.types.is_float64(values.type) else values.cast(pa.float64(), safe=False)


def nan_as_null(column: Column) -> Column:
    """Replace NaN by null."""
    return (
        pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        if pa.types.is_floating(column.type)
        else column
    )


def null_options(aggregate: ColumnarAggregate) -> Options:
    """Return Arrow's options for a measure that is null for a group without values, and without
    `ignore_nulls` for a group with a null.
    """
    return pc.ScalarAggregateOptions(skip_nulls=aggregate._ignore_nulls, min_count=1)


def count_measure(column: Column | None) -> Measure:
    """Return the measure that counts values that are not null; without a column, rows."""
    if column is None:
        return (None, "count_all", None)
    if isinstance(column.type, pa.BaseExtensionType):
        column = tensors.storage_of(column)
    return (column, "count", _VALID)


def _ordered(aggregate: ColumnarAggregate, column: Column) -> Column:
    """Convert the column to a type that Arrow's group_by supports for extremes."""
    type_ = key_columns.plain_type(column.type)
    if type_ is None:
        raise TypeError(
            f"{aggregate.name} needs values with an order, but column "
            f"{aggregate.get_target_column()!r} is of type {column.type}: "
            "use a column of numbers, strings or times"
        )
    if pa.types.is_float16(type_):
        return column.cast(pa.float32())
    return _as_int(column if type_ == column.type else column.cast(type_))


def _as_int(column: Column) -> Column:
    return column.cast(pa.int64()) if pa.types.is_duration(column.type) else column


def _sums_safely(column: Column) -> bool:
    """Return True if no sum of the column's values can exceed int64."""
    if not pa.types.is_integer(column.type):
        return True
    extremes = pc.min_max(column).as_py()
    largest = max(abs(extremes["min"] or 0), abs(extremes["max"] or 0))
    return bool(largest * len(column) < 2**63)


def _per_group(values: np.ndarray, groups: Groups) -> np.ndarray:
    """Sum `(rows,)` per group, `(groups,)`."""
    return np.bincount(groups.ids, weights=values, minlength=len(groups))


def _percent(part: Column, whole: Column) -> Column:
    whole = pc.if_else(pc.greater(whole, 0), whole, pa.scalar(None, whole.type))
    return pc.divide(pc.multiply(part.cast(pa.float64()), 100.0), whole.cast(pa.float64()))
