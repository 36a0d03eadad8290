"""Steps on columns: expressions, and samples of rows.

What is drawn or numbered depends on the number of the task and of the row in it alone: a task that
runs again, or whose input comes in other pieces, gives the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as block_functions
from syncline.data.columnar.expressions import EvaluationContext, Expr, filter_rows, project
from syncline.data.columnar.expressions.generated import seeded, uniform
from syncline.data.columnar.schemas import require_columns
from syncline.data.execute.chain import Step, TaskState
from syncline.data.execute.steps.user import UserFunctionError


@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnStep(Step):
    """Base of the steps that make one table of each table. Their errors are UserFunctionErrors: the
    program wrote the expressions.
    """

    name: str

    def begin(self, task: TaskState) -> ColumnStep:
        """The step as this task runs it."""
        return self

    def apply(self, table: pa.Table, context: EvaluationContext) -> pa.Table:
        """The new table."""
        raise NotImplementedError

    def run(self, blocks: Iterator[pa.Table], task: TaskState) -> Iterator[pa.Table]:
        row = 0
        step = self.begin(task)
        for block in blocks:
            if not block.num_columns and not block.num_rows:
                yield block  # knows nothing of the columns that it would have
                continue
            context = EvaluationContext(
                block_index=task.task, row_offset=row, execution_index=task.epoch
            )
            try:
                made = step.apply(block, context)
            except Exception as error:
                raise UserFunctionError(
                    self.name, range(row, row + block.num_rows), error
                ) from error
            yield made
            row += block.num_rows


@dataclass(frozen=True, kw_only=True, eq=False)
class ProjectStep(ColumnStep):
    """Other columns: `dropped` goes first, then come `expressions`, or new names."""

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
    """The rows for which the predicate is true."""

    predicate: Expr

    def begin(self, task: TaskState) -> FilterExprStep:
        return replace(self, predicate=seeded(self.predicate, _seed(task, None)))

    def apply(self, table: pa.Table, context: EvaluationContext) -> pa.Table:
        return filter_rows(table, self.predicate, context)


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomSampleStep(ColumnStep):
    """Each row with a probability, drawn for the seed, the number of the task and that of the
    row.
    """

    fraction: float
    seed: int | None = None
    """None: the seed of the execution and epoch."""

    def begin(self, task: TaskState) -> RandomSampleStep:
        return self if self.seed is not None else replace(self, seed=task.seed)

    def apply(self, table: pa.Table, context: EvaluationContext) -> pa.Table:
        assert self.seed is not None, "begin has set it"
        numbers = uniform([self.seed, context.block_index], context.row_offset, table.num_rows)
        rows = np.flatnonzero(numbers < self.fraction)
        return table if len(rows) == table.num_rows else block_functions.take(table, rows)


def _seed(task: TaskState, column: str | None) -> list[int]:
    """What unseeded random numbers of an expression are drawn from: other ones for each column that
    is made.
    """
    return [task.seed, task.epoch, zlib.crc32((column or "").encode())]
