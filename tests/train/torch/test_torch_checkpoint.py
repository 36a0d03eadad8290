"""Checkpoints of torch models."""

from __future__ import annotations

import gc
import os
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

from syncline.train.checkpoint import Checkpoint
from syncline.train.torch import TorchCheckpoint


def test_model_round_trip() -> None:
    model = nn.Linear(3, 2)
    loaded = TorchCheckpoint.from_model(model).get_model()
    assert isinstance(loaded, nn.Linear)
    assert torch.equal(loaded.weight, model.weight)


def test_class_of_main_module_is_stored_with_model() -> None:
    class Doubling(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * x

    Doubling.__module__ = (
        "__main__"  # where a worker that got the class from the program does not find it
    )
    loaded = TorchCheckpoint.from_model(Doubling()).get_model()
    assert loaded(torch.ones(1)).item() == 2


def test_state_dict_is_loaded_without_prefix_of_ddp() -> None:
    model, target = nn.Linear(3, 2), nn.Linear(3, 2)
    state = {f"module.{name}": value for name, value in model.state_dict().items()}
    checkpoint = TorchCheckpoint.from_state_dict(state)
    assert isinstance(checkpoint, Checkpoint)
    assert checkpoint.get_model(target) is target
    assert torch.equal(target.weight, model.weight)
    assert set(state) == {"module.weight", "module.bias"}


def test_state_dict_needs_a_model() -> None:
    with pytest.raises(ValueError, match="get_model\\(model\\)"):
        TorchCheckpoint.from_state_dict(nn.Linear(1, 1).state_dict()).get_model()


def test_checkpoint_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="as_directory"):
        TorchCheckpoint.from_directory(str(tmp_path)).get_model()


def test_directory_is_deleted_with_object_unless_pickled() -> None:
    kept, dropped = (TorchCheckpoint.from_model(nn.Linear(1, 1)) for _ in range(2))
    received = pickle.loads(pickle.dumps(kept))
    directory = dropped.path
    del kept, dropped
    gc.collect()
    assert not os.path.exists(directory)
    assert isinstance(received.get_model(), nn.Linear)
    os.remove(os.path.join(received.path, TorchCheckpoint.MODEL_FILENAME))
    os.rmdir(received.path)
