"""`Query`: a plan with its settings. Datasets, iterators and writers execute a plan through it.

Answers to questions (schema, counts, sizes) come from metadata or from earlier executions if
possible, and from an execution otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar.aggregate import Count
from syncline.data.columnar.block import Row
from syncline.data.context import DataContext
from syncline.data.execute import block_store, cache
from syncline.data.execute.execution import Execution, start_execution
from syncline.data.execute.execution_journal import RecordTarget
from syncline.data.plan import properties
from syncline.data.plan.nodes import Aggregate, Held, HeldBlock, Limit, Node
from syncline.exceptions import SynclineError

# Rows that are shown at each end of a dataset; of a block that may be fetched from another machine,
# and of rows that are kept, at most so many bytes.
_PREVIEW_ROWS = 5
_PREVIEW_BLOCK_BYTES = 256 * 1024**2
_PREVIEW_ROWS_BYTES = 1024**2


@dataclass(kw_only=True)
class Observations:
    """Results of earlier executions of a plan. They are not part of its meaning: a copy of the
    query may start without them.
    """

    schema: pa.Schema | None = None
    num_rows: int | None = None
    size_bytes: int | None = None
    executions: int = 0
    """Number of complete executions: the epoch of the next one, which reseeds shuffles."""
    first_rows: pa.Table | None = None
    """First rows of an earlier execution, for people to look at."""
    stats: Callable[[], str] | None = None
    """Renders the statistics of the last execution."""


class Query:
    """A plan with its settings. The plan never changes.

    Picklable; a copy in another process has no observations.

    Args:
        node: Root of the plan.
        context: Settings; the query does not copy them.
        name: Name in progress and statistics.
    """

    def __init__(self, node: Node, context: DataContext, name: str | None = None) -> None:
        self.node = node
        self.context = context
        self.name = name
        self.observations = Observations()

    def __reduce__(self) -> tuple[type[Query], tuple[Node, DataContext, str | None]]:
        return Query, (self.node, self.context, self.name)

    def recorded_in(self, target: RecordTarget) -> Query:
        """Return the same query with executions that are recorded in a run directory."""
        context = self.context.copy()
        context._record_target = target
        changed = Query(self.node, context, name=self.name)
        changed.observations = replace(self.observations)
        return changed

    # -- executions

    @contextmanager
    def execution(self, node: Node | None = None) -> Iterator[Execution]:
        """Execute a plan, by default the query's own, until the `with` block ends."""
        epoch = self.observations.executions if node is None else 0
        execution = start_execution(
            node or self.node, self.context, epoch=epoch, name=self.name or ""
        )
        try:
            yield execution
        finally:
            execution.close()
            if node is None:
                self.observations.executions = epoch + 1
            self.observations.stats = execution.stats().to_string

    def tables(self, node: Node | None = None) -> Iterator[pa.Table]:
        """Yield the blocks of a plan, by default the query's own, as they are computed."""
        with self.execution(node) as execution:
            for output in execution:
                yield output.table()

    def blocks(self) -> tuple[HeldBlock, ...]:
        """Return all blocks, in the object store; blocks that exist already are not copied."""
        if isinstance(self.node, Held):
            return self.node.blocks
        files = tuple(properties.input_files(self.node))
        with self.execution() as execution:
            found = tuple(block_store.to_held_block(output, files) for output in execution)
        self.observations.num_rows = sum(block.num_rows for block in found)
        self.observations.size_bytes = sum(block.size_bytes for block in found)
        return found

    def rows(self, limit: int | None) -> list[Row]:
        """Return all rows as dicts. Raise ValueError if there are more than `limit`."""
        found: list[Row] = []
        for table in self.tables():
            if limit is not None and len(found) + table.num_rows > limit:
                raise ValueError(
                    f"the dataset has more rows than limit={limit}: raise the limit, or call "
                    f"take({limit}) for the first rows"
                )
            found.extend(blocks.rows(table))
        return found

    def first(self, limit: int) -> list[pa.Table]:
        """Return the first `limit` rows."""
        if not limit:
            return []
        tables = list(self.tables(Limit(input=self.node, limit=limit)))
        self._keep_for_preview(tables)
        return tables

    def _keep_for_preview(self, tables: list[pa.Table]) -> None:
        kept: list[pa.Table] = []
        for table in tables:
            left = _PREVIEW_ROWS - sum(each.num_rows for each in kept)
            if left > 0 and table.num_rows:
                kept.append(table.slice(0, left))
        if kept and sum(map(blocks.size_bytes, kept)) <= _PREVIEW_ROWS_BYTES:
            self.observations.first_rows = blocks.compact(blocks.concat(kept))

    def first_block(self, limit: int) -> pa.Table:
        """Return the first `limit` rows as one table. Raise ValueError if there are none."""
        tables = [table for table in self.first(limit) if table.num_rows]
        if not tables:
            raise ValueError("the dataset has no rows, so there is no batch to take")
        return blocks.concat(tables)

    def single_row(self, node: Node) -> Row:
        """Return the only row of a plan, such as an aggregation without keys."""
        (row,) = (row for table in self.tables(node) for row in blocks.rows(table))
        return row

    # -- questions

    def known_schema(self) -> pa.Schema | None:
        """Return the schema as far as it is known without an execution."""
        if self.observations.schema is not None:
            return self.observations.schema
        return properties.known_schema(cache.with_cached_rows(self.node))

    def schema(self) -> pa.Schema | None:
        """Return the schema; compute the first row if the plan does not tell. None for a dataset
        without blocks.
        """
        known = self.known_schema()
        if known is None:
            for table in self.tables(Limit(input=self.node, limit=1)):
                if known is None or table.num_rows:
                    known = table.schema
            self.observations.schema = known
        return known

    def known_rows(self) -> int | None:
        """Return the number of rows as far as it is known without an execution."""
        if self.observations.num_rows is not None:
            return self.observations.num_rows
        return properties.known_rows(cache.with_cached_rows(self.node))

    def count(self) -> int:
        """Return the number of rows."""
        known = self.known_rows()
        if known is None:
            counts = self.tables(Aggregate(input=self.node, keys=(), aggregates=(Count(),)))
            known = sum(count for table in counts for count in table.column(0).to_pylist())
            self.observations.num_rows = known
        return known

    def size_bytes(self) -> int:
        """Return the bytes in memory: estimated from metadata, or exact after an execution."""
        if self.observations.size_bytes is None:
            known = properties.estimated_bytes(cache.with_cached_rows(self.node))
            if known is not None:
                return known
            with self.execution() as execution:
                self.observations.size_bytes = sum(block.size_bytes for block in execution)
        return self.observations.size_bytes

    def rows_at_hand(self) -> tuple[pa.Table | None, pa.Table | None]:
        """Return first rows, and last rows if there are more, without an execution: those of a
        materialized dataset, or the first ones of an earlier execution.
        """
        if not isinstance(self.node, Held):
            return self.observations.first_rows, None
        held = [block for block in self.node.blocks if block.num_rows]
        are_few = sum(block.num_rows for block in held) <= 2 * _PREVIEW_ROWS
        shown = held if are_few else [held[0], held[-1]]
        if not shown or max(block.size_bytes for block in shown) > _PREVIEW_BLOCK_BYTES:
            return None, None
        try:
            tables = [block_store.table_of(block) for block in shown]
        except SynclineError:  # a lost block must not keep a dataset from being printed
            return None, None
        if are_few:
            return blocks.concat(tables), None
        first, last = tables
        count = min(_PREVIEW_ROWS, last.num_rows)
        return first.slice(0, _PREVIEW_ROWS), last.slice(last.num_rows - count)
