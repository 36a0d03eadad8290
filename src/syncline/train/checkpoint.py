"""`Checkpoint`: a directory of files on any filesystem; modes and states of reported checkpoints.

Covered: references, copies to this machine, reading in place, metadata. Not covered: the way into
the run directory (`storage/context.py`) and retention (`controller/checkpoint_manager.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from pyarrow import fs as pyarrow_fs

from syncline import settings
from syncline.runs.json_values import JsonObject
from syncline.storage import filesystem as files
from syncline.train.storage.download_locks import download_once, shared_download

METADATA_FILE = ".metadata.json"
_Self = TypeVar("_Self", bound="Checkpoint")


class Checkpoint:
    """Reference to a directory with the files of a checkpoint; cheap to create, compare and pickle.

    Args:
        path: The directory, or its URI (`s3://bucket/run/checkpoint_000001`). A relative local path
            is made absolute.
        filesystem: Filesystem of `path`; by default derived from it.

    Raises:
        TypeError: `path` is not a path.
        ValueError: pyarrow does not know the URI.
    """

    path: str
    """Path of the directory on `filesystem`."""
    filesystem: pyarrow_fs.FileSystem
    """Filesystem of the directory."""

    def __init__(
        self, path: str | os.PathLike[str], filesystem: pyarrow_fs.FileSystem | None = None
    ) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(
                f"Checkpoint(path={path!r}): pass a path or a URI, not a {type(path).__name__}."
            )
        if filesystem is not None and not isinstance(filesystem, pyarrow_fs.FileSystem):
            raise TypeError(
                f"Checkpoint(filesystem={filesystem!r}): pass a pyarrow.fs.FileSystem, not a "
                f"{type(filesystem).__name__}."
            )
        self.filesystem, self.path = files.resolve(path, filesystem)

    @classmethod
    def from_directory(cls: type[_Self], path: str | os.PathLike[str]) -> _Self:
        """Return the checkpoint in a local directory, without a copy.

        Raises:
            TypeError: `path` is not a path.
            ValueError: `path` is a file, or relative and does not exist.
        """
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(
                f"Checkpoint.from_directory({path!r}): pass a path, not a {type(path).__name__}."
            )
        absolute = settings.local_path(path)
        written_absolute = os.path.isabs(os.path.expanduser(os.fspath(path)))
        if not os.path.isdir(absolute) and (os.path.exists(absolute) or not written_absolute):
            kind = "is a file" if os.path.exists(absolute) else "does not exist"
            raise ValueError(
                f"Checkpoint.from_directory({os.fspath(path)!r}): {absolute!r} {kind}. Pass a "
                "directory, preferably as an absolute path: a relative path depends on the working "
                "directory, which may differ between workers."
            )
        return cls(absolute, filesystem=pyarrow_fs.LocalFileSystem())

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copy the files to this machine; return the directory.

        If several processes on a machine copy the same checkpoint into the same directory, one
        copies and the others wait.

        Args:
            path: Target directory. By default a temporary one, the same for every caller on the
                machine, which the program has to delete.

        Raises:
            FileNotFoundError: The checkpoint does not exist.
        """
        target = (
            os.path.join(_temporary_root(), f"checkpoint_{self._key()}_copy")
            if path is None
            else settings.local_path(path)
        )
        download_once(target, self._key(), lambda: self._download(target))
        return target

    @contextmanager
    def as_directory(self) -> Iterator[str]:
        """Provide the files in a local directory during the `with` block.

        A local checkpoint is not copied: do not modify the directory. A remote one is copied once
        for all readers on the machine, and the copy is deleted after the last reader.

        Raises:
            FileNotFoundError: The checkpoint does not exist.
        """
        if files.is_local(self.filesystem):
            if not os.path.isdir(self.path):
                raise FileNotFoundError(
                    f"The checkpoint {self.path!r} does not exist: it was deleted or never written."
                )
            yield self.path
            return
        target = os.path.join(_temporary_root(), f"checkpoint_{self._key()}")
        with shared_download(target, self._download):
            yield target

    def get_metadata(self) -> JsonObject:
        """Return the stored metadata; empty if there is none."""
        data = files.read_bytes(self.filesystem, files.join(self.path, METADATA_FILE))
        return {} if data is None else dict(json.loads(data))

    def set_metadata(self, metadata: JsonObject) -> None:
        """Replace the stored metadata by a dictionary that JSON can hold.

        Raises:
            TypeError: JSON cannot hold it.
        """
        files.write_bytes(
            self.filesystem, files.join(self.path, METADATA_FILE), json.dumps(metadata).encode()
        )

    def update_metadata(self, metadata: JsonObject) -> None:
        """Add to the stored metadata; new values replace those of equal keys."""
        self.set_metadata({**self.get_metadata(), **metadata})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Checkpoint):
            return NotImplemented
        return self.path == other.path and bool(self.filesystem == other.filesystem)

    def __hash__(self) -> int:
        return hash((self.filesystem.type_name, self.path))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(filesystem={self.filesystem.type_name}, path={self.path})"

    def _download(self, target: str) -> None:
        try:
            files.copy_directory(self.filesystem, self.path, pyarrow_fs.LocalFileSystem(), target)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{self!r} cannot be read: it was deleted or never written. ({error})"
            ) from error

    def _key(self) -> str:
        """Return a key from path, filesystem and options of the filesystem."""
        try:
            identity = pickle.dumps(self.filesystem)
        except Exception:  # cannot be pickled, so it exists only in this process
            identity = f"{self.filesystem.type_name}-{os.getpid()}-{id(self.filesystem)}".encode()
        return hashlib.sha256(identity + b"\0" + self.path.encode()).hexdigest()[:24]


