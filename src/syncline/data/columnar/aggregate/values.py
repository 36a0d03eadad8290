"""Aggregators that keep the values of a group: lists, quantiles, distinct values, counts of values;
and `GroupedValues`, the flat form in which they process the values of all groups.

Lists, structs and tensors are compared as a whole, in Python. Null is a value unless it is ignored;
NaNs are equal.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Hashable
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncline.data.columnar import block as blocks
from syncline.data.columnar import columns
from syncline.data.columnar.aggregate import numeric
from syncline.data.columnar.aggregate.base import Column, ColumnarAggregate, Columns, Result, States
from syncline.data.columnar.kernels import group
from syncline.data.columnar.kernels import keys as key_columns
from syncline.data.columnar.kernels.group import Groups
from syncline.records import dataclass


class AsList(ColumnarAggregate):
    """Values of a group as a list, in the order of the rows."""

    needs_rows = True
    of_nothing: ClassVar[object] = ()

    def __init__(self, on: str, alias_name: str | None = None, ignore_nulls: bool = False) -> None:
        super().__init__("list", alias_name, on=on, ignore_nulls=ignore_nulls)

    def summarize(self, measured: Columns, column: Column | None, groups: Groups) -> States:
        found = values_of_block(numeric.target(self, column), groups)
        return [(found.valid() if self._ignore_nulls else found).lists()]

    def unite(self, measured: Columns, states: Columns, groups: Groups) -> States:
        return [values_of_lists(states[0], groups).lists()]


class Quantile(ColumnarAggregate):
    """Exact quantile `q`, from 0 to 1, interpolated between the two nearest values, as float64. NaN
    is skipped.

    Every value is kept until the end; `ApproximateQuantile` keeps few.
    """

    needs_rows = True

    def __init__(
        self,
        on: str | None = None,
        q: float = 0.5,
        ignore_nulls: bool = True,
        alias_name: str | None = None,
    ) -> None:
        super().__init__("quantile", alias_name, on=on, ignore_nulls=ignore_nulls)
        if not 0 <= q <= 1:
            raise ValueError(f"q={q} is not a quantile: pass a number from 0 to 1")
        self._q = q

    def summarize(self, measured: Columns, column: Column | None, groups: Groups) -> States:
        values = numeric.floats(self, column)
        found = values_of_block(values, groups).where(
            pc.fill_null(pc.invert(pc.is_nan(values)), True).to_numpy()
        )
        return [(found.valid() if self._ignore_nulls else found).lists()]

    def unite(self, measured: Columns, states: Columns, groups: Groups) -> States:
        return [values_of_lists(states[0], groups).lists()]

    def results(self, states: Columns) -> pa.Array:
        found = values_of_lists(states[0])
        missing = (
            np.bincount(
                found.ids, weights=found.values.is_null().to_numpy(), minlength=found.groups
            )
            > 0
        )
        values = found.values.fill_null(0.0).to_numpy()
        values = values[np.lexsort((values, found.ids))]
        counts = np.bincount(found.ids, minlength=found.groups)
        missing |= counts == 0
        if not len(values):
            return pa.nulls(found.groups, pa.float64())
        # Position of the quantile among the group's sorted values, between `low` and the next.
        at = np.maximum(counts - 1, 0) * self._q
        low = np.floor(at).astype(np.int64)
        first = np.minimum(np.cumsum(counts) - counts, len(values) - 1)
        below, above = (
            values[np.minimum(first + low, len(values) - 1)],
            values[np.minimum(first + np.ceil(at).astype(np.int64), len(values) - 1)],
        )
        between = at - low
        # Equal neighbours are used as they are: the difference of two infinities would be NaN.
        result = np.where(below == above, below, below * (1 - between) + above * between)
        return pa.array(result, mask=missing)


class Unique(ColumnarAggregate):
    """Distinct values as a list, in order of first appearance.

    `encode_lists` selects the treatment of lists: `True` or FLATTEN uses their elements, HASH a
    64-bit hash of each list; otherwise lists are values.
    """

    needs_rows = True
    of_nothing: ClassVar[object] = ()

    class ListEncodingMode(str, enum.Enum):
        """Treatment of lists."""

        FLATTEN = "FLATTEN"
        HASH = "HASH"

    def __init__(
        self,
        on: str | None = None,
        ignore_nulls: bool = False,
        alias_name: str | None = None,
        encode_lists: bool | ListEncodingMode | None = None,
    ) -> None:
        super().__init__("unique", alias_name, on=on, ignore_nulls=ignore_nulls)
        self._encoding = (
            Unique.ListEncodingMode.FLATTEN if encode_lists is True else encode_lists or None
        )

    def summarize(self, measured: Columns, column: Column | None, groups: Groups) -> States:
        found = values_of_block(numeric.target(self, column), groups)
        if self._encoding is Unique.ListEncodingMode.FLATTEN:
            found = found.flattened()
        elif self._encoding is Unique.ListEncodingMode.HASH:
            found = GroupedValues(digests(found.values), found.ids, found.groups)
        return [(found.valid() if self._ignore_nulls else found).distinct()[0].lists()]

    def unite(self, measured: Columns, states: Columns, groups: Groups) -> States:
        return [values_of_lists(states[0], groups).distinct()[0].lists()]


class CountDistinct(Unique):
    """Number of distinct values; with `ignore_nulls=False` null is one of them."""

    of_nothing: ClassVar[object] = 0

    def __init__(self, on: str, ignore_nulls: bool = True, alias_name: str | None = None) -> None:
        super().__init__(on, ignore_nulls, alias_name or f"count_distinct({on})")

    def results(self, states: Columns) -> Result:
        return pc.list_value_length(states[0]).cast(pa.int64())


class ValueCounter(ColumnarAggregate):
    """Count of each value: a struct of the lists `values`, in order of first appearance, and
    `counts`. Null is counted too.
    """

    needs_rows = True

    def __init__(self, on: str, alias_name: str | None = None) -> None:
        super().__init__("value_counter", alias_name, on=on, ignore_nulls=False)

    def summarize(self, measured: Columns, column: Column | None, groups: Groups) -> States:
        return value_counts(values_of_block(numeric.target(self, column), groups))

    def unite(self, measured: Columns, states: Columns, groups: Groups) -> States:
        return value_counts(
            values_of_lists(states[0], groups), values_of_lists(states[1], groups).values.to_numpy()
        )

    def results(self, states: Columns) -> pa.Array:
        return pa.StructArray.from_arrays(
            [state.combine_chunks() for state in states], ["values", "counts"]
        )


def value_counts(found: GroupedValues, weights: np.ndarray | None = None) -> States:
    """Return two lists per group: its distinct values and their counts."""
    distinct, counts = found.distinct(weights)
    return [distinct.lists(), distinct.lists_of(pa.chunked_array([pa.array(counts)]))]


# -- values and their groups


@dataclass(frozen=True)
class GroupedValues:
    """Values of all groups and the group of each value."""

    values: Column
    """`(values,)` of any type."""
    ids: np.ndarray
    """Group of each value: int64 `(values,)`."""
    groups: int
    """Number of groups, including groups without values."""

    def where(self, mask: object) -> GroupedValues:
        """Return the values for which the mask, booleans `(values,)`, is true."""
        rows = np.flatnonzero(np.asarray(mask))
        return self if len(rows) == len(self.ids) else self.take(rows)

    def take(self, rows: np.ndarray) -> GroupedValues:
        """Return the values at `rows`, in that order."""
        return GroupedValues(taken(self.values, rows), self.ids[rows], self.groups)

    def valid(self) -> GroupedValues:
        """Drop nulls."""
        return self.where(self.values.is_valid().to_numpy()) if self.values.null_count else self

    def arranged(self) -> np.ndarray:
        """Return the order that sorts the values by group and keeps their order within a group."""
        return np.argsort(self.ids, kind="stable")

    def lists(self) -> pa.ListArray:
        """Return one list per group, `(groups,)`."""
        return self.lists_of(self.values)

    def lists_of(self, values: Column) -> pa.ListArray:
        """Return one list per group of other values that belong to the same groups."""
        offsets = np.concatenate(
            [[0], np.cumsum(np.bincount(self.ids, minlength=self.groups))]
        ).astype(np.int32)
        return pa.ListArray.from_arrays(
            pa.array(offsets), taken(values, self.arranged()).combine_chunks()
        )

    def distinct(self, weights: np.ndarray | None = None) -> tuple[GroupedValues, np.ndarray]:
        """Return the distinct values of each group, in order of first appearance, and their counts
        as int64; `weights` counts a value several times.
        """
        rows = pa.chunked_array([pa.array(np.arange(len(self.ids)))])
        counts = pa.chunked_array(
            [pa.array(np.ones(len(self.ids), np.int64) if weights is None else weights)]
        )
        pairs = pa.table({"id": pa.array(self.ids), "value": comparable(self.values)})
        _, (first, total) = group.measure(
            pairs, ["id", "value"], [(rows, "min", None), (counts, "sum", None)], with_rows=False
        )
        order = np.argsort(first.to_numpy())
        return self.take(first.to_numpy()[order]), total.to_numpy()[order]

    def flattened(self) -> GroupedValues:
        """Replace lists by their elements; other values stay."""
        if not columns.is_list(self.values.type):
            return self
        whole = self.values.combine_chunks()  # parent indices count from the first row of a chunk
        return GroupedValues(
            pa.chunked_array([pc.list_flatten(whole)]),
            self.ids[pc.list_parent_indices(whole).to_numpy()],
            self.groups,
        )


def values_of_block(column: Column, groups: Groups) -> GroupedValues:
    """Return a block's values by the block's groups."""
    return GroupedValues(column, groups.ids, len(groups))


def values_of_lists(lists: Column, groups: Groups | None = None) -> GroupedValues:
    """Return the elements of lists by the group of each list. Without groups every list is one."""
    ids = np.arange(len(lists)) if groups is None else groups.ids
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    return GroupedValues(
        pc.list_flatten(lists),
        np.repeat(ids, lengths),
        len(lists) if groups is None else len(groups),
    )


def taken(values: Column, rows: np.ndarray) -> Column:
    """Return the values at `rows`, of any type."""
    return blocks.take(pa.table({"": values}), rows).column(0)


def comparable(values: Column) -> Column:
    """Return values that Arrow can compare: lists, structs, tensors and objects become numbers that
    are equal for equal values.
    """
    if key_columns.plain_type(values.type) is not None:
        return values
    numbers: dict[Hashable, int] = {}
    rows = columns.values_of(values)
    try:
        return pa.chunked_array(
            [pa.array([numbers.setdefault(_frozen(row), len(numbers)) for row in rows], pa.int64())]
        )
    except TypeError as error:
        raise TypeError(
            f"values of type {values.type} cannot be compared to find distinct ones: {error}"
        ) from error


def digests(values: Column) -> Column:
    """Return a 64-bit hash of every value, null for null; the same in every process for values with
    the same text.
    """
    found = [None if row is None else _digest(row) for row in columns.values_of(values)]
    return pa.chunked_array([pa.array(found, pa.int64())])


def _digest(row: object) -> int:
    return int.from_bytes(
        hashlib.blake2b(repr(_frozen(row)).encode(), digest_size=8).digest(), "little", signed=True
    )


def _frozen(value: object) -> Hashable:
    if isinstance(value, np.ndarray):
        return (value.shape, value.dtype.str, value.tobytes())
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    if isinstance(value, dict):
        return tuple((key, _frozen(item)) for key, item in value.items())
    frozen: Hashable = value
    return frozen
