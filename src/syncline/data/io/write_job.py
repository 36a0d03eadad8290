"""A write from its first call to the commit: the sink's life on the driver, and how a job that was
cut off goes on.

A job has an id that follows from the plan (with its sources' content and the code of its functions)
and from the sink; so the same program, started again, finds what an earlier run has left under that
id. A position of the input is the number of a write task. Order is kept, and so are the seed and
the shape of the first run, so that a position means the same rows in every run. Two things are left
out when it goes on: tasks whose positions the sink has (where a write task reads for itself, its
piece of the source is not read), and everything before the restart point of the last position
before which all are done.

Not covered: what sinks do (`sinks/`), or plans whose rows differ from run to run although their
code is the same.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from syncline.data.execute.start import first_restart, start
from syncline.data.io.sinks.datasink import Datasink, WriteResult
from syncline.data.iterate.position import Restart
from syncline.data.plan import seeds
from syncline.data.plan.properties import known_schema
from syncline.data.plan.signature import digest_of, signature

if TYPE_CHECKING:
    import pyarrow as pa

    from syncline.data.context import DataContext
    from syncline.data.execute.outbox import OutputBlock
    from syncline.data.execute.stats import ExecutionStats
    from syncline.data.plan.nodes import Write

logger = logging.getLogger(__name__)

# Progress is kept so rarely that it costs no more than this share of the time.
_SHARE_FOR_PROGRESS = 0.05
# Settings of the context on which it depends which rows a write task gets.
_DECIDE_BLOCKS = (
    "target_max_block_size",
    "target_min_block_size",
    "target_shuffle_max_block_size",
    "read_op_min_num_blocks",
    "default_hash_shuffle_parallelism",
    "max_errored_blocks",
)


def write(node: Write, context: DataContext, *, name: str = "") -> ExecutionStats | None:
    """Run a plan that ends in a `Write`; returns when the result is visible. None if there was
    nothing to do.

    Raises what the plan or the sink raises; then the target is as it was.
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
                start(
                    node,
                    _in_order(context),
                    seed=progress.seed,
                    restart=progress.restart,
                    name=name,
                )
            ) as execution:
                results += [part for block in execution for part in _taken(block, progress)]
                stats = execution.stats()
            progress.complete()
        sink.on_write_complete(WriteResult.combine(*results))
    except BaseException as error:
        _failed(sink, error)
        raise
    return stats


def job_id(node: Write, context: DataContext) -> str:
    """The same for a plan that writes the same rows, in the same blocks, to the same target in the
    same way.
    """
    settings = [getattr(context, name) for name in _DECIDE_BLOCKS]
    return digest_of(
        signature(node.input, with_state=True), type(node.sink), node.sink.identity(), settings
    )


class Progress:
    """How far a job is, kept with the sink. The seed and the shape of executions stay those of its
    first run.

    Args:
        sink: The sink, after `on_write_start`.
        node: The plan.
        context: The dataset's context.
        clock: Seconds, for how often progress is kept.
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
        kept: Mapping[str, Any] = sink.kept_state()
        self.is_complete: bool = kept.get("complete", False)
        if "seed" in kept:
            self.seed: int = kept["seed"]
            self.restart = Restart(index=kept["restart"][0], point=kept["restart"][1])
            logger.info(
                "The write goes on: %d write tasks need not be looked at again", self.restart.index
            )
            return
        self.seed = seeds.of_execution(context)
        self.restart = first_restart(node, context, seed=self.seed)
        self._keep()

    def reached(self, restart: Restart) -> None:
        """All positions before this point are done."""
        self.restart = restart
        if self._clock() >= self._next:
            self._keep()

    def complete(self) -> None:
        """All rows are written; only the commit is left."""
        self.is_complete = True
        self._keep()

    def _keep(self) -> None:
        began = self._clock()
        restart = [self.restart.index, self.restart.point]
        self._sink.keep_state({"seed": self.seed, "restart": restart, "complete": self.is_complete})
        ended = self._clock()
        self._next = ended + (ended - began) / _SHARE_FOR_PROGRESS


def _taken(block: OutputBlock, progress: Progress) -> list[WriteResult[Any]]:
    """What the write tasks say whose rows these are."""
    progress.reached(block.restart)
    return results_of(block.table())


def results_of(table: pa.Table) -> list[WriteResult[Any]]:
    """The rows of a `Write` node, one per task, as results."""
    returns, rows, sizes = (
        table.column(name).to_pylist() for name in ("return", "num_rows", "size_bytes")
    )
    return [
        WriteResult(num_rows=count, size_bytes=size, write_returns=[pickle.loads(value)])
        for value, count, size in zip(returns, rows, sizes, strict=True)
    ]


def _in_order(context: DataContext) -> DataContext:
    """The context with order kept: positions are numbers in that order."""
    ordered = context.copy()
    ordered.execution_options.preserve_order = True
    return ordered


def _failed(sink: Datasink[Any], error: BaseException) -> None:
    # An interrupt by the user is a failed write, too.
    try:
        sink.on_write_failed(
            error
            if isinstance(error, Exception)
            else RuntimeError(f"interrupted: {type(error).__name__}")
        )
    except Exception:
        logger.exception("%s failed to clean up after the write", sink.get_name())
