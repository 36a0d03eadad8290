"""`WriteJob`: how files come into a directory all together or not at all, and how a job that was
killed goes on.

Tasks write into a staging directory, at positions of the input (`record.py` shows the layout). A
position counts as done once its files are on the disk and the journal says so; a job that starts
again under the same id leaves those out. The commit then writes its decision and publishes: by one
rename where a whole directory appears or is replaced on this machine's disk, otherwise file by
file. Killed before the decision, the target is as it was; killed after it, the next start finishes,
and readers of this library see the result at once.

Faults may be injected at the points in `POINTS`. Not covered: what is written (`file_datasink.py`).
"""

from __future__ import annotations

import itertools
import json
import os
import posixpath
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pyarrow import fs as pyarrow_fs

from syncline import faults
from syncline.data.io import filesystem as filesystems
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

PUBLISHED_MARK = ".committed-"
"""Name of a file that lies in `data` until the directory is swapped, so that a swap is never done
twice.
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
"""Fault points of a write job, in the order in which it passes them."""

# From this many files on, one call that writes back everything is quicker than one for each file.
_SYNC_EACH_BELOW = 32


@dataclass(frozen=True, kw_only=True)
class Done:
    """One position of the input whose rows are on the disk."""

    position: int
    """Index of the write task."""
    files: tuple[str, ...]
    """What it wrote: paths below the target."""
    num_rows: int
    """Rows in those files."""
    size_bytes: int
    """Bytes of those rows in memory."""


class WriteJob:
    """One job that writes files below one directory. Pickled to the tasks after `start`.

    Args:
        filesystem: Where the directory lies.
        target: The directory.
        job_id: Names the job; the same for a job that goes on.
        overwrite: The result replaces what is there.
    """

    def __init__(
        self, filesystem: pyarrow_fs.FileSystem, target: str, job_id: str, *, overwrite: bool
    ) -> None:
        self.filesystem = filesystem
        self.target = os.path.realpath(target) if filesystems.is_local(filesystem) else target
        self.job_id = job_id
        self.overwrite = overwrite
        self.staging = self._inside
        self._lock: DirectoryLock | None = None

    @property
    def _inside(self) -> str:
        return filesystems.join(self.target, f"{STAGING_PREFIX}{self.job_id}")

    @property
    def _beside(self) -> str:
        parent, name = posixpath.split(self.target)
        return filesystems.join(parent, f"{STAGING_PREFIX}{name}-{self.job_id}")

    def exists(self) -> bool:
        """Whether the target is there, apart from what unfinished jobs have left in it."""
        info = self.filesystem.get_file_info(self.target)
        if info.type != pyarrow_fs.FileType.Directory:
            return bool(info.type != pyarrow_fs.FileType.NotFound)
        names = [
            entry.base_name
            for entry in self.filesystem.get_file_info(pyarrow_fs.FileSelector(self.target))
        ]
        return not names or any(not name.startswith(STAGING_PREFIX) for name in names)

    def recover(self) -> bool:
        """Finish the commits that were decided but cut short below this target. True if this job's
        own was one of them.
        """
        mine = False
        for staging in self._decided():
            lock = DirectoryLock.taken(self.filesystem, staging)
            if lock is None:
                continue  # whoever decided it is at it
            record = read_record(self.filesystem, staging)
            if record is not None:
                self._finish(staging, record)
                mine = mine or record.job == self.job_id
            lock.release()
        return mine

    def start(self) -> dict[int, Done]:
        """Make the staging directory, or take the one that this job left; the positions that are
        done already.

        If the same job runs elsewhere at this moment, this one becomes another job, with a number
        behind its id.
        """
        given = self.job_id
        for number in itertools.count(1):
            self._make_staging()
            self._lock = DirectoryLock.taken(self.filesystem, self.staging)
            if self._lock is not None:
                break
            self.job_id = f"{given}-{number}"
        return {done.position: done for done in self._journal()}

    def has_progress(self) -> bool:
        """Whether there is anything to go on with: a position that is done, or a commit that was
        decided.
        """
        return bool(self._journal()) or read_record(self.filesystem, self.staging) is not None

    def release(self) -> None:
        """The job does not run any more: the next start under its id may go on with it."""
        if self._lock is not None:
            self._lock.release()

    def read_state(self) -> dict[str, Any]:
        """What `write_state` wrote last in this staging directory; empty if there is nothing
        yet.
        """
        try:
            with self.filesystem.open_input_stream(filesystems.join(self.staging, STATE)) as file:
                state: dict[str, Any] = json.loads(file.read())
                return state
        except FileNotFoundError:
            return {}

    def write_state(self, state: Mapping[str, Any]) -> None:
        """Keep a few values (JSON) for a start that goes on."""
        self._write(filesystems.join(self.staging, STATE), json.dumps(state).encode())

    def staged(self, relative: str) -> str:
        """Where a task writes the file that will be `relative` below the target."""
        return filesystems.join(self.staging, DATA, relative)

    def mark_done(self, done: Done) -> None:
        """Enter a position into the journal, after its files have reached the disk."""
        faults.reach("data.sink.staged")
        self._sync([self.staged(relative) for relative in done.files])
        self._write(
            filesystems.join(self.staging, DONE, f"{done.position:06d}.json"),
            json.dumps(asdict(done)).encode(),
        )
        faults.reach("data.sink.done")

    def commit(self, done: Iterable[Done]) -> None:
        """Publish the files of these positions.

        Raises:
            ValueError: Two positions, or a position and an older file that stays, have the same
            name. Nothing was published.
        """
        faults.reach("data.commit.begin")
        files = self._distinct(done)
        swap = self.staging == self._beside
        if swap and os.path.isdir(self.target) and not self.overwrite and os.listdir(self.target):
            # Somebody else has written there meanwhile, so that this result comes to theirs, file
            # by file.
            os.rename(self.staging, self._inside)
            self.staging, swap = self._inside, False
        if not files and not self.overwrite:
            self.discard()
            return
        present = [] if swap else self._present()
        if not self.overwrite:
            self._check_free(files, present)
        if swap:
            self._prepare_swap(files)
        record = CommitRecord(
            job=self.job_id,
            files=tuple(files),
            replaced=tuple(present if self.overwrite else ()),
            swap=swap,
        )
        self._write(filesystems.join(self.staging, RECORD), record.encode())
        faults.reach("data.commit.decided")
        self._finish(self.staging, record)
        self.release()

    def discard(self) -> None:
        """Delete what the job has staged. What was decided stays, for the next start to finish."""
        if read_record(self.filesystem, self.staging) is None:
            self._delete(self.staging)
        self.release()

    def _make_staging(self) -> None:
        local = filesystems.is_local(self.filesystem)
        # What an earlier start has staged decides, even if the target has changed since.
        beside = (
            local
            and not os.path.isdir(self._inside)
            and (os.path.isdir(self._beside) or self._may_swap())
        )
        self.staging = self._beside if beside else self._inside
        for name in (DATA, DONE):
            filesystems.make_directory(self.filesystem, filesystems.join(self.staging, name))

    def _decided(self) -> list[str]:
        found = []
        beside = self._beside
        if filesystems.is_local(self.filesystem) and os.path.exists(os.path.join(beside, RECORD)):
            found.append(beside)
        selector = pyarrow_fs.FileSelector(self.target, allow_not_found=True)
        if self.filesystem.get_file_info(self.target).type == pyarrow_fs.FileType.Directory:
            found += [
                info.path
                for info in self.filesystem.get_file_info(selector)
                if info.base_name.startswith(STAGING_PREFIX)
            ]
        return found

    def _may_swap(self) -> bool:
        """Whether the whole directory can be put in place by one rename."""
        if os.path.lexists(self.target):
            empty = os.path.isdir(self.target) and not os.listdir(self.target)
            if os.path.ismount(self.target) or not (self.overwrite or empty):
                return False
        parent = _existing(os.path.dirname(self.target))
        if not os.access(parent, os.W_OK):
            return False
        return (
            not os.path.exists(self.target) or os.stat(parent).st_dev == os.stat(self.target).st_dev
        )

    def _journal(self) -> list[Done]:
        selector = pyarrow_fs.FileSelector(
            filesystems.join(self.staging, DONE), allow_not_found=True
        )
        names = sorted(
            info.path
            for info in self.filesystem.get_file_info(selector)
            if info.path.endswith(".json")
        )
        return [_read_done(self.filesystem, name) for name in names]

    def _distinct(self, done: Iterable[Done]) -> list[str]:
        owners: dict[str, int] = {}
        for one in sorted(done, key=lambda one: one.position):
            for relative in one.files:
                if owners.setdefault(relative, one.position) != one.position:
                    raise ValueError(
                        f"write tasks {owners[relative]} and {one.position} both name their file {relative!r}, so that one would replace "
                        "the other: let the FilenameProvider use task_index"
                    )
        return list(owners)

    def _present(self) -> list[str]:
        """The files of the target, relative to it."""
        selector = pyarrow_fs.FileSelector(self.target, recursive=True, allow_not_found=True)
        paths = [info.path for info in self.filesystem.get_file_info(selector) if info.is_file]
        return [
            relative
            for relative in (relative_to(self.target, path) for path in paths)
            if not is_hidden(relative)
        ]

    def _check_free(self, files: Sequence[str], present: Sequence[str]) -> None:
        taken = sorted(set(files) & set(present))
        if taken:
            raise ValueError(
                f"{self.target} has a file {taken[0]!r} already ({len(taken)} such files), and mode='append' replaces none: "
                "let the FilenameProvider use write_uuid, or pass mode='overwrite'"
            )

    def _prepare_swap(self, files: Sequence[str]) -> None:
        """Leave only the result in `data`: a task that was killed may have left something else
        there.
        """
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
        """Publish what was decided, from wherever an earlier attempt has stopped."""
        if record.swap:
            self._swap(staging, record)
        else:
            self._move(staging, record)
        faults.reach("data.commit.published")
        for name in (DATA, "replaced", DONE):
            self._delete(filesystems.join(staging, name))
        if record.swap:
            _unlink(os.path.join(self.target, f"{PUBLISHED_MARK}{record.job}"))
        faults.reach("data.commit.cleaned")
        # The decision goes last: without it, a journal that was still there would look like work to
        # go on with.
        self.filesystem.delete_file(filesystems.join(staging, RECORD))
        self._delete(staging)

    def _swap(self, staging: str, record: CommitRecord) -> None:
        data = os.path.join(staging, DATA)
        if not os.path.exists(os.path.join(data, f"{PUBLISHED_MARK}{record.job}")):
            return
        if os.path.isdir(self.target) and os.listdir(self.target):
            if filesystems.exchange(data, self.target):
                filesystems.sync(self.filesystem, os.path.dirname(self.target))
                return
            os.rename(self.target, os.path.join(staging, "replaced"))
            faults.reach("data.commit.moved")
        os.makedirs(os.path.dirname(self.target), exist_ok=True)
        os.rename(data, self.target)
        filesystems.sync(self.filesystem, os.path.dirname(self.target))

    def _move(self, staging: str, record: CommitRecord) -> None:
        parents = {
            posixpath.dirname(filesystems.join(self.target, relative)) for relative in record.files
        }
        for parent in sorted(parents):
            filesystems.make_directory(self.filesystem, parent)
        for relative in record.files:
            source, target = (
                filesystems.join(staging, DATA, relative),
                filesystems.join(self.target, relative),
            )
            if self.filesystem.get_file_info(source).type == pyarrow_fs.FileType.NotFound:
                continue  # moved before the earlier attempt stopped
            self.filesystem.move(source, target)
            faults.reach("data.commit.moved")
        for relative in sorted(set(record.replaced) - set(record.files)):
            path = filesystems.join(self.target, relative)
            if self.filesystem.get_file_info(path).type != pyarrow_fs.FileType.NotFound:
                self.filesystem.delete_file(path)
        for parent in parents:
            filesystems.sync(self.filesystem, parent)

    def _write(self, path: str, data: bytes) -> None:
        """Write a small file that is there whole or not at all."""
        if not filesystems.is_local(self.filesystem):
            with self.filesystem.open_output_stream(path) as stream:
                stream.write(data)
            return
        with open(f"{path}.tmp", "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.tmp", path)

    def _sync(self, paths: Sequence[str]) -> None:
        if len(paths) > _SYNC_EACH_BELOW and filesystems.is_local(self.filesystem):
            os.sync()
            return
        for path in paths:
            filesystems.sync(self.filesystem, path)

    def _delete(self, path: str) -> None:
        if filesystems.is_local(self.filesystem):
            shutil.rmtree(path, ignore_errors=True)
        elif self.filesystem.get_file_info(path).type == pyarrow_fs.FileType.Directory:
            self.filesystem.delete_dir(path)


def _read_done(filesystem: pyarrow_fs.FileSystem, path: str) -> Done:
    with filesystem.open_input_stream(path) as file:
        fields = json.loads(file.read())
    return Done(**{**fields, "files": tuple(fields["files"])})


def _existing(directory: str) -> str:
    while not os.path.isdir(directory):
        directory = os.path.dirname(directory)
    return directory


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
