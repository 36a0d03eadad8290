"""Resumed loaders: batches after a restart equal those without one.
without one, bit by bit.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from syncline.train.errors import PreemptionInfo
from syncline.train.session import set_session
from syncline.train.torch import prepare_data_loader
from tests.train.torch.loader_runs import (
    Augmented,
    Eager,
    Lazy,
    MakeLoader,
    Pairs,
    Program,
    Stream,
    in_batches,
    samples,
    seed_all,
)
from tests.train.torch.torch_fakes import session


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


LOADERS: dict[str, MakeLoader] = {
    "sequential": lambda: DataLoader(Augmented(), batch_size=4),
    "shuffled": lambda: DataLoader(Augmented(), batch_size=4, shuffle=True),
    "drop_last": lambda: DataLoader(Augmented(), batch_size=4, shuffle=True, drop_last=True),
    "generator": lambda: DataLoader(Augmented(), batch_size=3, shuffle=True, generator=seeded(5)),
    "sampler's generator": lambda: DataLoader(
        Augmented(), batch_size=3, sampler=RandomSampler(range(23), generator=seeded(6))
    ),
    "replacement": lambda: DataLoader(
        Augmented(),
        batch_size=3,
        sampler=RandomSampler(range(23), replacement=True, num_samples=40),
    ),
    "subset": lambda: DataLoader(
        Augmented(), batch_size=3, sampler=SubsetRandomSampler(list(range(17)), generator=seeded(7))
    ),
    "weighted": lambda: DataLoader(
        Augmented(), batch_size=3, sampler=WeightedRandomSampler([1.0] * 23, 23)
    ),
    "lazy sampler": lambda: DataLoader(Augmented(), batch_size=4, sampler=Lazy()),
    "eager sampler": lambda: DataLoader(Augmented(), batch_size=4, sampler=Eager()),
    "batch sampler": lambda: DataLoader(Augmented(), batch_sampler=Pairs()),
    "batches of a lazy sampler": lambda: DataLoader(Augmented(), batch_sampler=in_batches()),
    "list of batches": lambda: DataLoader(
        Augmented(), batch_sampler=[[1, 2], [3], [4, 5], [6, 7], [8]]
    ),
    "no batches": lambda: DataLoader(Augmented(9), batch_size=None, shuffle=True),
}


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("name", LOADERS)
def test_resumed_batches_equal_those_without_restart(
    name: str, world_size: int, tmp_path: Path
) -> None:
    undisturbed = Program(LOADERS[name], world_size=world_size)
    epochs = [undisturbed.epoch() for _ in range(4)]
    assert epochs[0] != epochs[1]
    for epoch, position in [(0, 0), (0, 1), (1, 2), (2, len(epochs[2]) - 1), (2, len(epochs[2]))]:
        first = Program(LOADERS[name], world_size=world_size)
        for _ in range(epoch):
            first.epoch()
        passes = first.begin()
        assert first.rest(passes, position) == epochs[epoch][:position]
        saved = first.save(tmp_path / f"{epoch}-{position}")
        again = Program(LOADERS[name], world_size=world_size, saved=saved, seed=1000)
        assert again.epoch() == epochs[epoch][position:]
        assert [again.epoch() for _ in range(3 - epoch)] == epochs[epoch + 1 :]
    for ended in (1, 3):
        first = Program(LOADERS[name], world_size=world_size)
        assert [first.epoch() for _ in range(ended)] == epochs[:ended]
        again = Program(
            LOADERS[name],
            world_size=world_size,
            saved=first.save(tmp_path / f"ended {ended}"),
            seed=1000,
        )
        assert [again.epoch() for _ in range(4 - ended)] == epochs[ended:]


def test_run_can_be_interrupted_repeatedly(tmp_path: Path) -> None:
    make = LOADERS["shuffled"]
    undisturbed = Program(make, world_size=2)
    expected = [*undisturbed.epoch(), *undisturbed.epoch()]
    seen, saved = [], None
    for attempt in range(len(expected) + 1):
        program = Program(make, world_size=2, saved=saved, seed=attempt)
        passes = program.begin()
        seen += program.rest(passes, 1)
        saved = program.save(tmp_path / str(attempt))
    assert seen == expected[: len(seen)]
    assert len(seen) >= len(expected) - 1


def test_checkpoint_before_first_pass_keeps_position(tmp_path: Path) -> None:
    first = Program(LOADERS["shuffled"], world_size=2)
    passes = first.begin()
    first.rest(passes, 2)
    saved = first.save(tmp_path)
    again = Program(LOADERS["shuffled"], world_size=2, saved=saved)
    assert [loader.state_dict() for loader in again.loaders] == [
        loader.state_dict() for loader in first.loaders
    ]


@pytest.mark.processes
@pytest.mark.parametrize(
    "options", [{}, {"persistent_workers": True, "prefetch_factor": 3}], ids=["plain", "persistent"]
)
@pytest.mark.parametrize("name", ["shuffled", "lazy", "batches", "unbatched"])
def test_worker_processes_make_same_batches_after_restart(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    choice: dict[str, dict[str, Any]] = {
        "shuffled": {"batch_size": 4, "shuffle": True},
        "lazy": {"batch_size": 4, "sampler": Lazy()},
        "batches": {"batch_sampler": Pairs()},
        "unbatched": {"batch_size": None, "shuffle": True},
    }

    def make() -> DataLoader[Any]:
        return DataLoader(
            Augmented(12 if name == "unbatched" else 23),
            num_workers=2,
            timeout=60,
            **choice[name],
            **options,
        )

    first = Program(make)
    epochs = [first.epoch()]
    passes = first.begin()
    head = first.rest(passes, 3)
    saved = first.save(tmp_path / "saved")
    tail = first.rest(passes)
    epochs.append(first.epoch())
    again = Program(make, saved=saved, seed=9)
    assert head
    assert again.epoch() == tail
    assert again.epoch() == epochs[1]
    augmentations = [
        number
        for epoch in [*epochs, head, tail]
        for step in epoch
        for batch in step
        for row in batch[:-1]
        for number in row[1:]
    ]
    assert len(set(augmentations)) == len(augmentations)


@pytest.mark.processes
def test_number_of_worker_processes_does_not_matter(tmp_path: Path) -> None:
    runs = [
        Program(
            partial(DataLoader, Augmented(), batch_size=4, num_workers=workers, timeout=60)
        ).epoch()
        for workers in (1, 2)
    ]
    assert runs[0] == runs[1]


@pytest.mark.processes
def test_ranks_with_equal_seeds_draw_different_augmentations() -> None:
    augmentations = []
    for rank in range(2):
        seed_all(3)
        with session(world_rank=rank, world_size=2):
            loader = prepare_data_loader(
                DataLoader(Augmented(8), batch_size=4, num_workers=1, timeout=60)
            )
        augmentations.append([float(row[1]) for batch in loader for row in batch])
    assert not set(augmentations[0]) & set(augmentations[1])


@pytest.mark.processes
def test_worker_processes_use_getitems_of_dataset() -> None:
    class Gathering(Augmented):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            info = torch.utils.data.get_worker_info()
            assert type(indices) is list
            assert info is not None
            assert info.dataset is self
            return [100 + index for index in indices]

    with session():
        loader = prepare_data_loader(
            DataLoader(Gathering(6), batch_size=3, num_workers=1, timeout=60)
        )
    assert [batch.tolist() for batch in loader] == [[100, 101, 102], [103, 104, 105]]


@pytest.mark.parametrize("world_size", [1, 2])
def test_skipped_samples_are_not_loaded(world_size: int, tmp_path: Path) -> None:
    first = Program(LOADERS["shuffled"], world_size=world_size)
    passes = first.begin()
    head = first.rest(passes, 2)
    again = Program(LOADERS["shuffled"], world_size=world_size, saved=first.save(tmp_path))
    passes = again.begin()
    assert [loader.dataset.loaded for loader in again.loaders] == [[]] * world_size
    tail = again.rest(passes)
    assert [index for loader in again.loaders for index in loader.dataset.loaded] == [
        int(row[0]) for rank in range(world_size) for step in tail for row in step[rank][:-1]
    ]
    assert set(samples(head)) | set(samples(tail)) == set(range(23))


@pytest.mark.parametrize(("shuffle", "batch_size"), [(False, 4), (True, 4), (True, 1)])
@pytest.mark.parametrize("sizes", [(4, 2, 3), (1, 2, 1), (2, 1, 4), (3, 4, 3)])
def test_other_number_of_ranks_reads_every_sample_once(
    sizes: tuple[int, ...], shuffle: bool, batch_size: int, tmp_path: Path
) -> None:
    def make() -> DataLoader[Any]:
        return DataLoader(Augmented(120), batch_size=batch_size, shuffle=shuffle)

    saved, seen = None, []
    for attempt, world_size in enumerate(sizes):
        program = Program(make, world_size=world_size, saved=saved, seed=attempt)
        passes = program.begin()
        seen += samples(program.rest(passes, 2 if attempt < len(sizes) - 1 else None))
        saved = program.save(tmp_path / str(attempt))
    assert sorted(set(seen)) == list(range(120))
    assert len(seen) - 120 < sizes[-1]
    assert sorted(samples(program.epoch())) == list(range(120))
    assert [loader.state_dict()["epoch"] for loader in program.loaders] == [1] * sizes[-1]


@pytest.mark.parametrize("sizes", [(4, 2, 3), (1, 3, 2), (2, 1, 3)])
@pytest.mark.parametrize(
    "make",
    [
        lambda: DataLoader(Augmented(60), batch_size=2, sampler=Eager(60)),
        LOADERS["list of batches"],
    ],
)
def test_custom_orders_are_sharded_over_other_number_of_ranks(
    make: MakeLoader, sizes: tuple[int, ...], tmp_path: Path
) -> None:
    saved, seen = None, []
    for attempt, world_size in enumerate(sizes):
        program = Program(make, world_size=world_size, saved=saved, seed=attempt)
        passes = program.begin()
        seen += samples(program.rest(passes, 1 if attempt < len(sizes) - 1 else None))
        saved = program.save(tmp_path / str(attempt))
    if len(make()) == 30:
        assert sorted(seen) == list(range(60))
    else:
        assert set(seen) <= set(range(1, 9))
        assert set(seen) >= set(range(1, 9)) or len(seen) >= 8


def test_uneven_end_is_filled_only_once(tmp_path: Path) -> None:
    def make() -> DataLoader[Any]:
        return DataLoader(Augmented(23), batch_size=2)

    first = Program(make, world_size=4)
    passes = first.begin()
    head = samples(first.rest(passes, 1))
    tail = samples(Program(make, world_size=2, saved=first.save(tmp_path)).epoch())
    assert sorted(head) == list(range(8))
    assert sorted(tail) == [0, *range(8, 23)]


def test_another_batch_size_resumes_at_right_sample(tmp_path: Path) -> None:
    first = Program(lambda: DataLoader(Augmented(24), batch_size=4, shuffle=True), world_size=2)
    expected = samples(Program(LOADERS["shuffled"], world_size=2).epoch())
    passes = first.begin()
    head = samples(first.rest(passes, 1))
    again = Program(
        lambda: DataLoader(Augmented(24), batch_size=2, shuffle=True),
        world_size=2,
        saved=first.save(tmp_path),
    )
    tail = samples(again.epoch())
    assert sorted(head + tail) == list(range(24))
    assert len(expected) == 24


@pytest.mark.parametrize("world_size", [2, 3])
def test_distributed_sampler_of_torch_is_resharded(world_size: int, tmp_path: Path) -> None:
    def maker(ranks: int) -> MakeLoader:
        rank = itertools.count()
        return lambda: DataLoader(
            Augmented(24),
            batch_size=2,
            sampler=DistributedSampler(range(24), num_replicas=ranks, rank=next(rank), seed=3),
        )

    first = Program(maker(2), world_size=2)
    first.epoch()
    passes = first.begin()
    head = samples(first.rest(passes, 3))
    again = Program(maker(world_size), world_size=world_size, saved=first.save(tmp_path))
    assert sorted(head + samples(again.epoch())) == list(range(24))


class Halves:
    """A distributed sampler in no way of torch's: each rank has a stretch."""

    def __init__(self, rank: int, num_replicas: int) -> None:
        self.rank, self.num_replicas = rank, num_replicas

    def __len__(self) -> int:
        return 24 // self.num_replicas

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.rank * len(self), (self.rank + 1) * len(self)))


