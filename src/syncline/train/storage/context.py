"""`StorageContext`: storage of a run, and atomic commits of checkpoints.

Layout under `storage_path`:

    <name>/                       the run directory; `syncline.runs` writes the record in it
        checkpoint_000000/        committed checkpoints, also under the names given to `report`
        .tmp-…                    unfinished files; deleted when the run starts again

A checkpoint is created in three steps. Every rank *stages* its files. When all ranks have, the
controller *commits* them under the checkpoint's name, writes the list of checkpoints, and
*confirms* the commit. Before a checkpoint becomes visible, a marker `.tmp-commit-…` is written
beside it, and `confirm` deletes the marker. So after a kill, `discard_staged` finds unlisted
checkpoints by their markers and deletes them.

On a local filesystem, staging copies or moves the files into a hidden directory per rank, and
committing renames it. A reader sees a complete checkpoint or none, even after a kill or a power
failure, because the files reach the disk before they become visible. On other filesystems,
directories cannot be renamed: ranks upload to the final place, and only the list says that a
checkpoint is complete.

If a name is reported again, the new checkpoint is exchanged with the old one in one step. Where
this is impossible, it is placed beside the old one as `<name>~again-…` until the old one is no
longer listed. If ranks report files of equal name, the file of the lowest rank is kept (on other
filesystems, the last one written).

Not covered: retention of checkpoints (`controller/checkpoint_manager.py`) and their readers
(`checkpoint.py`).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Collection, Sequence
from typing import Protocol

from pyarrow import fs as pyarrow_fs

from syncline import faults
from syncline.runs.run_directory import NAMES_OF_THE_RECORD
from syncline.storage import filesystem as directories
from syncline.storage.filesystem import Listing, exchange
from syncline.storage.retries import RetryPolicy, call_with_retries
from syncline.train.checkpoint import Checkpoint
from syncline.train.resume_state import STATES_DIRECTORY, states_path

MINIMUM_FREE_BYTES = 16 * 1024**2
"""Free bytes on a local disk that a run needs to start; its record needs some space."""
FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Error numbers for a full disk or an exhausted quota."""
_AT_START = RetryPolicy(attempts=5)
"""Short, since a user may wait for the error about a wrong path."""
_MARKER_PREFIX = f"{directories.TEMPORARY_PREFIX}commit-"
_BESIDE = "~again-"
_OF_THE_RECORD = NAMES_OF_THE_RECORD | {"controller.json"}


class StorageFullError(OSError):
    """A checkpoint or the record of the run does not fit on the disk of the run directory.

    Args:
        code: Error number of the system.
        message: Cause and remedy.
        needed_bytes: Size of the data that does not fit.
    """

    def __init__(self, code: int, message: str, needed_bytes: int) -> None:
        super().__init__(code, message)
        self.needed_bytes = needed_bytes

    def __reduce__(self) -> tuple[type[StorageFullError], tuple[int | None, str, int]]:
        return type(self), (self.errno, self.strerror or "", self.needed_bytes)


class StorageSettings(Protocol):
    """Part of a `RunConfig` that describes the storage of the run."""

    @property
    def name(self) -> str | None:
        """Name of the run and of its directory."""

    @property
    def storage_path(self) -> str | os.PathLike[str] | None:
        """Directory or URI that contains the run directories."""

    @property
    def storage_filesystem(self) -> pyarrow_fs.FileSystem | None:
        """Filesystem of `storage_path`; None to derive it."""


