"""Directories of snapshots on this node: place, locks, list of snapshots, removal.

    /dev/shm/syncline-UID-snapshots/       mode 0700
        KEY/                               of one run, mode 0700
            alive.lock                     locked (shared) by every process of the run
            rank-00000.0, rank-00000.1     the last snapshots of a rank
            copy-00003.ATTEMPT.STEP        copy for a rank of another node
            rank-00000.lock                locked by the process that writes them
            resumed.json                   how often attempts have started from a snapshot

The key is made of the run directory and the time when the run first started, so a new run does not
find the snapshots of a deleted one. The directory of a finished run is deleted. Otherwise `reaper`
deletes it some time after the last process of the run has died; if the reaper was killed, the next
run that takes snapshots does. On systems without a file system in memory, the files are in the
temporary directory.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from syncline import settings, system
from syncline.train.snapshots import reaper
from syncline.train.snapshots.choice import Choice, FoundSnapshot
from syncline.train.snapshots.config import KEEP_S
from syncline.train.snapshots.slot import SnapshotSlot

SLOTS = 2
"""Snapshots that a rank keeps: while one is overwritten, the other stays complete."""
COPIED_SLOTS = 2
"""Further ones with copies on another node: the last one that all ranks have copied, and the one
that is being copied.
"""
MOST_SLOTS = SLOTS + COPIED_SLOTS
COPIES = 2
"""Copies that a node keeps of a rank of another node."""
MAX_STARTS = 3
"""Attempts that may start from the same snapshot. A snapshot from which training cannot continue
must not use up all restarts of a run.
"""
PREDECESSOR_S = 10.0
"""Seconds to wait for the end of a killed process that has written a rank's snapshots."""
LOCK_POLL_S = 0.002
_RESUMED = "resumed.json"
_locks: dict[str, int] = {}
"""Descriptors of the locks that this process holds, by path: closing any descriptor of a file
would release its record locks.
"""


def _after_fork_in_child() -> None:
    _locks.clear()  # record locks are not inherited


os.register_at_fork(after_in_child=_after_fork_in_child)


def root() -> Path:
    """Return the directory with the snapshots of this user's runs."""
    parent = settings.shared_memory() or system.SHARED_MEMORY or settings.temporary_directory()
    return parent / f"syncline-{os.getuid()}-snapshots"


def directory_of(run_path: str, started: float) -> Path:
    """Return the snapshots' directory of a run, which need not exist.

    Args:
        run_path: Path or URI of the run directory.
        started: Time when the run first started, in seconds since the epoch.
    """
    key = hashlib.sha256(f"{run_path}\n{started!r}".encode()).hexdigest()[:24]
    return root() / key


def on_this_node(directory: str) -> Path:
    """Return the directory on this node for that of another node."""
    return root() / Path(directory).name


def slots_of(directory: Path, rank: int, count: int = SLOTS) -> list[SnapshotSlot]:
    """Return the slots of a rank."""
    return [SnapshotSlot(directory / f"rank-{rank:05d}.{number}") for number in range(count)]


def copy_name(rank: int, attempt: int, step: int) -> str:
    """Return the name of the file with a copy for a rank of another node."""
    return f"copy-{rank:05d}.{attempt}.{step}"


def attempt_of_copy(path: Path) -> int:
    """Return the attempt of a copy."""
    return int(path.name.split(".")[1])


def has_snapshots(directory: Path) -> bool:
    """Return True if ranks on this node have taken snapshots. States of `train.save`, which are in
    the same directory, do not count.
    """
    return any(directory.glob("rank-*.[0-9]"))


# -- processes of a run


def join(directory: Path) -> None:
    """Create the directory and keep it while this process lives.

    Raises:
        OSError: It cannot be created, or belongs to another user.
    """
    path = str(directory / reaper.ALIVE_LOCK)
    if path in _locks and os.path.exists(path):
        return
    memory = directory.parent.parent
    if not memory.is_dir():
        raise FileNotFoundError(
            f"{memory} is not a directory on this node, so no memory snapshots can be kept there. "
            "Create it, or set SYNCLINE_SHARED_MEMORY to a file system in memory."
        )
    _create_private(directory.parent)
    while True:
        _create_private(directory)
        with suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.lockf(fd, fcntl.LOCK_SH)
            if os.path.exists(path) and os.path.samestat(os.fstat(fd), os.stat(path)):
                _locks[path] = fd
                return
            os.close(fd)  # deleted in between


