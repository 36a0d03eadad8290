"""The first two steps of an exchange, as values that travel: sampling, boundaries, and rows to
partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from syncline.data.columnar.kernels import partition, sort
from syncline.data.columnar.kernels.partition import Partitioned


@dataclass(frozen=True, kw_only=True)
class PartitionByHash:
    """`Exchanged.partition`: rows with equal keys to one partition."""

    keys: tuple[str, ...]

    def __call__(self, table: pa.Table, parts: int, prepared: Any, number: int) -> Partitioned:
        return (
            partition.by_hash(table, self.keys, parts) if table.num_rows else _nothing(table, parts)
        )


@dataclass(frozen=True, kw_only=True)
class PartitionByRange:
    """`Exchanged.partition`: the first rows in order of the keys to the first partition, and so on.

    `prepared` is what `ChooseBoundaries` made, unless boundaries are given.
    """

    keys: tuple[str, ...]
    descending: tuple[bool, ...]
    boundaries: tuple[Any, ...] | None = None
    """Values of the first key at which partitions begin, in any order; there is then one partition
    more than values.
    """

    def __call__(
        self, table: pa.Table, parts: int, prepared: pa.Table | None, number: int
    ) -> Partitioned:
        if not table.num_rows:
            return _nothing(table, parts)
        keys, descending, cuts = self.keys, self.descending, prepared
        if self.boundaries is not None:
            keys, descending = keys[:1], descending[:1]
            cuts = sort.sort(pa.table({keys[0]: pa.array(self.boundaries)}), keys, descending)
        assert cuts is not None, "a range partition needs boundaries, given or prepared"
        found = partition.by_range(table, keys, cuts, descending)
        assert len(found) <= parts, (
            f"{len(found)} partitions by boundaries, but {parts} were asked for"
        )
        # Keys that repeat make for fewer boundaries than were asked for: the last partitions are
        # empty.
        return Partitioned(
            found.table, np.append(found.offsets, np.full(parts - len(found), table.num_rows))
        )


@dataclass(frozen=True, kw_only=True)
class PartitionAtRandom:
    """`Exchanged.partition`: for each row one drawn for the seed and the number of the block."""

    seed: int

    def __call__(self, table: pa.Table, parts: int, prepared: Any, number: int) -> Partitioned:
        return partition.at_random(table, parts, (self.seed, number))


@dataclass(frozen=True, kw_only=True)
class SampleKeys:
    """`Exchanged.sample`: the keys of some rows of a block."""

    keys: tuple[str, ...]
    seed: int
    rows: int = 1000
    """The most of them from one block."""

    def __call__(self, table: pa.Table, number: int) -> pa.Table:
        return (
            sort.sample(table, self.keys, self.rows, (abs(self.seed) << 32) + number)
            if table.num_rows
            else table.slice(0, 0)
        )


@dataclass(frozen=True, kw_only=True)
class ChooseBoundaries:
    """`Exchanged.prepare`: the keys that cut all rows into about equal partitions."""

    keys: tuple[str, ...]
    descending: tuple[bool, ...]

    def __call__(self, samples: Sequence[pa.Table], parts: int) -> pa.Table:
        return sort.boundaries(
            [sample for sample in samples if sample.num_rows], self.keys, parts, self.descending
        )


def _nothing(table: pa.Table, parts: int) -> Partitioned:
    """A block without rows may lack the key columns, too."""
    return Partitioned(table, np.zeros(parts + 1, np.int64))
