"""The first step of an aggregation: each block becomes a row per group, which hold the states of
the aggregators.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from syncline.data.columnar.aggregate import AggregateFn, steps
from syncline.data.execute.chain import Step, TaskState
from syncline.data.execute.steps.user import UserFunctionError


@dataclass(frozen=True, kw_only=True, eq=False)
class AggregateStep(Step):
    """States of the groups of each block; `AggregateHead` merges them. Its errors are
    UserFunctionErrors.
    """

    name: str
    keys: tuple[str, ...]
    aggregates: tuple[AggregateFn, ...]

    def run(self, blocks: Iterator[pa.Table], task: TaskState) -> Iterator[pa.Table]:
        row = 0
        for block in blocks:
            try:
                states = steps.partial(block, self.keys, self.aggregates)
            except Exception as error:
                raise UserFunctionError(
                    self.name, range(row, row + block.num_rows), error
                ) from error
            yield states
            row += block.num_rows