def take_rank(directory: Path, rank: int) -> None:
    """Become the process that writes the snapshots of a rank. Waits until a killed predecessor is
    gone.

    Raises:
        TimeoutError: It is not gone in time.
    """
    path = str(directory / f"rank-{rank:05d}.lock")
    if path not in _locks:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(fd, path)
        except TimeoutError:
            os.close(fd)
            raise
        _locks[path] = fd


def _lock(fd: int, path: str) -> None:
    """Wait for an exclusive lock, which a killed process releases when it is gone."""
    deadline = time.monotonic() + PREDECESSOR_S
    while True:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    f"Another process has held {path} for {PREDECESSOR_S:g} s: a worker of an "
                    "earlier attempt of this run has not ended. Kill it."
                ) from None
        time.sleep(LOCK_POLL_S)


def start_reaper(directory: Path, keep_s: float) -> None:
    """Start the program that deletes the directory after the run, unless it has one."""
    subprocess.Popen(
        [sys.executable, "-I", "-S", reaper.__file__, str(directory), repr(keep_s)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={},
    )


def remove(directory: Path) -> None:
    """Delete the snapshots of a run, which has finished or starts anew."""
    shutil.rmtree(directory, ignore_errors=True)
    leave(directory)


def leave(directory: Path) -> None:
    """Release this process's locks of a directory."""
    for path in [path for path in _locks if Path(path).parent == directory]:
        os.close(_locks.pop(path))


def sweep(keep_s: float = KEEP_S) -> None:
    """Delete directories of runs whose processes and reapers are dead, and that are old enough. A
    living reaper knows how long its run keeps them.
    """
    for directory in _directories(root()):
        with suppress(FileNotFoundError):  # its run or its reaper deletes it at the same time
            newest = max(
                (entry.stat().st_mtime for entry in os.scandir(directory)),
                default=directory.stat().st_mtime,
            )
            if str(directory / reaper.ALIVE_LOCK) in _locks or time.time() - newest <= keep_s:
                continue
            if not reaper.has_reaper(str(directory)):
                reaper.remove_unused(str(directory))


def _directories(parent: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError), os.scandir(parent) as entries:
        yield from [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


def _create_private(directory: Path) -> None:
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    status = directory.lstat()
    if status.st_uid != os.getuid():
        raise PermissionError(
            f"{directory} belongs to user {status.st_uid}, not to this user ({os.getuid()}), so no "
            "snapshots can be kept there. Delete it."
        )
    if status.st_mode & 0o077:
        directory.chmod(0o700)


# -- list of snapshots


def list_snapshots(directory: Path) -> list[FoundSnapshot]:
    """Return the complete snapshots on this node, also copies, once no killed process writes them
    any more.
    """
    found = []
    for path in sorted(directory.glob("rank-*.[0-9]")):
        with _unwritten(path.with_suffix(".lock")):
            found += _found(path)
    for path in directory.glob("copy-*"):
        found += _found(path)
    return found


def _found(path: Path) -> list[FoundSnapshot]:
    slot = SnapshotSlot(path)
    header = slot.header()
    slot.close()
    return [] if header is None else [FoundSnapshot(header=header, file_name=path.name)]


@contextmanager
def _unwritten(path: Path) -> Iterator[None]:
    """Wait for the end of a killed process that writes the snapshots of a rank.

    Args:
        path: Lock of the rank.
    """
    if str(path) in _locks:
        yield
        return
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        _lock(fd, str(path))
        yield
    finally:
        os.close(fd)


def remove_earlier(directory: Path, attempt: int) -> None:
    """Delete copies of earlier attempts, and the snapshots of ranks that have moved to other
    nodes, as every rank has a copy of a snapshot of this attempt.
    """
    for path in directory.glob("copy-*"):
        if attempt_of_copy(path) < attempt:
            path.unlink(missing_ok=True)
    for lock in directory.glob("rank-*.lock"):
        if str(lock) in _locks:
            continue
        with suppress(OSError):
            fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if its process is alive
                for path in directory.glob(f"{lock.stem}.[0-9]"):
                    path.unlink(missing_ok=True)
            finally:
                os.close(fd)


def count_start(directory: Path, choice: Choice) -> Choice:
    """Record that an attempt starts from a snapshot; refuse one that attempts have failed from."""
    if choice.step is None:
        return choice
    path, times = directory / _RESUMED, 0
    with suppress(FileNotFoundError, ValueError):
        recorded = json.loads(path.read_text())
        times = recorded["times"] if recorded["step"] == choice.step else 0
    if times >= MAX_STARTS:
        return Choice(
            refusal=f"The memory snapshot of step {choice.step} is not used, because {times} "
            "attempts that started from it ended before the next one"
        )
    path.write_text(json.dumps({"step": choice.step, "times": times + 1}))
    return choice
