"""Rows to partitions: by a hash of keys, by range, or at random; and random permutations. The
result is one table in the order of partitions, with offsets.

A reader maps the table and slices its partition without a copy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar.kernels import keys as key_columns
from syncline.data.columnar.kernels import sort
from syncline.records import dataclass

_SEED_BITS = 2**64 - 1


@dataclass(frozen=True)
class Partitioned:
    """A table whose rows are sorted by partition."""

    table: pa.Table
    """Rows, partition after partition; within one, in the order of the input (by range: sorted)."""
    offsets: np.ndarray
    """int64 `(partitions + 1,)`: partition `i` is the rows `offsets[i]:offsets[i + 1]`."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def part(self, index: int) -> pa.Table:
        """Return one partition, a slice of the table."""
        start, end = self.offsets[index : index + 2].tolist()
        return self.table.slice(start, end - start)


def by_hash(table: pa.Table, keys: str | Sequence[str], parts: int) -> Partitioned:
    """Assign rows with equal keys to one partition, in every process and for all types of numbers,
    strings or times.

    Raise UnknownColumnError for an unknown key, TypeError for a column that cannot be a key.
    """
    _check_parts(parts)
    names = key_columns.names_of(keys)
    if parts == 1:
        key_columns.key_table(table, names, "partition by")
        return _whole(table)
    return by_number(table, key_columns.row_hashes(table, names) % np.uint64(parts), parts)


def at_random(table: pa.Table, parts: int, seed: int | Sequence[int]) -> Partitioned:
    """Assign every row to a random partition; the same seed (or several numbers, such as those of
    the job and the block) draws the same.
    """
    _check_parts(parts)
    return by_number(table, random_state(seed).randint(parts, size=table.num_rows), parts)


def by_range(
    table: pa.Table,
    keys: str | Sequence[str],
    boundaries: pa.Table,
    descending: bool | Sequence[bool] = False,
) -> Partitioned:
    """Sort the rows and cut them at boundaries: partition `i` starts with the rows that equal
    boundary `i - 1`.

    `boundaries` has the key columns and one row per cut, sorted as the keys are; `sort.boundaries`
    creates it.
    """
    names = key_columns.names_of(keys)
    cuts = boundaries.num_rows
    # A stable sort of boundaries and rows together finds the position of each boundary, for all
    # types and directions.
    order = sort.order(
        blocks.concat([boundaries.select(names), sort.checked(table, names)]), names, descending
    )
    at = np.flatnonzero(order < cuts)
    offsets = np.concatenate([[0], at - np.arange(cuts), [table.num_rows]]).astype(np.int64)
    return Partitioned(blocks.take(table, order[order >= cuts] - cuts), offsets)


def by_number(table: pa.Table, numbers: np.ndarray, parts: int) -> Partitioned:
    """Assign rows to the partitions `(rows,)`, integers from 0 to `parts - 1`."""
    _check_parts(parts)
    if parts == 1:
        return _whole(table)
    # numpy sorts integers of 8 and 16 bits in linear time.
    small = numbers.astype(
        np.uint8 if parts <= 2**8 else np.uint16 if parts <= 2**16 else np.uint32
    )
    offsets = np.concatenate([[0], np.cumsum(np.bincount(small, minlength=parts))]).astype(np.int64)
    # Rows without columns are equal.
    return Partitioned(
        blocks.take(table, np.argsort(small, kind="stable")) if table.num_columns else table,
        offsets,
    )


def permute(table: pa.Table, seed: int | Sequence[int]) -> pa.Table:
    """Shuffle the rows, in the same order for the same seed in every process and version."""
    if not table.num_columns:
        return table
    return blocks.take(
        table, random_state(seed).permutation(table.num_rows).astype(np.int64, copy=False)
    )


def random_state(seed: int | Sequence[int]) -> np.random.RandomState:
    """Return a generator with the same numbers in every version of numpy, which only RandomState
    guarantees.
    """
    numbers = [seed] if isinstance(seed, int) else list(seed)
    return np.random.RandomState(np.random.PCG64([number & _SEED_BITS for number in numbers]))


def _whole(table: pa.Table) -> Partitioned:
    return Partitioned(table, np.array([0, table.num_rows], np.int64))


def _check_parts(parts: int) -> None:
    if parts < 1:
        raise ValueError(f"parts={parts} is too small: pass at least 1 partition")
