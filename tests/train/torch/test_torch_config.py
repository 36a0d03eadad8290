"""Configuration is checked where it is written; the trainer passes it on; reproducibility repeats
numbers.
"""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import syncline.train.torch as train_torch
from syncline.train.torch import TorchConfig, TorchTrainer, enable_reproducibility


@pytest.fixture
def nondeterministic_afterwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    benchmark = torch.backends.cudnn.benchmark
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.benchmark = benchmark


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"backend": 3}, TypeError, "backend=3"),
        ({"backend": ""}, ValueError, "'nccl', 'gloo'"),
        ({"init_method": "file"}, ValueError, "init_method='file'"),
        ({"timeout_s": 0}, ValueError, "timeout_s=0"),
        ({"timeout_s": float("nan")}, ValueError, "timeout_s=nan"),
        ({"timeout_s": "1"}, TypeError, "timeout_s='1'"),
    ],
)
def test_invalid_fields_are_refused(
    fields: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        TorchConfig(**fields)


def test_defaults_can_be_pickled() -> None:
    config = pickle.loads(pickle.dumps(TorchConfig()))
    assert (config.backend, config.init_method, config.timeout_s) == (None, "env", 1800)
    pickle.loads(pickle.dumps(config.train_func_context))


def test_trainer_refuses_invalid_torch_config() -> None:
    with pytest.raises(TypeError, match="`torch_config` is a dict"):
        TorchTrainer(lambda: None, torch_config={})


def test_public_names() -> None:
    assert sorted(train_torch.__all__) == [
        "TorchCheckpoint",
        "TorchConfig",
        "TorchPredictor",
        "TorchTrainer",
        "accelerate",
        "backward",
        "enable_reproducibility",
        "get_device",
        "get_devices",
        "prepare_data_loader",
        "prepare_model",
        "prepare_optimizer",
    ]


@pytest.mark.usefixtures("nondeterministic_afterwards")
def test_reproducibility_repeats_every_generator() -> None:
    def draws() -> list[float]:
        return [torch.rand(()).item(), random.random(), float(np.random.rand())]

    enable_reproducibility(1)
    first = draws()
    enable_reproducibility(1)
    assert draws() == first
    enable_reproducibility(2)
    assert all(again != once for again, once in zip(draws(), first, strict=True))


@pytest.mark.usefixtures("nondeterministic_afterwards")
def test_reproducibility_allows_deterministic_algorithms_only() -> None:
    torch.backends.cudnn.benchmark = True
    enable_reproducibility()
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.benchmark
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
