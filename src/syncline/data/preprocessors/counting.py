"""Counting the categories of a column: the aggregator that encoders, vectorizers and the imputer
share, and what is made of its result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncline.data.columnar.aggregate import ValueCounter, numeric, spread
from syncline.data.columnar.aggregate.spread import Spread
from syncline.data.columnar.aggregate.values import counted
from syncline.data.columnar.kernels.group import Groups
from syncline.data.preprocessors.base import as_lists, decoded


class CategoryCounter(ValueCounter):
    """Counts the values of a column, or with `elements` the elements of its lists and tensors; NaN
    counts as null.
    """

    def __init__(self, on: str, alias_name: str, *, elements: bool = False) -> None:
        super().__init__(on, alias_name)
        self._elements = elements

    def prepare(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """The column whose values, or elements, are counted."""
        return decoded(column)

    def summarize(
        self, measured: list[pa.ChunkedArray], column: pa.ChunkedArray | None, groups: Groups
    ) -> list[Any]:
        values = self.prepare(numeric.target(self, column))
        found = spread.of_block(values, groups)
        lists = as_lists(values) if self._elements else None
        if lists is not None:
            elements = pa.chunked_array([pc.list_flatten(lists)])
            found = Spread(
                elements, found.ids[pc.list_parent_indices(lists).to_numpy()], found.groups
            )
        return counted(Spread(numeric.nan_as_null(found.values), found.ids, found.groups))


def counter_of(found: dict[str, list[Any]] | None) -> Counter[Hashable]:
    """The aggregator's result; lists as tuples, in order of first appearance."""
    if found is None:
        return Counter()
    return Counter(dict(zip(map(hashable, found["values"]), found["counts"], strict=True)))


def hashable(value: Any) -> Hashable:
    """A category as a key: lists and tensors as tuples."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return tuple(map(hashable, value)) if isinstance(value, list | tuple) else value
