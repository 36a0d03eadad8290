"""Checkpoints of `train.save` that the training process writes itself."""

from __future__ import annotations

import os
import tempfile

from syncline.train.checkpoint import Checkpoint
from syncline.train.snapshots.capture import with_state_dicts


def save_now(state: object, file_name: str) -> Checkpoint:
    """Write a state to a temporary directory in this process."""
    from syncline.train.snapshots import torch_files  # loads torch

    directory = tempfile.mkdtemp(prefix="syncline-save-")
    torch_files.write(with_state_dicts(state), os.path.join(directory, file_name))
    return Checkpoint.from_directory(directory)
