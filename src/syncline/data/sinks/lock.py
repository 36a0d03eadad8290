"""Who works in a staging directory: a lock that the system frees when the program ends, however it
ends.

Covered: directories of this machine. On other filesystems nobody can know, and every job counts as
one that nobody runs.
"""

from __future__ import annotations

import fcntl
import os

from pyarrow import fs as pyarrow_fs

from syncline.data import filesystem as filesystems


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
