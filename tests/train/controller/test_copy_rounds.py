"""Rounds of copies: all ranks copy the same step, and no rank has to wait for it."""

from __future__ import annotations

import pytest

from syncline.train.controller.copy_rounds import CopyRounds
from syncline.train.workers.messages import CopyReady, CopySnapshot


def ready(rounds: CopyRounds, *ranks: tuple[int | None, int]) -> CopySnapshot | None:
    """Pass (copied step, newest step) of each rank; return the order after the last one."""
    for rank, (copied, newest) in enumerate(ranks[:-1]):
        assert rounds.ready(rank, CopyReady(copied_step=copied, newest_step=newest)) is None
    copied, newest = ranks[-1]
    return rounds.ready(len(ranks) - 1, CopyReady(copied_step=copied, newest_step=newest))


def test_a_copy_is_ordered_of_a_step_that_no_rank_has_reached() -> None:
    rounds = CopyRounds(world_size=3)
    order = ready(rounds, (None, 1), (None, 2), (None, 1))
    assert order == CopySnapshot(from_step=3, kept_step=None)


def test_a_copy_of_all_ranks_is_kept_until_the_next_one() -> None:
    rounds = CopyRounds(world_size=2)
    ready(rounds, (None, 1), (None, 1))
    assert ready(rounds, (2, 5), (2, 6)) == CopySnapshot(from_step=7, kept_step=2)
    assert ready(rounds, (7, 9), (7, 9)) == CopySnapshot(from_step=10, kept_step=7)
    assert rounds.kept_step == 7


@pytest.mark.parametrize("second", [(None, 8), (8, 9)])
def test_the_kept_copy_stays_if_a_rank_has_passed_the_step(second: tuple[int | None, int]) -> None:
    rounds = CopyRounds(world_size=2)
    ready(rounds, (None, 1), (None, 1))
    ready(rounds, (2, 5), (2, 5))
    order = ready(rounds, (6, 9), second)
    assert order is not None
    assert order.kept_step == 2


def test_the_distance_grows_until_the_message_arrives_in_time() -> None:
    rounds = CopyRounds(world_size=1)
    distances = []
    newest = 10
    for _ in range(4):
        order = ready(rounds, (None, newest))
        assert order is not None
        distances.append(order.from_step - newest)
        newest += 10
    assert distances == [1, 2, 4, 8]
    order = ready(rounds, (newest - 2, newest))
    assert order == CopySnapshot(from_step=newest + 4, kept_step=newest - 2)


def test_a_rank_that_cannot_copy_ends_the_rounds() -> None:
    rounds = CopyRounds(world_size=2)
    for step in range(5):
        assert rounds.ready(0, CopyReady(copied_step=None, newest_step=step)) is None
