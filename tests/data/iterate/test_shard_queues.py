"""Rows between dealing and fetching: who holds what, when the next block is wanted, what is let
go.
"""

from dataclasses import replace
from typing import Any

from syncline.data.iterate.cursor import PassStart, epoch_start
from syncline.data.iterate.position import Restart
from syncline.data.iterate.shard_queues import ShardQueues
from syncline.data.iterate.sharding import Equal, Rounds

MIB = 1024 * 1024


def hands_of(
    *chunks: int, equal: Equal = False, limit_bytes: int = 100 * MIB, begin: PassStart | None = None
) -> ShardQueues:
    pass_start = begin or epoch_start(epoch=0, seed=0, rounds=Rounds(chunks=chunks, equal=equal))
    return ShardQueues(pass_start, limit_bytes=limit_bytes, patience_s=10.0)


def add(queues: ShardQueues, *blocks: int, size_bytes: int = MIB) -> None:
    """Blocks named "0", "1", ... of so many rows each."""
    index = 0
    for number, rows in enumerate(blocks):
        queues.add(str(number), rows=rows, size_bytes=size_bytes, restart=Restart(index=index))
        index += rows


def fetched(queues: ShardQueues, rank: int, now: float = 0.0) -> list[tuple[Any, int, int]] | None:
    answer = queues.fetch(rank, now)
    return (
        None
        if answer is None
        else [(share.block, share.start, share.stop) for share in answer.shares]
    )


def test_rows_go_around_and_a_block_is_held_until_its_last_row_is_fetched() -> None:
    queues = hands_of(2, 2)
    add(queues, 4, 3)
    assert fetched(queues, 0) == [("0", 0, 2), ("1", 0, 2)]
    assert queues.statistics().blocks == 2
    assert fetched(queues, 1) == [("0", 2, 4), ("1", 2, 3)]
    assert queues.statistics().blocks == 0
    assert queues.held_bytes == 0


def test_the_end_is_told_with_the_total_and_what_was_dropped() -> None:
    queues = hands_of(4, 4, equal="drop")
    add(queues, 11)
    queues.end()
    rows, end = queues.fetch(0, 0.0), queues.fetch(0, 0.0)
    assert rows is not None
    assert end is not None
    assert [share.total for share in rows.shares] == [None, 11]
    assert (rows.ended, end.ended, end.total, end.dropped_rows) == (False, True, 11, 1)


def test_nothing_there_is_none() -> None:
    queues = hands_of(2, 2)
    add(queues, 2)
    assert fetched(queues, 1) is None


def test_rows_of_a_rank_that_left_are_dropped_as_they_come() -> None:
    queues = hands_of(2, 2)
    add(queues, 2)
    queues.leave(0)
    assert queues.held_bytes == 0
    assert queues.present == [1]
    queues.add("next", rows=4, size_bytes=MIB, restart=Restart(index=2))
    assert fetched(queues, 1) == [("next", 0, 2)]
    assert queues.statistics().blocks == 0


def test_a_round_that_is_not_full_is_held_though_nobody_can_fetch_it() -> None:
    queues = hands_of(4, 4, equal="drop")
    add(queues, 5)
    assert queues.statistics().blocks == 1
    assert fetched(queues, 0) is None


def test_the_next_block_is_wanted_while_a_rank_has_little() -> None:
    queues = hands_of(10, 10)
    assert queues.needs_block(0.0)
    add(queues, 10, size_bytes=20 * MIB)
    assert queues.needs_block(0.0)
    queues.add("next", rows=10, size_bytes=20 * MIB, restart=Restart(index=10))
    assert not queues.needs_block(0.0)
    queues.fetch(1, 0.0)
    assert queues.needs_block(0.0)


def test_above_the_limit_a_starving_rank_waits_for_those_that_hold_rows_but_not_for_ever() -> None:
    queues = hands_of(10, 10, limit_bytes=5 * MIB)
    add(queues, 10, size_bytes=6 * MIB)
    assert not queues.needs_block(0.0)
    assert fetched(queues, 1, now=1.0) is None
    assert not queues.needs_block(10.0)
    assert queues.needs_block(12.0)


def test_a_round_larger_than_the_limit_is_completed() -> None:
    queues = hands_of(10, 10, equal="drop", limit_bytes=MIB)
    add(queues, 10, size_bytes=6 * MIB)
    assert fetched(queues, 0) is None
    assert queues.needs_block(0.0)


def test_one_answer_does_not_carry_many_large_blocks() -> None:
    queues = hands_of(10)
    add(queues, 10, 10, 10, size_bytes=20 * MIB)
    assert [len(fetched(queues, 0) or []) for _ in range(3)] == [1, 1, 1]


def test_rows_that_a_rank_had_before_are_not_dealt_again() -> None:
    begin = epoch_start(epoch=0, seed=0, rounds=Rounds(chunks=(2, 2)))
    queues = hands_of(begin=replace(begin, settled=(2, 1)))
    add(queues, 8)
    assert fetched(queues, 0) == [("0", 4, 6)]
    assert fetched(queues, 1) == [("0", 3, 4), ("0", 6, 8)]
