"""Aggregators whose states stay small for any number of values: approximate quantiles and the most
frequent values.

Both are deterministic, and exact while a group has no more values than the capacity of its state.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncline.data.columnar.aggregate import numeric
from syncline.data.columnar.aggregate.base import Column, ColumnarAggregate, Columns, States
from syncline.data.columnar.aggregate.values import GroupedValues, values_of_block, values_of_lists
from syncline.data.columnar.kernels.group import Groups


class ApproximateQuantile(ColumnarAggregate):
    """Quantiles as a list of floats, from at most `quantile_precision` weighted values per group.

    Null, NaN and infinities are skipped. A state that grows too large is replaced by values at even
    ranks, including minimum and maximum, so that each merge of states moves a rank by at most 1 /
    (2 * quantile_precision) of the rows.
    """

    needs_rows = True

    def __init__(
        self,
        on: str,
        quantiles: Sequence[float],
        quantile_precision: int = 800,
        alias_name: str | None = None,
    ) -> None:
        super().__init__("approx_quantile", alias_name, on=on, ignore_nulls=True)
        outside = [q for q in quantiles if not 0 <= q <= 1]
        if outside:
            raise ValueError(f"quantiles={outside} are outside the range from 0 to 1")
        if quantile_precision < 8:
            raise ValueError(
                f"quantile_precision={quantile_precision} is too small: pass at least 8"
            )
        self._quantiles = list(quantiles)
        self._places = quantile_precision

    def summarize(self, measured: Columns, column: Column | None, groups: Groups) -> States:
        numbers = numeric.floats(self, column)
        found = values_of_block(numbers, groups).where(
            pc.fill_null(pc.is_finite(numbers), False).to_numpy()
        )
        return self._compacted(found.valid(), np.ones(len(found.ids)))

    def unite(self, measured: Columns, states: Columns, groups: Groups) -> States:
        return self._compacted(
            values_of_lists(states[0], groups), values_of_lists(states[1], groups).values.to_numpy()
        )

    def results(self, states: Columns) -> pa.Array:
        found, weights = values_of_lists(states[0]), values_of_lists(states[1]).values.to_numpy()
        numbers = found.values.to_numpy()
        bounds = np.searchsorted(found.ids, np.arange(found.groups + 1))
        rows: list[list[float] | None] = []
        for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            if start == end:
                rows.append(None)
                continue
            ranks = _ranks(weights[start:end])
            rows.append(
                np.interp(np.array(self._quantiles) * ranks[-1], ranks, numbers[start:end]).tolist()
            )
        return pa.array(rows, pa.list_(pa.float64()))

    def _compacted(self, found: GroupedValues, weights: np.ndarray) -> States:
        """Return the states: the sorted values of each group, and the weight of each value."""
        numbers = found.values.to_numpy()
        order = np.lexsort((numbers, found.ids))
        numbers, weights, ids = numbers[order], weights[order], found.ids[order]
        counts = np.bincount(ids, minlength=found.groups)
        if (counts > self._places).any():
            bounds = np.cumsum(counts)[:-1]
            pairs = [
                _coarser(v, w, self._places)
                for v, w in zip(np.split(numbers, bounds), np.split(weights, bounds), strict=True)
            ]
            numbers, weights = (
                np.concatenate([v for v, _ in pairs]),
                np.concatenate([w for _, w in pairs]),
            )
            ids = np.repeat(np.arange(found.groups), [len(v) for v, _ in pairs])
        whole = GroupedValues(pa.chunked_array([pa.array(numbers)]), ids, found.groups)
        return [whole.lists(), whole.lists_of(pa.chunked_array([pa.array(weights)]))]


class ApproximateTopK(ColumnarAggregate):
    """The `k` most frequent values as a list of structs of the value, under the column's name, and
    its `count`; most frequent first.

    A group's state has at most `2**log_capacity` values (Misra and Gries 1982; merged after Agarwal
    et al. 2013): counts are exact up to that many distinct values, and otherwise too high by at
    most rows / 2**log_capacity. With `encode_lists` the elements of lists are counted.
    """

    needs_rows = True

    def __init__(
        self,
        on: str,
        k: int,
        log_capacity: int = 15,
        alias_name: str | None = None,
        encode_lists: bool = False,
    ) -> None:
        super().__init__("approx_topk", alias_name, on=on, ignore_nulls=True)
        if k < 1 or 2**log_capacity < k:
            raise ValueError(
                f"k={k} is outside the range from 1 to 2**log_capacity={2**log_capacity}: "
                "lower k or raise log_capacity"
            )
        self._k = k
        self._capacity = 2**log_capacity
        self._flatten = encode_lists

    def summarize(self, measured: Columns, column: Column | None, groups: Groups) -> States:
        found = values_of_block(numeric.target(self, column), groups)
        found = (found.flattened() if self._flatten else found).valid()
        return self._trimmed(*found.distinct(), np.zeros(len(groups), np.int64))

    def unite(self, measured: Columns, states: Columns, groups: Groups) -> States:
        found, counts = (
            values_of_lists(states[0], groups),
            values_of_lists(states[1], groups).values.to_numpy(),
        )
        excess = np.bincount(
            groups.ids, weights=states[2].to_numpy(), minlength=len(groups)
        ).astype(np.int64)
        return self._trimmed(*found.distinct(counts), excess)

    def results(self, states: Columns) -> pa.Array:
        found, counts = values_of_lists(states[0]), values_of_lists(states[1]).values.to_numpy()
        counts = counts + states[2].to_numpy()[found.ids]
        best = _ranked(found.ids, counts) < self._k
        order = np.flatnonzero(best)
        order = order[np.lexsort((-counts[order], found.ids[order]))]
        top = found.take(order)
        names = [self._target_col_name or "value", "count"]
        structs = pa.StructArray.from_arrays(
            [top.values.combine_chunks(), pa.array(counts[order])], names
        )
        return top.lists_of(pa.chunked_array([structs]))

    def _trimmed(self, found: GroupedValues, counts: np.ndarray, excess: np.ndarray) -> States:
        """Return the states: the values of each group, their counts, and the amount subtracted from
        each count.
        """
        full = np.bincount(found.ids, minlength=found.groups) > self._capacity
        if full.any():
            first_out = (_ranked(found.ids, counts) == self._capacity).nonzero()[0]
            off = np.zeros(found.groups, np.int64)
            off[found.ids[first_out]] = counts[first_out]
            counts, excess = counts - off[found.ids], excess + off
            kept = counts > 0
            found, counts = found.where(kept), counts[kept]
        return [
            found.lists(),
            found.lists_of(pa.chunked_array([pa.array(counts)])),
            pa.array(excess),
        ]


def _ranks(weights: np.ndarray) -> np.ndarray:
    """Return the middle rank of each weighted value."""
    return np.cumsum(weights) - (weights + 1) / 2


def _coarser(
    numbers: np.ndarray, weights: np.ndarray, places: int
) -> tuple[np.ndarray, np.ndarray]:
    """Replace sorted weighted values by `places` values at even ranks; the ends stay."""
    if len(numbers) <= places:
        return numbers, weights
    inner = (weights.sum() - 2) / (places - 2)
    even = np.concatenate([[1.0], np.full(places - 2, inner), [1.0]])
    coarser = np.interp(_ranks(even), _ranks(weights), numbers)
    coarser[[0, -1]] = numbers[[0, -1]]  # rounding of the ranks may have changed them
    return coarser, even


def _ranked(ids: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the rank of each entry in its group by descending count; earlier entries first among
    equal counts.
    """
    order = np.lexsort((-counts, ids))
    sizes = np.bincount(ids)
    places = np.empty(len(ids), np.int64)
    places[order] = np.arange(len(ids)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return places
