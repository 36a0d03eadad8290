"""What a `DataIterator` reads from: a feed begins passes. Here is the feed of a whole dataset; that
of a rank is in `split`.

A pass of a whole dataset is an execution in this process, whose blocks are dealt to the only rank
there is. No other process is involved but those that run user functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from syncline.data.context import DataContext
from syncline.data.execute.execution import start_execution
from syncline.data.iterate.batching import BatchOptions, Pass, RankRows
from syncline.data.iterate.cursor import Cursor, PassStart, continue_from, epoch_start
from syncline.data.iterate.position import Restart
from syncline.data.iterate.sharding import Rounds, Sharder
from syncline.data.plan import seeds
from syncline.data.plan.signature import signature

if TYPE_CHECKING:
    from syncline.data.dataset import Dataset, MaterializedDataset
    from syncline.data.execute.execution import Execution

EMPTY_TABLE = pa.table({})


class BatchSource(ABC):
    """The rows of one rank, pass by pass. Picklable; passes are begun by one thread at a time."""

    world_size: int
    """How many ranks share the dataset."""

    @property
    @abstractmethod
    def plan(self) -> str:
        """Signature of the plan, which cursors carry."""

    @property
    @abstractmethod
    def context(self) -> DataContext:
        """The settings of the dataset."""

    @abstractmethod
    def begin(self, options: BatchOptions, cursors: Sequence[Cursor]) -> Pass:
        """Begin the next pass; that which continues the pass of `cursors`, if there are any.
        CursorError where they do not fit.
        """

    @abstractmethod
    def schema(self) -> Any:
        """The dataset's schema; None where it has none."""

    @abstractmethod
    def stats(self) -> str:
        """Where the time of the last execution went; empty before the first."""

    def retire(self) -> None:
        """This rank begins no pass any more: others that wait for it need not."""
        return

    @abstractmethod
    def materialize(self) -> MaterializedDataset:
        """The rows of a pass, kept."""


class PassRunner:
    """The passes over a dataset, for those who deal its rows: which epoch is next, and the
    execution that makes its rows. Picklable.

    Args:
        dataset: What is read.
        run: Starts executions.
    """

    def __init__(self, dataset: Dataset, run: Callable[..., Execution]) -> None:
        self._dataset = dataset
        self._run = run
        self._epoch = 0
        self._seed = seeds.of_execution(dataset.context)

    def begin(
        self, cursors: Sequence[Cursor], *, rounds: Rounds, options: Sequence[BatchOptions]
    ) -> tuple[PassStart, Execution]:
        """Begin the next pass; that which continues the pass of `cursors`, if there are any.
        CursorError where they do not fit.

        Args:
            cursors: Those of all ranks, or none.
            rounds: How the rows are dealt.
            options: What the batches of each rank are.
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
        """The blocks of a pass from a restart point on."""
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
    """All rows of a dataset. `run` starts executions."""

    world_size = 1

    def __init__(self, dataset: Dataset, *, run: Callable[..., Execution] = start_execution) -> None:
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
            self._stats = execution.stats()

        return Pass(cursor=cursor, pieces=_pieces(execution, sharder), cancel=cancel)

    def schema(self) -> Any:
        return self._dataset.schema()

    def stats(self) -> str:
        return str(self._stats)

    def materialize(self) -> MaterializedDataset:
        return self._dataset.materialize()

    def __repr__(self) -> str:
        return repr(self._dataset)


def _pieces(execution: Execution, sharder: Sharder) -> Iterator[RankRows]:
    for block in execution:
        for shard in sharder.add(None, block.num_rows, block.restart):
            yield RankRows(
                table=block.table().slice(shard.start, shard.stop - shard.start), restart=shard.restart
            )
    sharder.end()
    yield RankRows(table=EMPTY_TABLE, restart=sharder.position.restart, total=sharder.total)
