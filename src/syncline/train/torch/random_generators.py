"""Isolated draws from the global generators, seeds for the batches of loaders, and
`enable_reproducibility`.

Covered are torch's CPU generator and the global generators of Python and NumPy. Not covered:
generators that the program or its datasets create, those of devices, and states for checkpoints
(`core.random_states`).
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import islice
from typing import TypeVar

import numpy as np
import torch

T = TypeVar("T")

_BATCH_KEY = struct.Struct("<QQQ")


def enable_reproducibility(seed: int = 0) -> None:
    """Make this process deterministic: seed torch (CUDA too), random and numpy, and use only
    deterministic algorithms of torch.

    This is slower, and operations without a deterministic algorithm raise RuntimeError. Worker
    processes of DataLoaders are covered, since torch derives their seeds. Call this first in the
    training function, before CUDA is used. Datasets of `syncline.data` are shuffled and transformed
    in other processes: for those, set `DataContext.get_current().seed = 0` before you create them.
    """
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    # cuBLAS reads this on first use. Without it, results depend on the order in which streams get
    # their workspace.
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"


# -- isolated draws


class RandomStates:
    """States of the three global generators (torch on the CPU, Python, NumPy) at construction."""

    def __init__(self) -> None:
        self.torch = torch.get_rng_state()
        self.python = random.getstate()
        self.numpy = np.random.get_state(legacy=False)

    def apply(self) -> None:
        """Restore these states."""
        torch.set_rng_state(self.torch)
        random.setstate(self.python)
        np.random.set_state(self.numpy)


class RandomStream:
    """Separate states of the global generators, seeded from `key` (numbers from 0).

    Code in `active()` draws from the stream and does not change the program's states.
    """

    def __init__(self, key: Sequence[int]) -> None:
        torch_seed, python_seed, numpy_seed = (
            int(word) for word in np.random.SeedSequence(key).generate_state(3)
        )
        before = RandomStates()
        try:
            torch.default_generator.manual_seed(torch_seed)
            random.seed(python_seed)
            np.random.seed(numpy_seed)
            self._states = RandomStates()
        finally:
            before.apply()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Run a block on the states of the stream."""
        before = RandomStates()
        self._states.apply()
        try:
            yield
        finally:
            self._states = RandomStates()
            before.apply()


def isolated_draws(items: Iterable[T], key: Sequence[int], *, size: int) -> Iterator[T]:
    """Yield the items of an iterable that draws random numbers during iteration, from a
    `RandomStream` of `key`. Items are drawn in groups of `size`, so endless iterables work.
    """
    stream = RandomStream(key)
    with stream.active():
        iterator = iter(items)
    while True:
        with stream.active():
            group = list(islice(iterator, size))
        if not group:
            return
        yield from group


# -- seeds of batches


def with_seeds(
    indices: Iterable[object], *, seed: int, rank: int, first: int
) -> Iterator[SeededIndex]:
    """Yield indices for worker processes, numbered from `first`. `seed` is the seed of the pass."""
    for number, index in enumerate(indices, first):
        yield SeededIndex(index, _BATCH_KEY.pack(seed, rank, number))


class SeededIndex:
    """Index with the random seed of its batch, for a worker process of a loader.

    torch seeds a worker process once, so its draws for a batch depend on all batches that it made
    before, and a loader that resumes in the middle of an epoch could not draw the same numbers.
    Here the worker seeds its generators when it unpickles an index, so a batch has the same random
    numbers in any process. This costs about 15 microseconds a batch. In the worker process the
    object becomes the plain index.
    """

    __slots__ = ("_index", "_key")

    def __init__(self, index: object, key: bytes) -> None:
        self._index = index
        self._key = key

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, bytes]]:
        return _seed_for, (self._index, self._key)


def seed_generators(key: bytes) -> None:
    """Seed the global generators of torch (CPU), Python and NumPy from `key`."""
    digest = blake2b(key, digest_size=32).digest()
    torch.default_generator.manual_seed(int.from_bytes(digest[:8], "little"))
    random.seed(int.from_bytes(digest[8:16], "little"))
    np.random.seed(np.frombuffer(digest, np.uint32, offset=16))


def _seed_for(index: object, key: bytes) -> object:
    seed_generators(key)
    return index
