"""Rows between dealing and fetching: who holds what, when the next block is wanted, what is let
go.
"""

from dataclasses import replace
from typing import Any

from syncline.data.iterate.cursor import Beginning, first_beginning
from syncline.data.iterate.position import Restart
from syncline.data.iterate.shard_queues import Hands
from syncline.data.iterate.sharding import Equal, Rounds

MIB = 1024 * 1024


def hands_of(
    *chunks: int, equal: Equal = False, limit_bytes: int = 100 * MIB, begin: Beginning | None = None
) -> Hands:
    beginning = begin or first_beginning(epoch=0, seed=0, rounds=Rounds(chunks=chunks, equal=equal))
    return Hands(beginning, limit_bytes=limit_bytes, patience_s=10.0)


def add(hands: Hands, *blocks: int, size_bytes: int = MIB) -> None:
    """Blocks named "0", "1", ... of so many rows each."""
    index = 0
    for number, rows in enumerate(blocks):
        hands.add(str(number), rows=rows, size_bytes=size_bytes, restart=Restart(index=index))
        index += rows


def fetched(hands: Hands, rank: int, now: float = 0.0) -> list[tuple[Any, int, int]] | None:
    answer = hands.fetch(rank, now)
    return (
        None
        if answer is None
        else [(share.block, share.start, share.stop) for share in answer.shares]
    )


def test_rows_go_around_and_a_block_is_held_until_its_last_row_is_fetched() -> None:
    hands = hands_of(2, 2)
    add(hands, 4, 3)
    assert fetched(hands, 0) == [("0", 0, 2), ("1", 0, 2)]
    assert hands.statistics().blocks == 2
    assert fetched(hands, 1) == [("0", 2, 4), ("1", 2, 3)]
    assert hands.statistics().blocks == 0
    assert hands.held_bytes == 0


def test_the_end_is_told_with_the_total_and_what_was_dropped() -> None:
    hands = hands_of(4, 4, equal="drop")
    add(hands, 11)
    hands.end()
    rows, end = hands.fetch(0, 0.0), hands.fetch(0, 0.0)
    assert rows is not None
    assert end is not None
    assert [share.total for share in rows.shares] == [None, 11]
    assert (rows.ended, end.ended, end.total, end.dropped_rows) == (False, True, 11, 1)


def test_nothing_there_is_none() -> None:
    hands = hands_of(2, 2)
    add(hands, 2)
    assert fetched(hands, 1) is None


def test_rows_of_a_rank_that_left_are_dropped_as_they_come() -> None:
    hands = hands_of(2, 2)
    add(hands, 2)
    hands.leave(0)
    assert hands.held_bytes == 0
    assert hands.present == [1]
    hands.add("next", rows=4, size_bytes=MIB, restart=Restart(index=2))
    assert fetched(hands, 1) == [("next", 0, 2)]
    assert hands.statistics().blocks == 0


def test_a_round_that_is_not_full_is_held_though_nobody_can_fetch_it() -> None:
    hands = hands_of(4, 4, equal="drop")
    add(hands, 5)
    assert hands.statistics().blocks == 1
    assert fetched(hands, 0) is None


def test_the_next_block_is_wanted_while_a_rank_has_little() -> None:
    hands = hands_of(10, 10)
    assert hands.wants(0.0)
    add(hands, 10, size_bytes=20 * MIB)
    assert hands.wants(0.0)
    hands.add("next", rows=10, size_bytes=20 * MIB, restart=Restart(index=10))
    assert not hands.wants(0.0)
    hands.fetch(1, 0.0)
    assert hands.wants(0.0)


def test_above_the_limit_a_starving_rank_waits_for_those_that_hold_rows_but_not_for_ever() -> None:
    hands = hands_of(10, 10, limit_bytes=5 * MIB)
    add(hands, 10, size_bytes=6 * MIB)
    assert not hands.wants(0.0)
    assert fetched(hands, 1, now=1.0) is None
    assert not hands.wants(10.0)
    assert hands.wants(12.0)


def test_a_round_larger_than_the_limit_is_completed() -> None:
    hands = hands_of(10, 10, equal="drop", limit_bytes=MIB)
    add(hands, 10, size_bytes=6 * MIB)
    assert fetched(hands, 0) is None
    assert hands.wants(0.0)


def test_one_answer_does_not_carry_many_large_blocks() -> None:
    hands = hands_of(10)
    add(hands, 10, 10, 10, size_bytes=20 * MIB)
    assert [len(fetched(hands, 0) or []) for _ in range(3)] == [1, 1, 1]


def test_rows_that_a_rank_had_before_are_not_dealt_again() -> None:
    begin = first_beginning(epoch=0, seed=0, rounds=Rounds(chunks=(2, 2)))
    hands = hands_of(begin=replace(begin, settled=(2, 1)))
    add(hands, 8)
    assert fetched(hands, 0) == [("0", 4, 6)]
    assert fetched(hands, 1) == [("0", 3, 4), ("0", 6, 8)]
