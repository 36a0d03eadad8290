"""A small program that trains from prepared loaders on any number of ranks, can be stopped
anywhere, and goes on from its checkpoint.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Sampler

from syncline.train.checkpoint import Checkpoint
from syncline.train.resume_state import states_path
from syncline.train.torch import prepare_data_loader
from tests.train.torch.torch_fakes import FakeSession, session

MakeLoader = Callable[[], DataLoader[Any]]
Batch = list[list[float]]


class Augmented(Dataset[Any]):
    """Samples `(4,)`: the index, and a number from each of the three global generators."""

    def __init__(self, total: int = 23) -> None:
        self.total = total
        self.loaded: list[int] = []

    def __len__(self) -> int:
        return self.total

    def __getitem__(self, index: int) -> torch.Tensor:
        self.loaded.append(index)
        return torch.tensor(
            [index, torch.rand(()).item(), random.random(), np.random.rand()], dtype=torch.float64
        )


class Stream(IterableDataset[Any]):
    """Numbers from 0, each with a random one."""

    def __init__(self, total: int = 11) -> None:
        self.total = total
        self.loaded: list[int] = []

    def __iter__(self) -> Iterator[torch.Tensor]:
        for index in range(self.total):
            self.loaded.append(index)
            yield torch.tensor([index, torch.rand(()).item()], dtype=torch.float64)


class Lazy(Sampler[int]):
    """Draws each index when it is asked for, from all three global generators."""

    def __init__(self, total: int = 23) -> None:
        self.total = total

    def __len__(self) -> int:
        return self.total

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.total):
            yield (
                int(
                    torch.randint(self.total, ()).item()
                    + random.randrange(self.total)
                    + np.random.randint(self.total)
                )
                % self.total
            )


class Eager(Sampler[int]):
    """Draws the whole order when it is asked for an iterator."""

    def __init__(self, total: int = 23) -> None:
        self.total = total

    def __len__(self) -> int:
        return self.total

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(self.total).tolist()
        random.shuffle(order)
        return iter(order)


class Pairs(Sampler[list[int]]):
    """A batch sampler of its own: batches of 1, 2, 3, 1, 2, 3, ... in a random order."""

    def __len__(self) -> int:
        return 12

    def __iter__(self) -> Iterator[list[int]]:
        order = iter(torch.randperm(24).tolist())
        for number in range(12):
            yield [next(order) % 23 for _ in range(1 + number % 3)]


class Program:
    """One attempt on all ranks, in one process: they take steps in turn, each with random states of
    its own.
    """

    def __init__(
        self,
        make: MakeLoader,
        *,
        world_size: int = 1,
        saved: Path | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        self.sessions: list[FakeSession] = []
        self.loaders: list[Any] = []
        self._states: list[Any] = []
        for rank in range(world_size):
            seed_all(seed + rank)
            checkpoint = None if saved is None else Checkpoint(saved)
            with session(world_rank=rank, world_size=world_size, saved=checkpoint) as current:
                self.loaders.append(prepare_data_loader(make(), **options))
            self.sessions.append(current)
            self._states.append(states())

    def on(self, rank: int, work: Callable[[Any], Any]) -> Any:
        """Do `work` with the loader of a rank, on its random states."""
        put(self._states[rank])
        try:
            return work(self.loaders[rank])
        finally:
            self._states[rank] = states()

    def begin(self) -> list[Any]:
        """A pass on each rank."""
        return [self.on(rank, iter) for rank in range(len(self.loaders))]

    def step(self, passes: list[Any]) -> list[Batch] | None:
        """A batch for each rank, and the random numbers that a training step would take; None at
        the end.
        """
        found = [
            self.on(rank, lambda _, each=each: self._step(each))  # type: ignore[misc]
            for rank, each in enumerate(passes)
        ]
        assert len({batch is None for batch in found}) == 1, "all ranks take equally many steps"
        return None if found[0] is None else found

    def epoch(self, limit: int | None = None) -> list[list[Batch]]:
        """A pass on all ranks: by step, by rank. Left after `limit` steps."""
        return self.rest(self.begin(), limit)

    def rest(self, passes: list[Any], limit: int | None = None) -> list[list[Batch]]:
        seen: list[list[Batch]] = []
        while limit is None or len(seen) < limit:
            batches = self.step(passes)
            if batches is None:
                break
            seen.append(batches)
        return seen

    def save(self, path: Path) -> Path:
        """A checkpoint with the places of all ranks."""
        for rank, current in enumerate(self.sessions):
            target = path / states_path(rank)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(
                self.on(rank, lambda _, current=current: current.readers.capture())  # type: ignore[misc]
            )
        return path

    @staticmethod
    def _step(batches: Iterator[Any]) -> Batch | None:
        batch = next(batches, None)
        if batch is None:
            return None
        noise = [torch.rand(()).item(), random.random(), np.random.rand()]
        return [*torch.atleast_2d(torch.as_tensor(batch)).tolist(), noise]


def samples(steps: list[list[Batch]]) -> list[int]:
    """The indices of the samples in the batches of all ranks."""
    return [int(sample[0]) for step in steps for batch in step for sample in batch[:-1]]


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def states() -> Any:
    return torch.get_rng_state(), random.getstate(), np.random.get_state()


def put(saved: Any) -> None:
    torch.set_rng_state(saved[0])
    random.setstate(saved[1])
    np.random.set_state(saved[2])


def in_batches(total: int = 23) -> BatchSampler:
    """A batch sampler around a sampler that draws as it goes."""
    return BatchSampler(Lazy(total), 3, False)
