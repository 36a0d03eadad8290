"""Samplers of programs keep their order, ranks agree on it, and the global random states stay
untouched.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    Sampler,
    SequentialSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from syncline.train.torch.samplers import (
    LoaderEpoch,
    ShardedSampler,
    draws_eagerly,
    is_distributed,
    rank_share,
    shard_sampler,
    share_length,
)


class Backwards(Sampler[int]):
    def __init__(self, total: int) -> None:
        self.total = total
        self.epochs: list[int] = []

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.total - 1, -1, -1))

    def __len__(self) -> int:
        return self.total

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


class Draws(Sampler[float]):
    """Draws from all three global generators, one item at a time, for ever."""

    def __iter__(self) -> Iterator[float]:
        while True:
            yield torch.rand(()).item()
            yield random.random()
            yield float(np.random.rand())


def all_ranks(sampler: object, world_size: int) -> list[ShardedSampler[int]]:
    return [ShardedSampler(sampler, rank=rank, world_size=world_size) for rank in range(world_size)]


def test_custom_order_is_kept_and_sharded() -> None:
    first, second = all_ranks(Backwards(7), 2)
    assert list(first) == [6, 4, 2, 0]
    assert list(second) == [5, 3, 1, 6]
    assert len(first) == len(second) == 4


def test_ranks_with_different_generators_draw_same_order() -> None:
    weights = torch.ones(1000)
    walks = []
    for rank in range(2):
        torch.manual_seed(rank)
        walks.append(
            list(ShardedSampler(WeightedRandomSampler(weights, 1000), rank=rank, world_size=2))
        )
    whole = list(ShardedSampler(WeightedRandomSampler(weights, 1000), rank=0, world_size=1))
    assert [item for step in zip(*walks, strict=True) for item in step] == whole


def test_epochs_draw_new_orders_and_an_epoch_can_be_repeated() -> None:
    sampler = ShardedSampler(RandomSampler(range(100), replacement=True), rank=1, world_size=2)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    second = list(sampler)
    assert second != first
    sampler.set_epoch(0)
    assert list(sampler) == first


def test_endless_sampler_draws_reproducibly_without_changing_global_generators() -> None:
    def state() -> tuple[object, ...]:
        return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()

    before = state()
    first, second = (
        [*itertools.islice(ShardedSampler(Draws(), rank=0, world_size=2), 300)] for _ in range(2)
    )
    assert first == second
    assert len(set(first)) == 300
    assert state() == before


def test_epoch_is_set_on_wrapped_sampler_inside_batch_sampler() -> None:
    direct, inner = Backwards(3), Backwards(3)
    for sampler in (direct, BatchSampler(inner, 2, False)):
        ShardedSampler(sampler, rank=0, world_size=2).set_epoch(5)
    assert direct.epochs == inner.epochs == [5]


def test_sharded_sampler_without_length_has_none() -> None:
    with pytest.raises(TypeError):
        len(ShardedSampler(Draws(), rank=0, world_size=2))


def test_other_attributes_are_those_of_wrapped_sampler() -> None:
    assert ShardedSampler(BatchSampler(range(9), 4, False), rank=0, world_size=2).batch_size == 4


@pytest.mark.parametrize("shuffle", [False, True])
def test_plain_orders_use_distributed_sampler_of_torch(shuffle: bool) -> None:
    plain = RandomSampler(range(10)) if shuffle else SequentialSampler(range(10))
    sharded = shard_sampler(plain, rank=1, world_size=2)
    assert isinstance(sharded, DistributedSampler)
    assert (sharded.shuffle, sharded.rank, sharded.num_replicas) == (shuffle, 1, 2)


@pytest.mark.parametrize("options", [{"replacement": True}, {"num_samples": 5}])
def test_random_sampler_keeps_its_options(options: dict[str, int]) -> None:
    sharded = shard_sampler(RandomSampler(range(10), **options), rank=0, world_size=2)
    assert isinstance(sharded, ShardedSampler)
    assert len(sharded) == (3 if "num_samples" in options else 5)


def test_distributed_samplers_are_recognized() -> None:
    assert is_distributed(DistributedSampler(range(4), num_replicas=2, rank=0))
    assert is_distributed(ShardedSampler(range(4), rank=0, world_size=2))
    assert not is_distributed(RandomSampler(range(4)))
    assert not is_distributed(BatchSampler(range(4), 2, False))


def test_distributed_sampler_can_be_resharded() -> None:
    sampler = DistributedSampler(range(10), num_replicas=5, rank=4, seed=3)
    whole = shard_sampler(sampler, rank=0, world_size=1)
    pair = [list(shard_sampler(sampler, rank=rank, world_size=2)) for rank in range(2)]
    assert [index for step in zip(*pair, strict=True) for index in step] == list(whole)
    assert list(sampler) == list(whole)[4::5]


def test_draws_eagerly_recognizes_samplers() -> None:
    assert draws_eagerly(RandomSampler(range(3)))
    assert draws_eagerly(BatchSampler([1, 2, 3], 2, False))
    assert not draws_eagerly(Draws())
    assert not draws_eagerly(BatchSampler(Backwards(3), 2, False))


def test_epochs_are_set_once_and_those_of_program_are_noticed() -> None:
    sampler = Backwards(4)
    for sharded in (sampler, ShardedSampler(sampler, rank=0, world_size=2)):
        sampler.epochs.clear()
        epochs = LoaderEpoch(DataLoader(range(4), batch_sampler=BatchSampler(sharded, 2, False)))
        epochs.set(0)
        epochs.set(1)
        assert sampler.epochs in ([0, 1], [1])
        assert epochs.requested() is None
    sharded.set_epoch(1)
    assert epochs.requested() == 1
    epochs.set(1)
    assert sampler.epochs == [1, 1]
    assert epochs.requested() is None


GRID = list(itertools.product(range(12), range(1, 6)))


def shares(total: int, world_size: int) -> list[list[int]]:
    return [list(rank_share(range(total), rank, world_size)) for rank in range(world_size)]


@pytest.mark.parametrize(("total", "world_size"), GRID)
def test_every_rank_gets_share_length_items(total: int, world_size: int) -> None:
    assert {len(share) for share in shares(total, world_size)} == {share_length(total, world_size)}


@pytest.mark.parametrize(("total", "world_size"), GRID)
def test_no_item_is_lost_and_only_first_ones_repeat(total: int, world_size: int) -> None:
    walked = [item for step in zip(*shares(total, world_size), strict=True) for item in step]
    assert walked[:total] == list(range(total))
    assert walked[total:] == [item % total for item in range(len(walked) - total)]


@pytest.mark.parametrize(("total", "world_size"), [(t, w) for t, w in GRID if t])
def test_shares_equal_those_of_torch(total: int, world_size: int) -> None:
    for rank, share in enumerate(shares(total, world_size)):
        assert share == list(
            DistributedSampler(range(total), num_replicas=world_size, rank=rank, shuffle=False)
        )


def test_endless_sequence_is_sharded_lazily() -> None:
    assert list(itertools.islice(rank_share(itertools.count(), 2, 3), 4)) == [2, 5, 8, 11]


@pytest.mark.parametrize("start", [0, 3, 12, 20, 25])
@pytest.mark.parametrize(("before", "now"), list(itertools.product(range(1, 5), repeat=2)))
def test_remaining_items_are_sharded_over_any_number_of_ranks(
    start: int, before: int, now: int
) -> None:
    start -= start % before
    rest = [list(rank_share(range(23), rank, now, start=start)) for rank in range(now)]
    walked = [item for step in zip(*rest, strict=True) for item in step]
    assert walked[: max(0, 23 - start)] == list(range(start, 23))
    assert len(walked) == now * share_length(max(0, 23 - start), now)


@pytest.mark.parametrize(("total", "world_size"), [(t, w) for t, w in GRID if t])
def test_same_number_of_ranks_resumes_exactly(total: int, world_size: int) -> None:
    for rank, share in enumerate(shares(total, world_size)):
        for taken in range(len(share) + 2):
            assert (
                list(rank_share(range(total), rank, world_size, start=taken * world_size))
                == share[taken:]
            )


def test_uneven_end_can_be_dropped() -> None:
    assert [list(rank_share(range(11), rank, 3, start=3, drop_last=True)) for rank in range(3)] == [
        [3, 6],
        [4, 7],
        [5, 8],
    ]
