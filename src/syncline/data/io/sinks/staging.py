"""The staging directory of a write job: its layout, its commit record and its lock.

    .staging-<job>/            in the target, or next to it if one rename can publish everything
        data/…                 the files, under their final names
        done/<position>.json   the journal: one entry for each position that is done
        STATE                  values for a resumed run: id for names, seed, restart point
        COMMIT                 the commit record: before it exists nothing of the job is visible,
                               afterwards all of it is

Publishing many files takes many renames. If a program is killed between them, the commit record
stays: readers see the whole result (`visible_files`), and the next write job finishes the renames
(`commit.py`). Not covered: locks on filesystems of other machines, where every job counts as one
that does not run.
"""

from __future__ import annotations

import fcntl
import json
import os
import posixpath
from collections.abc import Sequence
from dataclasses import asdict

from pyarrow import fs as pyarrow_fs

from syncline.records import dataclass
from syncline.storage import filesystem as storage

STAGING_PREFIX = ".staging-"
DATA = "data"
DONE = "done"
STATE = "STATE"
RECORD = "COMMIT"


@dataclass(frozen=True, kw_only=True)
class CommitRecord:
    """The content of `COMMIT`."""

    job: str
    """Id of the job that wrote it."""
    files: tuple[str, ...]
    """Files of the result: paths below the target."""
    replaced: tuple[str, ...] = ()
    """Files to delete: paths below the target."""
    swap: bool = False
    """True if one rename publishes the whole directory. Readers see the old content before it and
    the new content after it.
    """

    def encode(self) -> bytes:
        """Encode the record as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> CommitRecord:
        """Decode a record; the inverse of `encode`."""
        fields = json.loads(data)
        return cls(
            job=fields["job"],
            files=tuple(fields["files"]),
            replaced=tuple(fields["replaced"]),
            swap=fields["swap"],
        )


def read_record(filesystem: pyarrow_fs.FileSystem, staging: str) -> CommitRecord | None:
    """Return the commit record of a staging directory, or None if there is none."""
    content = storage.read_bytes(filesystem, storage.join(staging, RECORD))
    return None if content is None else CommitRecord.decode(content)


def is_hidden(relative: str) -> bool:
    """Return True if a path below a directory is not part of its content: a part begins with "."
    or, unless it is a partition, with "_".
    """
    parts = [part for part in relative.split("/") if part]
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in parts)


def relative_to(directory: str, path: str) -> str:
    """Return the path of a file relative to `directory`. Some filesystems list paths with a leading
    slash even if the directory has none.
    """
    return path.lstrip("/").removeprefix(directory.strip("/")).lstrip("/")


def visible_files(
    filesystem: pyarrow_fs.FileSystem, directory: str, entries: Sequence[pyarrow_fs.FileInfo]
) -> list[pyarrow_fs.FileInfo]:
    """Return the files below `directory` that belong to its content, including those of committed
    jobs that are not fully published.
    """
    files = {entry.path: entry for entry in entries if entry.is_file}
    visible = {
        path: entry for path, entry in files.items() if not is_hidden(relative_to(directory, path))
    }
    for path in files:
        staging, name = posixpath.split(path)
        if name == RECORD and posixpath.basename(staging).startswith(STAGING_PREFIX):
            _apply_record(filesystem, staging, files, visible)
    return list(visible.values())


def _apply_record(
    filesystem: pyarrow_fs.FileSystem,
    staging: str,
    files: dict[str, pyarrow_fs.FileInfo],
    visible: dict[str, pyarrow_fs.FileInfo],
) -> None:
    record = read_record(filesystem, staging)
    if record is None or record.swap:
        return
    target = posixpath.dirname(staging)
    for relative in set(record.replaced) - set(record.files):
        visible.pop(storage.join(target, relative), None)
    for relative in record.files:
        staged = storage.join(staging, DATA, relative)
        # While a file is staged, a file with its name in the target is the old one.
        if staged in files:
            visible.pop(storage.join(target, relative), None)
            visible[staged] = files[staged]


class DirectoryLock:
    """Exclusive lock of a directory. The system releases it when the process ends. A pickled copy
    holds no lock.

    Args:
        descriptor: The open directory; None if the filesystem has no locks.
    """

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @classmethod
    def try_acquire(cls, filesystem: pyarrow_fs.FileSystem, directory: str) -> DirectoryLock | None:
        """Lock an existing directory; return None if another job holds the lock or has just deleted
        the directory.
        """
        if not storage.is_local(filesystem):
            return cls(None)
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:  # a filesystem without locks
            os.close(descriptor)
            return cls(None)
        if not _is_same_directory(directory, descriptor):
            os.close(descriptor)
            return None
        return cls(descriptor)

    def release(self) -> None:
        """Release the lock; idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __reduce__(self) -> tuple[type[DirectoryLock], tuple[None]]:
        return (DirectoryLock, (None,))


def _is_same_directory(directory: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(directory), os.fstat(descriptor))
    except FileNotFoundError:
        return False
