"""One download per machine: processes that want the same files in the same place agree through
locked files.

The locks are the kernel's (`flock`), so a process that dies, however it dies, holds none. A lock
file is deleted while its lock is held exclusively; whoever gets the lock on a file that is no
longer the one at its path therefore tries again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def download_once(target: str, key: str, download: Callable[[], None]) -> None:
    """Call `download()`, which fills the directory `target`; but if another process does so now
    with the same `key`, wait for it instead.

    If that other one fails, this one downloads itself.
    """
    lock_path = f"{target.rstrip('/')}.lock"
    os.makedirs(os.path.dirname(lock_path), exist_ok=True)
    while True:
        lock = _open(lock_path)
        try:
            waited = not _try_exclusive(lock)
            if waited:
                fcntl.flock(lock, fcntl.LOCK_EX)
            # The other one writes the key of what it downloaded as its last act, into the file that
            # we held open all the time.
            if waited and os.pread(lock, 256, 0) == key.encode():
                return
            if not _is_current(lock, lock_path):
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
    """The directory `target`, filled by `download(directory)` for its first reader and deleted
    after its last, while the block runs.

    Readers hold the lock shared. A directory that exists under its own name is complete, because it
    is filled under another and renamed.
    """
    lock_path = f"{target}.lock"
    lock = _join_readers(target, lock_path, download)
    try:
        yield
    finally:
        try:
            # Asking for the exclusive lock gives the shared one up, and succeeds only for the last
            # reader.
            if _try_exclusive(lock):
                shutil.rmtree(target, ignore_errors=True)
                os.unlink(lock_path)
        finally:
            _release(lock)


def _join_readers(target: str, lock_path: str, download: Callable[[str], None]) -> int:
    """Returns the descriptor of the lock file, locked shared, once `target` is complete."""
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
        # Going from exclusive to shared is not one step: another reader may come, go and delete in
        # between. So look again from the start.
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
    # Unlocked by name, because a process forked meanwhile still has the descriptor open.
    fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)


def _try_exclusive(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_current(lock: int, path: str) -> bool:
    """Whether the file at `path` is the one that is open as `lock`."""
    try:
        return os.path.samestat(os.fstat(lock), os.stat(path))
    except FileNotFoundError:
        return False