def test_distributed_sampler_of_program_restarts_on_other_number_of_ranks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def maker(ranks: int) -> MakeLoader:
        rank = itertools.count()
        return lambda: DataLoader(Augmented(24), batch_size=2, sampler=Halves(next(rank), ranks))

    first = Program(maker(2), world_size=2)
    passes = first.begin()
    head = first.rest(passes, 2)
    saved = first.save(tmp_path)
    assert sorted(
        samples(head) + samples(Program(maker(2), world_size=2, saved=saved).epoch())
    ) == list(range(24))
    assert not caplog.records
    again = Program(maker(3), world_size=3, saved=saved)
    assert sorted(samples(again.epoch())) == list(range(24))
    assert again.loaders[0].state_dict()["epoch"] == 0
    assert "then over 2 ranks and now over 3" in caplog.text


def test_ranks_at_different_positions_resume_at_earliest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def make() -> DataLoader[Any]:
        return DataLoader(Augmented(24), batch_size=2)

    first = Program(make, world_size=2)
    passes = first.begin()
    first.rest(passes, 1)
    next(passes[1])
    again = Program(make, world_size=3, saved=first.save(tmp_path))
    assert sorted(samples(again.epoch())) == [0, *range(4, 24)]
    assert "epoch 0, 1 batch; the latest was epoch 0, 2 batches" in caplog.text


