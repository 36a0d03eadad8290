"""Where a record lies: the narrow interface that `RunDirectory` and `RunRecord` need, and its form
for a directory of this machine.

`syncline.train.storage.ArrowFiles` is the form for every other filesystem.
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from typing import Protocol


class Files(Protocol):
    """A directory of named files; names may contain `/`. Not asked to be safe for use from several
    threads.
    """

    @property
    def local_path(self) -> str | None:
        """The directory, where it is one of this machine: its files are then opened there and added
        to. None elsewhere.
        """

    def read(self, name: str) -> bytes | None:
        """Content of the file, or None if there is none. OSError if it cannot be read."""

    def write(self, name: str, data: bytes) -> None:
        """Write the whole file in place of what was there; readers see the old or the new. OSError
        if it cannot be written.
        """


class LocalFiles:
    """A directory of this machine."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = os.path.abspath(directory)

    @property
    def local_path(self) -> str:
        """The directory, absolute."""
        return self._directory

    def read(self, name: str) -> bytes | None:
        """Content of the file, or None if there is none."""
        try:
            with open(os.path.join(self._directory, name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Write the whole file beside its place, to the disk, and rename it there."""
        path = os.path.join(self._directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = os.path.join(os.path.dirname(path), f".tmp-{uuid.uuid4().hex}")
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except (
            BaseException
        ):  # where a disk is full, what of it fitted would take the rest of the room
            with suppress(OSError):
                os.unlink(temporary)
            raise
