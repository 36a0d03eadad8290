"""One download per machine: processes that need the same files in the same directory coordinate
through lock files.

The kernel holds the locks (`flock`), so the end of a process releases its locks. A lock file is
deleted while its lock is held exclusively. Therefore a process that gets the lock of a file that is
no longer at its path tries again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def download_once(target: str, key: str, download: Callable[[], None]) -> None:
    """Call `download()`, which fills the directory `target`.

    If another process is doing so with the same `key`, wait for it instead; if it fails, download.
    """
    lock_path = f"{target.rstrip('/')}.lock"
    os.makedirs(os.path.dirname(lock_path), exist_ok=True)
    while True:
        lock = _open(lock_path)
        try:
            waited = not _try_exclusive(lock)
            if waited:
                fcntl.flock(lock, fcntl.LOCK_EX)
            is_current = _is_current(lock, lock_path)
            # The other process writes its key at the end, into the file that is open here. It may
            # have ended between the opening of the file and the first attempt to lock it.
            if (waited or not is_current) and os.pread(lock, 256, 0) == key.encode():
                return
            if not is_current:
                continue
            try:
                download()
                os.pwrite(lock, key.encode(), 0)
            finally:
                os.unlink(lock_path)
            return
        finally:
            _release(lock)


@contextmanager
def shared_download(target: str, download: Callable[[str], None]) -> Iterator[None]:
    """Provide the directory `target` during the block.

    `download(directory)` fills it for the first reader, and it is deleted after the last one.
    Readers hold a shared lock. A directory that exists is complete, because it is filled under
    another name and renamed.
    """
    lock_path = f"{target}.lock"
    lock = _join_readers(target, lock_path, download)
    try:
        yield
    finally:
        try:
            # The exclusive lock replaces the shared one, and only the last reader gets it.
            if _try_exclusive(lock):
                shutil.rmtree(target, ignore_errors=True)
                os.unlink(lock_path)
        finally:
            _release(lock)


def _join_readers(target: str, lock_path: str, download: Callable[[str], None]) -> int:
    """Return the descriptor of the lock file with a shared lock, once `target` is complete."""
    while True:
        lock = _open(lock_path)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            if _is_current(lock, lock_path):
                if os.path.isdir(target):
                    return lock
                fcntl.flock(lock, fcntl.LOCK_EX)
                if _is_current(lock, lock_path) and not os.path.isdir(target):
                    _fill(target, lock_path, download)
        except BaseException:
            _release(lock)
            raise
        # The change from exclusive to shared is not atomic: another reader may delete the
        # directory in between. So start again.
        _release(lock)


def _fill(target: str, lock_path: str, download: Callable[[str], None]) -> None:
    partial = f"{target}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    try:
        download(partial)
        os.rename(partial, target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        os.unlink(lock_path)
        raise


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _release(lock: int) -> None:
    # Unlock explicitly, because a process forked meanwhile has the descriptor open, too.
    fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)


def _try_exclusive(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_current(lock: int, path: str) -> bool:
    """Return True if `lock` is the file at `path`."""
    try:
        return os.path.samestat(os.fstat(lock), os.stat(path))
    except FileNotFoundError:
        return False
