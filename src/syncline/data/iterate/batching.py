"""Batches of a rank's rows, and the iterables that users loop over.

A batch within one block is a slice without a copy. With a local shuffle it is a `take` from its
window. Covered: splitting rows into batches, in order or shuffled, updating the cursor, iterables,
and the hook that names the device of a training worker. Not covered: tensors (`torch`), and the
source of the rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import field
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from syncline.core.tracebacks import shorten
from syncline.data.columnar import block as blocks
from syncline.data.columnar.block import Block
from syncline.data.columnar.kernels import permute
from syncline.data.iterate.cursor import Cursor, CursorTracker, CursorUpdate
from syncline.data.iterate.position import Restart
from syncline.data.iterate.prefetch import Prefetcher
from syncline.data.iterate.sharding import ShuffleWindows, shuffle_windows
from syncline.records import dataclass

T = TypeVar("T")
Ready = TypeVar("Ready")
"""A converted batch."""

# Size of the parts in which rows of varying size are taken from a shuffled window: large enough
# for the cost of a call, small enough for the processor's cache.
_TAKE_BYTES = 1024 * 1024
# Batches up to this size may be made in bursts.
_SMALL_BYTES = 512 * 1024


@dataclass(frozen=True, kw_only=True)
class RankRows:
    """The next rows of a rank. The last ones of a pass carry `total`, possibly without rows."""

    table: Block
    restart: Restart
    """Restart for these rows, see `ShardRange.restart`."""
    total: int | None = None
    """`Sharder.total` once it is known."""


class CutBatch(NamedTuple):
    """Rows of a batch, and the progress of the rank after it."""

    table: Block
    update: CursorUpdate


@dataclass(frozen=True)
class _MadeBatch(Generic[Ready]):
    """A converted batch, and the progress of the rank after it."""

    batch: Ready
    update: CursorUpdate
    is_small: bool


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """Batch options; arguments of `iter_batches`."""

    batch_size: int | None = 256
    """Rows per batch; None for one batch per block."""
    drop_last: bool = False
    """Drop a last batch with fewer rows."""
    local_shuffle_buffer_size: int | None = None
    """Rows per shuffle window; None for no local shuffle."""
    local_shuffle_seed: int | None = None
    """Seed of the local shuffle; None for the seed of the execution."""
    prefetch_batches: int = 1
    """Batches that a thread prepares in advance; 0 prepares each batch on demand."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "local_shuffle_buffer_size"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise TypeError(
                    f"{name}={value!r} is of type {type(value).__name__}, not a number of rows. "
                    "Use an int or None."
                )
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} is no number of rows. Use at least 1, or None.")
        if self.local_shuffle_buffer_size is not None and self.batch_size is None:
            raise ValueError(
                f"local_shuffle_buffer_size={self.local_shuffle_buffer_size} needs a batch_size, "
                "but batch_size is None."
            )
        if self.prefetch_batches < 0:
            raise ValueError(
                f"prefetch_batches={self.prefetch_batches} is negative. Use 0 for no prefetching."
            )

    def windows(self, execution_seed: int) -> ShuffleWindows | None:
        """Return the local shuffle; None without one."""
        seed = execution_seed if self.local_shuffle_seed is None else self.local_shuffle_seed
        return shuffle_windows(
            buffer_rows=self.local_shuffle_buffer_size, batch_size=self.batch_size, seed=seed
        )


def split_into_batches(
    rows: Iterator[RankRows], cursor: Cursor, options: BatchOptions
) -> Iterator[CutBatch]:
    """Yield the batches of a rank from a cursor on. `rows` begin with row `cursor.settled`."""
    if cursor.windows is not None:
        return _shuffled_batches(
            rows, cursor, cursor.windows, options.batch_size or 1, options.drop_last
        )
    return _batches_in_order(rows, cursor, options.batch_size, options.drop_last)


