"""States of the random generators: taken, as JSON, and put back."""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import numpy as np
import pytest
import torch

from syncline.core import random_states


def drawn() -> tuple[float, ...]:
    return (
        random.random(),
        random.gauss(0, 1),
        float(np.random.rand()),
        float(np.random.randn()),
        float(torch.rand(1)),
    )


def test_generators_go_on_where_they_were() -> None:
    drawn()  # leaves half of a pair of gaussian numbers behind
    states = json.loads(json.dumps(random_states.capture()))
    first = drawn()
    drawn()
    random_states.restore(states)
    assert drawn() == first


def test_each_seed_from_the_system_is_another_one() -> None:
    seeded = []
    for _ in range(2):
        random_states.seed_anew()
        seeded.append(drawn())
    first, second = seeded
    assert all(one != other for one, other in zip(first, second, strict=True))


def test_torch_is_left_alone_where_nobody_has_loaded_it(monkeypatch: pytest.MonkeyPatch) -> None:
    states = random_states.capture()
    monkeypatch.delitem(sys.modules, "torch")
    assert set(random_states.capture()) == {"python", "numpy"}
    random_states.restore(states)
    assert "torch" not in sys.modules


class FakeCuda:
    """Two devices whose states are single numbers."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, initialised: bool, devices: int = 2
    ) -> None:
        self.states = [torch.tensor([number], dtype=torch.uint8) for number in range(devices)]
        self.initialised = initialised
        for name, function in {
            "is_initialized": lambda: self.initialised,
            "is_available": lambda: True,
            "device_count": lambda: len(self.states),
            "get_rng_state_all": lambda: list(self.states),
            "set_rng_state": self.set,
        }.items():
            monkeypatch.setattr(torch.cuda, name, function)

    def set(self, state: Any, device: int) -> None:
        self.states[device] = state


def test_every_cuda_device_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(monkeypatch, initialised=True)
    states = json.loads(json.dumps(random_states.capture()))
    cuda.states = [torch.tensor([9], dtype=torch.uint8)] * 2
    random_states.restore(states)
    assert [state.tolist() for state in cuda.states] == [[0], [1]]


def test_fewer_devices_than_before_get_their_states(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(monkeypatch, initialised=True)
    states = random_states.capture()
    cuda.states = [torch.tensor([9], dtype=torch.uint8)]
    random_states.restore(states)
    assert [state.tolist() for state in cuda.states] == [[0]]


def test_cuda_that_the_program_does_not_use_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCuda(monkeypatch, initialised=False)
    assert "cuda" not in random_states.capture()
