"""Samplers of users keep their order, ranks agree on it, and the global random states stay
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
    Epochs,
    ShardedSampler,
    draws_at_once,
    is_distributed,
    shard_sampler,
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
    return [ShardedSampler(sampler, rank=rank, world_size=world_size) for rank in range(world_size)]  # type: ignore[arg-type]


def test_a_custom_order_is_kept_and_shared() -> None:
    first, second = all_ranks(Backwards(7), 2)
    assert list(first) == [6, 4, 2, 0]
    assert list(second) == [5, 3, 1, 6]
    assert len(first) == len(second) == 4


def test_ranks_whose_generators_differ_draw_one_order() -> None:
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


def test_an_endless_sampler_draws_reproducibly_and_leaves_the_global_generators_alone() -> None:
    def state() -> tuple[object, ...]:
        return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index, union-attr]

    before = state()
    first, second = (
        [*itertools.islice(ShardedSampler(Draws(), rank=0, world_size=2), 300)] for _ in range(2)
    )
    assert first == second
    assert len(set(first)) == 300
    assert state() == before


def test_the_epoch_reaches_the_wrapped_sampler_even_inside_a_batch_sampler() -> None:
    direct, inner = Backwards(3), Backwards(3)
    for sampler in (direct, BatchSampler(inner, 2, False)):
        ShardedSampler(sampler, rank=0, world_size=2).set_epoch(5)
    assert direct.epochs == inner.epochs == [5]


def test_a_sampler_without_length_has_none_when_sharded() -> None:
    with pytest.raises(TypeError):
        len(ShardedSampler(Draws(), rank=0, world_size=2))


def test_other_attributes_are_those_of_the_wrapped_sampler() -> None:
    assert ShardedSampler(BatchSampler(range(9), 4, False), rank=0, world_size=2).batch_size == 4


@pytest.mark.parametrize("shuffle", [False, True])
def test_plain_orders_get_torchs_distributed_sampler(shuffle: bool) -> None:
    plain = RandomSampler(range(10)) if shuffle else SequentialSampler(range(10))
    sharded = shard_sampler(plain, rank=1, world_size=2)
    assert isinstance(sharded, DistributedSampler)
    assert (sharded.shuffle, sharded.rank, sharded.num_replicas) == (shuffle, 1, 2)


@pytest.mark.parametrize("options", [{"replacement": True}, {"num_samples": 5}])
def test_a_random_sampler_with_options_keeps_them(options: dict[str, int]) -> None:
    sharded = shard_sampler(RandomSampler(range(10), **options), rank=0, world_size=2)  # type: ignore[arg-type]
    assert isinstance(sharded, ShardedSampler)
    assert len(sharded) == (3 if "num_samples" in options else 5)  # type: ignore[arg-type]


def test_distributed_samplers_are_recognised() -> None:
    assert is_distributed(DistributedSampler(range(4), num_replicas=2, rank=0))  # type: ignore[arg-type]
    assert is_distributed(ShardedSampler(range(4), rank=0, world_size=2))
    assert not is_distributed(RandomSampler(range(4)))
    assert not is_distributed(BatchSampler(range(4), 2, False))


def test_a_distributed_sampler_can_be_dealt_to_others() -> None:
    sampler = DistributedSampler(range(10), num_replicas=5, rank=4, seed=3)  # type: ignore[arg-type]
    whole = shard_sampler(sampler, rank=0, world_size=1)
    pair = [list(shard_sampler(sampler, rank=rank, world_size=2)) for rank in range(2)]
    assert [index for step in zip(*pair, strict=True) for index in step] == list(whole)
    assert list(sampler) == list(whole)[4::5]


def test_samplers_that_may_draw_later_are_told_from_those_that_do_not() -> None:
    assert draws_at_once(RandomSampler(range(3)))
    assert draws_at_once(BatchSampler([1, 2, 3], 2, False))
    assert not draws_at_once(Draws())
    assert not draws_at_once(BatchSampler(Backwards(3), 2, False))


def test_epochs_reach_samplers_once_and_those_of_the_program_are_noticed() -> None:
    sampler = Backwards(4)
    for sharded in (sampler, ShardedSampler(sampler, rank=0, world_size=2)):
        sampler.epochs.clear()
        epochs = Epochs(DataLoader(range(4), batch_sampler=BatchSampler(sharded, 2, False)))  # type: ignore[arg-type]
        epochs.tell(0)
        epochs.tell(1)
        assert sampler.epochs in ([0, 1], [1])
        assert epochs.told() is None
    sharded.set_epoch(1)
    assert epochs.told() == 1
    epochs.tell(1)
    assert sampler.epochs == [1, 1]
    assert epochs.told() is None