class StorageContext:
    """Storage of one run on one filesystem; as picklable as the filesystem.

    Args:
        storage_path: Directory or URI that contains the run directories.
        name: Name of the run and of its directory.
        storage_filesystem: Filesystem of `storage_path`; by default derived from it.

    Raises:
        ValueError: A URI that pyarrow does not know.
    """

    storage_filesystem: pyarrow_fs.FileSystem
    """Filesystem of the run directory."""
    storage_fs_path: str
    """`storage_path` as a path on the filesystem."""
    experiment_dir_name: str
    """Name of the run."""
    experiment_fs_path: str
    """Run directory, a path on `storage_filesystem`."""
    local: bool
    """True if the run directory is on a local filesystem."""

    def __init__(
        self,
        storage_path: str | os.PathLike[str],
        name: str,
        storage_filesystem: pyarrow_fs.FileSystem | None = None,
    ) -> None:
        self.storage_filesystem, self.storage_fs_path = directories.resolve(
            storage_path, storage_filesystem
        )
        self.experiment_dir_name = name
        self.experiment_fs_path = directories.join(self.storage_fs_path, name)
        self.local = directories.is_local(self.storage_filesystem)

    @classmethod
    def from_run_config(cls, config: StorageSettings) -> StorageContext:
        """Return the storage that `config` describes."""
        assert config.storage_path is not None, "RunConfig fills storage_path in"
        assert config.name is not None, "RunConfig fills name in"
        return cls(config.storage_path, config.name, config.storage_filesystem)

    def build_checkpoint_path_from_name(self, checkpoint_dir_name: str) -> str:
        """Return the path of a checkpoint on `storage_filesystem`."""
        return directories.join(self.experiment_fs_path, checkpoint_dir_name)

    def checkpoint(self, checkpoint_dir_name: str) -> Checkpoint:
        """Return the checkpoint of that name, which need not exist."""
        return Checkpoint(
            self.build_checkpoint_path_from_name(checkpoint_dir_name), self.storage_filesystem
        )

    def name_of(self, checkpoint: Checkpoint) -> str:
        """Return the checkpoint's path relative to the run directory.

        Raises:
            ValueError: It is outside of the run directory, or has an invalid name.
        """
        prefix = self.experiment_fs_path + "/"
        if checkpoint.filesystem != self.storage_filesystem or not checkpoint.path.startswith(
            prefix
        ):
            raise ValueError(
                f"{checkpoint!r} is outside of the run directory {self.experiment_fs_path!r} "
                f"({self.storage_filesystem.type_name} filesystem), so the run cannot keep it. "
                "Write it there, or report it with CheckpointUploadMode.SYNC or ASYNC."
            )
        return checked_name(checkpoint.path[len(prefix) :])

    def contains(self, checkpoint: Checkpoint) -> bool:
        """Return True if the checkpoint is in the run directory."""
        try:
            self.name_of(checkpoint)
        except ValueError:
            return False
        return True

    def is_separate(self, checkpoint: Checkpoint) -> bool:
        """Return True for a local directory that does not overlap with the run directory."""
        if not directories.is_local(checkpoint.filesystem):
            return False
        if not self.local:
            return True
        ours, others = (
            os.path.realpath(self.experiment_fs_path) + "/",
            os.path.realpath(checkpoint.path) + "/",
        )
        return not others.startswith(ours) and not ours.startswith(others)

    def exists(self, checkpoint: Checkpoint) -> bool:
        """Return True if the directory of the checkpoint exists."""
        return directories.is_directory(checkpoint.filesystem, checkpoint.path)

    @property
    def files(self) -> ArrowFiles:
        """Files of the run directory, for `syncline.runs`."""
        return ArrowFiles(self.storage_filesystem, self.experiment_fs_path)

    def prepare(self) -> None:
        """Create the run directory and check that it can be written.

        Raises:
            ValueError: It cannot be created or written, or the disk is full.
        """
        probe = directories.join(
            self.experiment_fs_path, f"{directories.TEMPORARY_PREFIX}probe-{uuid.uuid4().hex}"
        )

        def write() -> None:
            with self.storage_filesystem.open_output_stream(probe) as stream:
                stream.write(b"syncline")

        try:
            for step in (
                lambda: self.storage_filesystem.create_dir(self.experiment_fs_path, recursive=True),
                write,
            ):
                call_with_retries(step, f"writing to {self.experiment_fs_path}", policy=_AT_START)
            directories.delete_file(self.storage_filesystem, probe)
        except (OSError, ValueError, NotImplementedError) as error:
            raise ValueError(
                f"The run directory {self.experiment_fs_path!r} on the "
                f"{self.storage_filesystem.type_name} filesystem cannot be written "
                f"({_first_line(error)}). Set `RunConfig(storage_path=…)` to a directory that this "
                "user may write, or correct its permissions."
            ) from error
        self.check_free_space(MINIMUM_FREE_BYTES)

    def check_free_space(self, needed_bytes: int) -> None:
        """Check the free bytes of a local disk.

        Raises:
            ValueError: There are fewer than `needed_bytes`.
        """
        if not self.local:
            return
        free = shutil.disk_usage(self.experiment_fs_path).free
        if free < needed_bytes:
            raise ValueError(
                f"The disk of {self.experiment_fs_path!r} has {free} free bytes, but the run needs "
                f"{needed_bytes}. Free some space, or set `RunConfig(storage_path=…)` to another "
                "disk."
            )

    def stage(
        self,
        source: Checkpoint,
        checkpoint_dir_name: str,
        *,
        rank: int,
        token: str,
        listing: Listing | None = None,
        states: bytes | None = None,
        move: bool = False,
    ) -> str | None:
        """Copy or move one rank's files to the storage, not yet visible as a checkpoint.

        Call `sync` before they become visible.

        Args:
            source: The rank's files, on any filesystem.
            checkpoint_dir_name: Name of the checkpoint.
            rank: World rank.
            token: Equal for all ranks of a report, and unique for each report and attempt.
            listing: Files that must exist; by default those that exist now.
            states: The rank's reader states (`Readers.capture`), stored with its files.
            move: The caller deletes the source next, so its files may be moved.

        Returns:
            Argument of `commit`: the staged directory, relative to the run directory, or None if
            the files are in their final place.

        Raises:
            FileNotFoundError: The source or a file of `listing` does not exist.
            StorageFullError: The files do not fit on the disk; the partial copy is deleted.
            OSError: The copy failed; the next `discard_staged` deletes the partial copy.
        """
        # States copied together with the files of an earlier checkpoint are not of this report.
        listing = (listing or directories.list_directory(source.filesystem, source.path)).without(
            STATES_DIRECTORY
        )
        staged = (
            f"{directories.TEMPORARY_PREFIX}{token}-{rank:05d}"
            if self.local
            else self._upload_name(checkpoint_dir_name, token)
        )
        target = self.build_checkpoint_path_from_name(staged)
        try:
            if not self.local:
                self._mark(staged, token)
            may_move = move and self.local and directories.is_local(source.filesystem)
            if not (may_move and directories.move_directory(source.path, target, listing)):
                directories.copy_directory(
                    source.filesystem, source.path, self.storage_filesystem, target, listing=listing
                )
            if states is not None:
                self.write_states(staged, rank, states)
        except OSError as error:
            if self.local:
                shutil.rmtree(target, ignore_errors=True)
            if error.errno in FULL_DISK:
                raise self._full(error, checkpoint_dir_name, listing.size_bytes) from error
            raise
        return None if staged == checkpoint_dir_name else staged

    def sync(self, name: str) -> None:
        """Wait until the files in the directory `name` have reached a local disk.

        Raises:
            OSError: The disk is full or broken.
        """
        if self.local:
            directories.sync_directory(self.build_checkpoint_path_from_name(name))

    def write_states(self, name: str, rank: int, states: bytes) -> None:
        """Write a rank's reader states (`Readers.capture`) into the directory `name`."""
        path = directories.join(self.build_checkpoint_path_from_name(name), states_path(rank))
        directories.write_bytes(self.storage_filesystem, path, states, durable=False)

    def commit(
        self, checkpoint_dir_name: str, staged: Sequence[str | None], *, beside: bool = False
    ) -> Checkpoint:
        """Merge the staged files into one checkpoint, marked as unfinished until `confirm`.

        Args:
            checkpoint_dir_name: Name of the checkpoint. An existing checkpoint of this name is
                replaced in one step, or kept where that is impossible (see `reported_name`).
            staged: Results of `stage` in rank order. Other directories below the run directory may
                be included and are moved, too.
            beside: Keep the existing checkpoint, because a validation may be reading it.

        Raises:
            OSError: The files cannot be moved.
        """
        names = list(dict.fromkeys(name or checkpoint_dir_name for name in staged))
        if not self.local:
            return self.checkpoint(self._merge_remote(names))
        sources = [name for name in names if name != checkpoint_dir_name]
        if not sources:
            return self.checkpoint(checkpoint_dir_name)
        target = self.build_checkpoint_path_from_name(checkpoint_dir_name)
        first, *others = map(self.build_checkpoint_path_from_name, sources)
        for other in others:
            _move_missing(other, first)
            shutil.rmtree(other)
            faults.reach("train.commit.merged")
        in_place = checkpoint_dir_name in names and os.path.isdir(target)
        if in_place:
            _move_missing(target, first)
        if others or in_place:
            for directory, _, _ in os.walk(first):
                directories.sync(directory)
        return self.checkpoint(self._put_in_place(first, checkpoint_dir_name, beside=beside))

    def confirm(self, checkpoint: Checkpoint) -> None:
        """Mark a checkpoint as finished, once the list of checkpoints names it."""
        directories.delete_file(self.storage_filesystem, self._marker(self.name_of(checkpoint)))

    def discard_staged(self, keep: Collection[str] = ()) -> None:
        """Delete unfinished files of earlier attempts. No worker of this run may be writing.

        Args:
            keep: Names of listed checkpoints; they are kept even if not confirmed.
        """
        selector = pyarrow_fs.FileSelector(self.experiment_fs_path, allow_not_found=True)
        for info in call_with_retries(
            lambda: self.storage_filesystem.get_file_info(selector),
            f"listing {self.experiment_fs_path}",
        ):
            if not info.base_name.startswith(directories.TEMPORARY_PREFIX):
                continue
            if info.type == pyarrow_fs.FileType.Directory:
                self._delete_directory(info.path)
                continue
            if info.base_name.startswith(_MARKER_PREFIX):
                name, _ = self._read_marker(info.path)
                if name and name not in keep:
                    directories.delete_directory(
                        self.storage_filesystem, self.build_checkpoint_path_from_name(name)
                    )
            directories.delete_file(self.storage_filesystem, info.path)

    def delete(self, checkpoint: Checkpoint) -> None:
        """Delete a checkpoint of this run; no effect if it does not exist.

        Raises:
            ValueError: It is outside of the run directory.
        """
        self.name_of(checkpoint)
        directories.delete_directory(self.storage_filesystem, checkpoint.path)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StorageContext):
            return NotImplemented
        return self.experiment_fs_path == other.experiment_fs_path and bool(
            self.storage_filesystem == other.storage_filesystem
        )

    def __hash__(self) -> int:
        return hash((self.storage_filesystem.type_name, self.experiment_fs_path))

    def __repr__(self) -> str:
        kind, path = self.storage_filesystem.type_name, self.experiment_fs_path
        return f"StorageContext(filesystem={kind}, path={path})"

    def _put_in_place(self, staged: str, name: str, *, beside: bool) -> str:
        """Mark and rename the hidden directory `staged`; return its final name."""
        target = self.build_checkpoint_path_from_name(name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.isdir(target) and os.listdir(target):
            if not beside and self._replace(staged, target, name):
                return name
            name = f"{name}{_BESIDE}{uuid.uuid4().hex[:8]}"
        self._mark(name)
        faults.reach("train.commit.marked")
        os.rename(staged, self.build_checkpoint_path_from_name(name))
        return name

    def _replace(self, staged: str, target: str, name: str) -> bool:
        """Exchange two directories and delete the old one; return False if not supported."""
        self._mark(name)
        if not exchange(staged, target):
            self.confirm(self.checkpoint(name))
            return False
        faults.reach("train.commit.exchanged")
        shutil.rmtree(staged)
        return True

    def _merge_remote(self, names: Sequence[str]) -> str:
        """Copy several directories of a remote filesystem into the first one; return its name."""
        name, *others = names
        for other in others:
            source, target = (
                self.build_checkpoint_path_from_name(other),
                self.build_checkpoint_path_from_name(name),
            )
            directories.copy_directory(
                self.storage_filesystem, source, self.storage_filesystem, target
            )
            directories.delete_directory(self.storage_filesystem, source)
            directories.delete_file(self.storage_filesystem, self._marker(other))
            faults.reach("train.commit.merged")
        return name

    def _upload_name(self, name: str, token: str) -> str:
        """Return the directory for uploads to a remote filesystem; never that of a checkpoint."""
        if not directories.is_directory(
            self.storage_filesystem, self.build_checkpoint_path_from_name(name)
        ):
            return name
        # Read after the directory: a rank of this report writes its marker before its files.
        _, of_report = self._read_marker(self._marker(name))
        return name if of_report == token else f"{name}{_BESIDE}{token}"

    def _marker(self, name: str) -> str:
        # A checkpoint name may be longer than a file name.
        digest = hashlib.sha256(name.encode()).hexdigest()[:24]
        return self.build_checkpoint_path_from_name(f"{_MARKER_PREFIX}{digest}")

    def _mark(self, name: str, token: str = "") -> None:
        """Mark a directory as unfinished."""
        data = json.dumps({"name": name, "token": token}).encode()
        if not self.local:
            directories.write_bytes(self.storage_filesystem, self._marker(name), data)
            return
        with open(self._marker(name), "wb") as file:  # reaches the disk with the rename after it
            file.write(data)

    def _read_marker(self, path: str) -> tuple[str, str]:
        """Return name and token of a marker; empty if it does not exist or is incomplete."""
        try:
            content = json.loads(directories.read_bytes(self.storage_filesystem, path) or b"{}")
        except ValueError:
            return "", ""
        return str(content.get("name", "")), str(content.get("token", ""))

    def _delete_directory(self, path: str) -> None:
        if self.local:
            shutil.rmtree(path)  # already hidden
        else:
            directories.delete_directory(self.storage_filesystem, path)

    def _full(self, error: OSError, name: str, needed_bytes: int) -> StorageFullError:
        free = (
            f"{shutil.disk_usage(self.experiment_fs_path).free} bytes are free"
            if self.local
            else "free space unknown"
        )
        message = (
            f"The checkpoint {name!r} has {needed_bytes} bytes of this rank, which do not fit on "
            f"the disk of {self.experiment_fs_path!r} ({free}; {error.strerror}). Earlier "
            "checkpoints are kept. Free some space, keep fewer checkpoints "
            "(`CheckpointConfig(num_to_keep=…)`), or copy the run to a larger disk. Then start the "
            "run again under the same name to continue from its latest checkpoint."
        )
        return StorageFullError(error.errno or errno.ENOSPC, message, needed_bytes)


class ArrowFiles:
    """Files of a directory on any pyarrow filesystem: implements `syncline.runs.Files`."""

    def __init__(self, filesystem: pyarrow_fs.FileSystem, directory: str) -> None:
        self._filesystem = filesystem
        self._directory = directory

    @property
    def local_path(self) -> str | None:
        """Path of the directory if it is local."""
        return self._directory if directories.is_local(self._filesystem) else None

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if it does not exist."""
        return directories.read_bytes(self._filesystem, directories.join(self._directory, name))

    def write(self, name: str, data: bytes) -> None:
        """Write or replace a file."""
        directories.write_bytes(self._filesystem, directories.join(self._directory, name), data)

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""
        directories.delete_file(self._filesystem, directories.join(self._directory, name))


def checked_name(name: str) -> str:
    """Return `name` if it is valid for a checkpoint.

    Raises:
        ValueError: It leads out of the run directory, or is a name of unfinished files or of the
            run's record.
    """
    parts = name.split("/") if isinstance(name, str) else []
    hidden = any(part.startswith(directories.TEMPORARY_PREFIX) for part in parts)
    if not parts or hidden or {"", ".", ".."} & set(parts) or parts[0] in _OF_THE_RECORD:
        raise ValueError(
            f"{name!r} is not a valid name for a checkpoint. Use a relative path such as "
            '"epoch_3", without empty parts, "." or "..", and no name of the run\'s own files.'
        )
    return name


def reported_name(name: str) -> str:
    """Return the name under which a checkpoint was reported, without a `~again-…` suffix."""
    return name.partition(_BESIDE)[0]


def checkpoint_dir_name(index: int) -> str:
    """Return the default name of the checkpoint of a report."""
    return f"checkpoint_{index:06d}"


def _move_missing(source: str, target: str) -> None:
    """Move the files of `source` that `target` lacks."""
    for entry in os.scandir(source):
        destination = os.path.join(target, entry.name)
        if not os.path.lexists(destination):
            os.rename(entry.path, destination)
        elif entry.is_dir(follow_symlinks=False) and os.path.isdir(destination):
            _move_missing(entry.path, destination)


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