def test_leaving_a_loop_ends_its_epoch(tmp_path: Path) -> None:
    undisturbed = Program(LOADERS["shuffled"])
    undisturbed.epoch(limit=2)
    expected = undisturbed.epoch()
    assert undisturbed.loaders[0].state_dict()["epoch"] == 1
    first = Program(LOADERS["shuffled"])
    first.epoch(limit=2)
    again = Program(LOADERS["shuffled"], saved=first.save(tmp_path), seed=4)
    assert again.epoch() == expected


def test_loop_left_after_preemption_notice_is_resumed(tmp_path: Path) -> None:
    expected = Program(LOADERS["shuffled"]).epoch()
    first = Program(LOADERS["shuffled"])
    first.epoch(limit=2)
    first.sessions[0].preemption = PreemptionInfo()
    again = Program(LOADERS["shuffled"], saved=first.save(tmp_path), seed=4)
    assert again.epoch() == expected[2:]


def test_two_loaders_in_the_middle_are_both_resumed(tmp_path: Path) -> None:
    def run(saved: Path | None, steps: int) -> tuple[list[Any], Any]:
        program = Program(LOADERS["shuffled"], saved=saved, seed=0 if saved is None else 77)
        set_session(program.sessions[0])
        try:
            second = prepare_data_loader(LOADERS["weighted"]())
        finally:
            set_session(None)
        seen = []
        for pair in itertools.islice(zip(program.loaders[0], second, strict=False), steps):
            seen.append([batch.tolist() for batch in pair])
            if len(seen) == 2 and saved is None:
                program.save(tmp_path)
        return seen, program

    expected, _ = run(None, 5)
    again, _ = run(tmp_path, 3)
    assert again == expected[2:]


