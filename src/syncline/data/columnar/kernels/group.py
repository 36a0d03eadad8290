"""Groups of rows with equal keys; distinct rows. Nulls are equal to each other here, and so are
NaNs.

Arrow's group_by numbers groups in an order that differs between machines. `groups` therefore orders
them by their first rows; callers of `measure` must order the groups if the order matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar.kernels import keys as key_columns
from syncline.records import dataclass

_ROW = "row"
Options: TypeAlias = Any
"""Options of a function of Arrow's group_by."""
Measure: TypeAlias = tuple[pa.ChunkedArray | None, str, Options]
Aggregation: TypeAlias = tuple[str | list[str], str, Options]


@dataclass(frozen=True)
class Groups:
    """Rows with equal keys."""

    keys: pa.Table
    """Key columns, one row per group; no columns for the one group without keys."""
    order: np.ndarray
    """int64 `(rows,)`: row numbers group by group, in their original order within each."""
    offsets: np.ndarray
    """int64 `(groups + 1,)`: group `i` is `order[offsets[i]:offsets[i + 1]]`."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def ids(self) -> np.ndarray:
        """Group of each row: int64 `(rows,)`."""
        ids = np.empty(len(self.order), np.int64)
        ids[self.order] = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        return ids

    def arrange(self, table: pa.Table) -> pa.Table:
        """Return the table's rows group by group; the table itself if they are in this order, as
        after a sort by the keys.
        """
        in_order = bool((self.order[1:] > self.order[:-1]).all())
        return table if in_order else blocks.take(table, self.order)

    def slices(self, table: pa.Table) -> Iterator[pa.Table]:
        """Yield the rows of each group, as slices of one table."""
        arranged = self.arrange(table)
        for start, end in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True):
            yield arranged.slice(start, end - start)


def groups(table: pa.Table, keys: str | Sequence[str]) -> Groups:
    """Return the groups of a table in order of their first rows; without keys all rows are one
    group.

    Raise UnknownColumnError and TypeError for columns that cannot be keys.
    """
    found, _ = measure(table, key_columns.names_of(keys), [], with_rows=True)
    firsts = found.order[found.offsets[:-1]]
    if (firsts[1:] > firsts[:-1]).all():
        return found
    by_first = np.argsort(firsts)
    lengths = np.diff(found.offsets)[by_first]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    # Row `j` of the new order keeps its distance from the start of its group.
    moved = np.repeat(found.offsets[:-1][by_first] - offsets[:-1], lengths) + np.arange(
        len(found.order)
    )
    keys_found = blocks.take(found.keys, by_first) if found.keys.num_columns else found.keys
    return Groups(keys_found, found.order[moved], offsets)


def last_of_each(table: pa.Table, column: str, share: float) -> np.ndarray:
    """Mark the last rows of each value of a column, `share` of them rounded down.

    Returns:
        bool `(rows,)`.
    """
    found = groups(table, column)
    sizes = np.diff(found.offsets)
    first_marked = found.offsets[:-1] + sizes - (sizes * share).astype(np.int64)
    marks = np.empty(table.num_rows, bool)
    marks[found.order] = np.arange(table.num_rows) >= np.repeat(first_marked, sizes)
    return marks


def measure(
    table: pa.Table, names: Sequence[str], measures: Sequence[Measure], *, with_rows: bool
) -> tuple[Groups, list[pa.ChunkedArray]]:
    """Return groups in any order, and one column per measure with a value per group, in a single
    pass that hashes the keys once.

    A measure is (values `(rows,)` or None, a function of Arrow's group_by, its options). Groups
    know their rows only if `with_rows`.
    """
    columns = key_columns.key_table(table, names, "group by")
    keys = {
        f"key{index}": key_columns.same_floats(column)
        for index, column in enumerate(columns.columns)
    }
    if not keys:
        # Arrow's group_by without keys lacks most functions, so all rows share one key.
        keys = {"key0": pa.chunked_array([pa.array(np.zeros(table.num_rows, np.int8))])}
    inputs: dict[str, pa.ChunkedArray] = {}
    wanted: list[Aggregation] = []
    for values, function, options in measures:
        if values is None:
            wanted.append(([], function, options))
            continue
        name = next(
            (name for name, known in inputs.items() if known is values), f"value{len(inputs)}"
        )
        inputs[name] = values
        wanted.append((name, function, options))
    if with_rows:
        inputs[_ROW] = pa.chunked_array([pa.array(np.arange(table.num_rows))])
        wanted.append((_ROW, "list", None))
    distinct = _without_repeats(wanted)
    result = (
        pa.table({**keys, **inputs}).group_by(list(keys), use_threads=False).aggregate(distinct)
    )
    # Keys are the first or last columns, depending on the Arrow version; the others are in order.
    measured = [
        column
        for name, column in zip(result.column_names, result.columns, strict=True)
        if name not in keys
    ]
    by_wish = [measured[distinct.index(wish)] for wish in wanted]
    found = pa.table({name: result.column(f"key{index}") for index, name in enumerate(names)})
    rows = by_wish.pop() if with_rows else None
    return _with_order(found, rows), by_wish


def _with_order(keys: pa.Table, rows: pa.ChunkedArray | None) -> Groups:
    if rows is None:
        return Groups(keys, np.empty(0, np.int64), np.zeros(keys.num_rows + 1, np.int64))
    lists = rows.combine_chunks()
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return Groups(
        keys, lists.flatten().to_numpy().astype(np.int64, copy=False), offsets - offsets[0]
    )


def _without_repeats(wanted: list[Aggregation]) -> list[Aggregation]:
    """Drop repeated measures, since Arrow would compute them again: one sum serves Sum and Mean."""
    distinct: list[Aggregation] = []
    for wish in wanted:
        if wish not in distinct:
            distinct.append(wish)
    return distinct


def distinct(table: pa.Table, keys: str | Sequence[str] | None = None) -> pa.Table:
    """Return the first row of each combination of the keys' values, in the order of the rows; None
    makes all columns keys.
    """
    names = table.column_names if keys is None else key_columns.names_of(keys)
    if not names:
        return table
    rows = pa.chunked_array([pa.array(np.arange(table.num_rows))])
    _, (first,) = measure(table, names, [(rows, "min", None)], with_rows=False)
    return blocks.take(table, np.sort(first.to_numpy()))
