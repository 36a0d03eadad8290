"""Categories of a column: counting them, numbering them, and converting columns to codes.

A mapping holds the categories in ascending order, each with its index (its code). Lists are
categories as tuples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncline.data.columnar import columns as column_values
from syncline.data.columnar.aggregate import ValueCounter, numeric
from syncline.data.columnar.aggregate.values import GroupedValues, value_counts, values_of_block
from syncline.data.columnar.kernels.group import Groups
from syncline.data.preprocessors.base import as_lists, decoded, to_common_type

Codes = dict[Any, int]
"""Categories in ascending order, each with its index."""
Counts = dict[str, list[Any]]
"""Result of `CategoryCounter`: `values` and `counts`."""


def mapping_of(counts: Counter[Hashable], limit: int | None = None) -> Codes:
    """Number the categories; with `limit`, only the most frequent ones. Raises ValueError for
    null.
    """
    chosen = (
        [value for value, _ in counts.most_common(limit)] if limit is not None else list(counts)
    )
    if None in chosen:
        raise ValueError(
            "the column contains null values, which are no category: fill them first, for example "
            "with SimpleImputer"
        )
    return without_null(chosen)


def without_null(values: Iterable[Any]) -> Codes:
    """Number the categories except null."""
    ordered = sorted(value for value in values if value is not None)
    return {value: index for index, value in enumerate(ordered)}


def check_no_nulls(names: Sequence[str], found: Sequence[pa.ChunkedArray]) -> None:
    """Raise ValueError if columns contain null or NaN."""
    missing = [name for name, column in zip(names, found, strict=True) if _has_missing(column)]
    if missing:
        raise ValueError(
            f"columns {', '.join(map(repr, missing))} contain null values, which are no category: "
            "fill them first, for example with SimpleImputer"
        )


def codes_of(name: str, column: pa.ChunkedArray, mapping: Codes) -> pa.ChunkedArray:
    """Return the codes of a column, int64 `(rows,)`; null for unknown values. Raises TypeError for
    values of another type.
    """
    column = decoded(column)
    if as_lists(column) is not None:
        codes = [mapping.get(hashable(row)) for row in column_values.values_of(column)]
        return pa.chunked_array([pa.array(codes, pa.int64())])
    known = pa.array(list(mapping))
    both = to_common_type(column, known)
    if both is None:
        raise TypeError(
            f"column {name!r} is of type {column.type}, but was {known.type} when the preprocessor "
            "was fitted: cast it first"
        )
    return pc.index_in(*both).cast(pa.int64())


def element_codes_of(
    name: str, column: pa.ChunkedArray, mapping: Codes
) -> tuple[np.ndarray, np.ndarray]:
    """Return the codes of the elements of lists and tensors, -1 for unknown elements, and the row
    of each element; both int64 `(elements,)`.

    A value that is not a list is the only element of its row.
    """
    lists = as_lists(column)
    if lists is None:
        return filled_codes(codes_of(name, column, mapping)), np.arange(len(column))
    elements = pa.chunked_array([pc.list_flatten(lists)])
    parents = pc.list_parent_indices(lists).to_numpy().astype(np.int64)
    return filled_codes(codes_of(name, elements, mapping)), parents


def lists_of_codes(name: str, lists: pa.Array, mapping: Codes) -> pa.Array:
    """Replace each element of the lists by its code; null for unknown elements."""
    codes = codes_of(name, pa.chunked_array([pc.list_flatten(lists)]), mapping).combine_chunks()
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, codes)


def filled_codes(codes: pa.ChunkedArray) -> np.ndarray:
    """Return the codes as int64 `(rows,)`, with -1 for null."""
    values: np.ndarray = codes.fill_null(-1).to_numpy()
    return values


def _has_missing(column: pa.ChunkedArray) -> bool:
    return bool(column.null_count) or (
        pa.types.is_floating(column.type) and bool(pc.any(pc.is_nan(column)).as_py())
    )


class CategoryCounter(ValueCounter):
    """Counts the values of a column, or with `elements` the elements of its lists and tensors. NaN
    counts as null.
    """

    def __init__(self, on: str, alias_name: str, *, elements: bool = False) -> None:
        super().__init__(on, alias_name)
        self._elements = elements

    def prepare(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return the column whose values or elements are counted."""
        return decoded(column)

    def summarize(
        self, measured: list[pa.ChunkedArray], column: pa.ChunkedArray | None, groups: Groups
    ) -> list[Counts]:
        values = self.prepare(numeric.target(self, column))
        found = values_of_block(values, groups)
        lists = as_lists(values) if self._elements else None
        if lists is not None:
            elements = pa.chunked_array([pc.list_flatten(lists)])
            found = GroupedValues(
                elements, found.ids[pc.list_parent_indices(lists).to_numpy()], found.groups
            )
        return value_counts(
            GroupedValues(numeric.nan_as_null(found.values), found.ids, found.groups)
        )


def counter_of(found: Counts | None) -> Counter[Hashable]:
    """Return the result of `CategoryCounter` as a Counter, in order of first appearance."""
    if found is None:
        return Counter()
    return Counter(dict(zip(map(hashable, found["values"]), found["counts"], strict=True)))


def hashable(value: object) -> Hashable:
    """Convert a category to a dictionary key: lists and tensors become tuples."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return tuple(map(hashable, value)) if isinstance(value, list | tuple) else value
