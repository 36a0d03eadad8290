"""Results of `train.save`: `SavedCheckpoint`, whose files do not exist yet, or written files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyarrow import fs as pyarrow_fs

from syncline.train.checkpoint import Checkpoint
from syncline.train.snapshots.capture import with_state_dicts

if TYPE_CHECKING:
    from syncline.train.workers.messages import CheckpointPart
    from syncline.train.workers.uploads import CheckpointUpload


class SavedCheckpoint(Checkpoint):
    """Checkpoint in shared memory. `report` has its file written by another process.

    Args:
        path: Local directory for the file until it is in the storage of the run.
        write: Writes the file, brings it to the storage, and releases the memory. Called once, by
            `report`, or with ASYNC by the upload thread.
    """

    def __init__(self, path: str, write: Callable[[CheckpointUpload], CheckpointPart]) -> None:
        super().__init__(path, pyarrow_fs.LocalFileSystem())
        self.write = write


def save_now(state: object, file_name: str) -> Checkpoint:
    """Write a state to a temporary directory in this process."""
    from syncline.train.snapshots import torch_files  # loads torch

    directory = tempfile.mkdtemp(prefix="syncline-save-")
    torch_files.write(with_state_dicts(state), os.path.join(directory, file_name))
    return Checkpoint.from_directory(directory)
