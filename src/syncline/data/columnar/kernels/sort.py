"""Sorting by several keys, each in its own direction; stable, nulls last (NaN just before them) in
both directions.

A distributed sort samples keys (`sample`), chooses `boundaries`, cuts every block with
`partition.by_range` and merges the pieces.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncline.data.columnar import block as blocks
from syncline.data.columnar.kernels import keys as key_columns


def sort(
    table: pa.Table, keys: str | Sequence[str], descending: bool | Sequence[bool] = False
) -> pa.Table:
    """Sort the rows by the keys. Raise UnknownColumnError for an unknown key, TypeError for a
    column without an order.
    """
    return blocks.take(table, order(table, keys, descending)) if table.num_columns else table


def order(
    table: pa.Table, keys: str | Sequence[str], descending: bool | Sequence[bool] = False
) -> np.ndarray:
    """Return the row numbers in order of the keys: int64 `(rows,)`."""
    names = key_columns.names_of(keys)
    directions = _directions(names, descending)
    columns = [
        _sortable(column) for column in key_columns.key_table(table, names, "sort by").columns
    ]
    # Numbered names allow a repeated key.
    numbered = pa.table(
        {str(index): column for index, column in enumerate(columns)}
    ).combine_chunks()
    indices = pc.sort_indices(
        numbered, sort_keys=[(str(index), direction) for index, direction in enumerate(directions)]
    )
    rows: np.ndarray = indices.to_numpy().astype(np.int64, copy=False)
    return rows


def checked(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return the key columns, after the checks of `sort`."""
    key_columns.key_table(table, names, "sort by")
    return table.select(list(names))


def merge(
    tables: Sequence[pa.Table], keys: str | Sequence[str], descending: bool | Sequence[bool] = False
) -> pa.Table:
    """Merge sorted tables; of equal rows those of earlier tables come first."""
    full = [table for table in tables if table.num_rows] or list(tables[:1])
    # Arrow's sort detects sorted runs, which makes it several times faster than on unsorted rows.
    return full[0] if len(full) == 1 else sort(blocks.concat(full), keys, descending)


def sample(table: pa.Table, keys: str | Sequence[str], rows: int, seed: int) -> pa.Table:
    """Return the keys of about `rows` rows, evenly spaced from a random start."""
    names = key_columns.names_of(keys)
    columns = checked(table, names)
    if table.num_rows <= rows:
        return columns
    step = table.num_rows / rows
    start = np.random.default_rng(seed).random() * step
    return blocks.take(
        columns, np.minimum(start + np.arange(rows) * step, table.num_rows - 1).astype(np.int64)
    )


def boundaries(
    samples: Sequence[pa.Table],
    keys: str | Sequence[str],
    parts: int,
    descending: bool | Sequence[bool] = False,
) -> pa.Table:
    """Return the keys that cut the data into `parts` about equal parts: a table of at most `parts -
    1` rows.

    Fewer rows if keys repeat so often that a part would be empty, and none without samples.
    """
    names = key_columns.names_of(keys)
    known = [samples_.select(names) for samples_ in samples if samples_.num_columns]
    if not known:
        return pa.table({name: pa.nulls(0) for name in names})
    ordered = sort(blocks.concat(known), names, descending)
    cuts = (
        np.unique(np.arange(1, parts) * ordered.num_rows // parts)
        if ordered.num_rows
        else np.empty(0, np.int64)
    )
    chosen = blocks.take(ordered, cuts)
    repeated = [False] + [
        before == after
        for before, after in zip(_tuples(chosen)[:-1], _tuples(chosen)[1:], strict=True)
    ]
    return blocks.take(chosen, np.flatnonzero(~np.array(repeated[: chosen.num_rows], dtype=bool)))


def _tuples(table: pa.Table) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in blocks.rows(table)]


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.float32()) if pa.types.is_float16(column.type) else column


def _directions(names: list[str], descending: bool | Sequence[bool]) -> list[str]:
    if not names:
        raise ValueError("a sort needs at least one key column")
    flags = [descending] * len(names) if isinstance(descending, bool) else list(descending)
    if len(flags) != len(names):
        raise ValueError(
            f"{len(names)} keys ({', '.join(names)}) need {len(names)} values of `descending`, "
            f"or one for all, not {len(flags)}"
        )
    return ["descending" if flag else "ascending" for flag in flags]
