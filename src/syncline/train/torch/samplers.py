"""Samplers that give a rank its share: torch's own for the plain orders, a wrapper for everything that a user wrote."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from itertools import islice
from typing import Any, Generic, TypeVar, cast

import numpy as np
import torch
from torch.utils.data import RandomSampler, Sampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from syncline.train.torch.sharding import rank_share, share_length

T = TypeVar("T")

READ_AHEAD = 64
"""How many items per rank are drawn at once: keeping the random states apart costs some 50 microseconds a time."""


class ShardedSampler(Sampler[T], Generic[T]):
    """A rank's share of what another sampler yields: positions, or whole batches of them.

    Every rank draws the full order and keeps its share, so all must draw the same. What the sampler takes from the global random
    generators (torch, random, numpy) is therefore drawn from a stream of its own: seeded with `seed`, the epoch and the number of the
    pass, equal on all ranks and new for each pass. A sampler with a generator of its own must seed that equally on every rank.
    """

    def __init__(self, sampler: Iterable[T], *, rank: int, world_size: int, seed: int = 0) -> None:
        self.sampler = sampler
        self.rank = rank
        self.num_replicas = world_size
        self.seed = seed
        self.epoch = 0
        self._passes = 0

    def set_epoch(self, epoch: int) -> None:
        """Draw the order of this epoch at the next pass; told to the wrapped sampler too, if it wants to know."""
        self.epoch = epoch
        self._passes = 0
        for listener in (self.sampler, getattr(self.sampler, "sampler", None)):
            if callable(getattr(listener, "set_epoch", None)):
                cast("Any", listener).set_epoch(epoch)

    def __iter__(self) -> Iterator[T]:
        number = self._passes
        self._passes += 1
        return rank_share(self._draw(number), self.rank, self.num_replicas)

    def __len__(self) -> int:
        return share_length(len(cast("Sized", self.sampler)), self.num_replicas)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "sampler":  # a copy being made asks before there is a `sampler`
            raise AttributeError(name)
        return getattr(self.sampler, name)

    def _draw(self, number: int) -> Iterator[T]:
        """The full order of pass `number`, drawn in pieces so that endless samplers work."""
        states = seeded_states([self.seed, self.epoch, number])
        with random_states(states):
            iterator = iter(self.sampler)
        while True:
            with random_states(states):
                piece = list(islice(iterator, READ_AHEAD * self.num_replicas))
            if not piece:
                return
            yield from piece


class RandomStates:
    """The states of the three global generators; `exchange` swaps them with the ones in force."""

    def __init__(self) -> None:
        self.torch = torch.get_rng_state()
        self.python = random.getstate()
        self.numpy = np.random.get_state()

    def apply(self) -> None:
        """Make these the states in force."""
        torch.set_rng_state(self.torch)
        random.setstate(self.python)
        np.random.set_state(self.numpy)


def seeded_states(key: list[int]) -> list[RandomStates]:
    """A cell with the states that `key` determines; nothing in force is changed."""
    before = RandomStates()
    torch_seed, python_seed, numpy_seed = (int(word) for word in np.random.SeedSequence(key).generate_state(3))
    torch.default_generator.manual_seed(torch_seed)
    random.seed(python_seed)
    np.random.seed(numpy_seed)
    try:
        return [RandomStates()]
    finally:
        before.apply()


@contextmanager
def random_states(cell: list[RandomStates]) -> Iterator[None]:
    """Run a block on the states in `cell`, leave there what they have become, and restore the ones before."""
    before = RandomStates()
    cell[0].apply()
    try:
        yield
    finally:
        cell[0] = RandomStates()
        before.apply()


def is_distributed(sampler: object) -> bool:
    """Whether a sampler already yields one rank's share: torch's own, or one that follows its convention."""
    return isinstance(sampler, DistributedSampler) or (hasattr(sampler, "num_replicas") and hasattr(sampler, "rank"))


def shard_sampler(sampler: Iterable[Any], *, rank: int, world_size: int) -> Sampler[Any]:
    """A rank's share of `sampler`: a `DistributedSampler` for a plain sequential or shuffled order, else a `ShardedSampler`."""
    if type(sampler) is SequentialSampler:
        return _distributed(sampler.data_source, rank, world_size, shuffle=False)
    if type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == len(sampler.data_source):
        return _distributed(sampler.data_source, rank, world_size, shuffle=True)
    return ShardedSampler(sampler, rank=rank, world_size=world_size)


def _distributed(source: Sized, rank: int, world_size: int, *, shuffle: bool) -> DistributedSampler[Any]:
    # The sampler's own source, which may be shorter than the loader's dataset; of either, only the length matters here.
    return DistributedSampler(cast("Any", source), num_replicas=world_size, rank=rank, shuffle=shuffle)