class CheckpointUploadMode(str, Enum):
    """How `report` brings a checkpoint into the run directory."""

    SYNC = "SYNC"
    """Copy before `report` returns; keep the source."""

    ASYNC = "ASYNC"
    """Copy in a thread, first in, first out; delete the source by default."""

    NO_UPLOAD = "NO_UPLOAD"
    """Copy nothing: the checkpoint is in the run directory already."""

    @property
    def deletes_source_by_default(self) -> bool:
        """True if `report` deletes the local source after the upload by default."""
        return self is CheckpointUploadMode.ASYNC


class CheckpointConsistencyMode(str, Enum):
    """Condition that `get_all_reported_checkpoints` waits for."""

    COMMITTED = "COMMITTED"
    """Checkpoints of this rank are registered."""

    VALIDATED = "VALIDATED"
    """Their validations have ended, too."""


class ReportedCheckpointStatus(str, Enum):
    """Status of a reported checkpoint."""

    COMMITTED = "COMMITTED"
    """Complete in the run directory, without a validation."""

    PENDING_VALIDATION = "PENDING_VALIDATION"
    """Committed; its validation is queued or running."""

    VALIDATED = "VALIDATED"
    """Its validation has ended, and the metrics include its results."""

    VALIDATION_TIMEOUT = "VALIDATION_TIMEOUT"
    """Its validation timed out; the metrics are those of the report."""

    VALIDATION_FAILED = "VALIDATION_FAILED"
    """Its validation raised; the metrics are those of the report."""


@dataclass(frozen=True)
class ReportedCheckpoint:
    """A checkpoint that the run keeps."""

    checkpoint: Checkpoint

    metrics: JsonObject = field(default_factory=dict)
    """Metrics of rank 0 in that report, updated with those of the validation."""

    status: ReportedCheckpointStatus = ReportedCheckpointStatus.COMMITTED


def _temporary_root() -> str:
    """Return the directory for copies of checkpoints. It must belong to this user, as other users
    could create it in advance.

    Raises:
        PermissionError: Another user owns it.
    """
    root = os.path.join(tempfile.gettempdir(), f"syncline-checkpoints-{os.getuid()}")
    os.makedirs(root, mode=0o700, exist_ok=True)
    if os.lstat(root).st_uid != os.getuid():
        raise PermissionError(
            f"{root!r} belongs to another user, so checkpoints are not safe there: set TMPDIR to "
            "another directory."
        )
    return root
