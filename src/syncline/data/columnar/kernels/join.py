"""Joins of two tables on keys: inner, outer, semi and anti joins; and zip. Null keys match nothing.

Arrow joins only the keys and row numbers; the other columns are taken by row number, so that
tensors, objects and lists, which Arrow's join rejects, keep their types. The result is in order of
the left table's rows, then of the right's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar import schemas
from syncline.data.columnar.kernels import keys as key_columns

JoinType = Literal[
    "inner",
    "left_outer",
    "right_outer",
    "full_outer",
    "left_semi",
    "right_semi",
    "left_anti",
    "right_anti",
]
_LEFT, _RIGHT = "left", "right"


def join(
    left: pa.Table,
    right: pa.Table,
    join_type: JoinType,
    left_on: str | Sequence[str],
    right_on: str | Sequence[str] | None = None,
    *,
    left_suffix: str | None = None,
    right_suffix: str | None = None,
) -> pa.Table:
    """Join the rows of both tables whose keys are equal; outer joins keep rows without a match,
    with nulls.

    The keys appear once, under the left names; semi and anti joins return one side's columns only.
    Columns that both sides have get the suffixes.

    Raises:
        ValueError: Columns have equal names despite the suffixes, or `join_type` is not known.
    """
    check_type(join_type)
    left_names = key_columns.names_of(left_on)
    right_names = left_names if right_on is None else key_columns.names_of(right_on)
    if len(left_names) != len(right_names) or not left_names:
        raise ValueError(
            f"a join needs equally many keys on both sides, but has {left_names} and {right_names}"
        )
    left_rows, right_rows = _matches(*_key_pair(left, right, left_names, right_names), join_type)
    from_left, from_right = blocks.take(left, left_rows), blocks.take(right, right_rows)
    side, _, kind = join_type.partition("_")
    if kind in ("semi", "anti"):
        return from_left if side == _LEFT else from_right
    left_renames, right_renames = _renames(
        left, right, left_names, right_names, left_suffix, right_suffix
    )
    columns: dict[str, pa.ChunkedArray] = {}
    for name in left.column_names:
        column = from_left.column(name)
        if name in left_names and column.null_count:
            right_key = from_right.column(right_names[left_names.index(name)])
            column = _filled(name, column, right_key, left_rows)
        columns[left_renames.get(name, name)] = column
    for name in right.column_names:
        if name not in right_names:
            columns[right_renames.get(name, name)] = from_right.column(name)
    return pa.table(columns)


def check_type(join_type: str) -> None:
    """Raise ValueError for an unknown join type."""
    if join_type not in get_args(JoinType):
        raise ValueError(
            f"join_type={join_type!r} is not known: "
            f"choose {', '.join(map(repr, get_args(JoinType)))}"
        )


def _key_pair(
    left: pa.Table, right: pa.Table, left_names: list[str], right_names: list[str]
) -> tuple[pa.Table, pa.Table]:
    """Return the keys of both sides in comparable types, and the row numbers."""
    left_keys = key_columns.key_table(left, left_names, "join on")
    right_keys = key_columns.key_table(right, right_names, "join on")
    pairs: tuple[dict[str, pa.Array], dict[str, pa.Array]] = ({}, {})
    for index, (left_name, right_name) in enumerate(zip(left_names, right_names, strict=True)):
        columns = left_keys.column(left_name), right_keys.column(right_name)
        joined = schemas.joined_type(columns[0].type, columns[1].type)
        if joined is None:
            raise ValueError(
                f"cannot join column {left_name!r} of type {columns[0].type} to column "
                f"{right_name!r} "
                f"of type {columns[1].type}: cast one of them to a type of the other's kind"
            )
        # Keys with nulls only match nothing, whatever their type.
        target = pa.schema([(str(index), pa.int8() if pa.types.is_null(joined) else joined)])
        for pair, column in zip(pairs, columns, strict=True):
            pair[str(index)] = key_columns.same_floats(
                schemas.conform(pa.table({str(index): column}), target).column(0)
            )
    pairs[0][_LEFT] = pa.array(np.arange(left.num_rows))
    pairs[1][_RIGHT] = pa.array(np.arange(right.num_rows))
    return pa.table(pairs[0]), pa.table(pairs[1])


def _matches(left: pa.Table, right: pa.Table, join_type: JoinType) -> tuple[pa.Array, pa.Array]:
    """Return the row numbers of both sides in the rows of the result, null for no match."""
    keys = [name for name in left.column_names if name != _LEFT]
    matched = left.join(right, keys, join_type=join_type.replace("_", " "), use_threads=False)
    sides = [side for side in (_LEFT, _RIGHT) if side in matched.column_names]
    rows = {side: matched.column(side).combine_chunks() for side in sides}
    # One number per row sorts them by the left's rows, then by the right's, rows without a match
    # last.
    places = np.zeros(matched.num_rows, np.int64)
    for side, table in ((_LEFT, left), (_RIGHT, right)):
        if side in rows:
            places = places * (table.num_rows + 1) + rows[side].fill_null(table.num_rows).to_numpy()
    if not (places[1:] > places[:-1]).all():
        order = pa.array(np.argsort(places, kind="stable"))
        rows = {side: found.take(order) for side, found in rows.items()}
    nothing = pa.array([], pa.int64())
    return rows.get(_LEFT, nothing), rows.get(_RIGHT, nothing)


def _filled(
    name: str, left: pa.ChunkedArray, right: pa.ChunkedArray, left_rows: pa.Array
) -> pa.ChunkedArray:
    """Return a key column: the left's value, and the right's in rows without a left row."""
    if not left_rows.null_count:
        return left
    both = blocks.concat([pa.table({name: left}), pa.table({name: right})])
    rows = np.arange(len(left))
    missing = left_rows.is_null().to_numpy(zero_copy_only=False)
    return blocks.take(both, np.where(missing, rows + len(left), rows)).column(0)


def _renames(
    left: pa.Table,
    right: pa.Table,
    left_names: list[str],
    right_names: list[str],
    left_suffix: str | None,
    right_suffix: str | None,
) -> tuple[dict[str, str], dict[str, str]]:
    """Return new names for the columns of both sides that have equal names."""
    right_columns = [name for name in right.column_names if name not in right_names]
    shared = [name for name in right_columns if name in left.column_names]
    renames = (
        {name: name + (left_suffix or "") for name in shared if name not in left_names},
        {name: name + (right_suffix or "") for name in shared},
    )
    names = [renames[0].get(name, name) for name in left.column_names] + [
        renames[1].get(name, name) for name in right_columns
    ]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"both sides of the join have {', '.join(map(repr, twice))}: set left_suffix or "
            "right_suffix "
            f"(now {left_suffix!r} and {right_suffix!r}), or rename a column before"
        )
    return renames


def zip_tables(left: pa.Table, right: pa.Table) -> pa.Table:
    """Return the columns of both tables; a right column whose name exists gets `_1`, or the next
    free number.

    Raises:
        ValueError: The tables have different numbers of rows.
    """
    if left.num_rows != right.num_rows:
        raise ValueError(
            f"zip needs equally many rows on both sides, but these tables have {left.num_rows} and "
            f"{right.num_rows} rows"
        )
    columns = dict(zip(left.column_names, left.columns, strict=True))
    for name, column in zip(right.column_names, right.columns, strict=True):
        columns[free_name(name, columns)] = column
    return blocks.from_columns(columns, left.num_rows)


def free_name(name: str, taken: Sequence[str] | dict[str, pa.ChunkedArray], first: int = 1) -> str:
    """Return the name, or the name with the first free suffix `_1`, `_2`, …."""
    number, free = first, name
    while free in taken:
        free = f"{name}_{number}"
        number += 1
    return free
