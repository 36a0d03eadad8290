"""What tasks begin with: reading, or putting the pieces of their input together.

Ports are the inputs of the stage; each has its pieces in order, and has none where no row of that
input is in the task.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as block_functions
from syncline.data.columnar.aggregate import AggregateFn, steps
from syncline.data.columnar.kernels import combine, join, partition, sort
from syncline.data.columnar.kernels.join import JoinType
from syncline.data.columnar.kernels.partition import Partitioned
from syncline.data.execute.program import Ports, TaskState
from syncline.data.io.sources.datasource import ReadTask


@dataclass(frozen=True, kw_only=True)
class ReadHead:
    """What the payload, a `ReadTask`, reads."""

    def __call__(self, ports: Ports, payload: ReadTask, task: TaskState) -> Iterator[pa.Table]:
        yield from payload()


@dataclass(frozen=True, kw_only=True)
class BlocksHead:
    """The pieces of port 0, one after the other."""

    def __call__(self, ports: Ports, payload: Any, task: TaskState) -> Iterator[pa.Table]:
        yield from ports[0]


@dataclass(frozen=True, kw_only=True)
class ConcatHead:
    """The pieces of port 0 as one table."""

    def __call__(self, ports: Ports, payload: Any, task: TaskState) -> Iterator[pa.Table]:
        yield block_functions.concat(ports[0])


@dataclass(frozen=True, kw_only=True)
class ZipHead:
    """The columns of all ports side by side; a name that is taken gets `_1`, or the next number
    that is free.
    """

    def __call__(self, ports: Ports, payload: Any, task: TaskState) -> Iterator[pa.Table]:
        yield functools.reduce(combine.zip_tables, map(block_functions.concat, ports))


@dataclass(frozen=True, kw_only=True)
class MergeSortedHead:
    """The rows of port 0 in order of the keys. Pieces need not be sorted; sorted ones cost
    little.
    """

    keys: tuple[str, ...]
    descending: tuple[bool, ...]

    def __call__(self, ports: Ports, payload: Any, task: TaskState) -> Iterator[pa.Table]:
        yield _sorted(ports[0], self.keys, self.descending)


@dataclass(frozen=True, kw_only=True, eq=False)
class AggregateHead:
    """A row per group from the states that `AggregateStep` made; without keys always one row."""

    keys: tuple[str, ...]
    aggregates: tuple[AggregateFn, ...]

    def __call__(self, ports: Ports, payload: Any, task: TaskState) -> Iterator[pa.Table]:
        yield steps.finalize(
            steps.merge(ports[0], self.keys, self.aggregates), self.keys, self.aggregates
        )


@dataclass(frozen=True, kw_only=True)
class JoinHead:
    """The rows of ports 0 and 1, matched by keys.

    A partition may have no rows of one side. Its columns are then known only from the schemas;
    without them they are missing in the rows of the other side that an outer join keeps.
    """

    join_type: JoinType
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    left_suffix: str | None = None
    right_suffix: str | None = None
    left_schema: pa.Schema | None = None
    """Columns of the left input, where they are known."""
    right_schema: pa.Schema | None = None
    """Columns of the right input, where they are known."""

    def __call__(self, ports: Ports, payload: Any, task: TaskState) -> Iterator[pa.Table]:
        left = _side(ports[0], self.left_schema)
        right = _side(ports[1], self.right_schema)
        if left is not None and right is not None:
            yield join.join(
                left,
                right,
                self.join_type,
                self.left_on,
                self.right_on,
                left_suffix=self.left_suffix,
                right_suffix=self.right_suffix,
            )
            return
        kept = self._without_partner(left, right)
        if kept is not None:
            yield kept

    def _without_partner(self, left: pa.Table | None, right: pa.Table | None) -> pa.Table | None:
        """What the join keeps of one side when nothing at all is known of the other."""
        if right is None and self.join_type in ("left_outer", "full_outer", "left_anti"):
            return left
        if left is not None or self.join_type not in ("right_outer", "full_outer", "right_anti"):
            return None
        if right is None or self.join_type == "right_anti":
            return right
        # Keys have the names of the left side.
        names = dict(zip(self.right_on, self.left_on, strict=True))
        return right.rename_columns([names.get(name, name) for name in right.column_names])


@dataclass(frozen=True, kw_only=True)
class PermuteHead:
    """The rows of port 0 in random order, drawn for the seed and the number of the task."""

    seed: int

    def __call__(self, ports: Ports, payload: Any, task: TaskState) -> Iterator[pa.Table]:
        yield combine.permute(block_functions.concat(ports[0]), (self.seed, task.task))


@dataclass(frozen=True, kw_only=True)
class GroupsHead:
    """The rows of port 0 as one table, sorted by the keys: rows of a group lie together."""

    keys: tuple[str, ...]

    def __call__(self, ports: Ports, payload: Any, task: TaskState) -> Iterator[pa.Table]:
        yield _sorted(ports[0], self.keys, False)


@dataclass(frozen=True, kw_only=True)
class HashPartitionHead:
    """The rows of port 0 as one table; in order of the keys if `sort`."""

    keys: tuple[str, ...]
    sort: bool = False

    def __call__(self, ports: Ports, payload: Any, task: TaskState) -> Iterator[pa.Table]:
        yield _sorted(ports[0], self.keys, False) if self.sort else block_functions.concat(ports[0])


def _sorted(
    pieces: Sequence[pa.Table], keys: tuple[str, ...], descending: bool | tuple[bool, ...]
) -> pa.Table:
    table = block_functions.concat(pieces)
    return sort.sort(table, keys, descending) if keys and table.num_columns else table


def _side(pieces: Sequence[pa.Table], schema: pa.Schema | None) -> pa.Table | None:
    """The rows of one side of a join; None where not even their columns are known."""
    table = block_functions.concat(pieces)
    if table.num_columns or table.num_rows:
        return table
    return None if schema is None else block_functions.empty(schema)


@dataclass(frozen=True, kw_only=True)
class PartitionByHash:
    """`ExchangeRows.partition`: rows with equal keys to one partition."""

    keys: tuple[str, ...]

    def __call__(self, table: pa.Table, parts: int, prepared: Any, number: int) -> Partitioned:
        return (
            partition.by_hash(table, self.keys, parts) if table.num_rows else _nothing(table, parts)
        )


@dataclass(frozen=True, kw_only=True)
class PartitionByRange:
    """`ExchangeRows.partition`: the first rows in order of the keys to the first partition, and so on.

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
    """`ExchangeRows.partition`: for each row one drawn for the seed and the number of the block."""

    seed: int

    def __call__(self, table: pa.Table, parts: int, prepared: Any, number: int) -> Partitioned:
        return partition.at_random(table, parts, (self.seed, number))


@dataclass(frozen=True, kw_only=True)
class SampleKeys:
    """`ExchangeRows.sample`: the keys of some rows of a block."""

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
    """`ExchangeRows.prepare`: the keys that cut all rows into about equal partitions."""

    keys: tuple[str, ...]
    descending: tuple[bool, ...]

    def __call__(self, samples: Sequence[pa.Table], parts: int) -> pa.Table:
        return sort.boundaries(
            [sample for sample in samples if sample.num_rows], self.keys, parts, self.descending
        )


def _nothing(table: pa.Table, parts: int) -> Partitioned:
    """A block without rows may lack the key columns, too."""
    return Partitioned(table, np.zeros(parts + 1, np.int64))
