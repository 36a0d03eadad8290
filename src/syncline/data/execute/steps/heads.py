"""Heads of chains, which read or assemble the input of a task, and the functions of exchanges.

Ports are the inputs of the stage. A port has its pieces in order, and none if the task has no row
of that input.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as block_functions
from syncline.data.columnar.aggregate import AggregateFn, phases
from syncline.data.columnar.kernels import join, partition, sort
from syncline.data.columnar.kernels.join import JoinType
from syncline.data.columnar.kernels.partition import Partitioned
from syncline.data.execute.physical_plan import Payload, Ports, Prepared, TaskState
from syncline.data.io.sources.datasource import ReadTask
from syncline.records import dataclass


def read_payload(ports: Ports, payload: ReadTask, task: TaskState) -> Iterator[pa.Table]:
    """Read the payload."""
    yield from payload()


def pass_blocks(ports: Ports, payload: Payload, task: TaskState) -> Iterator[pa.Table]:
    """Pass on the pieces of port 0."""
    return iter(ports[0])


def concatenate(ports: Ports, payload: Payload, task: TaskState) -> Iterator[pa.Table]:
    """Concatenate the pieces of port 0."""
    yield block_functions.concat(ports[0])


def zip_ports(ports: Ports, payload: Payload, task: TaskState) -> Iterator[pa.Table]:
    """Join the columns of all ports; a duplicate name gets the first free suffix from `_1` on."""
    yield functools.reduce(join.zip_tables, map(block_functions.concat, ports))


@dataclass(frozen=True, kw_only=True)
class SortHead:
    """Sorts the rows of port 0 by the keys, if any. Fast for sorted pieces, correct for any."""

    keys: tuple[str, ...]
    descending: bool | tuple[bool, ...] = False

    def __call__(self, ports: Ports, payload: Payload, task: TaskState) -> Iterator[pa.Table]:
        table = block_functions.concat(ports[0])
        sorts = self.keys and table.num_columns
        yield sort.sort(table, self.keys, self.descending) if sorts else table


@dataclass(frozen=True, kw_only=True, eq=False)
class AggregateHead:
    """Merges the states of `AggregateStep` into one row per group; without keys, into one row."""

    keys: tuple[str, ...]
    aggregates: tuple[AggregateFn, ...]

    def __call__(self, ports: Ports, payload: Payload, task: TaskState) -> Iterator[pa.Table]:
        yield phases.finalize(
            phases.merge(ports[0], self.keys, self.aggregates), self.keys, self.aggregates
        )


@dataclass(frozen=True, kw_only=True)
class JoinHead:
    """Joins the rows of ports 0 and 1.

    A partition may have no rows of one side. The columns of that side are then known only from its
    schema; without the schema they are missing in the rows that an outer join keeps.
    """

    join_type: JoinType
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    left_suffix: str | None = None
    right_suffix: str | None = None
    left_schema: pa.Schema | None = None
    """Columns of the left input, if known."""
    right_schema: pa.Schema | None = None
    """Columns of the right input, if known."""

    def __call__(self, ports: Ports, payload: Payload, task: TaskState) -> Iterator[pa.Table]:
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
        """Return the rows that the join keeps of one side if the other side is unknown."""
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
    """Permutes the rows of port 0, with a seed derived from the number of the task."""

    seed: int

    def __call__(self, ports: Ports, payload: Payload, task: TaskState) -> Iterator[pa.Table]:
        yield partition.permute(block_functions.concat(ports[0]), (self.seed, task.task))


def _side(pieces: Sequence[pa.Table], schema: pa.Schema | None) -> pa.Table | None:
    """Return the rows of one side of a join; None if not even its columns are known."""
    table = block_functions.concat(pieces)
    if table.num_columns or table.num_rows:
        return table
    return None if schema is None else block_functions.empty(schema)


@dataclass(frozen=True, kw_only=True)
class PartitionByHash:
    """`ExchangeRows.partition` by the hash of the keys."""

    keys: tuple[str, ...]

    def __call__(self, table: pa.Table, parts: int, prepared: Prepared, number: int) -> Partitioned:
        return (
            partition.by_hash(table, self.keys, parts) if table.num_rows else _empty(table, parts)
        )


@dataclass(frozen=True, kw_only=True)
class PartitionByRange:
    """`ExchangeRows.partition` by ranges of the keys, in order.

    `prepared` is the result of `ChooseBoundaries` unless `boundaries` are set.
    """

    keys: tuple[str, ...]
    descending: tuple[bool, ...]
    boundaries: tuple[Any, ...] | None = None
    """Values of the first key at which partitions begin, in any order."""

    def __call__(
        self, table: pa.Table, parts: int, prepared: pa.Table | None, number: int
    ) -> Partitioned:
        if not table.num_rows:
            return _empty(table, parts)
        keys, descending, cuts = self.keys, self.descending, prepared
        if self.boundaries is not None:
            keys, descending = keys[:1], descending[:1]
            cuts = sort.sort(pa.table({keys[0]: pa.array(self.boundaries)}), keys, descending)
        assert cuts is not None, "a range partition needs boundaries, given or prepared"
        found = partition.by_range(table, keys, cuts, descending)
        assert len(found) <= parts, (
            f"boundaries make {len(found)} partitions, but the exchange has {parts}"
        )
        # Repeated keys give fewer boundaries than requested; the last partitions are then empty.
        return Partitioned(
            found.table, np.append(found.offsets, np.full(parts - len(found), table.num_rows))
        )


@dataclass(frozen=True, kw_only=True)
class PartitionAtRandom:
    """`ExchangeRows.partition` at random, with a seed derived from the number of the block."""

    seed: int

    def __call__(self, table: pa.Table, parts: int, prepared: Prepared, number: int) -> Partitioned:
        return partition.at_random(table, parts, (self.seed, number))


@dataclass(frozen=True, kw_only=True)
class SampleKeys:
    """`ExchangeRows.sample`: the keys of randomly chosen rows of a block."""

    keys: tuple[str, ...]
    seed: int
    rows: int = 1000
    """Maximum number of rows per block."""

    def __call__(self, table: pa.Table, number: int) -> pa.Table:
        return (
            sort.sample(table, self.keys, self.rows, (abs(self.seed) << 32) + number)
            if table.num_rows
            else table.slice(0, 0)
        )


@dataclass(frozen=True, kw_only=True)
class ChooseBoundaries:
    """`ExchangeRows.prepare`: keys that split all rows into partitions of about equal size."""

    keys: tuple[str, ...]
    descending: tuple[bool, ...]

    def __call__(self, samples: Sequence[pa.Table], parts: int) -> pa.Table:
        return sort.boundaries(
            [sample for sample in samples if sample.num_rows], self.keys, parts, self.descending
        )


def _empty(table: pa.Table, parts: int) -> Partitioned:
    """Return empty partitions. A block without rows may also lack the key columns."""
    return Partitioned(table, np.zeros(parts + 1, np.int64))
