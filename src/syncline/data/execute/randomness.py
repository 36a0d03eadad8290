"""What user functions draw from the global random generators of Python, NumPy and torch: the same
for the same rows, whoever runs the task.

Each task begins with generators that are seeded for it. Since a task always runs from its
beginning, also where an execution starts in the middle of its output, a pass that is resumed draws
what an undisturbed one would. Worker processes need no more than that. In local mode tasks share a
thread with the program, whose own states are put aside for each turn. Not covered: generators that
functions make themselves, calls of an async function that overlap, and torch where it is imported
by the first call of a function in its process.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from syncline.data.plan.seeds import derived


def seed(*numbers: int) -> None:
    """Let the generators begin at a point that these numbers stand for."""
    number = derived(*numbers)
    random.seed(number)
    np.random.seed(number % 2**32)
    torch = _torch()
    if torch is not None:
        torch.default_generator.manual_seed(
            number
        )  # `torch.manual_seed` would note the stack for CUDA, which takes a tenth of a millisecond
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(number)


class Aside(AbstractContextManager[None]):
    """Within the block the generators are those of a task; before and after it, those of the
    program. One block at a time.
    """

    def __init__(self, *numbers: int) -> None:
        """`numbers` stand for the point where they begin in the first block."""
        self._numbers = numbers
        self._own: list[Callable[[], Any]] = []
        self._programs: list[Callable[[], Any]] = []

    def __enter__(self) -> None:
        self._programs = _restorers()
        if self._own:
            _call(self._own)
        else:
            seed(*self._numbers)

    def __exit__(self, *error: object) -> None:
        self._own = _restorers()
        _call(self._programs)


def _restorers() -> list[Callable[[], Any]]:
    """What brings each generator back to where it is now."""
    python, numpy, torch = random.getstate(), np.random.get_state(), _torch()
    restorers: list[Callable[[], Any]] = [
        lambda: random.setstate(python),
        lambda: np.random.set_state(numpy),
    ]
    if torch is not None:
        state = torch.get_rng_state()
        restorers.append(lambda: torch.set_rng_state(state))
    return restorers


def _call(restorers: list[Callable[[], Any]]) -> None:
    for restore in restorers:
        restore()


def _torch() -> Any:
    """torch, if this process has loaded it."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "default_generator") else None  # else another thread is about to
