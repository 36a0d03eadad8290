"""Batches: their rows, what is copied, how far the program is after each, and loops that are
left.
"""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from syncline.data.columnar import block
from syncline.data.iterate.batching import (
    BatchIterable,
    BatchOptions,
    Pass,
    RankRows,
    RowIterable,
    split_into_batches,
)
from syncline.data.iterate.cursor import Cursor, CursorTracker, epoch_start
from syncline.data.iterate.position import Restart
from syncline.data.iterate.sharding import Rounds, ShuffleWindows
from syncline.testing import eventually


def pieces_of(*sizes: int, columns: int = 1) -> Iterator[RankRows]:
    index = 0
    for size in sizes:
        table = pa.table(
            {f"c{column}": np.arange(index, index + size) for column in range(columns)}
        )
        yield RankRows(table=table, restart=Restart(index=index, point=index))
        index += size
    yield RankRows(
        table=pa.table({f"c{column}": pa.array([], pa.int64()) for column in range(columns)}),
        restart=Restart(),
        total=index,
    )


def pass_start(windows: ShuffleWindows | None = None) -> Cursor:
    return epoch_start(epoch=0, seed=0, rounds=Rounds(chunks=(1,))).cursor(
        plan="p", rank=0, windows=windows
    )


def batches_of(rows: Iterator[RankRows], **options: Any) -> list[list[int]]:
    chosen = BatchOptions(**options)
    return [
        cut.table["c0"].to_pylist()
        for cut in split_into_batches(rows, pass_start(chosen.windows(0)), chosen)
    ]


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_batches_have_their_size_across_pieces() -> None:
    assert batches_of(pieces_of(3, 0, 4, 1), batch_size=3) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert batches_of(pieces_of(3, 4, 1), batch_size=3, drop_last=True) == [[0, 1, 2], [3, 4, 5]]
    assert batches_of(pieces_of(3, 0, 2), batch_size=None) == [[0, 1, 2], [3, 4]]
    assert batches_of(pieces_of(), batch_size=2) == []


def test_a_batch_within_a_piece_is_not_copied() -> None:
    piece = next(pieces_of(1000))
    whole = block.to_batch(piece.table)["c0"]
    cuts = split_into_batches(iter([piece]), pass_start(), BatchOptions(batch_size=250))
    for number, cut in enumerate(islice(cuts, 4)):
        assert address(block.to_batch(cut.table)["c0"]) == address(whole) + number * 250 * 8


def test_a_mark_counts_the_rows_and_names_the_piece_of_the_next_one() -> None:
    marks = [
        cut.update
        for cut in split_into_batches(pieces_of(4, 4), pass_start(), BatchOptions(batch_size=3))
    ]
    assert [(update.rows, update.restart.index, update.total) for update in marks] == [
        (3, 0, None),
        (6, 4, None),
        (8, 4, 8),
    ]


def test_a_local_shuffle_permutes_windows_and_nothing_else() -> None:
    batches = batches_of(
        pieces_of(10, 7, 3, 5), batch_size=4, local_shuffle_buffer_size=7, local_shuffle_seed=3
    )
    assert [len(batch) for batch in batches] == [4, 4, 4, 4, 4, 4, 1]
    rows = [row for batch in batches for row in batch]
    windows = [rows[start : start + 8] for start in range(0, 25, 8)]
    assert [sorted(window) for window in windows] == [
        list(range(start, min(start + 8, 25))) for start in range(0, 25, 8)
    ]
    assert rows != sorted(rows)
    assert rows == [
        row
        for batch in batches_of(
            pieces_of(25), batch_size=4, local_shuffle_buffer_size=8, local_shuffle_seed=3
        )
        for row in batch
    ]
    assert [
        len(batch)
        for batch in batches_of(
            pieces_of(25), batch_size=4, local_shuffle_buffer_size=8, drop_last=True
        )
    ] == [4] * 6


def test_marks_of_a_shuffle_name_the_piece_that_the_window_begins_in() -> None:
    windows = ShuffleWindows(rows=6, seed=0)
    marks = [
        cut.update
        for cut in split_into_batches(
            pieces_of(4, 4, 4), pass_start(windows), BatchOptions(batch_size=3)
        )
    ]
    assert [(update.rows, update.restart.index) for update in marks] == [
        (3, 0),
        (6, 4),
        (9, 4),
        (12, 8),
    ]


def test_a_shuffle_of_wide_rows_is_taken_in_parts_and_yields_each_once() -> None:
    table = block.from_batch(
        {"image": np.arange(300, dtype=np.int64)[:, None].repeat(4096, axis=1)}
    )
    cuts = split_into_batches(
        iter([RankRows(table=table, restart=Restart(), total=300)]),
        pass_start(ShuffleWindows(rows=300, seed=1)),
        BatchOptions(batch_size=10),
    )
    assert sorted(
        int(row[0]) for cut in cuts for row in block.to_batch(cut.table)["image"]
    ) == list(range(300))


