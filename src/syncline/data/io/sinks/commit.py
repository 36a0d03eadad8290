"""`StagedWrite`: publish the files of a write job all together or not at all, and resume a job that
was killed.

Tasks write into a staging directory (see `staging.py` for its layout). A position of the input is
done when its files are on disk and the journal has an entry for it; a job that starts again under
the same id skips those positions. The commit writes a commit record and then publishes the files:
with one rename if a whole local directory is new or replaced, otherwise file by file. If the
program is killed before the record exists, the target is unchanged. If it is killed later, the next
start finishes the commit, and readers that use this library already see the complete result.

Faults can be injected at the points in `POINTS`. Not covered: file formats (`file_datasink.py`).
"""

from __future__ import annotations

import itertools
import json
import os
import posixpath
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict

from pyarrow import fs as pyarrow_fs

from syncline import faults
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sinks.datasink import JobState
from syncline.data.io.sinks.staging import (
    DATA,
    DONE,
    RECORD,
    STAGING_PREFIX,
    STATE,
    CommitRecord,
    DirectoryLock,
    is_hidden,
    read_record,
    relative_to,
)
from syncline.records import dataclass
from syncline.storage import filesystem as storage

PUBLISHED_MARK = ".committed-"
"""Prefix of a marker file in `data`. It shows that the directory is not swapped yet, so that a
resumed commit does not swap it twice.
"""

POINTS = (
    "data.sink.staged",
    "data.sink.done",
    "data.commit.begin",
    "data.commit.decided",
    "data.commit.moved",
    "data.commit.published",
    "data.commit.cleaned",
)
"""Fault points of a write job, in the order in which a job reaches them."""

# From this number of files on, one system-wide sync is faster than one sync for each file.
_SYNC_EACH_BELOW = 32


@dataclass(frozen=True, kw_only=True)
class JournalEntry:
    """One position of the input whose rows are on disk."""

    position: int
    """Index of the write task."""
    files: tuple[str, ...]
    """Files that the task wrote: paths below the target."""
    num_rows: int
    """Rows in those files."""
    size_bytes: int
    """Size of those rows in memory."""


