"""Prepared loaders: each rank's share, and everything else as the user made it."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Sampler, SequentialSampler, SubsetRandomSampler
from torch.utils.data.distributed import DistributedSampler
from torch_fakes import session

from syncline.train.torch import enable_reproducibility, prepare_data_loader
from syncline.train.torch.device import record_stream
from syncline.train.torch.loader import DeviceDataLoader

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


def prepared(loader: DataLoader[Any], rank: int = 0, world_size: int = 2, **options: bool) -> DataLoader[Any]:
    with session(world_rank=rank, world_size=world_size):
        return prepare_data_loader(loader, **options)


def samples(loader: DataLoader[Any]) -> list[int]:
    return [int(sample) for batch in loader for sample in batch]


def batches(loader: DataLoader[Any]) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


def test_ranks_share_a_sequential_loader() -> None:
    loader = DataLoader(Numbers(), batch_size=4)
    first, second = prepared(loader, 0), prepared(loader, 1)
    assert batches(first) == [[0, 2, 4, 6], [8, 10, 12, 14], [16, 18]]
    assert batches(second) == [[1, 3, 5, 7], [9, 11, 13, 15], [17, 19]]
    assert len(first) == 3
    assert isinstance(first, DataLoader)


def test_a_shuffling_loader_shuffles_anew_for_each_epoch() -> None:
    loaders = [prepared(DataLoader(Numbers(), batch_size=4, shuffle=True), rank) for rank in range(2)]
    orders = []
    for epoch in range(2):
        for loader in loaders:
            loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        orders.append([samples(loader) for loader in loaders])
    assert all(sorted(first + second) == list(range(20)) for first, second in orders)
    assert orders[0] != orders[1]


def test_the_users_own_loader_is_not_changed() -> None:
    loader = DataLoader(Numbers(), batch_size=4)
    prepared(loader)
    assert samples(loader) == list(range(20))


def test_a_single_worker_keeps_its_loader() -> None:
    loader = DataLoader(Numbers(), batch_size=4)
    assert prepared(loader, world_size=1) is loader


def test_batches_on_a_cpu_are_not_copied() -> None:
    loader = DataLoader(Numbers(), batch_size=4)
    assert prepared(loader, add_dist_sampler=False) is loader
    assert type(prepared(loader)) is DataLoader


def test_a_custom_sampler_is_kept() -> None:
    loader = DataLoader(Numbers(), batch_size=2, sampler=EvenFirst())
    assert batches(prepared(loader, 0)) == [[0, 4], [1, 5]]
    assert batches(prepared(loader, 1)) == [[2, 6], [3, 7]]


def test_a_subset_stays_a_subset() -> None:
    loader = DataLoader(Numbers(), batch_size=2, sampler=SubsetRandomSampler([3, 5, 7, 9]))
    assert sorted(samples(prepared(loader, 0)) + samples(prepared(loader, 1))) == [3, 5, 7, 9]


def test_a_batch_sampler_is_shared_by_batch_and_told_of_epochs() -> None:
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


def test_a_loader_without_batches_is_shared() -> None:
    loader = DataLoader(Numbers(5), batch_size=None)
    assert [list(prepared(loader, rank)) for rank in range(2)] == [[0, 2, 4], [1, 3, 0]]


def test_batches_drawn_by_a_sampler_are_shared_whole() -> None:
    class Gathered(Numbers):
        def __getitem__(self, index: Any) -> Any:
            return index

    loader = DataLoader(Gathered(8), batch_size=None, sampler=BatchSampler(range(8), 2, False))
    assert list(prepared(loader, 1)) == [[2, 3], [6, 7]]


def test_what_is_shared_already_is_left_alone() -> None:
    sampler = DistributedSampler(Numbers(), num_replicas=2, rank=1, shuffle=False)
    loader = DataLoader(Numbers(), batch_size=4, sampler=sampler)
    assert prepared(loader) is loader
    in_batches = prepared(DataLoader(Numbers(), batch_sampler=BatchSampler(sampler, 4, False)))
    assert in_batches.sampler is sampler
    assert samples(in_batches) == list(range(1, 20, 2))
    twice = prepared(prepared(DataLoader(Numbers(), batch_size=4, sampler=EvenFirst())))
    assert samples(twice) == [0, 4, 1, 5]


def test_an_iterable_dataset_is_left_alone() -> None:
    loader = DataLoader(Stream(), batch_size=2)
    assert prepared(loader) is loader


@pytest.mark.parametrize("sampling", [{"shuffle": True}, {"sampler": EvenFirst()}, {"batch_sampler": BatchSampler(range(8), 2, False)}])
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
    wrapped = DeviceDataLoader(sharded, META, prefetch=False)
    for name, value in {**options, **batching}.items():
        assert getattr(sharded, name) is value, name
        assert getattr(wrapped, name) is value, name
    assert wrapped.dataset is loader.dataset
    assert wrapped.sampler is sharded.sampler
    assert wrapped.batch_sampler is sharded.batch_sampler
    if batching:
        assert (sharded.batch_sampler.batch_size, sharded.batch_sampler.drop_last) == (3, True)  # type: ignore[union-attr]


@pytest.mark.processes
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_worker_processes_work_under_every_start_method(method: str) -> None:
    loader = DataLoader(
        Numbers(), batch_size=4, num_workers=2, sampler=EvenFirst(), multiprocessing_context=method, persistent_workers=True, timeout=60
    )
    sharded = prepared(loader, 1)
    assert [samples(sharded) for _ in range(2)] == [[2, 6, 3, 7]] * 2


@pytest.mark.processes
def test_reproducible_runs_seed_the_workers_of_loaders() -> None:
    passes = []
    try:
        for _ in range(2):
            enable_reproducibility(3)
            loader = DataLoader(RandomNumbers(4), batch_size=2, num_workers=2, multiprocessing_context="fork", timeout=60)
            passes.append(torch.cat(list(prepared(loader))))
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(*passes)
    assert len(passes[0].flatten().unique()) == passes[0].numel()


def test_a_users_subclass_keeps_its_behaviour_on_a_device() -> None:
    loader = CountingLoader(Numbers(4), batch_size=2)
    wrapped = DeviceDataLoader(loader, META, prefetch=False)
    assert [batch.device for batch in wrapped] == [META, META]
    assert isinstance(wrapped, DataLoader)
    assert len(wrapped) == 2
    assert wrapped.passes == loader.passes == 1
    wrapped.passes = 5
    assert loader.passes == 5


def test_an_order_over_part_of_the_dataset_stays_one() -> None:
    loader = DataLoader(Numbers(), batch_size=2, sampler=SequentialSampler(range(6)))
    assert samples(prepared(loader, 1)) == [1, 3, 5]


def test_only_loaders_can_be_prepared() -> None:
    with session(), pytest.raises(TypeError, match="`data_loader` is a list"):
        prepare_data_loader([1, 2])  # type: ignore[arg-type]


def test_preparing_outside_a_training_function_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="prepare_data_loader"):
        prepare_data_loader(DataLoader(Numbers()))


class FakeStream:
    """Stands for a CUDA stream; remembers which streams it waited for."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.waited: list[FakeStream] = []

    def wait_stream(self, other: FakeStream) -> None:
        self.waited.append(other)


