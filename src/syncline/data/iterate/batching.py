"""Batches from the pieces of blocks that a rank gets, and the iterables that programs loop over.

A batch that lies within one piece is a slice of it: nothing is copied. With a local shuffle it is a
`take` from its window. Covered: cutting, in order and shuffled, how far the program is after each
batch, re-iterables. Not covered: tensors (`torch`), where the pieces come from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from syncline.core.tracebacks import shorten
from syncline.data.columnar import block as blocks
from syncline.data.columnar.block import Block
from syncline.data.iterate.cursor import Cursor, CursorTracker, CursorUpdate
from syncline.data.iterate.position import Restart
from syncline.data.iterate.prefetch import Prefetcher
from syncline.data.iterate.sharding import ShuffleWindows, shuffle_windows

T = TypeVar("T")
Ready = TypeVar("Ready")

# A shuffled window is taken in parts of about this size: large enough for the cost of a call, small
# enough for the processor's cache.
_TAKE_BYTES = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class RankRows:
    """The next own rows of a rank, as they come from dealing. The last piece of a pass says
    `total`; it may be without rows.
    """

    table: Block
    """The rows."""
    restart: Restart
    """Where the pipeline may start again for the sake of these rows: `ShardRange.restart`."""
    total: int | None = None
    """`Sharder.total`, as soon as it is known: on all pieces of a last round that was held back."""


class CutBatch(NamedTuple):
    """The rows of one batch, and how far the rank is after it."""

    table: Block
    mark: CursorUpdate


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """What a batch is; the arguments of `iter_batches`."""

    batch_size: int | None = 256
    """Rows of a batch; None: the pieces as they come."""
    drop_last: bool = False
    """Leave out a last batch with fewer rows."""
    local_shuffle_buffer_size: int | None = None
    """Rows among which the order is random; None: the order of the dataset."""
    local_shuffle_seed: int | None = None
    """Seed of that order; None: the execution's."""
    prefetch_batches: int = 1
    """Batches that are made ahead on a thread; 0: each is made when the program asks for it."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "local_shuffle_buffer_size"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise TypeError(
                    f"{name}={value!r} is of type {type(value).__name__}, not a number of rows: give an int or None"
                )
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} is no number of rows: give at least 1, or None")
        if self.local_shuffle_buffer_size is not None and self.batch_size is None:
            raise ValueError(
                f"local_shuffle_buffer_size={self.local_shuffle_buffer_size} needs a batch_size, but batch_size is None"
            )
        if self.prefetch_batches < 0:
            raise ValueError(
                f"prefetch_batches={self.prefetch_batches} is negative: give 0 for no prefetching, or the number of batches"
            )

    def windows(self, execution_seed: int) -> ShuffleWindows | None:
        """The windows of the local shuffle; None without one."""
        seed = execution_seed if self.local_shuffle_seed is None else self.local_shuffle_seed
        return shuffle_windows(
            buffer_rows=self.local_shuffle_buffer_size, batch_size=self.batch_size, seed=seed
        )


def split_into_batches(pieces: Iterator[RankRows], cursor: Cursor, options: BatchOptions) -> Iterator[CutBatch]:
    """The batches of a rank from `cursor` on. `pieces` begin with own row `cursor.settled`."""
    if cursor.windows is not None:
        return _cut_shuffled(
            pieces, cursor, cursor.windows, options.batch_size or 1, options.drop_last
        )
    return _cut_in_order(pieces, cursor, options.batch_size, options.drop_last)


def _cut_in_order(
    pieces: Iterator[RankRows], cursor: Cursor, batch_size: int | None, drop_last: bool
) -> Iterator[CutBatch]:
    buffer = _Buffer(restart=cursor.restart, total=cursor.total)
    yielded = cursor.rows
    for piece in pieces:
        buffer.add(piece)
        size = batch_size or buffer.rows
        while buffer.rows >= size > 0:
            table = buffer.take(size)
            yielded += size
            yield CutBatch(table, CursorUpdate(yielded, buffer.restart, buffer.total))
    _check_end(buffer.total)
    if buffer.rows and not drop_last:
        yielded += buffer.rows
        yield CutBatch(buffer.take(buffer.rows), CursorUpdate(yielded, buffer.restart, buffer.total))


def _cut_shuffled(
    pieces: Iterator[RankRows], cursor: Cursor, windows: ShuffleWindows, batch_size: int, drop_last: bool
) -> Iterator[CutBatch]:
    buffer = _Buffer(restart=cursor.restart, total=cursor.total)
    yielded = cursor.rows

    def cut_window(rows: int) -> Iterator[CutBatch]:
        """The batches of the next window that the program has not got."""
        nonlocal yielded
        begun, restart = yielded % windows.rows, buffer.restart
        window = buffer.take(rows).combine_chunks()
        order = windows.order(cursor.epoch, cursor.rank, yielded // windows.rows, rows)
        part_rows = batch_size * max(1, _TAKE_BYTES * rows // (batch_size * (window.nbytes + 1)))
        for part_start in range(begun, rows, part_rows):
            part = blocks.take(window, order[part_start : part_start + part_rows])
            for start in range(0, part.num_rows, batch_size):
                batch = part.slice(start, batch_size)
                if drop_last and batch.num_rows < batch_size:
                    return
                yielded += batch.num_rows
                over = part_start + start + batch.num_rows == rows
                yield CutBatch(batch, CursorUpdate(yielded, buffer.restart if over else restart, buffer.total))

    for piece in pieces:
        buffer.add(piece)
        while buffer.rows >= windows.rows:
            yield from cut_window(windows.rows)
    _check_end(buffer.total)
    if buffer.rows:
        yield from cut_window(buffer.rows)


def _check_end(total: int | None) -> None:
    """Pieces that merely stop coming are no end: the program would take the rest of the epoch for
    seen.
    """
    if total is None:
        raise RuntimeError(
            "the input of this iterator stopped before its end, so rows are missing: see the log for what stopped the dataset"
        )


@dataclass(kw_only=True)
class _Buffer:
    """Own rows that are in no batch yet."""

    restart: Restart
    """Where the pipeline may start again for the first row here; where there is none, for the last
    one that was.
    """
    total: int | None
    """The last `RankRows.total` that was not None."""
    rows: int = 0
    _pieces: deque[RankRows] = field(default_factory=deque)
    _taken: int = 0  # rows of the first piece that are in batches already

    def add(self, piece: RankRows) -> None:
        self.total = self.total if piece.total is None else piece.total
        if not piece.table.num_rows:
            return
        if not self._pieces:
            self.restart = piece.restart
        self._pieces.append(piece)
        self.rows += piece.table.num_rows

    def take(self, rows: int) -> Block:
        """The first `rows` rows; a slice where they are of one piece."""
        self.rows -= rows
        parts: list[Block] = []
        while rows:
            table = self._pieces[0].table
            part = (
                table
                if not self._taken and table.num_rows <= rows
                else table.slice(self._taken, rows)
            )
            parts.append(part)
            rows -= part.num_rows
            self._taken += part.num_rows
            self.restart = self._pieces[0].restart
            if self._taken == table.num_rows:
                self._pieces.popleft()
                self._taken = 0
        if self._pieces:
            self.restart = self._pieces[0].restart
        return blocks.concat(parts)


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One pass of a rank over its share, just begun."""

    cursor: Cursor
    """Where it begins."""
    pieces: Iterator[RankRows]
    """Its own rows from `cursor.settled` on."""
    cancel: Callable[[], None]
    """Called once when the loop is over, finished or left, from the loop's thread: what feeds
    `pieces` stops, and a waiting `next(pieces)` on another thread returns or raises at once.
    """


