"""Random numbers of one's own: a block of code draws from generators that nobody else's draws move,
and moves nobody else's.

The generators are the global ones of torch (CPU), Python and NumPy, whose states are exchanged for
the time of the block.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

import numpy as np
import torch

T = TypeVar("T")


class RandomStates:
    """The states of the three global generators when it is made."""

    def __init__(self) -> None:
        self.torch = torch.get_rng_state()
        self.python = random.getstate()
        self.numpy = np.random.get_state(legacy=False)

    def apply(self) -> None:
        """Make these the states in force."""
        torch.set_rng_state(self.torch)
        random.setstate(self.python)
        np.random.set_state(self.numpy)


def seeded_states(key: Sequence[int]) -> list[RandomStates]:
    """A cell with the states that `key`, numbers from 0, determines; nothing in force is
    changed.
    """
    before = RandomStates()
    torch_seed, python_seed, numpy_seed = (
        int(word) for word in np.random.SeedSequence(key).generate_state(3)
    )
    torch.default_generator.manual_seed(torch_seed)
    random.seed(python_seed)
    np.random.seed(numpy_seed)
    try:
        return [RandomStates()]
    finally:
        before.apply()


@contextmanager
def random_states(cell: list[RandomStates]) -> Iterator[None]:
    """Run a block on the states in `cell`, leave there what they have become, and restore the ones
    before.
    """
    before = RandomStates()
    cell[0].apply()
    try:
        yield
    finally:
        cell[0] = RandomStates()
        before.apply()


def drawn_apart(items: Iterable[T], key: Sequence[int], *, ahead: int) -> Iterator[T]:
    """The items of an iterable that draws as it goes, on states that `key` determines; `ahead` at
    once, so endless ones work.
    """
    states = seeded_states(key)
    with random_states(states):
        iterator = iter(items)
    while True:
        with random_states(states):
            piece = list(islice(iterator, ahead))
        if not piece:
            return
        yield from piece
