"""`Checkpoint`: a directory of files on any filesystem, and what a run says about those that it
keeps.

Covered: naming a checkpoint, copying it to this machine, reading it in place, metadata. Not
covered: how a checkpoint comes into the run directory (`storage.py`) and which ones stay there
(`controller/checkpoints.py`).
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
from typing import Any, TypeVar

from pyarrow import fs as pyarrow_fs

from syncline import settings
from syncline.storage import filesystem as files
from syncline.train.storage.download_locks import download_once, shared_download

METADATA_FILE = ".metadata.json"
_Self = TypeVar("_Self", bound="Checkpoint")


class Checkpoint:
    """A reference to a directory with a checkpoint's files; cheap to make, to compare and to send
    to another process.

    Args:
        path: The directory, or its URI (`s3://bucket/run/checkpoint_000001`). A relative local path
            is made absolute.
        filesystem: The filesystem that `path` is a path on; found from `path` if not given.

    Raises:
        TypeError: `path` is no path.
        ValueError: A URI that pyarrow does not know.
    """

    path: str
    """The directory's path on `filesystem`."""
    filesystem: pyarrow_fs.FileSystem
    """The filesystem on which it lies."""

    def __init__(
        self, path: str | os.PathLike[str], filesystem: pyarrow_fs.FileSystem | None = None
    ) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(
                f"Checkpoint(path={path!r}): a path or a URI is needed, not a {type(path).__name__}."
            )
        if filesystem is not None and not isinstance(filesystem, pyarrow_fs.FileSystem):
            raise TypeError(
                f"Checkpoint(filesystem={filesystem!r}): a pyarrow.fs.FileSystem is needed, not a {type(filesystem).__name__}."
            )
        self.filesystem, self.path = files.resolve(path, filesystem)

    @classmethod
    def from_directory(cls: type[_Self], path: str | os.PathLike[str]) -> _Self:
        """The checkpoint in a directory of this machine. Nothing is copied.

        Raises:
            TypeError: `path` is no path.
            ValueError: `path` is relative and there is no such directory, or it is a file.
        """
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(
                f"Checkpoint.from_directory({path!r}): a path is needed, not a {type(path).__name__}."
            )
        absolute = settings.local_path(path)
        written_absolute = os.path.isabs(os.path.expanduser(os.fspath(path)))
        if not os.path.isdir(absolute) and (os.path.exists(absolute) or not written_absolute):
            kind = "is a file" if os.path.exists(absolute) else "does not exist"
            raise ValueError(
                f"Checkpoint.from_directory({os.fspath(path)!r}): {absolute!r} {kind}, so there is no checkpoint to refer to. Give a "
                "directory, best as an absolute path: a relative one counts from the working directory, which workers need not share."
            )
        return cls(absolute, filesystem=pyarrow_fs.LocalFileSystem())

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copy the files to this machine; returns the directory.

        Of several processes on a machine that ask for the same checkpoint in the same directory at
        once, one copies and the others wait.

        Args:
            path: The directory to copy into, made if need be. If not given, a temporary one, the
            same for every caller on the
                machine; the program deletes it when nobody needs it any more.

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
        """The files in a directory of this machine, to be read while the `with` block runs.

        A local checkpoint is not copied: the directory is the checkpoint itself, so change nothing
        in it. A remote one is copied once for all readers on the machine, and the copy is deleted
        after its last reader.

        Raises:
            FileNotFoundError: The checkpoint does not exist.
        """
        if files.is_local(self.filesystem):
            if not os.path.isdir(self.path):
                raise FileNotFoundError(
                    f"The checkpoint {self.path!r} does not exist: it was deleted, or never written."
                )
            yield self.path
            return
        target = os.path.join(_temporary_root(), f"checkpoint_{self._key()}")
        with shared_download(target, self._download):
            yield target

    def get_metadata(self) -> dict[str, Any]:
        """The metadata stored with the checkpoint; empty if there is none."""
        data = files.read_bytes(self.filesystem, files.join(self.path, METADATA_FILE))
        return {} if data is None else dict(json.loads(data))

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Store `metadata`, a dictionary that JSON can hold, with the checkpoint, in place of what
        was there.

        Raises:
            TypeError: JSON cannot hold it.
        """
        files.write_bytes(
            self.filesystem, files.join(self.path, METADATA_FILE), json.dumps(metadata).encode()
        )

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        """Add `metadata` to what is stored; keys that both have get the new value."""
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
                f"{self!r} cannot be read: it was deleted, or never written. ({error})"
            ) from error

    def _key(self) -> str:
        """Names this checkpoint among all on this machine: path, filesystem and the filesystem's
        options.
        """
        try:
            identity = pickle.dumps(self.filesystem)
        except (
            Exception
        ):  # a filesystem that cannot leave this process is known by its address in it
            identity = f"{self.filesystem.type_name}-{os.getpid()}-{id(self.filesystem)}".encode()
        return hashlib.sha256(identity + b"\0" + self.path.encode()).hexdigest()[:24]


class CheckpointUploadMode(str, Enum):
    """How `report` brings a checkpoint into the run directory."""

    SYNC = "SYNC"
    """Copy, then go on; the source stays."""

    ASYNC = "ASYNC"
    """Go on at once; a thread copies, first in first out, and deletes the source by default."""

    NO_UPLOAD = "NO_UPLOAD"
    """Copy nothing: the checkpoint lies in the run directory already."""

    @property
    def deletes_source_by_default(self) -> bool:
        """Whether the local source goes once it is uploaded, unless `report` is told otherwise."""
        return self is CheckpointUploadMode.ASYNC


class CheckpointConsistencyMode(str, Enum):
    """What `get_all_reported_checkpoints` waits for."""

    COMMITTED = "COMMITTED"
    """Until what this rank reported is registered."""

    VALIDATED = "VALIDATED"
    """Until its validations have ended, too."""


class ReportedCheckpointStatus(str, Enum):
    """How far a reported checkpoint has come."""

    COMMITTED = "COMMITTED"
    """It lies complete in the run directory, and no validation was asked for."""

    PENDING_VALIDATION = "PENDING_VALIDATION"
    """It is committed and its validation waits or runs."""

    VALIDATED = "VALIDATED"
    """Its validation ended and the metrics hold what that returned."""

    VALIDATION_TIMEOUT = "VALIDATION_TIMEOUT"
    """Its validation ran longer than it may; the metrics are those of the report."""

    VALIDATION_FAILED = "VALIDATION_FAILED"
    """Its validation raised; the metrics are those of the report."""


@dataclass(frozen=True)
class ReportedCheckpoint:
    """One checkpoint that the run keeps."""

    checkpoint: Checkpoint
    """Where it lies."""

    metrics: dict[str, Any] = field(default_factory=dict)
    """Rank 0's metrics of that report, with those of the validation merged in once it has ended."""

    status: ReportedCheckpointStatus = ReportedCheckpointStatus.COMMITTED
    """How far it has come."""


def _temporary_root() -> str:
    """Directory for copies of checkpoints, this user's own: its name is known beforehand, so others
    must not be able to prepare it.

    Raises:
        PermissionError: Somebody else owns it.
    """
    root = os.path.join(tempfile.gettempdir(), f"syncline-checkpoints-{os.getuid()}")
    os.makedirs(root, mode=0o700, exist_ok=True)
    if os.lstat(root).st_uid != os.getuid():
        raise PermissionError(
            f"{root!r} belongs to another user, so checkpoints are not safe there: set TMPDIR to another directory."
        )
    return root
