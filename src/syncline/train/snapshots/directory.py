"""Directories of snapshots on this node: place, locks, choice of a snapshot, removal.

    /dev/shm/syncline-UID-snapshots/       mode 0700
        KEY/                               of one run, mode 0700
            alive.lock                     locked (shared) by every process of the run
            rank-00000.0, rank-00000.1     the last two snapshots of a rank
            rank-00000.lock                locked by the process that writes them
            resumed.json                   how often attempts have started from a snapshot

The key is made of the run directory and the time when the run first started, so a new run does not
find the snapshots of a deleted one. The directory of a finished run is deleted. Otherwise `reaper`
deletes it some time after the last process of the run has died; if the reaper was killed, the next
run that takes snapshots does. Where there is no file system in memory, the files are in the
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from syncline import settings, system
from syncline.train.snapshots import reaper
from syncline.train.snapshots.config import KEEP_S
from syncline.train.snapshots.slot import FORMAT, SnapshotHeader, SnapshotSlot

SLOTS = 2
"""Snapshots that a rank keeps: while one is overwritten, the other stays complete."""
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
    parent = system.SHARED_MEMORY or settings.temporary_directory()
    return parent / f"syncline-{os.getuid()}-snapshots"


def directory_of(run_path: str, started: float) -> Path:
    """Return the snapshots' directory of a run, which need not exist.

    Args:
        run_path: Path or URI of the run directory.
        started: Time when the run first started, in seconds since the epoch.
    """
    key = hashlib.sha256(f"{run_path}\n{started!r}".encode()).hexdigest()[:24]
    return root() / key


def slots_of(directory: Path, rank: int) -> list[SnapshotSlot]:
    """Return the slots of a rank."""
    return [SnapshotSlot(directory / f"rank-{rank:05d}.{number}") for number in range(SLOTS)]


def has_snapshots(directory: Path) -> bool:
    """Return True if ranks on this node have taken snapshots. States of `train.save`, which are in
    the directory too, are none.
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


# -- choice of a snapshot


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Snapshot that an attempt starts from."""

    step: int | None = None
    """Its step; None if there is none."""
    next_report: int = 0
    """Number of the report after it."""
    taken_at: float = 0.0
    """Time when the last rank had taken it, in seconds since the epoch."""
    refusal: str = ""
    """Why existing snapshots are not used, for a warning; "" if there is nothing to say."""


Headers = Mapping[int, Sequence[SnapshotHeader]]
"""Headers of complete snapshots by rank."""


def headers_on_this_node(directory: Path, ranks: Sequence[int]) -> dict[int, list[SnapshotHeader]]:
    """Return the headers of complete snapshots by rank, once no process writes them any more."""
    found: dict[int, list[SnapshotHeader]] = {}
    for rank in ranks:
        with _unwritten(directory, rank):
            slots = slots_of(directory, rank)
            headers = [header for slot in slots if (header := slot.header()) is not None]
            for slot in slots:
                slot.close()
        if headers:
            found[rank] = headers
    return found


@contextmanager
def _unwritten(directory: Path, rank: int) -> Iterator[None]:
    """Wait for the end of a killed process that writes the snapshots of a rank."""
    path = directory / f"rank-{rank:05d}.lock"
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


def choose(
    headers: Headers, *, world_size: int, versions: Mapping[str, str], after_report: int
) -> Choice:
    """Return the newest snapshot that all ranks have. Pure.

    Args:
        headers: Headers by rank, of all ranks on all nodes.
        world_size: Number of ranks of the attempt.
        versions: Versions of this program.
        after_report: Number of the report of the latest checkpoint; -1 without one. Older
            snapshots are not used.
    """
    known = [header for each in headers.values() for header in each]
    if not known:
        return Choice()
    newest = max(known, key=lambda header: header.step)
    subject = f"The memory snapshot of step {newest.step} is not used, because it was taken"
    if newest.format != FORMAT:
        return Choice(
            refusal=f"{subject} in format {newest.format}, and this syncline reads {FORMAT}"
        )
    for name in sorted({*newest.versions, *versions}):
        then, now = newest.versions.get(name, "none"), versions.get(name, "none")
        if then != now:
            return Choice(refusal=f"{subject} with {name} {then}, and this run has {name} {now}")
    if newest.world_size != world_size:
        return Choice(
            refusal=f"{subject} by {newest.world_size} ranks, and this attempt has {world_size}"
        )
    steps = [{header.step for header in headers.get(rank, ())} for rank in range(world_size)]
    common = set.intersection(*steps)
    if not common:
        texts = ", ".join(
            f"rank {rank}: {' and '.join(map(str, sorted(each))) or 'none'}"
            for rank, each in list(enumerate(steps))[:8]
        )
        return Choice(
            refusal=f"The memory snapshots are not used, because no step is complete on all ranks "
            f"({texts})"
        )
    step = max(common)
    chosen = [
        header for rank in range(world_size) for header in headers[rank] if header.step == step
    ]
    next_report = max(header.next_report for header in chosen)
    if next_report <= after_report:
        return Choice()  # the checkpoint is newer
    return Choice(
        step=step, next_report=next_report, taken_at=max(header.taken_at for header in chosen)
    )


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