def test_setting_another_epoch_starts_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = Program(LOADERS["shuffled"], world_size=2)
    first.epoch()
    passes = first.begin()
    first.rest(passes, 1)
    saved = first.save(tmp_path)
    for epoch, expected in [(0, 3), (1, 2), (5, 3)]:
        caplog.clear()
        again = Program(LOADERS["shuffled"], world_size=2, saved=saved)
        for loader in again.loaders:
            loader.sampler.set_epoch(epoch)
        assert len(again.epoch()) == expected
        assert again.loaders[0].state_dict()["epoch"] == epoch
        assert (
            f"in the middle of epoch 1 (batches: 1), but the program has set epoch {epoch}"
            in caplog.text
        ) == (epoch != 1)


def test_stream_is_loaded_again_with_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def make() -> DataLoader[Any]:
        return DataLoader(Stream(), batch_size=2)

    undisturbed = Program(make)
    expected = [undisturbed.epoch() for _ in range(2)]
    first = Program(make)
    passes = first.begin()
    first.rest(passes, 2)
    again = Program(make, saved=first.save(tmp_path), seed=5)
    with caplog.at_level(logging.INFO):
        assert [again.epoch(), again.epoch()] == [expected[0][2:], expected[1]]
    assert "the samples of epoch 0 before the restart (2 batches) are read again" in caplog.text


