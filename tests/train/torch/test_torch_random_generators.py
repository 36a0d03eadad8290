"""Indices that seed the generators of the process that unpickles them."""

from __future__ import annotations

import pickle
import random

import numpy as np
import torch

from syncline.train.torch.random_generators import RandomStates, with_seeds


def drawn() -> tuple[float, float, float]:
    return torch.rand(()).item(), random.random(), np.random.rand()


def test_unpickled_index_is_unchanged_and_seeds_all_generators() -> None:
    before = RandomStates()
    try:
        sent = [pickle.dumps(each) for each in with_seeds([[1, 2], "key"], seed=7, rank=1, first=3)]
        assert drawn() != drawn()
        received = [(pickle.loads(each), drawn()) for each in sent]
        again = [(pickle.loads(each), drawn()) for each in reversed(sent)]
    finally:
        before.apply()
    assert [index for index, _ in received] == [[1, 2], "key"]
    assert received == again[::-1]
    assert len({number for _, numbers in received for number in numbers}) == 6


def test_passes_ranks_and_batches_have_different_random_numbers() -> None:
    before = RandomStates()
    try:
        numbers = []
        for seed, rank, first in [(1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1)]:
            pickle.loads(pickle.dumps(next(with_seeds([0], seed=seed, rank=rank, first=first))))
            numbers += drawn()
    finally:
        before.apply()
    assert len(set(numbers)) == len(numbers)
