"""Rows into a sink. Transient errors are the sink's own business; whatever it raises ends the
task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cloudpickle
import pyarrow as pa

from syncline.data.columnar import block as block_functions
from syncline.data.execute.chain import Step, TaskState
from syncline.data.io.sinks.datasink import WRITE_UUID, Datasink, TaskContext


@dataclass(frozen=True, kw_only=True, eq=False)
class WriteStep(Step):
    """One call of `sink.write` per task, on its stream of blocks; gives one row: `return`, pickled,
    `num_rows` and `size_bytes`.
    """

    name: str
    sink: Datasink[Any]
    job: str = ""
    """Id of the write job, for file names; the sink's own if empty."""

    def run(self, blocks: Iterator[pa.Table], task: TaskState) -> Iterator[pa.Table]:
        if task.task in self.sink.positions_done():
            return  # written by an earlier run of the job, whose result the sink knows
        counted = _Counted(blocks)
        kwargs = {WRITE_UUID: self.job} if self.job else {}
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
    """Blocks, counted as they are taken."""

    def __init__(self, blocks: Iterator[pa.Table]) -> None:
        self._blocks = blocks
        self.num_rows = 0
        self.size_bytes = 0

    def __iter__(self) -> Iterator[pa.Table]:
        for block in self._blocks:
            self.num_rows += block.num_rows
            self.size_bytes += block_functions.size_bytes(block)
            yield block
