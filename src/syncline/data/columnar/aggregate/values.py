"""Aggregators that keep the values of a group: quantiles, distinct values, counts of values, lists.

Lists, structs and tensors are compared as wholes, in Python. Null is a value like others unless it
is ignored; NaNs are equal.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncline.data.columnar.aggregate import numeric, spread
from syncline.data.columnar.aggregate.columnar import ColumnarAggregate
from syncline.data.columnar.aggregate.spread import Spread
from syncline.data.columnar.kernels.group import Groups


class AsList(ColumnarAggregate):
    """The values of a group as a list, in the order of the rows."""

    needs_rows = True
    of_nothing: ClassVar[Any] = ()

    def __init__(self, on: str, alias_name: str | None = None, ignore_nulls: bool = False) -> None:
        super().__init__("list", alias_name, on=on, ignore_nulls=ignore_nulls)

    def summarize(
        self, measured: list[pa.ChunkedArray], column: pa.ChunkedArray | None, groups: Groups
    ) -> list[Any]:
        found = spread.of_block(numeric.target(self, column), groups)
        return [(found.valid() if self._ignore_nulls else found).lists()]

    def unite(
        self, measured: list[pa.ChunkedArray], states: list[pa.ChunkedArray], groups: Groups
    ) -> list[Any]:
        return [spread.of_states(states[0], groups).lists()]


class Quantile(ColumnarAggregate):
    """The exact quantile `q`, from 0 to 1, between the two nearest values where it falls between;
    float64. NaN is passed by.

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
            raise ValueError(f"a quantile lies between 0 and 1, but q={q}")
        self._q = q

    def summarize(
        self, measured: list[pa.ChunkedArray], column: pa.ChunkedArray | None, groups: Groups
    ) -> list[Any]:
        values = numeric.floats(self, column)
        found = spread.of_block(values, groups).where(
            pc.fill_null(pc.invert(pc.is_nan(values)), True).to_numpy()
        )
        return [(found.valid() if self._ignore_nulls else found).lists()]

    def unite(
        self, measured: list[pa.ChunkedArray], states: list[pa.ChunkedArray], groups: Groups
    ) -> list[Any]:
        return [spread.of_states(states[0], groups).lists()]

    def results(self, states: list[pa.ChunkedArray]) -> pa.Array:
        found = spread.of_states(states[0])
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
        # Where the quantile lies within the group's sorted values: between `low` and the next one.
        at = np.maximum(counts - 1, 0) * self._q
        low = np.floor(at).astype(np.int64)
        first = np.minimum(np.cumsum(counts) - counts, len(values) - 1)
        below, above = (
            values[np.minimum(first + low, len(values) - 1)],
            values[np.minimum(first + np.ceil(at).astype(np.int64), len(values) - 1)],
        )
        between = at - low
        # Equal neighbours are taken as they are: the difference of two infinities would be NaN.
        result = np.where(below == above, below, below * (1 - between) + above * between)
        return pa.array(result, mask=missing)


class Unique(ColumnarAggregate):
    """The distinct values as a list, in order of first appearance.

    `encode_lists` says what happens to lists: `True` or FLATTEN takes their elements, HASH a 64-bit
    hash of each list; else lists are values like others.
    """

    needs_rows = True
    of_nothing: ClassVar[Any] = ()

    class ListEncodingMode(str, enum.Enum):
        """What is taken of a list."""

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

    def summarize(
        self, measured: list[pa.ChunkedArray], column: pa.ChunkedArray | None, groups: Groups
    ) -> list[Any]:
        found = spread.of_block(numeric.target(self, column), groups)
        if self._encoding is Unique.ListEncodingMode.FLATTEN:
            found = found.flattened()
        elif self._encoding is Unique.ListEncodingMode.HASH:
            found = Spread(spread.digests(found.values), found.ids, found.groups)
        return [(found.valid() if self._ignore_nulls else found).distinct()[0].lists()]

    def unite(
        self, measured: list[pa.ChunkedArray], states: list[pa.ChunkedArray], groups: Groups
    ) -> list[Any]:
        return [spread.of_states(states[0], groups).distinct()[0].lists()]


class CountDistinct(Unique):
    """Number of distinct values; with `ignore_nulls=False` null is one of them."""

    of_nothing: ClassVar[Any] = 0

    def __init__(self, on: str, ignore_nulls: bool = True, alias_name: str | None = None) -> None:
        super().__init__(on, ignore_nulls, alias_name or f"count_distinct({on})")

    def results(self, states: list[pa.ChunkedArray]) -> pa.Array | pa.ChunkedArray:
        return pc.list_value_length(states[0]).cast(pa.int64())


class ValueCounter(ColumnarAggregate):
    """How often each value comes: a struct of the lists `values`, in order of first appearance, and
    `counts`. Null is counted too.
    """

    needs_rows = True

    def __init__(self, on: str, alias_name: str | None = None) -> None:
        super().__init__("value_counter", alias_name, on=on, ignore_nulls=False)

    def summarize(
        self, measured: list[pa.ChunkedArray], column: pa.ChunkedArray | None, groups: Groups
    ) -> list[Any]:
        return counted(spread.of_block(numeric.target(self, column), groups))

    def unite(
        self, measured: list[pa.ChunkedArray], states: list[pa.ChunkedArray], groups: Groups
    ) -> list[Any]:
        return counted(
            spread.of_states(states[0], groups),
            spread.of_states(states[1], groups).values.to_numpy(),
        )

    def results(self, states: list[pa.ChunkedArray]) -> pa.Array:
        return pa.StructArray.from_arrays(
            [state.combine_chunks() for state in states], ["values", "counts"]
        )


def counted(found: Spread, weights: np.ndarray | None = None) -> list[Any]:
    """Two lists per group: its distinct values, and how often each comes."""
    distinct, counts = found.distinct(weights)
    return [distinct.lists(), distinct.lists_of(pa.chunked_array([pa.array(counts)]))]