@pytest.mark.parametrize("options", [{}, {"local_shuffle_buffer_size": 4}])
def test_input_that_merely_stops_is_an_error_not_an_end(options: dict[str, int]) -> None:
    unfinished = islice(pieces_of(4, 4, 4), 2)
    with pytest.raises(RuntimeError, match="stopped before its end"):
        batches_of(unfinished, batch_size=4, **options)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_size": 0}, ValueError, "batch_size=0 is no number of rows"),
        ({"batch_size": 2.5}, TypeError, "batch_size=2.5 is of type float"),
        ({"local_shuffle_buffer_size": -1}, ValueError, "local_shuffle_buffer_size=-1"),
        ({"batch_size": None, "local_shuffle_buffer_size": 4}, ValueError, "needs a batch_size"),
        ({"prefetch_batches": -1}, ValueError, "prefetch_batches=-1"),
    ],
)
def test_options_that_make_no_sense_are_errors(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        BatchOptions(**options)


class Loop:
    """Batches or rows of 10 rows in pieces of 4, and what their passes were told."""

    def __init__(self) -> None:
        self.progress = CursorTracker()
        self.cancelled = 0

    def begin(self) -> Pass:
        return Pass(cursor=pass_start(), rows=pieces_of(4, 4, 2), cancel=self._cancel)

    def _cancel(self) -> None:
        self.cancelled += 1

    def batches(self, prefetch_batches: int) -> BatchIterable[pa.Table, list[int]]:
        options = BatchOptions(batch_size=3, prefetch_batches=prefetch_batches)
        return BatchIterable(
            begin=self.begin,
            options=options,
            convert=lambda table: table,
            receive=lambda table: table["c0"].to_pylist(),
            progress=self.progress,
        )


@pytest.mark.parametrize("prefetch_batches", [0, 1, 3])
def test_every_loop_is_a_pass_that_ends(prefetch_batches: int) -> None:
    loop = Loop()
    batches = loop.batches(prefetch_batches)
    for passes in (1, 2):
        assert list(batches) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
        assert loop.cancelled == passes
        assert loop.progress.cursor is not None
        assert loop.progress.cursor.ended
        assert (loop.progress.cursor.rows, loop.progress.cursor.total) == (10, 10)


@pytest.mark.parametrize("prefetch_batches", [0, 2])
def test_progress_counts_what_the_program_got_not_what_is_fetched_ahead(
    prefetch_batches: int,
) -> None:
    loop = Loop()
    seen = []
    for batch in loop.batches(prefetch_batches):
        assert loop.progress.cursor is not None
        seen.append((batch[-1] + 1, loop.progress.cursor.rows, loop.progress.cursor.ended))
    assert seen == [(3, 3, False), (6, 6, False), (9, 9, False), (10, 10, False)]


@pytest.mark.parametrize(("runs_user_code", "converted"), [(True, 2), (False, 4)])
def test_functions_of_the_program_convert_no_more_than_it_asked_for(
    runs_user_code: bool, converted: int
) -> None:
    tables: list[pa.Table] = []
    batches = replace(
        Loop().batches(1), convert=lambda t: tables.append(t) or t, runs_user_code=runs_user_code
    )
    loop = iter(batches)
    next(loop)
    eventually(lambda: len(tables) >= converted)
    loop.close()
    assert len(tables) == converted


def test_leaving_the_loop_cancels_the_pass_and_keeps_the_place() -> None:
    loop = Loop()
    for _ in loop.batches(2):
        break
    assert loop.cancelled == 1
    assert loop.progress.cursor is not None
    assert (loop.progress.cursor.rows, loop.progress.cursor.ended) == (3, False)


def test_rows_are_counted_one_by_one() -> None:
    loop = Loop()
    rows = iter(RowIterable(begin=loop.begin, progress=loop.progress))
    assert [next(rows)["c0"] for _ in range(6)] == list(range(6))
    assert loop.progress.cursor is not None
    assert (loop.progress.cursor.rows, loop.progress.cursor.restart.index) == (6, 4)
    assert [row["c0"] for row in rows] == [6, 7, 8, 9]
    assert loop.progress.cursor.ended
    assert loop.cancelled == 1


def test_a_shuffled_epoch_is_the_same_whatever_the_pieces() -> None:
    rng = random.Random(0)
    expected = batches_of(pieces_of(200), batch_size=8, local_shuffle_buffer_size=32)
    for _ in range(20):
        sizes = [rng.randint(1, 30) for _ in range(6)]
        assert (
            batches_of(
                pieces_of(*sizes, 200 - sum(sizes)), batch_size=8, local_shuffle_buffer_size=32
            )
            == expected
        )
