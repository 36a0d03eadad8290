"""Categories of a column and their numbers: learning them from counts, looking them up in columns.

A mapping holds categories in ascending order, each with its place; lists are categories as tuples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncline.data.columnar import columns as column_values
from syncline.data.preprocessors.base import alike, as_lists, decoded
from syncline.data.preprocessors.counting import hashable


def mapping_of(counts: Counter[Hashable], limit: int | None = None) -> dict[Any, int]:
    """The categories, of more than `limit` only the most frequent ones. ValueError if null is among
    them.
    """
    chosen = (
        [value for value, _ in counts.most_common(limit)] if limit is not None else list(counts)
    )
    if None in chosen:
        raise ValueError(
            "the column contains null values, which are no category: fill them before, for example with SimpleImputer"
        )
    return without_null(chosen)


def without_null(values: Iterable[Any]) -> dict[Any, int]:
    """The categories, null left out."""
    return {
        value: place
        for place, value in enumerate(sorted(value for value in values if value is not None))
    }


def check_no_nulls(names: Sequence[str], found: Sequence[pa.ChunkedArray]) -> None:
    """ValueError that names the columns with null or NaN."""
    missing = [name for name, column in zip(names, found, strict=True) if _has_missing(column)]
    if missing:
        raise ValueError(
            f"columns {', '.join(map(repr, missing))} contain null values, which have no category: fill them before, for example with "
            "SimpleImputer"
        )


def codes_of(name: str, column: pa.ChunkedArray, mapping: Mapping[Any, int]) -> pa.ChunkedArray:
    """int64 `(rows,)`: the place of each value, null for values that are no category. TypeError for
    values of another type.
    """
    column = decoded(column)
    if as_lists(column) is not None:
        rows = (hashable(row) for chunk in column.chunks for row in column_values.to_pylist(chunk))
        return pa.chunked_array([pa.array([mapping.get(row) for row in rows], pa.int64())])
    known = pa.array(list(mapping))
    both = alike(column, known)
    if both is None:
        raise TypeError(
            f"column {name!r} is of type {column.type}, but was {known.type} when the preprocessor was fitted: cast it before"
        )
    return pc.index_in(*both).cast(pa.int64())


def element_codes_of(
    name: str, column: pa.ChunkedArray, mapping: Mapping[Any, int]
) -> tuple[np.ndarray, np.ndarray]:
    """The place of each element of lists and tensors, -1 for those that are no category, and the
    row of each, both int64 `(elements,)`.

    A value that is no list is its row's only element.
    """
    lists = as_lists(column)
    if lists is None:
        return places(codes_of(name, column, mapping)), np.arange(len(column))
    elements = pa.chunked_array([pc.list_flatten(lists)])
    return places(codes_of(name, elements, mapping)), pc.list_parent_indices(
        lists
    ).to_numpy().astype(np.int64)


def lists_of_codes(name: str, lists: pa.Array, mapping: Mapping[Any, int]) -> pa.Array:
    """The lists with the place of each element in its stead, null for those that are no
    category.
    """
    codes = codes_of(name, pa.chunked_array([pc.list_flatten(lists)]), mapping).combine_chunks()
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, codes)


def places(codes: pa.ChunkedArray) -> np.ndarray:
    """int64 `(rows,)`: the codes, -1 for null."""
    values: np.ndarray = codes.fill_null(-1).to_numpy()
    return values


def _has_missing(column: pa.ChunkedArray) -> bool:
    return bool(column.null_count) or (
        pa.types.is_floating(column.type) and bool(pc.any(pc.is_nan(column)).as_py())
    )
