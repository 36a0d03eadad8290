"""Checkpoints of `train.save` that the training process writes itself."""

from __future__ import annotations

import os

from syncline.train.checkpoint import Checkpoint
from syncline.train.framework_checkpoint import FrameworkCheckpoint
from syncline.train.snapshots.capture import with_state_dicts


class DirectCheckpoint(FrameworkCheckpoint):
    """Checkpoint of one file in a temporary directory, which is deleted with the object."""

    @classmethod
    def of_state(cls, state: object, file_name: str) -> DirectCheckpoint:
        """Write a state."""
        from syncline.train.snapshots import torch_files  # loads torch

        plain = with_state_dicts(state)
        return cls._written(
            lambda directory: torch_files.write(plain, os.path.join(directory, file_name))
        )


def save_now(state: object, file_name: str) -> Checkpoint:
    """Write a state to a temporary directory in this process."""
    return DirectCheckpoint.of_state(state, file_name)
