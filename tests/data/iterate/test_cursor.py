"""Cursors: their form, their size, and errors that say what is wrong with them."""

import dataclasses
import json
import random
from typing import Any

import pytest

from syncline.data.iterate.cursor import (
    Cursor,
    CursorError,
    CursorTracker,
    CursorUpdate,
    continue_from,
    epoch_start,
    merge,
)
from syncline.data.iterate.position import Position, Restart
from syncline.data.iterate.sharding import Rounds, ShuffleWindows
from tests.data.iterate.iterate_simulation import SimulatedPipeline, SimulatedRanks


def cursors(
    world_size: int = 2, *, windows: ShuffleWindows | None = None, chunk: int = 4, **changes: Any
) -> list[Cursor]:
    begin = epoch_start(epoch=3, seed=5, rounds=Rounds(chunks=(chunk,) * world_size))
    return [
        dataclasses.replace(begin.cursor(plan="p", rank=rank, windows=windows), **changes)
        for rank in range(world_size)
    ]


def test_a_cursor_survives_json() -> None:
    cursor = dataclasses.replace(
        cursors(windows=ShuffleWindows(rows=8, seed=1))[1],
        start=Position(
            prefix=10,
            holes=((12, 14), (20, 29)),
            restart=Restart(index=4, point=["a.parquet", {"skip": 3}]),
        ),
        rows=17,
        restart=Restart(index=40, point=[1, 2]),
        total=99,
    )
    assert Cursor.from_dict(json.loads(json.dumps(cursor.to_dict())), plan="p") == cursor


def test_a_cursor_stays_small_however_long_the_epoch_is() -> None:
    far = cursors(
        8, chunk=256, rows=256 * 10**9, restart=Restart(index=2 * 10**12, point=[10**6, 10**6])
    )
    assert len(json.dumps(far[0].to_dict())) < 500
    position = merge(far)
    assert (position.prefix, position.holes) == (8 * 256 * 10**9, ())


def test_ranks_that_are_not_in_step_leave_holes() -> None:
    first, second = cursors(rows=8)
    ahead = dataclasses.replace(first, rows=16, restart=Restart(index=20, point="late"))
    behind = dataclasses.replace(second, restart=Restart(index=11, point="early"))
    position = merge([behind, ahead])
    assert position == Position(
        prefix=20, holes=((24, 28),), restart=Restart(index=20, point="late")
    )
    assert (
        merge([behind, dataclasses.replace(ahead, restart=Restart(index=21))]).restart.index == 11
    )


def test_unfinished_windows_leave_their_rows_as_holes_that_add_up() -> None:
    windows = ShuffleWindows(rows=1000, seed=1)
    position = merge(cursors(4, windows=windows, chunk=100, rows=1500))
    assert position.prefix <= 4 * 1000 + 100
    assert position.prefix + sum(stop - start for start, stop in position.holes) == 4 * 1500
    cursor = epoch_start(epoch=0, seed=0, rounds=Rounds(chunks=(1,))).cursor(
        plan="p", rank=0, windows=None
    )
    assert (
        len(json.dumps(dataclasses.replace(cursor, start=position).to_dict()))
        < 8 * len(position.holes) + 400
    )


def test_a_padded_round_moves_the_prefix_to_the_end_and_not_beyond() -> None:
    padded = Rounds(chunks=(2, 2), equal="pad")
    assert merge(cursors(rounds=padded, rows=4, total=7)).prefix == 7


def test_the_same_ranks_continue_from_their_common_beginning() -> None:
    begin = continue_from(cursors(rows=8), rounds=Rounds(chunks=(4, 4)), windows=[None, None])
    assert (begin.position, begin.rows, begin.settled, begin.epoch, begin.seed) == (
        Position(),
        (8, 8),
        (8, 8),
        3,
        5,
    )
    other = continue_from(cursors(rows=8), rounds=Rounds(chunks=(4, 4, 4)), windows=[None] * 3)
    assert (other.position.prefix, other.rows, other.epoch) == (16, (0, 0, 0), 3)


def test_a_window_is_read_again_from_its_beginning() -> None:
    windows = ShuffleWindows(rows=8, seed=0)
    begin = continue_from(
        cursors(windows=windows, rows=20), rounds=Rounds(chunks=(4, 4)), windows=[windows, windows]
    )
    assert (begin.rows, begin.settled) == ((20, 20), (16, 16))


def test_a_rank_that_waits_at_the_end_of_the_epoch_before_has_consumed_nothing_of_the_next() -> (
    None
):
    waiting = dataclasses.replace(cursors()[0], ended=True, rows=100, total=200)
    ahead = dataclasses.replace(cursors()[1], epoch=4, rows=4)
    position = merge([waiting, ahead])
    assert (position.prefix, position.holes) == (0, ((4, 8),))
    assert continue_from([waiting, ahead], rounds=ahead.rounds, windows=[None, None]).epoch == 4


def test_a_rank_without_its_remainder_gets_it_in_no_later_session() -> None:
    pipeline = SimulatedPipeline(fragments=[list(range(10))])
    begin = epoch_start(epoch=0, seed=0, rounds=Rounds(chunks=(4,)))
    ranks = SimulatedRanks(
        pipeline=pipeline, pass_start=begin, windows=[None], rng=random.Random(0), drop_last=True
    )
    ranks.finish()
    assert ranks.yielded == [list(range(8))]
    assert continue_from(ranks.saved(), rounds=begin.rounds, windows=[None]).epoch == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "version 99, but this syncline reads version 1"),
        ({"plan": "q"}, "another dataset"),
        ({"rows": None}, "damaged"),
        ({"start": {"prefix": 3}}, "damaged"),
    ],
)
def test_a_state_that_cannot_be_used_says_why(change: dict[str, Any], message: str) -> None:
    state = {**cursors()[0].to_dict(), **change}
    with pytest.raises(CursorError, match=message):
        Cursor.from_dict(state, plan="p")
    with pytest.raises(CursorError, match="version None"):
        Cursor.from_dict({}, plan="p")


def test_states_that_do_not_belong_together_are_an_error() -> None:
    first, second = cursors(rows=4)
    with pytest.raises(CursorError, match="had 2 ranks, but these are the states of ranks \\[0\\]"):
        merge([first])
    with pytest.raises(CursorError, match="two passes \\(epoch: 3 and 4\\)"):
        merge([first, dataclasses.replace(second, epoch=4)])
    with pytest.raises(CursorError, match="no cursor"):
        continue_from([], rounds=first.rounds, windows=[None])


def test_progress_is_what_the_program_got() -> None:
    progress = CursorTracker()
    assert progress.cursor is None
    cursor = cursors()[0]
    progress.begin(cursor)
    assert progress.cursor == cursor
    progress.advance(CursorUpdate(4, Restart(index=3), None))
    assert progress.cursor == dataclasses.replace(cursor, rows=4, restart=Restart(index=3))
    progress.end(CursorUpdate(8, Restart(index=3), 8))
    assert progress.cursor == dataclasses.replace(
        cursor, rows=8, restart=Restart(index=3), total=8, ended=True
    )
