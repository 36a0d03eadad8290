"""`StorageContext`: where a run keeps its files, and how a checkpoint gets there whole or not at
all.

Layout under `storage_path`:

    <name>/                       the run directory; `syncline.runs` writes the record in it
        checkpoint_000000/        committed checkpoints, or under the names that `report` was given
        .tmp-…                    what is not finished; deleted when the run starts again

A checkpoint comes in three steps. Every rank *stages* its files; when all have, the controller
*commits* them under the checkpoint's name, writes the list of checkpoints, and *confirms* the
commit. From before a checkpoint is visible until it is confirmed, a marker `.tmp-commit-…` lies
beside it, so what a kill leaves unlisted is known and deleted by `discard_staged`.

On a local filesystem, staging copies (or moves) into a hidden directory per rank and committing
renames: a reader sees a whole checkpoint or none, after a kill at any moment, and after a power
failure, because the files have reached the disk before they become visible. Elsewhere directories
cannot be renamed, so ranks upload to the final place, and only the list says that a checkpoint is
whole. Where a name is reported again, the new checkpoint changes places with the old one in one
step; where that is impossible it comes to lie beside it, as `<name>~again-…`, until the old one is
not listed any more. Of files with one name, the lowest rank's counts (elsewhere the last one that
was written).

Not covered: which checkpoints stay (`controller/checkpoints.py`) and who may be reading one
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

from pyarrow import fs as pyarrow_fs

from syncline import faults
from syncline.data.io.filesystem import exchange
from syncline.runs.directory import NAMES_OF_THE_RECORD
from syncline.train import filesystem as directories
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import RunConfig
from syncline.train.filesystem import Listing
from syncline.train.readers import STATES_DIRECTORY, states_path
from syncline.train.retries import RetryPolicy, keep_trying

MINIMUM_FREE_BYTES = 16 * 1024**2
"""A run does not start on a local disk with less room than this: it could not even keep its
record.
"""
FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The system's error numbers for a disk, or a share of one, that is used up."""
_AT_START = RetryPolicy(attempts=5)
"""A person may be waiting to hear that a path is wrong."""
_MARKER_PREFIX = f"{directories.TEMPORARY_PREFIX}commit-"
_BESIDE = "~again-"
_OF_THE_RECORD = NAMES_OF_THE_RECORD | {"controller.json"}


class StorageFullError(OSError):
    """A checkpoint, or the record of the run, did not fit on the disk of the run directory.

    Args:
        code: The system's error number.
        message: What did not fit where, and what to do.
        needed_bytes: How large it is.
    """

    def __init__(self, code: int, message: str, needed_bytes: int) -> None:
        super().__init__(code, message)
        self.needed_bytes = needed_bytes

    def __reduce__(self) -> tuple[type[StorageFullError], tuple[int | None, str, int]]:
        return type(self), (self.errno, self.strerror or "", self.needed_bytes)


