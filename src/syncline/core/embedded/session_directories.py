"""The directories of one session: their contents, permissions and removal.

A session owns a directory for logs, sockets and spilled objects, and one in shared memory. Each
contains a file that the driver keeps locked. The lock ends with the driver's process, so any
process may remove an unlocked session.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
import time
from pathlib import Path

from syncline import system
from syncline.records import dataclass

SHM_ROOT = system.SHARED_MEMORY
SESSION_PREFIX = "session-"
_LOCK = "owner.lock"
DEATH_S = 1.0
"""Seconds that a dying driver may keep its locks after its connections are closed.

The system closes its files in no particular order.
"""


@dataclass(frozen=True, kw_only=True)
class SessionPaths:
    """Paths of a session's files; serializable."""

    id: str
    """Unique on this machine."""
    directory: str
    """Logs, the socket, spilled objects; mode 0700."""
    shm_directory: str | None
    """Shared memory, mode 0700; None where the machine has none."""


class SessionDirectories:
    """A session's directories, owned by the driver."""

    def __init__(self, paths: SessionPaths, locks: list[int]) -> None:
        self.paths = paths
        self._locks = locks

    @property
    def directory(self) -> Path:
        """Logs, the socket, spilled objects."""
        return Path(self.paths.directory)

    def remove(self) -> None:
        """Remove both directories."""
        remove_directories(self.paths)
        self.abandon()

    def abandon(self) -> None:
        """Close the locks without removing anything; for forked children."""
        while self._locks:
            os.close(self._locks.pop())


def sessions_directory(temp_dir: str | os.PathLike[str] | None) -> Path:
    """Return the directory of this user's sessions below a temporary directory."""
    return Path(temp_dir or tempfile.gettempdir()) / f"syncline-{os.getuid()}"


def is_private(directory: Path) -> bool:
    """Return True if a directory exists and this user owns it."""
    try:
        return directory.lstat().st_uid == os.getuid()
    except OSError:
        return False


def is_owned(session: Path) -> bool:
    """Return True if the driver of a session is alive."""
    try:
        with (session / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # being created, removed already, or owned by another user
        pass
    return False


def shared_memory_directory(session_id: str, root: Path | None = SHM_ROOT) -> Path | None:
    """Return the directory of a session in shared memory, or None if it has none."""
    if root is None:
        return None
    directory = root / f"syncline-{os.getuid()}-{session_id}"
    return directory if directory.is_dir() else None


def create_session(temp_dir: str | None, *, shm_root: Path | None = SHM_ROOT) -> SessionDirectories:
    """Create a session's directories and remove those of dead sessions of this user.

    `shm_root` None makes a session without a directory in shared memory. Raises OSError if no
    directory can be written.
    """
    base = sessions_directory(temp_dir)
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_private(base):
        raise PermissionError(
            f"{base} belongs to another user, so a session there would not be private: set "
            "SYNCLINE_TMPDIR"
        )
    prefix = f"syncline-{os.getuid()}-"
    _sweep(base, SESSION_PREFIX)
    id = f"{os.getpid()}-{secrets.token_hex(4)}"
    directory = base / f"{SESSION_PREFIX}{id}"
    directory.mkdir(mode=0o700)
    locks = [_lock(directory)]
    (directory / "logs").mkdir()
    shm: Path | None = None
    if shm_root is not None and os.access(shm_root, os.W_OK):
        _sweep(shm_root, prefix)
        shm = shm_root / f"{prefix}{id}"
        try:
            shm.mkdir(mode=0o700)
            locks.append(_lock(shm))
        except OSError:  # full or forbidden: objects go to disk
            shutil.rmtree(shm, ignore_errors=True)
            shm = None
    return SessionDirectories(
        SessionPaths(id=id, directory=str(directory), shm_directory=str(shm) if shm else None),
        locks,
    )


def remove_directories(paths: SessionPaths) -> None:
    """Remove a session's directories; missing ones are ignored."""
    for path in (paths.shm_directory, paths.directory):
        if path is not None:
            _remove(Path(path))


def remove_if_abandoned(paths: SessionPaths) -> None:
    """Remove a session's directories if its driver is dead or dies within `DEATH_S`."""
    deadline = time.monotonic() + DEATH_S
    for path in (paths.shm_directory, paths.directory):
        while path is not None and not _remove_unlocked(Path(path)) and time.monotonic() < deadline:
            time.sleep(0.01)


def _lock(directory: Path) -> int:
    """Create the lock file and lock it.

    It gets its final name after it is locked, so that no process finds it unlocked.
    """
    unnamed = directory / f"{_LOCK}.new"
    fd = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unnamed.rename(directory / _LOCK)
    except OSError:
        os.close(fd)
        raise
    return fd


def _sweep(root: Path, prefix: str) -> None:
    """Remove the directories of sessions whose driver is dead."""
    for directory in root.glob(f"{prefix}*"):
        _remove_unlocked(directory)


def _remove_unlocked(directory: Path) -> bool:
    """Remove a directory if its driver is dead; return False if it is alive."""
    try:
        fd = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return True  # being created, removed already, or owned by another user
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        _remove(directory)
        return True
    finally:
        os.close(fd)


def _remove(directory: Path) -> None:
    """Remove the lock last: while it exists, another process can finish an interrupted removal."""
    try:
        entries = [entry for entry in os.scandir(directory) if entry.name != _LOCK]
    except OSError:
        return  # removed already
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            Path(entry.path).unlink(missing_ok=True)
    shutil.rmtree(directory, ignore_errors=True)