class StagedWrite:
    """One job that writes files below one directory. Pickled to the tasks after `start`.

    Args:
        filesystem: Filesystem of the directory.
        target: The directory.
        job_id: Id of the job; a resumed job has the same id.
        overwrite: True if the result replaces the content of the directory.
    """

    def __init__(
        self, filesystem: pyarrow_fs.FileSystem, target: str, job_id: str, *, overwrite: bool
    ) -> None:
        self.filesystem = filesystem
        self.target = os.path.realpath(target) if storage.is_local(filesystem) else target
        self.job_id = job_id
        self.overwrite = overwrite
        self.staging = self._staging_inside
        self._lock: DirectoryLock | None = None

    @property
    def _staging_inside(self) -> str:
        return storage.join(self.target, f"{STAGING_PREFIX}{self.job_id}")

    @property
    def _staging_beside(self) -> str:
        parent, name = posixpath.split(self.target)
        return storage.join(parent, f"{STAGING_PREFIX}{name}-{self.job_id}")

    def exists(self) -> bool:
        """Return True if the target holds more than the staging directories of unfinished jobs."""
        info = self.filesystem.get_file_info(self.target)
        if info.type != pyarrow_fs.FileType.Directory:
            return bool(info.type != pyarrow_fs.FileType.NotFound)
        names = [
            entry.base_name
            for entry in self.filesystem.get_file_info(pyarrow_fs.FileSelector(self.target))
        ]
        return not names or any(not name.startswith(STAGING_PREFIX) for name in names)

    def recover(self) -> bool:
        """Finish the commits below this target that were interrupted after their record was
        written. Return True if one of them is this job's own.
        """
        own = False
        for staging in self._committed():
            lock = DirectoryLock.try_acquire(self.filesystem, staging)
            if lock is None:
                continue  # another job is finishing it
            record = read_record(self.filesystem, staging)
            if record is not None:
                self._finish(staging, record)
                own = own or record.job == self.job_id
            lock.release()
        return own

    def start(self) -> dict[int, JournalEntry]:
        """Create or reopen the staging directory; return the positions that are already done.

        If the same job is running in another process, a number is appended to this job's id.
        """
        base_id = self.job_id
        for number in itertools.count(1):
            self._make_staging()
            self._lock = DirectoryLock.try_acquire(self.filesystem, self.staging)
            if self._lock is not None:
                break
            self.job_id = f"{base_id}-{number}"
        return {entry.position: entry for entry in self._journal()}

    def has_progress(self) -> bool:
        """Return True if a run can resume: a position is done, or a commit record exists."""
        return bool(self._journal()) or read_record(self.filesystem, self.staging) is not None

    def release(self) -> None:
        """Release the lock of the staging directory, so that another run can resume the job."""
        if self._lock is not None:
            self._lock.release()

    def read_state(self) -> JobState:
        """Return the state that `write_state` saved last; empty if there is none."""
        saved = storage.read_bytes(self.filesystem, storage.join(self.staging, STATE))
        state: JobState = {} if saved is None else json.loads(saved)
        return state

    def write_state(self, state: JobState) -> None:
        """Save values for a resumed run."""
        path = storage.join(self.staging, STATE)
        storage.write_bytes(self.filesystem, path, json.dumps(state).encode())

    def staged(self, relative: str) -> str:
        """Return the staged path of the file that will be `relative` below the target."""
        return storage.join(self.staging, DATA, relative)

    def mark_done(self, entry: JournalEntry) -> None:
        """Flush the files of a position to disk, then add the entry to the journal."""
        faults.reach("data.sink.staged")
        self._sync([self.staged(relative) for relative in entry.files])
        path = storage.join(self.staging, DONE, f"{entry.position:06d}.json")
        storage.write_bytes(self.filesystem, path, json.dumps(asdict(entry)).encode())
        faults.reach("data.sink.done")

    def commit(self, entries: Iterable[JournalEntry]) -> None:
        """Publish the files of these positions.

        Raises:
            ValueError: Two positions, or a position and an older file that is kept, have the same
                file name. Nothing is published.
        """
        faults.reach("data.commit.begin")
        files = self._distinct_files(entries)
        swap = self.staging == self._staging_beside
        if swap and os.path.isdir(self.target) and not self.overwrite and os.listdir(self.target):
            # Another program has written there meanwhile: add this result to it, file by file.
            os.rename(self.staging, self._staging_inside)
            self.staging, swap = self._staging_inside, False
        if not files and not self.overwrite:
            self.discard()
            return
        present = [] if swap else self._present_files()
        if not self.overwrite:
            self._check_no_conflict(files, present)
        if swap:
            self._prepare_swap(files)
        record = CommitRecord(
            job=self.job_id,
            files=tuple(files),
            replaced=tuple(present if self.overwrite else ()),
            swap=swap,
        )
        path = storage.join(self.staging, RECORD)
        storage.write_bytes(self.filesystem, path, record.encode())
        faults.reach("data.commit.decided")
        self._finish(self.staging, record)
        self.release()

    def discard(self) -> None:
        """Delete the staged files. After the commit record is written they stay, for the next
        start.
        """
        if read_record(self.filesystem, self.staging) is None:
            self._delete(self.staging)
        self.release()

    def _make_staging(self) -> None:
        local = storage.is_local(self.filesystem)
        # An existing staging directory decides, even if the target has changed since.
        beside = (
            local
            and not os.path.isdir(self._staging_inside)
            and (os.path.isdir(self._staging_beside) or self._can_swap())
        )
        self.staging = self._staging_beside if beside else self._staging_inside
        for name in (DATA, DONE):
            filesystems.make_directory(self.filesystem, storage.join(self.staging, name))

    def _committed(self) -> list[str]:
        """Return the staging directories of this target that may hold a commit record."""
        found = []
        beside = self._staging_beside
        if storage.is_local(self.filesystem) and os.path.exists(os.path.join(beside, RECORD)):
            found.append(beside)
        selector = pyarrow_fs.FileSelector(self.target, allow_not_found=True)
        if self.filesystem.get_file_info(self.target).type == pyarrow_fs.FileType.Directory:
            found += [
                info.path
                for info in self.filesystem.get_file_info(selector)
                if info.base_name.startswith(STAGING_PREFIX)
            ]
        return found

    def _can_swap(self) -> bool:
        if os.path.lexists(self.target):
            empty = os.path.isdir(self.target) and not os.listdir(self.target)
            if os.path.ismount(self.target) or not (self.overwrite or empty):
                return False
        parent = os.path.dirname(self.target)
        while not os.path.isdir(parent):
            parent = os.path.dirname(parent)
        if not os.access(parent, os.W_OK):
            return False
        return (
            not os.path.exists(self.target) or os.stat(parent).st_dev == os.stat(self.target).st_dev
        )

    def _journal(self) -> list[JournalEntry]:
        selector = pyarrow_fs.FileSelector(storage.join(self.staging, DONE), allow_not_found=True)
        names = sorted(
            info.path
            for info in self.filesystem.get_file_info(selector)
            if info.path.endswith(".json")
        )
        return [self._read_entry(name) for name in names]

    def _read_entry(self, path: str) -> JournalEntry:
        with self.filesystem.open_input_stream(path) as file:
            fields = json.loads(file.read())
        return JournalEntry(**{**fields, "files": tuple(fields["files"])})

    def _distinct_files(self, entries: Iterable[JournalEntry]) -> list[str]:
        owners: dict[str, int] = {}
        for entry in sorted(entries, key=lambda entry: entry.position):
            for relative in entry.files:
                owner = owners.setdefault(relative, entry.position)
                if owner != entry.position:
                    raise ValueError(
                        f"write tasks {owner} and {entry.position} both name their file "
                        f"{relative!r}, so one would replace the other: use task_index in the "
                        "FilenameProvider"
                    )
        return list(owners)

    def _present_files(self) -> list[str]:
        selector = pyarrow_fs.FileSelector(self.target, recursive=True, allow_not_found=True)
        paths = [info.path for info in self.filesystem.get_file_info(selector) if info.is_file]
        return [
            relative
            for relative in (relative_to(self.target, path) for path in paths)
            if not is_hidden(relative)
        ]

    def _check_no_conflict(self, files: Sequence[str], present: Sequence[str]) -> None:
        taken = sorted(set(files) & set(present))
        if taken:
            raise ValueError(
                f"{self.target} already has a file {taken[0]!r} ({len(taken)} such files), and "
                "mode='append' does not replace files: use write_uuid in the FilenameProvider, or "
                "pass mode='overwrite'"
            )

    def _prepare_swap(self, files: Sequence[str]) -> None:
        """Delete everything but the result from `data`: a killed task may have left other files."""
        data = os.path.join(self.staging, DATA)
        wanted = {os.path.join(data, relative) for relative in files}
        for directory, _, names in os.walk(data, topdown=False):
            for path in (os.path.join(directory, name) for name in names):
                if path not in wanted:
                    os.unlink(path)
            if directory != data and not os.listdir(directory):
                os.rmdir(directory)
        with open(os.path.join(data, f"{PUBLISHED_MARK}{self.job_id}"), "wb"):
            pass

    def _finish(self, staging: str, record: CommitRecord) -> None:
        """Publish a committed job; continue where an earlier attempt stopped."""
        if record.swap:
            self._swap(staging, record)
        else:
            self._move(staging, record)
        faults.reach("data.commit.published")
        for name in (DATA, "replaced", DONE):
            self._delete(storage.join(staging, name))
        if record.swap:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self.target, f"{PUBLISHED_MARK}{record.job}"))
        faults.reach("data.commit.cleaned")
        # The record is deleted last: without it, a remaining journal would look like a job to
        # resume.
        self.filesystem.delete_file(storage.join(staging, RECORD))
        self._delete(staging)

    def _swap(self, staging: str, record: CommitRecord) -> None:
        data = os.path.join(staging, DATA)
        if not os.path.exists(os.path.join(data, f"{PUBLISHED_MARK}{record.job}")):
            return
        if os.path.isdir(self.target) and os.listdir(self.target):
            if storage.exchange(data, self.target):
                filesystems.sync(self.filesystem, os.path.dirname(self.target))
                return
            os.rename(self.target, os.path.join(staging, "replaced"))
            faults.reach("data.commit.moved")
        os.makedirs(os.path.dirname(self.target), exist_ok=True)
        os.rename(data, self.target)
        filesystems.sync(self.filesystem, os.path.dirname(self.target))

    def _move(self, staging: str, record: CommitRecord) -> None:
        parents = {
            posixpath.dirname(storage.join(self.target, relative)) for relative in record.files
        }
        for parent in sorted(parents):
            filesystems.make_directory(self.filesystem, parent)
        for relative in record.files:
            source = storage.join(staging, DATA, relative)
            target = storage.join(self.target, relative)
            if self.filesystem.get_file_info(source).type == pyarrow_fs.FileType.NotFound:
                continue  # an earlier attempt has moved it
            self.filesystem.move(source, target)
            faults.reach("data.commit.moved")
        for relative in sorted(set(record.replaced) - set(record.files)):
            path = storage.join(self.target, relative)
            if self.filesystem.get_file_info(path).type != pyarrow_fs.FileType.NotFound:
                self.filesystem.delete_file(path)
        for parent in parents:
            filesystems.sync(self.filesystem, parent)

    def _sync(self, paths: Sequence[str]) -> None:
        if len(paths) > _SYNC_EACH_BELOW and storage.is_local(self.filesystem):
            os.sync()
            return
        for path in paths:
            filesystems.sync(self.filesystem, path)

    def _delete(self, path: str) -> None:
        if storage.is_local(self.filesystem):
            shutil.rmtree(path, ignore_errors=True)
        elif self.filesystem.get_file_info(path).type == pyarrow_fs.FileType.Directory:
            self.filesystem.delete_dir(path)
