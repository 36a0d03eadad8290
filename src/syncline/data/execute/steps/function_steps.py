"""Steps that call a function with one row after the other: `map`, `flat_map`, `filter`.

Rows are dicts that the function may change. Arrays in them are read-only views of the block where
the layout allows: changing one in place raises numpy's ValueError, and a function that wants to
copies it first. Rows go through in portions, whose length follows from how much memory they and
their results take.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as block_functions
from syncline.data.columnar.block import BatchFormat
from syncline.data.columnar.kernels import group
from syncline.data.execute.program import TaskState
from syncline.data.execute.steps.user_functions import Calls, Results, UserStep, result_of

# Rows of the first portion of a task, whose results show how much memory a row takes.
_FIRST_ROWS = 32
# Memory of the rows of a portion, and of their results: large enough for long copies, small beside
# a block.
_PORTION_BYTES = 4 * 1024 * 1024
# More rows at once would only keep the garbage collector busy with dicts.
_MOST_ROWS = 1024
# A portion is at most so many times as long as the one before: the first rows may be smaller than
# the others.
_GROWTH = 16
# Calls of an async function that run at once.
_CALLS_AT_ONCE = 32

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class RowStep(UserStep):
    """Base of the steps that call a function row by row."""

    names_rows: ClassVar[bool] = True
    """Whether rows in errors of `table` are rows of the input."""
    keeps_columns: ClassVar[bool] = False
    """Whether the output has the columns of the input, so that those of a block without rows are
    its own.
    """

    def accept(self, row: Row, returned: Any) -> Any:
        """What is kept of what a call returned. An error here is one of the function."""
        raise NotImplementedError

    def table(
        self, portion: pa.Table, kept: list[Any], called: list[int], first_row: int
    ) -> pa.Table:
        """The output for a portion of the input: of what was kept of the calls with the rows
        `called`, numbers within the portion.

        Fails if the results do not fit into columns.
        """
        raise NotImplementedError

    def run(self, blocks: Iterator[pa.Table], task: TaskState) -> Iterator[pa.Table]:
        calls, results = Calls(self, task), Results()
        before, length = 0, _FIRST_ROWS
        for block in blocks:
            if self.keeps_columns and not block.num_rows:
                yield block
            start, most = 0, _fitting(block.num_rows, block.nbytes)
            while start < block.num_rows:
                portion = block.slice(start, min(length, most, block.num_rows - start))
                made = self._portion(portion, before + start, calls, results)
                start += portion.num_rows
                length = _next_length(portion.num_rows, made.nbytes)
                yield made
            before += block.num_rows

    def _portion(
        self, portion: pa.Table, first_row: int, calls: Calls, results: Results
    ) -> pa.Table:
        rows = block_functions.row_list(portion)
        kept, called = (
            self._each(rows, first_row, calls)
            if self.kind == "plain"
            else self._each_async(rows, first_row, calls)
        )
        try:
            made = self.table(portion, kept, called, first_row)
            results.check(made, first_row, portion.num_rows)
        except Exception as error:
            if self.names_rows and not calls.skips:
                calls.failed(first_row, portion.num_rows, error)
            return self._one_by_one(portion, kept, called, first_row, calls, results)
        return made

    def _each(self, rows: list[Row], first_row: int, calls: Calls) -> tuple[list[Any], list[int]]:
        """What was kept of the calls, and the numbers of their rows; those that failed are left
        out.
        """
        call, accept = calls.watched(self.call, first_row), self.accept
        kept: list[Any] = []
        keep = kept.append
        left_out: list[int] = []
        with calls.running(first_row, len(rows)):
            while len(kept) + len(left_out) < len(rows):
                try:
                    for row in itertools.islice(rows, len(kept) + len(left_out), None):
                        keep(accept(row, call(row)))
                except Exception as error:
                    number = len(kept) + len(left_out)
                    calls.failed(first_row + number, 1, error)
                    left_out.append(number)
        return kept, _without(len(rows), left_out)

    def _each_async(
        self, rows: list[Row], first_row: int, calls: Calls
    ) -> tuple[list[Any], list[int]]:
        """The same for an async function, with several calls at once."""
        kept: list[Any] = []
        left_out: list[int] = []
        call = self.awaitable()

        async def kept_of(row: Row) -> Any:
            return self.accept(row, await call(row))

        with closing(
            self.loop.in_order(
                kept_of, iter(rows), at_once=_CALLS_AT_ONCE, timeout_s=calls.timeout_s
            )
        ) as outcomes:
            for number, (_, future) in enumerate(outcomes):
                try:
                    with calls.running(first_row + number, 1):
                        calls.refuse(first_row + number)
                        kept.append(result_of(future))
                except Exception as error:
                    future.cancel()
                    calls.failed(first_row + number, 1, error)
                    left_out.append(number)
        return kept, _without(len(rows), left_out)

    def _one_by_one(
        self,
        portion: pa.Table,
        kept: list[Any],
        called: list[int],
        first_row: int,
        calls: Calls,
        results: Results,
    ) -> pa.Table:
        """The output without what does not go together with the results before it."""
        fitting: list[pa.Table] = []
        for result, number in zip(kept, called, strict=True):
            try:
                made = self.table(portion, [result], [number], first_row + number)
                results.check(made, first_row + number, 1)
                fitting.append(made)
            except Exception as error:
                calls.failed(first_row + number, 1, error)
        return block_functions.concat(fitting)


@dataclass(frozen=True, kw_only=True, eq=False)
class MapRowsStep(RowStep):
    """`map`: the function returns a dict (any Mapping), which is the new row."""

    def accept(self, row: Row, returned: Any) -> Row:
        # Another dict than the row may be one that the function keeps, and changes for the next
        # row.
        return row if returned is row else _as_row("map", "a dict, the new row,", returned)

    def table(
        self, portion: pa.Table, kept: list[Any], called: list[int], first_row: int
    ) -> pa.Table:
        return block_functions.from_rows(kept, first_row=first_row)


@dataclass(frozen=True, kw_only=True, eq=False)
class FlatMapStep(RowStep):
    """`flat_map`: the function returns any number of dicts."""

    names_rows: ClassVar[bool] = False

    def accept(self, row: Row, returned: Any) -> list[Row]:
        # Lists are by far the most frequent, and checks of abstract classes take longer than all
        # the rest.
        if type(returned) is not list and (
            isinstance(returned, Mapping | str | bytes) or not isinstance(returned, Iterable)
        ):
            raise ValueError(
                "flat_map needs a list of dicts (or a generator of them) for each row, "
                f"but the function returned {block_functions.described(returned)}"
            )
        return [_as_row("flat_map", "dicts in the list", made) for made in returned]

    def table(
        self, portion: pa.Table, kept: list[Any], called: list[int], first_row: int
    ) -> pa.Table:
        return block_functions.from_rows(list(itertools.chain.from_iterable(kept)))


@dataclass(frozen=True, kw_only=True, eq=False)
class FilterRowsStep(RowStep):
    """`filter(fn)`: rows for which the function returns something true stay, as they were before
    the call.
    """

    keeps_columns: ClassVar[bool] = True

    def accept(self, row: Row, returned: Any) -> bool:
        return bool(returned)

    def table(
        self, portion: pa.Table, kept: list[Any], called: list[int], first_row: int
    ) -> pa.Table:
        rows = [number for number, stays in zip(called, kept, strict=True) if stays]
        return (
            portion
            if len(rows) == portion.num_rows
            else block_functions.take(portion, np.array(rows, np.int64))
        )


def _as_row(operation: str, wanted: str, returned: Any) -> Row:
    if type(returned) is dict:
        return returned.copy()
    if not isinstance(returned, Mapping):
        raise ValueError(
            f"{operation} needs {wanted} for each row, but the function returned {block_functions.described(returned)}"
        )
    return dict(returned)


def _without(count: int, left_out: list[int]) -> list[int]:
    """The numbers below `count` that are not left out."""
    if not left_out:
        return list(range(count))
    gone = set(left_out)
    return [number for number in range(count) if number not in gone]


def _next_length(rows: int, result_bytes: int) -> int:
    """How many rows the next portion has, after one whose results took so much memory."""
    return min(_fitting(rows, result_bytes), rows * _GROWTH, _MOST_ROWS)


def _fitting(rows: int, size_bytes: int) -> int:
    """How many rows like these take as much memory as a portion may, at least one."""
    return max(1, _PORTION_BYTES * rows // max(1, size_bytes))


# Bytes of a batch with batch_size="auto": large enough that a call costs little beside its work,
# small beside a block.
_AUTO_BYTES = 16 * 1024 * 1024
# Calls of an async function that run at once; their batches are all in memory.
_BATCH_CALLS_AT_ONCE = 4
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
            at_once=_BATCH_CALLS_AT_ONCE,
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


@dataclass(frozen=True, kw_only=True, eq=False)
class MapGroupsStep(BatchStep):
    """`map_groups`: one call per group, in order of the keys; without keys all rows are one
    group.
    """

    keys: tuple[str, ...]

    def batches(self, blocks: Iterator[pa.Table]) -> Iterator[Batch]:
        first_row = 0
        for block in blocks:
            if not block.num_rows:
                continue
            groups = group.groups(block, self.keys)
            # Converted once and then cut: groups are often small, and each conversion costs as much
            # as many rows.
            whole = block_functions.to_batch(groups.arrange(block), self.batch_format)
            bounds = groups.offsets.tolist()
            for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
                yield Batch(first_row + start, stop - start, self._part(whole, start, stop))
            first_row += block.num_rows

    def _part(self, whole: Any, start: int, stop: int) -> Any:
        """Some rows of a batch, as a batch of their own."""
        if isinstance(whole, pa.Table):
            return whole.slice(start, stop - start)
        if isinstance(whole, dict):
            return {
                name: array[start:stop] if self.zero_copy else array[start:stop].copy()
                for name, array in whole.items()
            }
        frame = whole.iloc[start:stop].copy()
        frame.index = whole.index[: stop - start]
        return frame
