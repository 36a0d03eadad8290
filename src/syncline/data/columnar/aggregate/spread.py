"""Values with the number of their group: how aggregators that keep many values per group take them
apart and put them into lists.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncline.data.columnar import block as blocks
from syncline.data.columnar import columns
from syncline.data.columnar.kernels import group
from syncline.data.columnar.kernels import keys as key_columns
from syncline.data.columnar.kernels.group import Groups


@dataclass(frozen=True)
class Spread:
    """Values and their groups, side by side."""

    values: pa.ChunkedArray
    """`(values,)` of any type."""
    ids: np.ndarray
    """int64 `(values,)`: the group of each."""
    groups: int
    """Number of groups, of which some may have no values."""

    def where(self, mask: Any) -> Spread:
        """Those values for which the mask, `(values,)` of booleans, holds."""
        rows = np.flatnonzero(np.asarray(mask))
        return self if len(rows) == len(self.ids) else self.take(rows)

    def take(self, rows: np.ndarray) -> Spread:
        """The values at `rows`, in that order."""
        return Spread(taken(self.values, rows), self.ids[rows], self.groups)

    def valid(self) -> Spread:
        """Without nulls."""
        return self.where(self.values.is_valid().to_numpy()) if self.values.null_count else self

    def arranged(self) -> np.ndarray:
        """The order that brings values of a group together, in their own order within it."""
        return np.argsort(self.ids, kind="stable")

    def lists(self) -> pa.ListArray:
        """One list per group, `(groups,)`."""
        return self.lists_of(self.values)

    def lists_of(self, values: pa.ChunkedArray) -> pa.ListArray:
        """One list per group of other values that lie as these do."""
        offsets = np.concatenate(
            [[0], np.cumsum(np.bincount(self.ids, minlength=self.groups))]
        ).astype(np.int32)
        return pa.ListArray.from_arrays(
            pa.array(offsets), taken(values, self.arranged()).combine_chunks()
        )

    def distinct(self, weights: np.ndarray | None = None) -> tuple[Spread, np.ndarray]:
        """Each value of a group once, in order of first appearance, and int64 how often it came
        (`weights`: how often each counts).
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

    def flattened(self) -> Spread:
        """The elements of lists in place of the lists; values that are no lists stay."""
        type_ = self.values.type
        if not (
            pa.types.is_list(type_)
            or pa.types.is_large_list(type_)
            or pa.types.is_fixed_size_list(type_)
        ):
            return self
        whole = (
            self.values.combine_chunks()
        )  # whose parents' numbers count from the first chunk's first row
        return Spread(
            pa.chunked_array([pc.list_flatten(whole)]),
            self.ids[pc.list_parent_indices(whole).to_numpy()],
            self.groups,
        )


def of_block(column: pa.ChunkedArray, groups: Groups) -> Spread:
    """A block's values by the block's groups."""
    return Spread(column, groups.ids, len(groups))


def of_states(lists: pa.ChunkedArray, groups: Groups | None = None) -> Spread:
    """The elements of lists, by the group of each list; without groups every list is a group of its
    own.
    """
    ids = np.arange(len(lists)) if groups is None else groups.ids
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    return Spread(
        pc.list_flatten(lists),
        np.repeat(ids, lengths),
        len(lists) if groups is None else len(groups),
    )


def taken(values: pa.ChunkedArray, rows: np.ndarray) -> pa.ChunkedArray:
    """The values at `rows`, of any type."""
    return blocks.take(pa.table({"": values}), rows).column(0)


def comparable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values, or for lists, structs, tensors and objects numbers that are equal where they
    are.
    """
    if key_columns.plain_type(values.type) is not None:
        return values
    numbers: dict[Hashable, int] = {}
    rows = [row for chunk in values.chunks for row in columns.to_pylist(chunk)]
    try:
        return pa.chunked_array(
            [pa.array([numbers.setdefault(_frozen(row), len(numbers)) for row in rows], pa.int64())]
        )
    except TypeError as error:
        raise TypeError(
            f"values of type {values.type} cannot be compared to find distinct ones: {error}"
        ) from error


def digests(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """A 64-bit hash of every value, null for null; the same in every process for values with the
    same text.
    """
    rows = [row for chunk in values.chunks for row in columns.to_pylist(chunk)]
    return pa.chunked_array(
        [pa.array([None if row is None else _digest(row) for row in rows], pa.int64())]
    )


def _digest(row: Any) -> int:
    return int.from_bytes(
        hashlib.blake2b(repr(_frozen(row)).encode(), digest_size=8).digest(), "little", signed=True
    )


def _frozen(value: Any) -> Hashable:
    if isinstance(value, np.ndarray):
        return (value.shape, value.dtype.str, value.tobytes())
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    if isinstance(value, dict):
        return tuple((key, _frozen(item)) for key, item in value.items())
    frozen: Hashable = value
    return frozen
