"""Steps that call a user function with rows, batches or groups.

Rows: `map`, `flat_map` and `filter` pass dicts that the function may change. Arrays in them are
read-only views of the block where the layout allows; changing one in place raises numpy's
ValueError, so copy it first. Rows are processed in portions of bounded memory.

Batches: with `zero_copy`, arrays of a batch are read-only views of the block where the layout
allows. The returned arrays become part of a block without a copy: a function that reuses an array
has to return copies of it.

Groups: `map_groups` calls the function once per group. The blocks come from `GroupsHead` and hold
whole groups.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as block_functions
from syncline.data.columnar.block import BatchFormat
from syncline.data.columnar.kernels import group
from syncline.data.execute.physical_plan import TaskState
from syncline.data.execute.steps.user_functions import (
    Calls,
    ResultSchema,
    UserStep,
    UserValue,
    result_of,
)
from syncline.records import dataclass

# Rows of the first portion of a task; their results show how much memory a row takes.
_FIRST_ROWS = 32
# Memory of the rows of a portion and of their results: large enough for long copies, small compared
# with a block.
_PORTION_BYTES = 4 * 1024 * 1024
# More rows would only burden the garbage collector with dicts.
_MAX_ROWS = 1024
# Maximum growth from one portion to the next: the first rows may be smaller than the others.
_GROWTH = 16
# Concurrent calls of an async function.
_CONCURRENT_ROW_CALLS = 32

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class RowStep(UserStep):
    """Base of the steps that call a function with each row."""

    names_rows: ClassVar[bool] = True
    """True if row numbers in errors of `table` are those of the input."""
    keeps_columns: ClassVar[bool] = False
    """True if the output has the columns of the input, so that empty blocks can be passed on."""

    def accept(self, row: Row, returned: UserValue) -> UserValue:
        """Return what to keep of a returned value. Errors count as errors of the function."""
        raise NotImplementedError

    def table(
        self, portion: pa.Table, kept: list[UserValue], called: list[int], first_row: int
    ) -> pa.Table:
        """Return the output for a portion of the input. Fails if the results do not fit columns.

        Args:
            portion: Input rows.
            kept: Results of `accept`.
            called: Number of each result's row in the portion.
            first_row: Number of the first row in the task.
        """
        raise NotImplementedError

    def run(self, blocks: Iterator[pa.Table], task: TaskState) -> Iterator[pa.Table]:
        calls, results = Calls(self, task), ResultSchema()
        before, length = 0, _FIRST_ROWS
        for block in blocks:
            if self.keeps_columns and not block.num_rows:
                yield block
            start, most = 0, _fitting_rows(block.num_rows, block.nbytes)
            while start < block.num_rows:
                portion = block.slice(start, min(length, most, block.num_rows - start))
                made = self._portion(portion, before + start, calls, results)
                start += portion.num_rows
                length = _next_length(portion.num_rows, made.nbytes)
                yield made
            before += block.num_rows

    def _portion(
        self, portion: pa.Table, first_row: int, calls: Calls, results: ResultSchema
    ) -> pa.Table:
        rows = block_functions.row_list(portion)
        kept, called = (
            self._call_each(rows, first_row, calls)
            if self.kind == "plain"
            else self._call_each_async(rows, first_row, calls)
        )
        try:
            made = self.table(portion, kept, called, first_row)
            results.check(made, first_row, portion.num_rows)
        except Exception as error:
            if self.names_rows and not calls.skips:
                calls.failed(first_row, portion.num_rows, error)
            return self._one_by_one(portion, kept, called, first_row, calls, results)
        return made

    def _call_each(
        self, rows: list[Row], first_row: int, calls: Calls
    ) -> tuple[list[UserValue], list[int]]:
        """Call the function; return the kept results and the numbers of their rows."""
        call, accept = calls.watched(self.call, first_row), self.accept
        kept: list[UserValue] = []
        keep = kept.append
        skipped: list[int] = []
        with calls.running(first_row, len(rows)):
            while len(kept) + len(skipped) < len(rows):
                try:
                    for row in itertools.islice(rows, len(kept) + len(skipped), None):
                        keep(accept(row, call(row)))
                except Exception as error:
                    number = len(kept) + len(skipped)
                    calls.failed(first_row + number, 1, error)
                    skipped.append(number)
        return kept, _without(len(rows), skipped)

    def _call_each_async(
        self, rows: list[Row], first_row: int, calls: Calls
    ) -> tuple[list[UserValue], list[int]]:
        """Like `_call_each` for an async function, with concurrent calls."""
        kept: list[UserValue] = []
        skipped: list[int] = []
        call = self.awaitable()

        async def kept_of(row: Row) -> UserValue:
            return self.accept(row, await call(row))

        with closing(
            self.loop.in_order(
                kept_of,
                iter(rows),
                max_concurrency=_CONCURRENT_ROW_CALLS,
                timeout_s=calls.timeout_s,
            )
        ) as outcomes:
            for number, (_, future) in enumerate(outcomes):
                try:
                    with calls.running(first_row + number, 1):
                        calls.raise_known_timeout(first_row + number)
                        kept.append(result_of(future))
                except Exception as error:
                    future.cancel()
                    calls.failed(first_row + number, 1, error)
                    skipped.append(number)
        return kept, _without(len(rows), skipped)

    def _one_by_one(
        self,
        portion: pa.Table,
        kept: list[UserValue],
        called: list[int],
        first_row: int,
        calls: Calls,
        results: ResultSchema,
    ) -> pa.Table:
        """Return the output without results that do not fit the earlier ones."""
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
    """`map`: the function returns a dict (any Mapping) for each row."""

    def accept(self, row: Row, returned: UserValue) -> Row:
        # Copy a different dict: the function may keep it and change it for the next row.
        return row if returned is row else _as_row("map", "a dict, the new row,", returned)

    def table(
        self, portion: pa.Table, kept: list[UserValue], called: list[int], first_row: int
    ) -> pa.Table:
        return block_functions.from_rows(kept, first_row=first_row)


@dataclass(frozen=True, kw_only=True, eq=False)
class FlatMapStep(RowStep):
    """`flat_map`: the function returns any number of dicts for each row."""

    names_rows: ClassVar[bool] = False

    def accept(self, row: Row, returned: UserValue) -> list[Row]:
        # Check for lists first: they are most frequent, and checks of abstract classes are slow.
        if type(returned) is not list and (
            isinstance(returned, Mapping | str | bytes) or not isinstance(returned, Iterable)
        ):
            raise ValueError(
                "flat_map needs a list of dicts (or a generator of them) for each row, "
                f"but the function returned {block_functions.described(returned)}"
            )
        return [_as_row("flat_map", "dicts in the list", made) for made in returned]

    def table(
        self, portion: pa.Table, kept: list[UserValue], called: list[int], first_row: int
    ) -> pa.Table:
        return block_functions.from_rows(list(itertools.chain.from_iterable(kept)))


@dataclass(frozen=True, kw_only=True, eq=False)
class FilterRowsStep(RowStep):
    """`filter(fn)`: keeps the rows for which the function returns a true value, unchanged."""

    keeps_columns: ClassVar[bool] = True

    def accept(self, row: Row, returned: UserValue) -> bool:
        return bool(returned)

    def table(
        self, portion: pa.Table, kept: list[UserValue], called: list[int], first_row: int
    ) -> pa.Table:
        rows = [number for number, stays in zip(called, kept, strict=True) if stays]
        return (
            portion
            if len(rows) == portion.num_rows
            else block_functions.take(portion, np.array(rows, np.int64))
        )


def _as_row(operation: str, wanted: str, returned: UserValue) -> Row:
    if type(returned) is dict:
        return returned.copy()
    if not isinstance(returned, Mapping):
        raise ValueError(
            f"{operation} needs {wanted} for each row, "
            f"but the function returned {block_functions.described(returned)}"
        )
    return dict(returned)


def _without(count: int, skipped: list[int]) -> list[int]:
    if not skipped:
        return list(range(count))
    excluded = set(skipped)
    return [number for number in range(count) if number not in excluded]


def _next_length(rows: int, result_bytes: int) -> int:
    """Return the number of rows of the portion after one with `result_bytes` of results."""
    return min(_fitting_rows(rows, result_bytes), rows * _GROWTH, _MAX_ROWS)


def _fitting_rows(rows: int, size_bytes: int) -> int:
    """Return how many rows of this mean size fit into a portion, at least one."""
    return max(1, _PORTION_BYTES * rows // max(1, size_bytes))


# Bytes of a batch with batch_size="auto": large enough that the cost of a call does not matter,
# small compared with a block.
_AUTO_BYTES = 16 * 1024 * 1024
# Concurrent calls of an async function; their batches are all in memory.
_CONCURRENT_BATCH_CALLS = 4
_END: object = object()


class Batch(NamedTuple):
    """Input of one call."""

    first_row: int
    """Number of the first row in the task."""
    rows: int
    value: UserValue
    """The batch in its format."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchStep(UserStep):
    """Base of the steps that call a function with batches.

    The function returns a dict of columns, a DataFrame, a table, or a generator of these.
    """

    batch_format: BatchFormat = "default"
    zero_copy: bool = True
    keeps_row_count: bool = False

    def batches(self, blocks: Iterator[pa.Table]) -> Iterator[Batch]:
        """Yield the inputs of the calls."""
        raise NotImplementedError

    def run(self, blocks: Iterator[pa.Table], task: TaskState) -> Iterator[pa.Table]:
        calls, results = Calls(self, task), ResultSchema()
        if self.kind != "plain":
            yield from self._run_async(self.batches(blocks), calls, results)
            return
        for batch in self.batches(blocks):
            made = self._call_plain(batch, calls, results)
            yield from self._unless_failed(batch, made, calls, results)

    def _run_async(
        self, batches: Iterator[Batch], calls: Calls, results: ResultSchema
    ) -> Iterator[pa.Table]:
        call = self.awaitable()
        outcomes = self.loop.in_order(
            lambda batch: call(batch.value),
            batches,
            max_concurrency=_CONCURRENT_BATCH_CALLS,
            timeout_s=calls.timeout_s,
        )
        with closing(outcomes):
            for batch, future in outcomes:
                made = self._await_result(batch, future, calls, results)
                yield from self._unless_failed(batch, made, calls, results)

    def _unless_failed(
        self, batch: Batch, made: Iterator[pa.Table], calls: Calls, results: ResultSchema
    ) -> Iterator[pa.Table]:
        """Yield the output of a batch.

        With skipping, complete the output first: yielded tables cannot be taken back.
        """
        schema_before = results.schema
        try:
            yield from list(made) if calls.skips else made
        except Exception as error:
            results.schema = schema_before
            calls.failed(batch.first_row, batch.rows, error)

    def _call_plain(self, batch: Batch, calls: Calls, results: ResultSchema) -> Iterator[pa.Table]:
        """Call a plain function and yield its output piece by piece."""
        with calls.running(batch.first_row, batch.rows):
            calls.raise_known_timeout(batch.first_row)
            returned = self.call(batch.value)
        pieces = (
            self._pull(returned, batch, calls) if isinstance(returned, Iterator) else [returned]
        )
        yield from self._tables(batch, pieces, results)

    def _pull(self, pieces: Iterator[UserValue], batch: Batch, calls: Calls) -> Iterator[UserValue]:
        """Yield the values of a user's generator."""
        while True:
            with calls.running(batch.first_row, batch.rows):
                piece = next(pieces, _END)
            if piece is _END:
                return
            yield piece

    def _await_result(
        self, batch: Batch, future: Future[UserValue], calls: Calls, results: ResultSchema
    ) -> Iterator[pa.Table]:
        """Yield the output of a call of an async function."""
        try:
            with calls.running(batch.first_row, batch.rows):
                calls.raise_known_timeout(batch.first_row)
                returned = result_of(future)
        finally:
            future.cancel()  # no effect on a finished call
        yield from self._tables(
            batch, returned if self.kind == "async generator" else [returned], results
        )

    def _tables(
        self, batch: Batch, pieces: Iterable[UserValue], results: ResultSchema
    ) -> Iterator[pa.Table]:
        """Yield returned values as tables. ValueError or TypeError if a value is not a batch."""
        rows = 0
        for piece in pieces:
            table = block_functions.from_batch(piece)
            results.check(table, batch.first_row, batch.rows)
            rows += table.num_rows
            yield table
        if self.keeps_row_count and rows != batch.rows:
            raise ValueError(
                f"the function returned {rows} rows for a batch of {batch.rows}, but "
                "udf_modifying_row_count=False promises as many: leave that argument out, or "
                "return a row for each row"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class MapBatchesStep(BatchStep):
    """`map_batches`."""

    batch_size: int | Literal["auto"] | None = None
    """Rows per batch, across blocks; the last batch of a task is shorter. None for one batch per
    block, "auto" for batches of `_AUTO_BYTES`.
    """

    def batches(self, blocks: Iterator[pa.Table]) -> Iterator[Batch]:
        first_row = 0
        for table in rebatched(blocks, self.batch_size):
            value = block_functions.to_batch(table, self.batch_format, writable=not self.zero_copy)
            yield Batch(first_row, table.num_rows, value)
            first_row += table.num_rows


def rebatched(
    blocks: Iterator[pa.Table], batch_size: int | Literal["auto"] | None
) -> Iterator[pa.Table]:
    """Yield tables of `batch_size` rows without empty ones; rows of one block are not copied."""
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
    """`map_groups`: one call per group, in the order of the keys; without keys, one call."""

    keys: tuple[str, ...]

    def batches(self, blocks: Iterator[pa.Table]) -> Iterator[Batch]:
        first_row = 0
        for block in blocks:
            if not block.num_rows:
                continue
            groups = group.groups(block, self.keys)
            # Convert once and then slice: groups are often small, and a conversion costs as much as
            # many rows.
            whole = block_functions.to_batch(groups.arrange(block), self.batch_format)
            bounds = groups.offsets.tolist()
            for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
                yield Batch(first_row + start, stop - start, self._rows(whole, start, stop))
            first_row += block.num_rows

    def _rows(self, whole: UserValue, start: int, stop: int) -> UserValue:
        """Return a range of rows of a batch as a batch."""
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