class StorageContext:
    """One run's place on one filesystem; can be pickled if the filesystem can.

    Args:
        storage_path: Directory or URI under which runs lie. name: The run's name, which is its
        directory. storage_filesystem: The filesystem that `storage_path` is a path on; found from
        it if not given.

    Raises:
        ValueError: A URI that pyarrow does not know.
    """

    storage_filesystem: pyarrow_fs.FileSystem
    """Where everything lies."""
    storage_fs_path: str
    """`storage_path` as a path on it."""
    experiment_dir_name: str
    """The run's name."""

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
        self._experiment_fs_path = directories.join(self.storage_fs_path, name)
        self._local = directories.is_local(self.storage_filesystem)

    @classmethod
    def from_run_config(cls, config: RunConfig) -> StorageContext:
        """The place that `config` describes."""
        assert config.storage_path is not None, "RunConfig fills storage_path in"
        assert config.name is not None, "RunConfig fills name in"
        return cls(config.storage_path, config.name, config.storage_filesystem)

    @property
    def experiment_fs_path(self) -> str:
        """The run directory, a path on `storage_filesystem`."""
        return self._experiment_fs_path

    @property
    def local(self) -> bool:
        """Whether the run directory is a directory of this machine."""
        return self._local

    def build_checkpoint_path_from_name(self, checkpoint_dir_name: str) -> str:
        """Where the checkpoint of that name lies, a path on `storage_filesystem`."""
        return directories.join(self.experiment_fs_path, checkpoint_dir_name)

    def checkpoint(self, checkpoint_dir_name: str) -> Checkpoint:
        """The checkpoint of that name, whether or not it exists."""
        return Checkpoint(
            self.build_checkpoint_path_from_name(checkpoint_dir_name), self.storage_filesystem
        )

    def name_of(self, checkpoint: Checkpoint) -> str:
        """The checkpoint's path relative to the run directory.

        Raises:
            ValueError: It lies outside, on another filesystem, or where a checkpoint cannot lie.
        """
        prefix = self.experiment_fs_path + "/"
        if checkpoint.filesystem != self.storage_filesystem or not checkpoint.path.startswith(
            prefix
        ):
            raise ValueError(
                f"{checkpoint!r} lies outside the run directory {self.experiment_fs_path!r} ({self.storage_filesystem.type_name} "
                "filesystem), so the run cannot keep it: write it there, or report it with CheckpointUploadMode.SYNC or ASYNC."
            )
        return checked_name(checkpoint.path[len(prefix) :])

    def contains(self, checkpoint: Checkpoint) -> bool:
        """Whether the checkpoint lies in the run directory."""
        try:
            self.name_of(checkpoint)
        except ValueError:
            return False
        return True

    def is_apart_from(self, checkpoint: Checkpoint) -> bool:
        """Whether the checkpoint is a directory of this machine that can be deleted without harm to
        the run directory.
        """
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
        """Whether its directory is there."""
        return directories.is_directory(checkpoint.filesystem, checkpoint.path)

    @property
    def files(self) -> ArrowFiles:
        """The run directory, for `syncline.runs`."""
        return ArrowFiles(self.storage_filesystem, self.experiment_fs_path)

    def prepare(self) -> None:
        """Make the run directory and see that it can be written, before anything costly starts.

        Raises:
            ValueError: It cannot be made or written, or the disk is full.
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
                keep_trying(step, f"writing to {self.experiment_fs_path}", policy=_AT_START)
            directories.delete_file(self.storage_filesystem, probe)
        except (OSError, ValueError, NotImplementedError) as error:
            raise ValueError(
                f"The run directory {self.experiment_fs_path!r} on the {self.storage_filesystem.type_name} filesystem cannot be written "
                f"({_first_line(error)}), so the run could keep neither checkpoints nor its record: "
                "set `RunConfig(storage_path=…)` to a directory that this user may write, or correct its permissions."
            ) from error
        self.check_room(MINIMUM_FREE_BYTES)

    def check_room(self, needed_bytes: int) -> None:
        """See that the disk has so many bytes left. Of storage elsewhere nothing is known.

        Raises:
            ValueError: It has not.
        """
        if not self.local:
            return
        free = shutil.disk_usage(self.experiment_fs_path).free
        if free < needed_bytes:
            raise ValueError(
                f"The disk of {self.experiment_fs_path!r} has {free} bytes left, but the run needs {needed_bytes} to go on: "
                "free some room, or set `RunConfig(storage_path=…)` to another disk."
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
        take: bool = False,
    ) -> str | None:
        """Bring one rank's files to the storage, not yet visible as a checkpoint; `force` them
        before they become so.

        Args:
            source: The rank's files, on any filesystem. checkpoint_dir_name: The name that the
            checkpoint is to get. rank: World rank. token: The same for all ranks of one report, and
            another one for every report and attempt. listing: The files that must be there, where
            they were listed before; without it, those that are there. states: Where the rank's
            readers are (`Readers.capture`), which goes with its files. take: The caller deletes the
            source next, so its files may be moved where that is cheaper. Otherwise the source
            stays.

        Returns:
            What `commit` needs: the staged directory, relative to the run directory, or None if the
            files are in the final place.

        Raises:
            FileNotFoundError: There is no such source, or a file of `listing` is gone.
            StorageFullError: The files do not fit on the disk; what was written of them is gone.
            OSError: The copy failed; what there is of it goes with the next `discard_staged`.
        """
        # States that came from an earlier checkpoint, whose files the program has copied, are not
        # those of this report.
        listing = (listing or directories.list_directory(source.filesystem, source.path)).without(
            STATES_DIRECTORY
        )
        staged = (
            f"{directories.TEMPORARY_PREFIX}{token}-{rank:05d}"
            if self.local
            else self._free_place(checkpoint_dir_name, token)
        )
        target = self.build_checkpoint_path_from_name(staged)
        try:
            if not self.local:
                self._mark(staged, token)
            may_take = take and self.local and directories.is_local(source.filesystem)
            if not (may_take and directories.take_directory(source.path, target, listing)):
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

    def force(self, name: str) -> None:
        """Return when the files in the directory `name` of the run directory are on the disk, and
        would be there after a power failure.

        Raises:
            OSError: The disk is full, or broken.
        """
        if self.local:
            directories.sync_directory(self.build_checkpoint_path_from_name(name))

    def write_states(self, name: str, rank: int, states: bytes) -> None:
        """Put where a rank's readers are (`Readers.capture`) among the files in the directory
        `name` of the run directory.
        """
        path = directories.join(self.build_checkpoint_path_from_name(name), states_path(rank))
        directories.write_bytes(self.storage_filesystem, path, states, durable=False)

    def commit(
        self, checkpoint_dir_name: str, staged: Sequence[str | None], *, beside: bool = False
    ) -> Checkpoint:
        """Make one checkpoint of what the ranks have staged. It stays marked as unfinished until
        `confirm`.

        Args:
            checkpoint_dir_name: Its name. Another checkpoint of that name is replaced in one step,
            or stays where that is impossible
                (see `asked_name` below).
            staged: What `stage` returned on each rank, lower ranks first. Other directories below
            the run directory may be among
                them and are moved, too.
            beside: The other one must stay where it is, because somebody may be reading it.

        Raises:
            OSError: It could not be moved.
        """
        places = list(dict.fromkeys(name or checkpoint_dir_name for name in staged))
        if not self.local:
            return self.checkpoint(self._gather(places))
        sources = [name for name in places if name != checkpoint_dir_name]
        if not sources:
            return self.checkpoint(checkpoint_dir_name)
        target = self.build_checkpoint_path_from_name(checkpoint_dir_name)
        first, *others = map(self.build_checkpoint_path_from_name, sources)
        for other in others:
            _move_missing(other, first)
            shutil.rmtree(other)
            faults.reach("train.commit.merged")
        in_place = checkpoint_dir_name in places and os.path.isdir(target)
        if in_place:
            _move_missing(target, first)
        if others or in_place:
            for directory, _, _ in os.walk(first):
                directories.sync(directory)
        return self.checkpoint(self._put_in_place(first, checkpoint_dir_name, beside=beside))

    def confirm(self, checkpoint: Checkpoint) -> None:
        """The list of checkpoints names this one now: it is finished."""
        directories.delete_file(self.storage_filesystem, self._marker(self.name_of(checkpoint)))

    def discard_staged(self, keep: Collection[str] = ()) -> None:
        """Delete what attempts that ended early have left unfinished. Call it while no worker of
        this run is writing.

        Args:
            keep: Names of listed checkpoints, which stay even if they were not confirmed.
        """
        selector = pyarrow_fs.FileSelector(self.experiment_fs_path, allow_not_found=True)
        for info in keep_trying(
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
        """Delete a checkpoint of this run; nothing happens if it is gone already.

        Raises:
            ValueError: It lies outside the run directory.
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
        return f"StorageContext(filesystem={self.storage_filesystem.type_name}, path={self.experiment_fs_path})"

    def _put_in_place(self, staged: str, name: str, *, beside: bool) -> str:
        """Give the hidden directory `staged` its name, marked; returns the name that it has got."""
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
        """Let two directories change places, and delete the former one. False, and nothing has
        changed, where the system cannot.
        """
        self._mark(name)
        if not exchange(staged, target):
            self.confirm(self.checkpoint(name))
            return False
        faults.reach("train.commit.exchanged")
        shutil.rmtree(staged)
        return True

    def _gather(self, places: Sequence[str]) -> str:
        """Elsewhere than on this machine: bring what lies in several places to the first one;
        returns its name.
        """
        place, *others = places
        for other in others:
            source, target = (
                self.build_checkpoint_path_from_name(other),
                self.build_checkpoint_path_from_name(place),
            )
            directories.copy_directory(
                self.storage_filesystem, source, self.storage_filesystem, target
            )
            directories.delete_directory(self.storage_filesystem, source)
            directories.delete_file(self.storage_filesystem, self._marker(other))
            faults.reach("train.commit.merged")
        return place

    def _free_place(self, name: str, token: str) -> str:
        """Elsewhere than on this machine: where ranks upload what they report as `name`; never over
        a checkpoint that is there already.
        """
        if not directories.is_directory(
            self.storage_filesystem, self.build_checkpoint_path_from_name(name)
        ):
            return name
        # Looked at after the directory: if another rank of this report has begun to fill it, its
        # marker was there before.
        _, of_report = self._read_marker(self._marker(name))
        return name if of_report == token else f"{name}{_BESIDE}{token}"

    def _marker(self, name: str) -> str:
        digest = hashlib.sha256(name.encode()).hexdigest()[
            :24
        ]  # a name may be longer than the name of a file
        return self.build_checkpoint_path_from_name(f"{_MARKER_PREFIX}{digest}")

    def _mark(self, name: str, token: str = "") -> None:
        """Say that the directory of that name is not finished."""
        data = json.dumps({"name": name, "token": token}).encode()
        if not self.local:
            directories.write_bytes(self.storage_filesystem, self._marker(name), data)
            return
        with open(
            self._marker(name), "wb"
        ) as file:  # reaches the disk with the renaming that it announces
            file.write(data)

    def _read_marker(self, path: str) -> tuple[str, str]:
        """Name and token of a marker; empty where there is none, or where a kill cut it short,
        before anything that it announces.
        """
        try:
            content = json.loads(directories.read_bytes(self.storage_filesystem, path) or b"{}")
        except ValueError:
            return "", ""
        return str(content.get("name", "")), str(content.get("token", ""))

    def _delete_directory(self, path: str) -> None:
        if self.local:
            shutil.rmtree(path)  # hidden already
        else:
            directories.delete_directory(self.storage_filesystem, path)

    def _full(self, error: OSError, name: str, needed_bytes: int) -> StorageFullError:
        free = (
            f"{shutil.disk_usage(self.experiment_fs_path).free} bytes are free"
            if self.local
            else "how much is free is not known"
        )
        message = (
            f"The checkpoint {name!r} has {needed_bytes} bytes of this rank, which do not fit on the disk of {self.experiment_fs_path!r} "
            f"({free}; {error.strerror}). It was not kept; those before it are. Free some room, keep fewer "
            "(`CheckpointConfig(num_to_keep=…)`), or copy the run to a larger disk; then start the run under the same name again, and it "
            "goes on from its latest checkpoint."
        )
        return StorageFullError(error.errno or errno.ENOSPC, message, needed_bytes)


