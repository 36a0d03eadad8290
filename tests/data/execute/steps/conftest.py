"""Runs steps as an execution does: in a chain, on the blocks of one task."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from syncline.data.columnar import block as block_functions
from syncline.data.context import DataContext
from syncline.data.execute.physical_plan import Chain, Step, TaskState
from syncline.data.execute.steps.heads import pass_blocks
from syncline.data.execute.task_run import close_chain, open_chain, run_chain


@pytest.fixture
def run_steps() -> Callable[..., pa.Table]:
    """All that steps make of tables, as one table."""

    def run(
        tables: Sequence[pa.Table], *steps: Step, task: TaskState | None = None, **limits: Any
    ) -> pa.Table:
        chain = Chain(head=pass_blocks, steps=steps, context=DataContext(), **limits)
        open_chain(chain)
        try:
            outputs = run_chain(chain, [tables], None, task or TaskState(stage="Stage"))
            return block_functions.concat([output.table for output in outputs])
        finally:
            close_chain(chain)

    return run
