"""What a write job leaves on the filesystem while it runs, and what readers make of it.

    .staging-<job>/             below the target, or beside it with the target's name where one rename can publish everything
        data/…                  the files, under the names that they will have in the target
        done/<position>.json    the journal: positions of the input that are done, each with its files
        STATE                   what else a start that goes on has to know: the names' id, the seed, from where on rows are needed
        COMMIT                  the decision to publish; until it is there, nothing of the job counts, and from then on all of it does

Publishing many files takes many renames. A program that is killed between them leaves the record,
by which readers see the whole result at once (`visible_files`) and the next write job finishes the
renames (`commit.py`).
"""

from __future__ import annotations

import fcntl
import json
import os
import posixpath
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pyarrow import fs as pyarrow_fs

from syncline.data.io import filesystem as filesystems

STAGING_PREFIX = ".staging-"
DATA = "data"
DONE = "done"
STATE = "STATE"
RECORD = "COMMIT"


@dataclass(frozen=True, kw_only=True)
class CommitRecord:
    """The content of `COMMIT`."""

    job: str
    """The job that wrote it."""
    files: tuple[str, ...]
    """The result: paths below the target."""
    replaced: tuple[str, ...] = ()
    """Paths below the target that go."""
    swap: bool = False
    """The directory is published by one rename, before which readers see the former content and
    after which they see the new.
    """

    def encode(self) -> bytes:
        """The record as it lies on the filesystem."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> CommitRecord:
        """The opposite of `encode`."""
        fields = json.loads(data)
        return cls(
            job=fields["job"],
            files=tuple(fields["files"]),
            replaced=tuple(fields["replaced"]),
            swap=fields["swap"],
        )


def read_record(filesystem: pyarrow_fs.FileSystem, staging: str) -> CommitRecord | None:
    """The decision in a staging directory, or None if there is none."""
    try:
        with filesystem.open_input_stream(filesystems.join(staging, RECORD)) as file:
            return CommitRecord.decode(file.read())
    except FileNotFoundError:
        return None


def is_hidden(relative: str) -> bool:
    """Whether a path below a directory is none of its content: a part begins with "." or, unless it
    is a partition, with "_".
    """
    parts = [part for part in relative.split("/") if part]
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in parts)


def relative_to(directory: str, path: str) -> str:
    """The path of a file below `directory`. Some filesystems begin paths in listings with a slash,
    whatever they were asked for.
    """
    return path.lstrip("/").removeprefix(directory.strip("/")).lstrip("/")


def visible_files(
    filesystem: pyarrow_fs.FileSystem, directory: str, entries: Sequence[pyarrow_fs.FileInfo]
) -> list[pyarrow_fs.FileInfo]:
    """Of everything below `directory` the files that belong to its content, those of decided
    commits included.
    """
    files = {entry.path: entry for entry in entries if entry.is_file}
    visible = {
        path: entry for path, entry in files.items() if not is_hidden(relative_to(directory, path))
    }
    for path in files:
        staging, name = posixpath.split(path)
        if name == RECORD and posixpath.basename(staging).startswith(STAGING_PREFIX):
            _apply(filesystem, staging, files, visible)
    return list(visible.values())


def _apply(
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
        visible.pop(filesystems.join(target, relative), None)
    for relative in record.files:
        staged = filesystems.join(staging, DATA, relative)
        # As long as a file is staged, the one that has its name in the target is the former one.
        if staged in files:
            visible.pop(filesystems.join(target, relative), None)
            visible[staged] = files[staged]


class DirectoryLock:
    """Held from `taken` to `release`. Not for other processes: a copy of it holds nothing.

    Args:
        descriptor: The open directory; None where there are no locks.
    """

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @classmethod
    def taken(cls, filesystem: pyarrow_fs.FileSystem, directory: str) -> DirectoryLock | None:
        """The lock of an existing directory, or None if another job holds it or has just deleted
        the directory.
        """
        if not filesystems.is_local(filesystem):
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
        if not _is_still(directory, descriptor):
            os.close(descriptor)
            return None
        return cls(descriptor)

    def release(self) -> None:
        """Let others take it; idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __reduce__(self) -> tuple[type[DirectoryLock], tuple[None]]:
        return (DirectoryLock, (None,))


def _is_still(directory: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(directory), os.fstat(descriptor))
    except FileNotFoundError:
        return False
