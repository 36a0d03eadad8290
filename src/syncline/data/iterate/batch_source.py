"""Sources of batches, from which a `DataIterator` reads, and the passes over a dataset.

`DatasetSource` reads a whole dataset: each pass is an execution in this process. A rank of a shared
dataset reads from `streaming_split.SplitSource`.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from syncline.data.columnar.schemas import Schema
from syncline.data.context import DataContext
from syncline.data.execute.execution import Execution, start_execution
from syncline.data.iterate.batching import BatchOptions, Pass, RankRows
from syncline.data.iterate.cursor import Cursor, PassStart, continue_from, epoch_start
from syncline.data.iterate.position import Restart
from syncline.data.iterate.sharding import Rounds, Sharder
from syncline.data.plan import seeds
from syncline.data.plan.nodes import Node
from syncline.data.plan.signature import signature

EMPTY_TABLE = pa.table({})
Materialized: TypeAlias = Any
"""A `MaterializedDataset`, whose module is above this one."""


class SourceDataset(Protocol):
    """The parts of `Dataset` that a pass needs."""

    @property
    def _node(self) -> Node: ...

    @property
    def context(self) -> DataContext: ...

    @property
    def name(self) -> str | None: ...

    def schema(self) -> Schema | None: ...

    def materialize(self) -> Materialized: ...


class BatchSource(ABC):
    """Rows of one rank, pass by pass. Picklable. One thread at a time begins passes."""

    world_size: int
    """Number of ranks that share the dataset."""

    @property
    @abstractmethod
    def plan(self) -> str:
        """Signature of the plan, stored in cursors."""

    @property
    @abstractmethod
    def context(self) -> DataContext:
        """Settings of the dataset."""

    @abstractmethod
    def begin(self, options: BatchOptions, cursors: Sequence[Cursor]) -> Pass:
        """Begin the next pass, or continue the pass of `cursors`.

        Raises:
            CursorError: The cursors do not fit.
        """

    @abstractmethod
    def schema(self) -> Schema | None:
        """Return the schema of the dataset; None if it has none."""

    @abstractmethod
    def stats(self) -> str:
        """Return the statistics of the last execution; empty before the first."""

    def retire(self) -> None:
        """Announce that this rank begins no further pass, so that other ranks do not wait."""
        return

    @abstractmethod
    def materialize(self) -> Materialized:
        """Return the rows of a pass as a materialized dataset."""


class PassRunner:
    """Starts the executions of successive passes over a dataset. Picklable.

    Args:
        dataset: The dataset.
        run: Starts an execution.
    """

    def __init__(self, dataset: SourceDataset, run: Callable[..., Execution]) -> None:
        self._dataset = dataset
        self._run = run
        self._epoch = 0
        self._seed = seeds.of_execution(dataset.context)

    def begin(
        self, cursors: Sequence[Cursor], *, rounds: Rounds, options: Sequence[BatchOptions]
    ) -> tuple[PassStart, Execution]:
        """Begin the next pass, or continue the pass of `cursors`.

        Args:
            cursors: Cursors of all ranks, or none.
            rounds: Assignment of rows to ranks.
            options: Batch options of each rank.

        Raises:
            CursorError: The cursors do not fit.
        """
        if cursors:
            windows = [each.windows(cursors[0].seed) for each in options]
            pass_start = continue_from(cursors, rounds=rounds, windows=windows)
        else:
            pass_start = epoch_start(epoch=self._epoch, seed=self._seed, rounds=rounds)
        execution = self.execute(pass_start, pass_start.restart)
        self._epoch, self._seed = pass_start.epoch + 1, pass_start.seed
        return pass_start, execution

    def execute(self, pass_start: PassStart, restart: Restart) -> Execution:
        """Execute a pass from a restart on."""
        dataset = self._dataset
        return self._run(
            dataset._node,
            dataset.context,
            seed=pass_start.seed,
            epoch=pass_start.epoch,
            restart=restart,
            name=dataset.name or "",
        )


class DatasetSource(BatchSource):
    """All rows of a dataset, for a single rank. `run` starts an execution."""

    world_size = 1

    def __init__(
        self, dataset: SourceDataset, *, run: Callable[..., Execution] = start_execution
    ) -> None:
        self._dataset = dataset
        self._pass_runner = PassRunner(dataset, run)
        self._stats: object = ""

    @cached_property
    def plan(self) -> str:
        return signature(self._dataset._node)

    @property
    def context(self) -> DataContext:
        return self._dataset.context

    def begin(self, options: BatchOptions, cursors: Sequence[Cursor]) -> Pass:
        rounds = Rounds(chunks=(options.batch_size or 1,))
        pass_start, execution = self._pass_runner.begin(cursors, rounds=rounds, options=[options])
        sharder = Sharder(rounds=rounds, position=pass_start.position, skip=pass_start.settled)
        cursor = pass_start.cursor(plan=self.plan, rank=0, windows=options.windows(pass_start.seed))

        def cancel() -> None:
            execution.close()
            if not sys.is_finalizing():  # the statistics need modules
                self._stats = execution.stats()

        return Pass(cursor=cursor, rows=_rows(execution, sharder), cancel=cancel)

    def schema(self) -> Schema | None:
        return self._dataset.schema()

    def stats(self) -> str:
        return str(self._stats)

    def materialize(self) -> Materialized:
        return self._dataset.materialize()

    def __repr__(self) -> str:
        return repr(self._dataset)


def _rows(execution: Execution, sharder: Sharder) -> Iterator[RankRows]:
    for block in execution:
        for shard in sharder.add(None, block.num_rows, block.restart):
            table = block.table().slice(shard.start, shard.stop - shard.start)
            yield RankRows(table=table, restart=shard.restart)
    sharder.end()
    yield RankRows(table=EMPTY_TABLE, restart=sharder.position.restart, total=sharder.total)
