"""Steps without a user function: expressions, samples, aggregates, and writes to sinks and caches.

Random numbers and row numbers depend only on the number of the task and of the row in the task:
retries, and tasks whose input is split differently, give the same output.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
from pyarrow import fs as pyarrow_fs

from syncline import faults
from syncline.data.columnar import block as block_functions
from syncline.data.columnar.aggregate import AggregateFn, phases
from syncline.data.columnar.expressions import EvaluationContext, Expr, filter_rows, project
from syncline.data.columnar.expressions.generated import seeded, uniform
from syncline.data.columnar.schemas import require_columns
from syncline.data.execute.physical_plan import Step, TaskState
from syncline.data.execute.steps.user_functions import user_errors
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sinks.datasink import WRITE_UUID, Datasink, TaskContext
from syncline.data.io.sources import arrow_files
from syncline.records import dataclass
from syncline.storage import filesystem as storage


@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnStep(Step):
    """Base of the steps that transform each table. Errors are UserFunctionErrors, because users
    write the expressions.
    """

    name: str

    def begin(self, task: TaskState) -> ColumnStep:
        """Return the step with the seeds of this task."""
        return self

    def apply(self, table: pa.Table, context: EvaluationContext) -> pa.Table:
        """Return the transformed table."""
        raise NotImplementedError

    def run(self, blocks: Iterator[pa.Table], task: TaskState) -> Iterator[pa.Table]:
        row = 0
        step = self.begin(task)
        for block in blocks:
            if not block.num_columns and not block.num_rows:
                yield block  # has no columns to transform
                continue
            context = EvaluationContext(
                block_index=task.task, row_offset=row, execution_index=task.epoch
            )
            with user_errors(self.name, row, block.num_rows):
                made = step.apply(block, context)
            yield made
            row += block.num_rows


@dataclass(frozen=True, kw_only=True, eq=False)
class ProjectStep(ColumnStep):
    """Drops columns, then evaluates expressions or renames columns."""

    expressions: tuple[Expr, ...] = ()
    dropped: tuple[str, ...] = ()
    renamed: Mapping[str, str] | None = None

    def begin(self, task: TaskState) -> ProjectStep:
        return replace(
            self,
            expressions=tuple(seeded(expr, _seed(task, expr.name)) for expr in self.expressions),
        )

    def apply(self, table: pa.Table, context: EvaluationContext) -> pa.Table:
        if self.dropped:
            require_columns(self.dropped, table.column_names)
            table = table.select([name for name in table.column_names if name not in self.dropped])
        if self.renamed is not None:
            require_columns(self.renamed, table.column_names)
            return block_functions.from_batch(
                table.rename_columns([self.renamed.get(name, name) for name in table.column_names])
            )
        return project(table, self.expressions, context) if self.expressions else table


@dataclass(frozen=True, kw_only=True, eq=False)
class FilterExprStep(ColumnStep):
    """Keeps the rows for which the predicate is true."""

    predicate: Expr

    def begin(self, task: TaskState) -> FilterExprStep:
        return replace(self, predicate=seeded(self.predicate, _seed(task, None)))

    def apply(self, table: pa.Table, context: EvaluationContext) -> pa.Table:
        return filter_rows(table, self.predicate, context)


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomSampleStep(ColumnStep):
    """Keeps each row with a probability, drawn from the seed and the numbers of task and row."""

    fraction: float
    seed: int | None = None
    """Seed; None for the seed of the execution."""

    def begin(self, task: TaskState) -> RandomSampleStep:
        return self if self.seed is not None else replace(self, seed=task.seed)

    def apply(self, table: pa.Table, context: EvaluationContext) -> pa.Table:
        assert self.seed is not None, "begin has set it"
        numbers = uniform([self.seed, context.block_index], context.row_offset, table.num_rows)
        rows = np.flatnonzero(numbers < self.fraction)
        return table if len(rows) == table.num_rows else block_functions.take(table, rows)


def _seed(task: TaskState, column: str | None) -> list[int]:
    """Return the seed of an expression without one; each output column has its own."""
    return [task.seed, task.epoch, zlib.crc32((column or "").encode())]


@dataclass(frozen=True, kw_only=True, eq=False)
class AggregateStep(Step):
    """Computes the state of each group per block; `AggregateHead` merges the states."""

    name: str
    keys: tuple[str, ...]
    aggregates: tuple[AggregateFn, ...]

    def run(self, blocks: Iterator[pa.Table], task: TaskState) -> Iterator[pa.Table]:
        row = 0
        for block in blocks:
            with user_errors(self.name, row, block.num_rows):
                states = phases.partial(block, self.keys, self.aggregates)
            yield states
            row += block.num_rows


@dataclass(frozen=True, kw_only=True, eq=False)
class WriteStep(Step):
    """Writes the blocks of each task with one call of `sink.write`.

    Yields one row with the columns `return` (pickled), `num_rows` and `size_bytes`. Retrying
    transient errors is up to the sink.
    """

    name: str
    sink: Datasink[Any]
    job: str = ""
    """Id of the write job, used in file names; empty for the sink's own."""

    def run(self, blocks: Iterator[pa.Table], task: TaskState) -> Iterator[pa.Table]:
        if task.task in self.sink.positions_done():
            return  # an earlier run of the job wrote it
        counted = _Counted(blocks)
        kwargs: dict[str, object] = {WRITE_UUID: self.job} if self.job else {}
        returned = self.sink.write(
            counted, TaskContext(task_idx=task.task, op_name=self.name, kwargs=kwargs)
        )
        row = {
            "return": cloudpickle.dumps(returned),
            "num_rows": counted.num_rows,
            "size_bytes": counted.size_bytes,
        }
        yield block_functions.from_rows([row])


class _Counted:
    """Counts blocks as they are consumed."""

    def __init__(self, blocks: Iterator[pa.Table]) -> None:
        self._blocks = blocks
        self.num_rows = 0
        self.size_bytes = 0

    def __iter__(self) -> Iterator[pa.Table]:
        for block in self._blocks:
            self.num_rows += block.num_rows
            self.size_bytes += block_functions.size_bytes(block)
            yield block


@dataclass(frozen=True, kw_only=True, eq=False)
class CacheWriteStep(Step):
    """Writes the one block of each task to a file with the task's number, and passes it on."""

    name: str
    filesystem: pyarrow_fs.FileSystem
    directory: str
    data: str
    """Name of the writer's own directory inside `directory`."""
    patterns: tuple[str, ...]
    """Patterns of the errors to retry."""

    def run(self, blocks: Iterator[pa.Table], task: TaskState) -> Iterator[pa.Table]:
        path = storage.join(self.directory, arrow_files.file_name(self.data, task.task))
        for table in blocks:
            self._write(path, table)
            faults.reach("data.cache.block")
            yield table

    def _write(self, path: str, table: pa.Table) -> None:
        write = arrow_files.write_block
        filesystems.call_with_retry(
            lambda: write(self.filesystem, path, table), f"writing {path}", self.patterns
        )
