"""Checkpoints of `train.save` that the training process writes."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from syncline import train
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


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        (3, TypeError, "file_name=3.* is not a string"),
        (None, TypeError, "file_name=None.* is not a string"),
        ("", ValueError, "without directories"),
        ("..", ValueError, "without directories"),
        ("a/b.pt", ValueError, "file_name='a/b.pt'.* without directories"),
    ],
)
def test_wrong_file_names_are_refused(name: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        train.save({}, file_name=name)
