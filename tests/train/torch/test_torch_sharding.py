"""Shares of a sequence: equal, complete, in order, and what torch's DistributedSampler would
give.
"""

from __future__ import annotations

import itertools

import pytest
from torch.utils.data.distributed import DistributedSampler

from syncline.train.torch.samplers import rank_share, share_length

GRID = list(itertools.product(range(12), range(1, 6)))


def shares(total: int, world_size: int) -> list[list[int]]:
    return [list(rank_share(range(total), rank, world_size)) for rank in range(world_size)]


@pytest.mark.parametrize(("total", "world_size"), GRID)
def test_every_rank_gets_the_announced_number_of_items(total: int, world_size: int) -> None:
    assert {len(share) for share in shares(total, world_size)} == {share_length(total, world_size)}


@pytest.mark.parametrize(("total", "world_size"), GRID)
def test_no_item_is_lost_and_only_the_first_ones_come_twice(total: int, world_size: int) -> None:
    walked = [item for step in zip(*shares(total, world_size), strict=True) for item in step]
    assert walked[:total] == list(range(total))
    assert walked[total:] == [item % total for item in range(len(walked) - total)]


@pytest.mark.parametrize(("total", "world_size"), [(t, w) for t, w in GRID if t])
def test_shares_equal_those_of_torch(total: int, world_size: int) -> None:
    for rank, share in enumerate(shares(total, world_size)):
        assert share == list(
            DistributedSampler(range(total), num_replicas=world_size, rank=rank, shuffle=False)
        )  # type: ignore[arg-type]


def test_an_endless_sequence_is_shared_lazily() -> None:
    assert list(itertools.islice(rank_share(itertools.count(), 2, 3), 4)) == [2, 5, 8, 11]


@pytest.mark.parametrize("start", [0, 3, 12, 20, 25])
@pytest.mark.parametrize(("before", "now"), list(itertools.product(range(1, 5), repeat=2)))
def test_what_remains_is_dealt_to_any_number_of_ranks(start: int, before: int, now: int) -> None:
    start -= start % before
    rest = [list(rank_share(range(23), rank, now, start=start)) for rank in range(now)]
    walked = [item for step in zip(*rest, strict=True) for item in step]
    assert walked[: max(0, 23 - start)] == list(range(start, 23))
    assert len(walked) == now * share_length(max(0, 23 - start), now)


@pytest.mark.parametrize(("total", "world_size"), [(t, w) for t, w in GRID if t])
def test_the_same_ranks_go_on_as_if_nothing_had_happened(total: int, world_size: int) -> None:
    for rank, share in enumerate(shares(total, world_size)):
        for taken in range(len(share) + 2):
            assert (
                list(rank_share(range(total), rank, world_size, start=taken * world_size))
                == share[taken:]
            )


def test_the_end_can_be_left_out() -> None:
    assert [list(rank_share(range(11), rank, 3, start=3, drop_last=True)) for rank in range(3)] == [
        [3, 6],
        [4, 7],
        [5, 8],
    ]