@pytest.mark.processes
@pytest.mark.parametrize("persistent", [False, True])
def test_stream_in_worker_processes_is_resumed(persistent: bool, tmp_path: Path) -> None:
    def make() -> DataLoader[Any]:
        return DataLoader(
            Stream(), batch_size=2, num_workers=2, persistent_workers=persistent, timeout=60
        )

    undisturbed = Program(make)
    expected = [undisturbed.epoch() for _ in range(2)]
    first = Program(make)
    first.epoch()
    passes = first.begin()
    first.rest(passes, 3)
    assert Program(make, saved=first.save(tmp_path), seed=5).epoch() == expected[1][3:]


class StatefulStream(Stream):
    def __init__(self, total: int = 11) -> None:
        super().__init__(total)
        self.next = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        while self.next < self.total:
            self.next += 1
            self.loaded.append(self.next - 1)
            yield torch.tensor([self.next - 1, torch.rand(()).item()], dtype=torch.float64)
        self.next = 0

    def state_dict(self) -> dict[str, Any]:
        return {"next": self.next, "tensor": torch.zeros(1)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.next = state["next"]


def test_stateful_stream_is_resumed_without_loading(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def make() -> DataLoader[Any]:
        return DataLoader(StatefulStream(), batch_size=2)

    undisturbed = Program(make)
    expected = [undisturbed.epoch() for _ in range(2)]
    first = Program(make)
    passes = first.begin()
    first.rest(passes, 2)
    again = Program(make, saved=first.save(tmp_path), seed=5)
    assert [again.epoch(), again.epoch()] == [expected[0][2:], expected[1]]
    assert again.loaders[0].dataset.loaded[0] == 4
    assert not caplog.records


def test_failed_sample_is_not_retried(tmp_path: Path) -> None:
    class Broken(Augmented):
        def __getitem__(self, index: int) -> torch.Tensor:
            if index == 1:
                raise OSError("broken")
            return super().__getitem__(index)

    def make() -> DataLoader[Any]:
        return DataLoader(Broken(4), batch_size=1)

    first = Program(make)
    passes = first.begin()
    first.step(passes)
    with pytest.raises(OSError, match="broken"):
        first.step(passes)
    assert samples(Program(make, saved=first.save(tmp_path)).epoch()) == [2, 3]


def test_unordered_batches_cause_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = Program(LOADERS["sequential"])
    passes = first.begin()
    first.rest(passes, 1)
    saved = first.save(tmp_path)
    Program(
        lambda: DataLoader(Augmented(), batch_size=4, num_workers=1, in_order=False), saved=saved
    )
    assert "`in_order=False`" in caplog.text


def test_batches_of_distributed_sampler_are_resharded(tmp_path: Path) -> None:
    def maker(ranks: int) -> MakeLoader:
        rank = itertools.count()

        def make() -> DataLoader[Any]:
            sampler = DistributedSampler(range(24), num_replicas=ranks, rank=next(rank))
            return DataLoader(Augmented(24), batch_sampler=BatchSampler(sampler, 2, False))

        return make

    first = Program(maker(4), world_size=4)
    passes = first.begin()
    head = samples(first.rest(passes, 1))
    tail = samples(Program(maker(2), world_size=2, saved=first.save(tmp_path)).epoch())
    assert sorted(head + tail) == list(range(24))
