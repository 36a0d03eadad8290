"""Shares of a sequence: equal, complete, in order, and what torch's DistributedSampler would give."""

from __future__ import annotations

import itertools

import pytest
from torch.utils.data.distributed import DistributedSampler

from syncline.train.torch.sharding import rank_share, share_length

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
        assert share == list(DistributedSampler(range(total), num_replicas=world_size, rank=rank, shuffle=False))  # type: ignore[arg-type]


def test_an_endless_sequence_is_shared_lazily() -> None:
    assert list(itertools.islice(rank_share(itertools.count(), 2, 3), 4)) == [2, 5, 8, 11]
