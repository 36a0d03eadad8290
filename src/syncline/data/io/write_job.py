"""Run one write, from `on_write_start` to the commit, and resume a write that was interrupted.

The id of a job follows from the plan (including the content of its sources and the code of its
functions) and from the sink. Rerun the same program to resume: it computes the same id and finds
the files that the earlier run staged. A position is the index of a write task in the input order.
The input order, the seed and the shape of the first run are kept, so a position means the same rows
in every run. A resumed job skips two things: write tasks whose positions the sink already has
(including their reads, where a write task reads its own input), and all tasks before the restart
point up to which all positions are done.

Not covered: sinks (`sinks/`), and plans whose code is the same but whose rows differ between runs.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from syncline.data.execute.execution import first_restart, start_execution
from syncline.data.io.sinks.datasink import Datasink, WriteResult
from syncline.data.iterate.position import Restart
from syncline.data.plan import seeds
from syncline.data.plan.properties import known_schema
from syncline.data.plan.signature import digest_of, signature

if TYPE_CHECKING:
    import pyarrow as pa

    from syncline.data.context import DataContext
    from syncline.data.execute.stats import ExecutionStats
    from syncline.data.plan.nodes import Write

logger = logging.getLogger(__name__)

# Maximum share of the run time that may be spent on saving progress.
_SHARE_FOR_PROGRESS = 0.05
# Settings of the context that decide which rows a write task gets.
_DECIDE_BLOCKS = (
    "target_max_block_size",
    "target_min_block_size",
    "target_shuffle_max_block_size",
    "read_op_min_num_blocks",
    "default_hash_shuffle_parallelism",
    "max_errored_blocks",
)


def write(node: Write, context: DataContext, *, name: str = "") -> ExecutionStats | None:
    """Run a plan that ends in a `Write`; return its statistics when the result is visible.

    Returns None if there was nothing to do. Errors of the plan and the sink are raised; the target
    is unchanged then.
    """
    sink = node.sink
    sink.set_job(job_id(node, context))
    sink.on_write_start(known_schema(node.input))
    if sink.skips_write:
        return None
    try:
        earlier = sink.earlier_result()
        results = [] if earlier is None else [earlier]
        progress = Progress(sink, node, context)
        stats = None
        if not progress.is_complete:
            with closing(
                start_execution(
                    node,
                    _in_order(context),
                    seed=progress.seed,
                    restart=progress.restart,
                    name=name,
                )
            ) as execution:
                for block in execution:
                    progress.reached(block.restart)
                    results += results_of(block.table())
                stats = execution.stats()
            progress.complete()
        sink.on_write_complete(WriteResult.combine(*results))
    except BaseException as error:
        _failed(sink, error)
        raise
    return stats


def job_id(node: Write, context: DataContext) -> str:
    """Return an id that is equal for the same rows in the same blocks, written to the same target
    in the same way.
    """
    settings = [getattr(context, name) for name in _DECIDE_BLOCKS]
    return digest_of(
        signature(node.input, with_state=True), type(node.sink), node.sink.identity(), settings
    )


class Progress:
    """Progress of a job, saved with the sink. Resumed runs use the seed and shape of the first run.

    Args:
        sink: The sink, after `on_write_start`.
        node: The plan.
        context: The dataset's context.
        clock: Clock in seconds; limits how often progress is saved.
    """

    def __init__(
        self,
        sink: Datasink[Any],
        node: Write,
        context: DataContext,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink = sink
        self._clock = clock
        self._next = -float("inf")
        saved: Mapping[str, Any] = sink.load_state()
        self.is_complete: bool = saved.get("complete", False)
        if "seed" in saved:
            self.seed: int = saved["seed"]
            self.restart = Restart(index=saved["restart"][0], point=saved["restart"][1])
            logger.info("Resuming the write: %d write tasks are complete", self.restart.index)
            return
        self.seed = seeds.of_execution(context)
        self.restart = first_restart(node, context, seed=self.seed)
        self._save()

    def reached(self, restart: Restart) -> None:
        """Record that all positions before `restart` are done."""
        self.restart = restart
        if self._clock() >= self._next:
            self._save()

    def complete(self) -> None:
        """Record that all rows are written; only the commit is left."""
        self.is_complete = True
        self._save()

    def _save(self) -> None:
        began = self._clock()
        restart = [self.restart.index, self.restart.point]
        self._sink.save_state({"seed": self.seed, "restart": restart, "complete": self.is_complete})
        ended = self._clock()
        self._next = ended + (ended - began) / _SHARE_FOR_PROGRESS


def results_of(table: pa.Table) -> list[WriteResult[Any]]:
    """Convert the output rows of a `Write` node, one per task, to results."""
    returns, rows, sizes = (
        table.column(name).to_pylist() for name in ("return", "num_rows", "size_bytes")
    )
    return [
        WriteResult(num_rows=count, size_bytes=size, write_returns=[pickle.loads(value)])
        for value, count, size in zip(returns, rows, sizes, strict=True)
    ]


def _in_order(context: DataContext) -> DataContext:
    """Return a copy of the context that preserves order: a position is an index in that order."""
    ordered = context.copy()
    ordered.execution_options.preserve_order = True
    return ordered


def _failed(sink: Datasink[Any], error: BaseException) -> None:
    # An interrupt by the user is a failed write as well.
    try:
        sink.on_write_failed(
            error
            if isinstance(error, Exception)
            else RuntimeError(f"interrupted: {type(error).__name__}")
        )
    except Exception:
        logger.exception("%s failed to clean up after the write", sink.get_name())
