"""Prepared loaders: each rank's share, with all other options unchanged."""

from __future__ import annotations

import json
import multiprocessing
import random
import time
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler
from tqdm import tqdm

from syncline.train.torch import enable_reproducibility, prepare_data_loader
from syncline.train.torch.prepared_loader import PreparedDataLoader
from tests.train.torch.torch_fakes import session

META = torch.device("meta")


class Numbers(Dataset[int]):
    def __init__(self, total: int = 20) -> None:
        self.total = total

    def __len__(self) -> int:
        return self.total

    def __getitem__(self, index: int) -> int:
        return index


class RandomNumbers(Numbers):
    def __getitem__(self, index: int) -> Any:
        return np.array([torch.rand(()).item(), random.random(), np.random.rand()])


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(6))


class EvenFirst(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        return iter([0, 2, 4, 6, 1, 3, 5, 7])

    def __len__(self) -> int:
        return 8


class CountingLoader(DataLoader[Any]):
    """A user's subclass."""

    passes = 0

    def __iter__(self) -> Any:
        self.passes += 1
        return super().__iter__()


def initialise(worker_id: int) -> None:
    pass


def collate(samples: list[int]) -> torch.Tensor:
    return torch.tensor(samples)


def prepared(
    loader: DataLoader[Any], rank: int = 0, world_size: int = 2, **options: bool
) -> DataLoader[Any]:
    with session(world_rank=rank, world_size=world_size):
        return prepare_data_loader(loader, **options)


def samples(loader: DataLoader[Any]) -> list[int]:
    return [int(sample) for batch in loader for sample in batch]


def batches(loader: DataLoader[Any]) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


def test_sequential_loader_is_sharded() -> None:
    loader = DataLoader(Numbers(), batch_size=4)
    first, second = prepared(loader, 0), prepared(loader, 1)
    assert batches(first) == [[0, 2, 4, 6], [8, 10, 12, 14], [16, 18]]
    assert batches(second) == [[1, 3, 5, 7], [9, 11, 13, 15], [17, 19]]
    assert len(first) == 3
    assert isinstance(first, DataLoader)


def test_shuffling_loader_reshuffles_each_epoch() -> None:
    loaders = [
        prepared(DataLoader(Numbers(), batch_size=4, shuffle=True), rank) for rank in range(2)
    ]
    orders = []
    for epoch in range(2):
        for loader in loaders:
            loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        orders.append([samples(loader) for loader in loaders])
    assert all(sorted(first + second) == list(range(20)) for first, second in orders)
    assert orders[0] != orders[1]


def test_original_loader_is_not_changed() -> None:
    loader = DataLoader(Numbers(), batch_size=4)
    prepared(loader)
    assert samples(loader) == list(range(20))


@pytest.mark.parametrize(("world_size", "add_dist_sampler"), [(1, True), (2, False)])
def test_unsharded_loader_keeps_its_samplers(world_size: int, add_dist_sampler: bool) -> None:
    loader = DataLoader(Numbers(), batch_size=4)
    whole = prepared(loader, world_size=world_size, add_dist_sampler=add_dist_sampler)
    assert (whole.sampler, whole.batch_sampler) == (loader.sampler, loader.batch_sampler)
    assert samples(whole) == list(range(20))


def test_single_worker_has_same_orders_as_torch() -> None:
    loader = DataLoader(Numbers(), batch_size=4, shuffle=True)
    torch.manual_seed(1)
    expected = samples(loader)
    torch.manual_seed(1)
    assert samples(prepared(loader, world_size=1)) == expected


def test_batches_on_a_cpu_are_not_copied() -> None:
    batch = torch.zeros(3)
    assert (
        next(iter(prepared(DataLoader(Numbers(3), batch_size=3, collate_fn=lambda _: batch))))
        is batch
    )


def test_prepared_loader_is_not_prepared_again() -> None:
    loader = prepared(DataLoader(Numbers(), batch_size=4))
    assert prepared(loader) is loader


def test_custom_sampler_is_kept() -> None:
    loader = DataLoader(Numbers(), batch_size=2, sampler=EvenFirst())
    assert batches(prepared(loader, 0)) == [[0, 4], [1, 5]]
    assert batches(prepared(loader, 1)) == [[2, 6], [3, 7]]


def test_subset_stays_a_subset() -> None:
    loader = DataLoader(Numbers(), batch_size=2, sampler=SubsetRandomSampler([3, 5, 7, 9]))
    assert sorted(samples(prepared(loader, 0)) + samples(prepared(loader, 1))) == [3, 5, 7, 9]


def test_batch_sampler_is_sharded_by_batch_and_gets_epochs() -> None:
    told: list[int] = []

    class Told(BatchSampler):
        def set_epoch(self, epoch: int) -> None:
            told.append(epoch)

    loader = DataLoader(Numbers(10), batch_sampler=Told(range(10), 3, False))
    first, second = prepared(loader, 0), prepared(loader, 1)
    assert batches(first) == [[0, 1, 2], [6, 7, 8]]
    assert batches(second) == [[3, 4, 5], [9]]
    first.sampler.set_epoch(4)  # type: ignore[attr-defined]
    assert told == [4]
    assert len(first) == 2


def test_loader_without_batches_is_sharded() -> None:
    loader = DataLoader(Numbers(5), batch_size=None)
    assert [list(prepared(loader, rank)) for rank in range(2)] == [[0, 2, 4], [1, 3, 0]]


def test_batches_drawn_by_sampler_are_sharded_whole() -> None:
    class Gathered(Numbers):
        def __getitem__(self, index: Any) -> Any:
            return index

    loader = DataLoader(Gathered(8), batch_size=None, sampler=BatchSampler(range(8), 2, False))
    assert list(prepared(loader, 1)) == [[2, 3], [6, 7]]


def test_distributed_samplers_are_left_unchanged() -> None:
    sampler = DistributedSampler(Numbers(), num_replicas=2, rank=1, shuffle=False)
    loader = DataLoader(Numbers(), batch_size=4, sampler=sampler)
    assert prepared(loader).sampler is sampler
    in_batches = prepared(DataLoader(Numbers(), batch_sampler=BatchSampler(sampler, 4, False)))
    assert in_batches.sampler is sampler
    assert samples(in_batches) == list(range(1, 20, 2))


def test_iterable_dataset_is_left_unchanged() -> None:
    assert samples(prepared(DataLoader(Stream(), batch_size=2))) == list(range(6))


@pytest.mark.parametrize(
    "sampling",
    [
        {"shuffle": True},
        {"sampler": EvenFirst()},
        {"batch_sampler": BatchSampler(range(8), 2, False)},
    ],
)
def test_every_option_is_kept(sampling: dict[str, Any]) -> None:
    options: dict[str, Any] = {
        "num_workers": 2,
        "prefetch_factor": 3,
        "persistent_workers": True,
        "generator": torch.Generator(),
        "worker_init_fn": initialise,
        "pin_memory": True,
        "timeout": 7.0,
        "collate_fn": collate,
        "multiprocessing_context": multiprocessing.get_context("spawn"),
        "in_order": False,
    }
    batching = {} if "batch_sampler" in sampling else {"batch_size": 3, "drop_last": True}
    loader = DataLoader(Numbers(), **options, **sampling, **batching)
    sharded = prepared(loader)
    for name, value in {**options, **batching}.items():
        assert getattr(sharded, name) is value, name
    assert sharded.dataset is loader.dataset
    if batching:
        assert (sharded.batch_sampler.batch_size, sharded.batch_sampler.drop_last) == (3, True)


@pytest.mark.processes
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_worker_processes_support_every_start_method(method: str) -> None:
    loader = DataLoader(
        Numbers(),
        batch_size=4,
        num_workers=2,
        sampler=EvenFirst(),
        multiprocessing_context=method,
        persistent_workers=True,
        timeout=60,
    )
    sharded = prepared(loader, 1)
    assert [samples(sharded) for _ in range(2)] == [[2, 6, 3, 7]] * 2


@pytest.mark.processes
def test_reproducible_runs_seed_the_workers_of_loaders() -> None:
    passes = []
    try:
        for _ in range(2):
            enable_reproducibility(3)
            loader = DataLoader(
                RandomNumbers(4),
                batch_size=2,
                num_workers=2,
                multiprocessing_context="fork",
                timeout=60,
            )
            passes.append(torch.cat(list(prepared(loader))))
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(*passes)
    assert len(passes[0].flatten().unique()) == passes[0].numel()


def test_subclass_of_loader_keeps_its_behaviour() -> None:
    loader = CountingLoader(Numbers(4), batch_size=2)
    mine = prepared(loader)
    assert isinstance(mine, CountingLoader)
    assert isinstance(mine, PreparedDataLoader)
    assert samples(mine) == [0, 2]
    assert (mine.passes, loader.passes, len(mine)) == (1, 0, 1)


def test_batches_arrive_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.train.torch.loader.get_device", lambda: META)
    assert [batch.device for batch in prepared(DataLoader(Numbers(8), batch_size=2))] == [
        META,
        META,
    ]
    stays = prepared(DataLoader(Numbers(8), batch_size=2), move_to_device=False)
    assert [batch.device.type for batch in stays] == ["cpu", "cpu"]


def test_every_pass_is_next_epoch_unless_program_sets_one() -> None:
    loader = prepared(DataLoader(Numbers(), batch_size=4, shuffle=True))
    sampler: Any = loader.sampler
    orders = {}
    for told in [None, None, 7, None, 0, 0, None]:
        if told is not None:
            sampler.set_epoch(told)
        order = samples(loader)
        assert orders.setdefault(sampler.epoch, order) == order
    assert list(orders) == [0, 1, 7, 8]
    assert len({tuple(order) for order in orders.values()}) == 4


def test_distributed_sampler_of_program_gets_epochs() -> None:
    sampler = DistributedSampler(Numbers(), num_replicas=2, rank=1)
    loader = prepared(DataLoader(Numbers(), batch_size=4, sampler=sampler))
    epochs = []
    for told in [None, None, 5, None]:
        if told is not None:
            sampler.set_epoch(told)
        samples(loader)
        epochs.append(sampler.epoch)
    assert epochs == [0, 1, 5, 6]


def test_nested_loops_are_separate_passes() -> None:
    loader = prepared(DataLoader(Numbers(8), batch_size=2))
    pairs = [(outer.tolist(), inner.tolist()) for outer in loader for inner in loader]
    assert pairs == [([0, 2], [0, 2]), ([0, 2], [4, 6]), ([4, 6], [0, 2]), ([4, 6], [4, 6])]
    assert (loader.state_dict()["epoch"], loader.state_dict()["ended"]) == (2, True)  # type: ignore[attr-defined]


def test_received_batches_count() -> None:
    loader: Any = prepared(DataLoader(Numbers(), batch_size=2, num_workers=0))
    assert loader.state_dict() == {}
    for count, _ in enumerate(tqdm(loader, disable=True), 1):
        state = loader.state_dict()
        assert (state["epoch"], state["ended"], state["batches"], state["items"]) == (
            0,
            False,
            count,
            count * 4,
        )
        assert json.loads(json.dumps(state)) == state
    assert loader.state_dict()["ended"]


def test_time_in_next_is_measured() -> None:
    class Slow(Numbers):
        def __getitem__(self, index: int) -> int:
            time.sleep(0.01)
            return index

    loader: Any = prepared(DataLoader(Slow(4), batch_size=1))
    assert loader.waited_s == 0
    samples(loader)
    assert loader.waited_s >= 0.02


def test_loader_is_reader_of_its_session() -> None:
    with session() as current:
        loaders = [prepare_data_loader(DataLoader(Numbers())) for _ in range(2)]
    assert "data loader 1" in current.readers
    assert "data loader 2" in current.readers
    samples(loaders[0])
    assert current.readers.waited_s == loaders[0].waited_s > 0  # type: ignore[attr-defined]


def test_dropped_loader_is_released() -> None:
    with session() as current:
        loader = prepare_data_loader(DataLoader(Numbers()))
    samples(loader)
    dropped = weakref.ref(loader)
    del loader
    assert dropped() is None
    assert current.readers.waited_s > 0


def test_order_over_part_of_dataset_is_kept() -> None:
    loader = DataLoader(Numbers(), batch_size=2, sampler=SequentialSampler(range(6)))
    assert samples(prepared(loader, 1)) == [1, 3, 5]


def test_only_loaders_can_be_prepared() -> None:
    with session(), pytest.raises(TypeError, match="`data_loader` is a list"):
        prepare_data_loader([1, 2])


def test_preparing_outside_training_function_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="prepare_data_loader"):
        prepare_data_loader(DataLoader(Numbers()))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.processes
@pytest.mark.parametrize(("auto_transfer", "workers"), [(True, 2), (False, 2), (True, 0)])
def test_batches_arrive_on_the_gpu_in_order(auto_transfer: bool, workers: int) -> None:
    loader = DataLoader(
        Numbers(1000),
        batch_size=10,
        pin_memory=True,
        num_workers=workers,
        timeout=60 if workers else 0,
    )
    with session(gpu_ids=("0",), use_gpu=True):
        wrapped = prepare_data_loader(loader, auto_transfer=auto_transfer)
        total = [batch.double() for batch in wrapped]
    assert all(batch.is_cuda for batch in total)
    assert torch.cat(total).tolist() == list(range(1000))
