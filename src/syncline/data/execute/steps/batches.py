"""`map_batches`: a function on batches.

With `zero_copy` the arrays of a batch are read-only views of the block where the layout allows.
What the function returns belongs to the block that is made of it, without a copy: a function that
fills one array again and again has to return copies of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from syncline.data.columnar import block as block_functions
from syncline.data.columnar.block import BatchFormat
from syncline.data.execute.chain import TaskState
from syncline.data.execute.steps.concurrent import result_of
from syncline.data.execute.steps.user import Calls, Results, UserStep

# Bytes of a batch with batch_size="auto": large enough that a call costs little beside its work,
# small beside a block.
_AUTO_BYTES = 16 * 1024 * 1024
# Calls of an async function that run at once; their batches are all in memory.
_CALLS_AT_ONCE = 4
_END: Any = object()


class Batch(NamedTuple):
    """What one call gets."""

    first_row: int
    """Number of its first row among the rows that the step got in this task."""
    rows: int
    value: Any
    """The batch in its format."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchStep(UserStep):
    """Base of the steps that call a function with batches: it returns a dict of columns, a
    DataFrame, a table, or a generator of these.
    """

    batch_format: BatchFormat = "default"
    zero_copy: bool = True
    keeps_row_count: bool = False

    def batches(self, blocks: Iterator[pa.Table]) -> Iterator[Batch]:
        """What the function is called with."""
        raise NotImplementedError

    def run(self, blocks: Iterator[pa.Table], task: TaskState) -> Iterator[pa.Table]:
        calls, results = Calls(self, task), Results()
        if self.kind != "plain":
            yield from self._run_async(self.batches(blocks), calls, results)
            return
        for batch in self.batches(blocks):
            yield from self._unless_failed(
                batch, self._called(batch, calls, results), calls, results
            )

    def _run_async(
        self, batches: Iterator[Batch], calls: Calls, results: Results
    ) -> Iterator[pa.Table]:
        call = self.awaitable()
        outcomes = self.loop.in_order(
            lambda batch: call(batch.value),
            batches,
            at_once=_CALLS_AT_ONCE,
            timeout_s=calls.timeout_s,
        )
        with closing(outcomes):
            for batch, future in outcomes:
                yield from self._unless_failed(
                    batch, self._awaited(batch, future, calls, results), calls, results
                )

    def _unless_failed(
        self, batch: Batch, made: Iterator[pa.Table], calls: Calls, results: Results
    ) -> Iterator[pa.Table]:
        """What was made of a batch. One that may be left out has to be complete first, since what
        is passed on cannot be taken back.
        """
        schema_before = results.schema
        try:
            yield from list(made) if calls.skips else made
        except Exception as error:
            results.schema = schema_before
            calls.failed(batch.first_row, batch.rows, error)

    def _called(self, batch: Batch, calls: Calls, results: Results) -> Iterator[pa.Table]:
        """What a plain function makes of a batch, piece by piece."""
        with calls.running(batch.first_row, batch.rows):
            calls.refuse(batch.first_row)
            returned = self.call(batch.value)
        pieces = (
            self._pulled(returned, batch, calls) if isinstance(returned, Iterator) else [returned]
        )
        yield from self._tables(batch, pieces, results)

    def _pulled(self, pieces: Iterator[Any], batch: Batch, calls: Calls) -> Iterator[Any]:
        """What a generator of the program's yields."""
        while True:
            with calls.running(batch.first_row, batch.rows):
                piece = next(pieces, _END)
            if piece is _END:
                return
            yield piece

    def _awaited(
        self, batch: Batch, future: Future[Any], calls: Calls, results: Results
    ) -> Iterator[pa.Table]:
        """What an async function makes of a batch."""
        try:
            with calls.running(batch.first_row, batch.rows):
                calls.refuse(batch.first_row)
                returned = result_of(future)
        finally:
            future.cancel()  # has no effect on one that has ended
        yield from self._tables(
            batch, returned if self.kind == "async generator" else [returned], results
        )

    def _tables(self, batch: Batch, pieces: Iterable[Any], results: Results) -> Iterator[pa.Table]:
        """What the function returned, as tables. ValueError or TypeError for what cannot be one."""
        rows = 0
        for piece in pieces:
            table = block_functions.from_batch(piece)
            results.check(table, batch.first_row, batch.rows)
            rows += table.num_rows
            yield table
        if self.keeps_row_count and rows != batch.rows:
            raise ValueError(
                f"the function returned {rows} rows for a batch of {batch.rows}, but udf_modifying_row_count=False promises as many: "
                "leave that argument out, or return a row for each row"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class MapBatchesStep(BatchStep):
    """`map_batches`."""

    batch_size: int | Literal["auto"] | None = None
    """Rows of a batch, across blocks; the last one of a task is shorter. None: a block. "auto": as
    many as take some MiB.
    """

    def batches(self, blocks: Iterator[pa.Table]) -> Iterator[Batch]:
        first_row = 0
        for table in cut(blocks, self.batch_size):
            value = block_functions.to_batch(table, self.batch_format, writable=not self.zero_copy)
            yield Batch(first_row, table.num_rows, value)
            first_row += table.num_rows


def cut(blocks: Iterator[pa.Table], batch_size: int | Literal["auto"] | None) -> Iterator[pa.Table]:
    """The blocks as tables of `batch_size` rows; empty blocks are left out. What lies in one block
    is not copied.
    """
    held: list[pa.Table] = []
    held_rows = 0
    for block in blocks:
        rows = _rows_of(batch_size, block)
        start = 0
        while start < block.num_rows:
            piece = block.slice(start, min(max(1, rows - held_rows), block.num_rows - start))
            start += piece.num_rows
            held.append(piece)
            held_rows += piece.num_rows
            if held_rows >= rows:
                yield block_functions.concat(held)
                held, held_rows = [], 0
    if held:
        yield block_functions.concat(held)


def _rows_of(batch_size: int | Literal["auto"] | None, block: pa.Table) -> int:
    if isinstance(batch_size, int):
        return batch_size
    block_rows: int = block.num_rows
    if batch_size == "auto":
        return max(1, _AUTO_BYTES * block_rows // max(1, block_functions.size_bytes(block)))
    return max(1, block_rows)