def _batches_in_order(
    rows: Iterator[RankRows], cursor: Cursor, batch_size: int | None, drop_last: bool
) -> Iterator[CutBatch]:
    buffer = _Buffer(restart=cursor.restart, total=cursor.total)
    yielded = cursor.rows
    for next_rows in rows:
        buffer.add(next_rows)
        size = batch_size or buffer.rows
        while buffer.rows >= size > 0:
            table = buffer.take(size)
            yielded += size
            yield CutBatch(table, CursorUpdate(yielded, buffer.restart, buffer.total))
    _check_end(buffer.total)
    if buffer.rows and not drop_last:
        yielded += buffer.rows
        yield CutBatch(
            buffer.take(buffer.rows), CursorUpdate(yielded, buffer.restart, buffer.total)
        )


def _shuffled_batches(
    rows: Iterator[RankRows],
    cursor: Cursor,
    windows: ShuffleWindows,
    batch_size: int,
    drop_last: bool,
) -> Iterator[CutBatch]:
    buffer = _Buffer(restart=cursor.restart, total=cursor.total)
    yielded = cursor.rows

    def window_batches(length: int) -> Iterator[CutBatch]:
        """Yield the batches of the next window that were not delivered before."""
        nonlocal yielded
        delivered, restart = yielded % windows.rows, buffer.restart
        window = buffer.take(length)
        order = windows.order(cursor.epoch, cursor.rank, yielded // windows.rows, length)
        for part_start, part in _in_order(window, order, delivered, batch_size):
            for start in range(0, part.num_rows, batch_size):
                batch = part.slice(start, batch_size)
                if drop_last and batch.num_rows < batch_size:
                    return
                yielded += batch.num_rows
                is_last = part_start + start + batch.num_rows == length
                next_restart = buffer.restart if is_last else restart
                yield CutBatch(batch, CursorUpdate(yielded, next_restart, buffer.total))

    for next_rows in rows:
        buffer.add(next_rows)
        while buffer.rows >= windows.rows:
            yield from window_batches(windows.rows)
    _check_end(buffer.total)
    if buffer.rows:
        yield from window_batches(buffer.rows)


def _in_order(
    window: Block, order: np.ndarray, start: int, batch_size: int
) -> Iterator[tuple[int, Block]]:
    """Yield the rows `order[start:]` of a window in parts of whole batches, each with the position
    of its first row in `order`.
    """
    length = len(order)
    if permute.can_permute(window):
        yield start, permute.permuted(window, order).slice(start)
        return
    window = window.combine_chunks()
    part_rows = batch_size * max(1, _TAKE_BYTES * length // (batch_size * (window.nbytes + 1)))
    for part_start in range(start, length, part_rows):
        yield part_start, blocks.take(window, order[part_start : part_start + part_rows])


def _check_end(total: int | None) -> None:
    """Raise if the rows stopped before their end: users would take the epoch for complete."""
    if total is None:
        raise RuntimeError(
            "The input of this iterator stopped before its end, so rows are missing. See the log "
            "for the cause."
        )


@dataclass(kw_only=True)
class _Buffer:
    """Rows that are in no batch so far."""

    restart: Restart
    """Restart for the first buffered row; if empty, for the last one that was buffered."""
    total: int | None
    """The last `RankRows.total` that was not None."""
    rows: int = 0
    _queue: deque[RankRows] = field(default_factory=deque)
    _taken: int = 0  # rows of the first entry that are in batches already

    def add(self, next_rows: RankRows) -> None:
        self.total = self.total if next_rows.total is None else next_rows.total
        if not next_rows.table.num_rows:
            return
        if not self._queue:
            self.restart = next_rows.restart
        self._queue.append(next_rows)
        self.rows += next_rows.table.num_rows

    def take(self, rows: int) -> Block:
        """Remove and return the first `rows` rows; a slice if they are of one table."""
        self.rows -= rows
        parts: list[Block] = []
        while rows:
            table = self._queue[0].table
            part = (
                table
                if not self._taken and table.num_rows <= rows
                else table.slice(self._taken, rows)
            )
            parts.append(part)
            rows -= part.num_rows
            self._taken += part.num_rows
            self.restart = self._queue[0].restart
            if self._taken == table.num_rows:
                self._queue.popleft()
                self._taken = 0
        if self._queue:
            self.restart = self._queue[0].restart
        return blocks.concat(parts)


@dataclass(frozen=True, kw_only=True)
class Pass:
    """A pass of a rank that has just begun."""

    cursor: Cursor
    """Cursor at the start."""
    rows: Iterator[RankRows]
    """Rows of the rank from `cursor.settled` on."""
    cancel: Callable[[], None]
    """Ends the pass. Called once by the loop's thread when the loop ends; a waiting `next(rows)` on
    another thread returns or raises immediately.
    """


@dataclass(frozen=True, kw_only=True)
class BatchIterable(Generic[Ready, T]):
    """Result of `iter_batches`. Each `iter()` is a pass, which ends with its loop."""

    begin: Callable[[], Pass]
    """Begins a pass."""
    options: BatchOptions
    convert: Callable[[Block], Ready]
    """Converts rows to a batch on the prefetching thread."""
    receive: Callable[[Ready], T]
    """Hands a batch over on the user's thread."""
    progress: CursorTracker
    """Cursor, updated before each batch is yielded."""
    runs_user_code: bool = True
    """True if `convert` runs code of the user, who expects it for `prefetch_batches` at a time."""

    def __iter__(self) -> Generator[T, None, None]:
        try:
            current = self.begin()
            last = CursorUpdate(current.cursor.rows, current.cursor.restart, current.cursor.total)
            made = (
                _MadeBatch(self.convert(cut.table), cut.update, self._is_small(cut.table))
                for cut in split_into_batches(current.rows, current.cursor, self.options)
            )
            prefetcher = Prefetcher(
                made,
                depth=self.options.prefetch_batches,
                cancel=current.cancel,
                meter=self.progress.meter,
                is_small=attrgetter("is_small"),
            )
            with self.progress.loop(current.cursor), closing(prefetcher):
                for each in prefetcher:
                    last = each.update
                    received = self.receive(each.batch)
                    self.progress.advance(last)
                    yield received
                    self.progress.requested()
                self.progress.end(last)
        except (Exception, KeyboardInterrupt) as error:
            shorten(error)
            raise

    def _is_small(self, table: Block) -> bool:
        return not self.runs_user_code and table.nbytes <= _SMALL_BYTES


@dataclass(frozen=True, kw_only=True)
class RowIterable:
    """Result of `iter_rows`. Each `iter()` is a pass; the cursor counts single rows."""

    begin: Callable[[], Pass]
    """Begins a pass."""
    prefetch_batches: int = 1
    """Blocks that a thread fetches in advance."""
    progress: CursorTracker
    """Cursor, updated before each row is yielded."""

    def __iter__(self) -> Generator[dict[str, Any], None, None]:
        try:
            current = self.begin()
            rows, restart, total = current.cursor.rows, current.cursor.restart, current.cursor.total
            prefetcher = Prefetcher(
                current.rows,
                depth=self.prefetch_batches,
                cancel=current.cancel,
                meter=self.progress.meter,
            )
            with self.progress.loop(current.cursor), closing(prefetcher):
                for each in prefetcher:
                    restart, total = each.restart, total if each.total is None else each.total
                    for row in blocks.rows(each.table):
                        rows += 1
                        self.progress.advance(CursorUpdate(rows, restart, total))
                        yield row
                        self.progress.requested()
                _check_end(total)
                self.progress.end(CursorUpdate(rows, restart, total))
        except (Exception, KeyboardInterrupt) as error:
            shorten(error)
            raise


def _no_device() -> None:
    return None


_find_device: Callable[[], object] = _no_device


def set_device_finder(find: Callable[[], object] | None) -> None:
    """Set the function that returns the device of the calling training worker; None resets it.

    Iteration needs this device for `device="auto"`, and training is a higher layer.
    """
    global _find_device
    _find_device = find or _no_device


def worker_device() -> Any:
    """Return the `torch.device` of this training worker; None outside of training."""
    return _find_device()