def test_one_batch_is_copied_ahead_on_a_stream_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    computation, loaded, copied_on, copies = FakeStream(), [], [], []

    class Watched(Numbers):
        def __getitem__(self, index: int) -> int:
            loaded.append(index)
            return index

    def stream(chosen: FakeStream) -> Any:
        copied_on.append(chosen)
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: copies.append(FakeStream()) or copies[-1])
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: computation)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    wrapped = DeviceDataLoader(DataLoader(Watched(3), batch_size=1), META, prefetch=True)
    loaded_at_each_step = [len(loaded) for batch in wrapped if batch.device == META]
    assert loaded_at_each_step == [2, 3, 3]
    assert computation.waited == copied_on == copies * 3


def test_streams_are_told_of_every_tensor_that_they_read() -> None:
    class Recorded:
        def __init__(self) -> None:
            self.streams: list[object] = []

        def record_stream(self, stream: object) -> None:
            self.streams.append(stream)

    class Opaque:
        def __init__(self) -> None:
            self.inside = Recorded()

        def to(self, device: torch.device) -> Opaque:
            return self

    items, opaque, stream = [Recorded() for _ in range(3)], Opaque(), FakeStream()
    record_stream({"a": items[0], "b": (items[1], [items[2], "text"]), "c": opaque, "d": torch.ones(1)}, stream)  # type: ignore[arg-type]
    assert [item.streams for item in [*items, opaque.inside]] == [[stream]] * 4


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("auto_transfer", [True, False])
def test_batches_arrive_on_the_gpu_in_order(auto_transfer: bool) -> None:
    loader = DataLoader(Numbers(1000), batch_size=10, pin_memory=True)
    with session(gpu_ids=("0",), use_gpu=True):
        wrapped = prepare_data_loader(loader, auto_transfer=auto_transfer)
        total = [batch.double() for batch in wrapped]
    assert all(batch.is_cuda for batch in total)
    assert torch.cat(total).tolist() == list(range(1000))
