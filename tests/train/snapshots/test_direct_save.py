"""Checkpoints of `train.save` that the training process writes."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import torch

from syncline.train import Checkpoint
from syncline.train.snapshots.direct_save import save_now


def test_the_file_is_deleted_with_the_checkpoint() -> None:
    checkpoint = save_now({"weights": torch.ones(3), "model": torch.nn.Linear(1, 1)}, "state.pt")
    directory = Path(checkpoint.path)
    state = torch.load(directory / "state.pt")
    assert state["weights"].tolist() == [1, 1, 1]
    assert sorted(state["model"]) == ["bias", "weight"]
    del checkpoint
    assert not directory.exists()


def test_the_file_of_a_pickled_checkpoint_remains() -> None:
    sent: Checkpoint = pickle.loads(pickle.dumps(save_now({"step": 1}, "state.pt")))
    assert torch.load(Path(sent.path, "state.pt")) == {"step": 1}
    shutil.rmtree(sent.path)
