"""Which rank gets which rows: rounds of chunks, the last round, blocks that cross their bounds."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.data.iterate.position import Position, Restart
from syncline.data.iterate.sharding import (
    Equal,
    Rounds,
    Sharder,
    ShardRange,
    ShuffleWindows,
    equal_mode,
    shuffle_windows,
)


def shard(
    rounds: Rounds, *blocks: int, position: Position | None = None
) -> tuple[list[list[int]], Sharder]:
    """The global indices that each rank gets of blocks of so many rows, and the dealer."""
    sharder = Sharder(rounds=rounds, position=position or Position())
    index, shards, starts = sharder.position.restart.index, [], {}
    for number, rows in enumerate(blocks):
        starts[number] = index
        shards += sharder.add(number, rows, Restart(index=index, point=number))
        index += rows
    shards += sharder.end()
    shares: list[list[int]] = [[] for _ in rounds.chunks]
    for each in shards:
        shares[each.rank] += range(starts[each.block] + each.start, starts[each.block] + each.stop)
    return shares, sharder


def test_a_round_takes_a_chunk_for_each_rank_across_blocks() -> None:
    shares, sharder = shard(Rounds(chunks=(2, 3)), 4, 4, 2)
    assert shares == [[0, 1, 5, 6], [2, 3, 4, 7, 8, 9]]
    assert sharder.total == 10
    assert sharder.statistics().rows == (4, 6)


@pytest.mark.parametrize(
    ("equal", "expected"),
    [
        (False, [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10]]),
        ("drop", [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]),
        ("pad", [[*range(6)], [*range(6, 11), 0]]),
    ],
)
def test_the_last_round_is_dealt_as_it_is_or_in_equal_shares(
    equal: Equal, expected: list[list[int]]
) -> None:
    shares, sharder = shard(Rounds(chunks=(8, 8), equal=equal), 3, 3, 5)
    assert shares == expected
    statistics = sharder.statistics()
    assert (statistics.dropped_rows, statistics.padded_rows) == (
        int(equal == "drop"),
        int(equal == "pad"),
    )
    assert statistics.rows == tuple(map(len, expected))


def test_a_single_row_pads_all_ranks() -> None:
    shares, sharder = shard(Rounds(chunks=(4,) * 5, equal="pad"), 1)
    assert shares == [[0]] * 5
    assert sharder.statistics().padded_rows == 4


def test_a_single_rank_gets_whole_blocks_at_once_whatever_its_chunk() -> None:
    sharder = Sharder(rounds=Rounds(chunks=(2,), equal="drop"))
    assert sharder.add("a", 1000, Restart()) == [ShardRange(0, "a", 0, 1000, Restart())]
    assert sharder.end() == []
    assert sharder.statistics().dropped_rows == 0


def test_a_round_with_equal_shares_is_held_back_until_it_is_full() -> None:
    sharder = Sharder(rounds=Rounds(chunks=(2, 2), equal="drop"))
    assert sharder.add("a", 3, Restart()) == []
    assert sharder.held == {"a"}
    assert sharder.statistics().held_rows == 3
    shards = sharder.add("b", 2, Restart(index=3))
    assert [(each.rank, each.block, each.start, each.stop) for each in shards] == [
        (0, "a", 0, 2),
        (1, "a", 2, 3),
        (1, "b", 0, 1),
    ]
    assert sharder.held == {"b"}
    assert sharder.end() == []
    assert sharder.statistics().dropped_rows == 1


def test_without_equal_shares_nothing_is_held_back() -> None:
    sharder = Sharder(rounds=Rounds(chunks=(2, 2)))
    assert len(sharder.add("a", 3, Restart())) == 2
    assert sharder.held == set()


def test_consumed_rows_are_not_dealt() -> None:
    position = Position(prefix=4, holes=((5, 7), (9, 10)), restart=Restart(index=2))
    shares, _ = shard(Rounds(chunks=(2, 2)), 3, 10, position=position)
    assert shares == [[4, 7, 11, 12], [8, 10, 13, 14]]


def test_an_empty_sequence_has_a_total_too() -> None:
    for equal in (False, "drop", "pad"):
        shares, sharder = shard(Rounds(chunks=(3, 3), equal=equal))
        assert shares == [[], []]
        assert sharder.total == 0


def test_a_restart_for_padding_begins_with_the_round() -> None:
    sharder = Sharder(rounds=Rounds(chunks=(2, 2), equal="pad"))
    sharder.add("a", 4, Restart(index=0, point="a"))
    sharder.add("b", 1, Restart(index=4, point="b"))
    shards = sharder.add("c", 3, Restart(index=5, point="c"))
    assert {each.restart.point for each in shards} == {"b"}


def test_gaps_between_blocks_and_a_late_beginning_are_errors() -> None:
    sharder = Sharder(rounds=Rounds(chunks=(2, 2)))
    sharder.add("a", 3, Restart())
    with pytest.raises(ValueError, match="'b' begins at row 4, but the one before ended at row 3"):
        sharder.add("b", 3, Restart(index=4))
    with pytest.raises(ValueError, match="still needed"):
        Sharder(rounds=Rounds(chunks=(2, 2))).add("a", 3, Restart(index=1))


def test_choices_for_equal() -> None:
    assert [equal_mode(choice) for choice in (False, True, "drop", "pad")] == [
        False,
        "drop",
        "drop",
        "pad",
    ]
    with pytest.raises(ValueError, match="equal='most' is not known"):
        equal_mode("most")
    with pytest.raises(ValueError, match="at least one row"):
        Rounds(chunks=(2, 0))


def test_an_order_is_a_permutation_that_only_its_arguments_decide() -> None:
    windows = ShuffleWindows(rows=100, seed=1)
    order = windows.order(2, 3, 4, 100)
    assert sorted(order.tolist()) == list(range(100))
    assert np.array_equal(order, ShuffleWindows(rows=100, seed=1).order(2, 3, 4, 100))
    others = [
        ShuffleWindows(rows=100, seed=2).order(2, 3, 4, 100),
        *(windows.order(*key, 100) for key in [(1, 3, 4), (2, 1, 4), (2, 3, 1)]),
    ]
    assert not any(np.array_equal(order, other) for other in others)


def test_orders_are_the_same_in_every_version() -> None:
    assert ShuffleWindows(rows=8, seed=0).order(0, 0, 0, 8).tolist() == [2, 4, 3, 6, 5, 0, 1, 7]
    assert ShuffleWindows(rows=4, seed=-1).order(0, 0, 0, 4).tolist() == [3, 2, 1, 0]


def test_windows_are_rounded_up_to_whole_batches() -> None:
    assert shuffle_windows(buffer_rows=10, batch_size=4, seed=3) == ShuffleWindows(rows=12, seed=3)
    assert shuffle_windows(buffer_rows=2, batch_size=4, seed=3) == ShuffleWindows(rows=4, seed=3)
    assert shuffle_windows(buffer_rows=None, batch_size=4, seed=3) is None
    with pytest.raises(ValueError, match="at least one row"):
        ShuffleWindows(rows=0, seed=0)