class ArrowFiles:
    """The files of a directory on any pyarrow filesystem: what `syncline.runs` reads and writes a
    record through.
    """

    def __init__(self, filesystem: pyarrow_fs.FileSystem, directory: str) -> None:
        self._filesystem = filesystem
        self._directory = directory

    @property
    def local_path(self) -> str | None:
        """The directory, where it is one of this machine."""
        return self._directory if directories.is_local(self._filesystem) else None

    def read(self, name: str) -> bytes | None:
        """Content of the file, or None if there is none."""
        return directories.read_bytes(self._filesystem, directories.join(self._directory, name))

    def write(self, name: str, data: bytes) -> None:
        """Write the whole file in place of what was there."""
        directories.write_bytes(self._filesystem, directories.join(self._directory, name), data)

    def delete(self, name: str) -> None:
        """Delete the file, if there is one."""
        directories.delete_file(self._filesystem, directories.join(self._directory, name))


def checked_name(name: str) -> str:
    """`name`, if a checkpoint may have it.

    Raises:
        ValueError: It leads out of the run directory, or belongs to what is not finished, or to the
        run's record.
    """
    parts = name.split("/") if isinstance(name, str) else []
    hidden = any(part.startswith(directories.TEMPORARY_PREFIX) for part in parts)
    if not parts or hidden or {"", ".", ".."} & set(parts) or parts[0] in _OF_THE_RECORD:
        raise ValueError(
            f"{name!r} is no name for a checkpoint's directory below the run directory: give a relative path such as "
            '"epoch_3", without empty parts, "." or "..", and none that the run itself uses.'
        )
    return name


def asked_name(name: str) -> str:
    """The name under which a checkpoint was reported, where it lies under another one because that
    was taken.
    """
    return name.partition(_BESIDE)[0]


def checkpoint_dir_name(index: int) -> str:
    """Name of the checkpoint of the report with that number, unless `report` gives one."""
    return f"checkpoint_{index:06d}"


def _move_missing(source: str, target: str) -> None:
    """Move the files of `source` that `target` does not have."""
    for entry in os.scandir(source):
        destination = os.path.join(target, entry.name)
        if not os.path.lexists(destination):
            os.rename(entry.path, destination)
        elif entry.is_dir(follow_symlinks=False) and os.path.isdir(destination):
            _move_missing(entry.path, destination)


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