@dataclass(frozen=True, kw_only=True)
class BatchIterable(Generic[Ready, T]):
    """What `iter_batches` returns: each `iter()` is a pass of its own, and leaving the loop ends
    the pass.
    """

    begin: Callable[[], Pass]
    """Begins a pass."""
    options: BatchOptions
    """What a batch is."""
    convert: Callable[[Block], Ready]
    """Makes a batch of rows, on the prefetching thread."""
    receive: Callable[[Ready], T]
    """Hands a batch to the program, on its own thread."""
    progress: CursorTracker
    """Told what the program got, before it gets it."""

    def __iter__(self) -> Generator[T, None, None]:
        try:
            current = self.begin()
            last = CursorUpdate(current.cursor.rows, current.cursor.restart, current.cursor.total)
            made = (
                _Made(self.convert(cut.table), cut.mark)
                for cut in split_into_batches(current.pieces, current.cursor, self.options)
            )
            ahead = Prefetcher(
                made,
                depth=self.options.prefetch_batches,
                cancel=current.cancel,
                meter=self.progress.meter,
            )
            with self.progress.loop(current.cursor), closing(ahead):
                for batch, last in ahead:
                    received = self.receive(batch)
                    self.progress.advance(last)
                    yield received
                self.progress.end(last)
        except (Exception, KeyboardInterrupt) as error:
            shorten(error)
            raise


class _Made(NamedTuple):
    batch: Any
    mark: CursorUpdate


@dataclass(frozen=True, kw_only=True)
class RowIterable:
    """What `iter_rows` returns: each `iter()` is a pass of its own. The cursor counts single
    rows.
    """

    begin: Callable[[], Pass]
    """Begins a pass."""
    prefetch_batches: int = 1
    """Pieces that are fetched ahead on a thread."""
    progress: CursorTracker
    """Told what the program got, before it gets it."""

    def __iter__(self) -> Generator[dict[str, Any], None, None]:
        try:
            current = self.begin()
            rows, restart, total = current.cursor.rows, current.cursor.restart, current.cursor.total
            ahead = Prefetcher(
                current.pieces,
                depth=self.prefetch_batches,
                cancel=current.cancel,
                meter=self.progress.meter,
            )
            with self.progress.loop(current.cursor), closing(ahead):
                for piece in ahead:
                    restart, total = piece.restart, total if piece.total is None else piece.total
                    for row in blocks.rows(piece.table):
                        rows += 1
                        self.progress.advance(CursorUpdate(rows, restart, total))
                        yield row
                _check_end(total)
                self.progress.end(CursorUpdate(rows, restart, total))
        except (Exception, KeyboardInterrupt) as error:
            shorten(error)
            raise


def _no_device() -> None:
    return None


_find: Callable[[], Any] = _no_device


def set_device_finder(find: Callable[[], Any] | None) -> None:
    """From now on `find()` says which device the calling code should use, None for none; `None`
    forgets the finder.
    """
    global _find
    _find = find or _no_device


def worker_device() -> Any:
    """The `torch.device` of the training worker that this is; None outside of training."""
    return _find()
