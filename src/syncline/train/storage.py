"""`StorageContext`: where a run keeps its files, and how a checkpoint gets there whole or not at all.

Layout under `storage_path`:

    <name>/                       the run directory; `syncline.runs` writes the record in it
        checkpoint_000000/        committed checkpoints, or under the names that `report` was given
        .tmp-…                    what is not finished; deleted when the run starts again

A checkpoint comes in two steps. Every rank *stages* its files; when all have, the controller *commits* them under the checkpoint's name.
On a local filesystem, staging copies into a hidden directory per rank and committing renames, so a reader sees a whole checkpoint or none,
also after a kill at any moment (not after a power failure: nothing is forced to the disk). Where two ranks have a file of one name, the
lower rank's counts. Elsewhere directories cannot be renamed, so ranks upload to the final place, beside a marker object
`.tmp-<checkpoint>` that the commit removes; of files of one name, the last one written counts.

Not covered: which checkpoints stay (`controller/checkpoints.py`) and who may be reading one (`checkpoint.py`).
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Collection, Sequence

from pyarrow import fs as pyarrow_fs

from syncline.train import filesystem as directories
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import RunConfig

MINIMUM_FREE_BYTES = 16 * 1024**2
"""A run does not start on a local disk with less room than this: it could not even keep its record."""


class StorageContext:
    """One run's place on one filesystem; can be pickled if the filesystem can.

    Args:
        storage_path: Directory or URI under which runs lie.
        name: The run's name, which is its directory.
        storage_filesystem: The filesystem that `storage_path` is a path on; found from it if not given.

    Raises:
        ValueError: A URI that pyarrow does not know.
    """

    storage_filesystem: pyarrow_fs.FileSystem
    """Where everything lies."""
    storage_fs_path: str
    """`storage_path` as a path on it."""
    experiment_dir_name: str
    """The run's name."""

    def __init__(self, storage_path: str | os.PathLike[str], name: str, storage_filesystem: pyarrow_fs.FileSystem | None = None) -> None:
        self.storage_filesystem, self.storage_fs_path = directories.resolve(storage_path, storage_filesystem)
        self.experiment_dir_name = name

    @classmethod
    def from_run_config(cls, config: RunConfig) -> StorageContext:
        """The place that `config` describes."""
        assert config.storage_path is not None, "RunConfig fills storage_path in"
        assert config.name is not None, "RunConfig fills name in"
        return cls(config.storage_path, config.name, config.storage_filesystem)

    @property
    def experiment_fs_path(self) -> str:
        """The run directory, a path on `storage_filesystem`."""
        return directories.join(self.storage_fs_path, self.experiment_dir_name)

    @property
    def local(self) -> bool:
        """Whether the run directory is a directory of this machine."""
        return directories.is_local(self.storage_filesystem)

    def build_checkpoint_path_from_name(self, checkpoint_dir_name: str) -> str:
        """Where the checkpoint of that name lies, a path on `storage_filesystem`."""
        return directories.join(self.experiment_fs_path, checkpoint_dir_name)

    def checkpoint(self, checkpoint_dir_name: str) -> Checkpoint:
        """The checkpoint of that name, whether or not it exists."""
        return Checkpoint(self.build_checkpoint_path_from_name(checkpoint_dir_name), self.storage_filesystem)

    def name_of(self, checkpoint: Checkpoint) -> str:
        """The checkpoint's path relative to the run directory.

        Raises:
            ValueError: It lies outside, or on another filesystem.
        """
        prefix = self.experiment_fs_path + "/"
        if checkpoint.filesystem != self.storage_filesystem or not checkpoint.path.startswith(prefix):
            raise ValueError(
                f"{checkpoint!r} lies outside the run directory {self.experiment_fs_path!r} ({self.storage_filesystem.type_name} "
                "filesystem), so the run cannot keep it: write it there, or report it with CheckpointUploadMode.SYNC or ASYNC."
            )
        return checkpoint.path[len(prefix) :]

    def contains(self, checkpoint: Checkpoint) -> bool:
        """Whether the checkpoint lies in the run directory."""
        try:
            self.name_of(checkpoint)
        except ValueError:
            return False
        return True

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
        probe = directories.join(self.experiment_fs_path, f"{directories.TEMPORARY_PREFIX}probe-{uuid.uuid4().hex}")
        try:
            self.storage_filesystem.create_dir(self.experiment_fs_path, recursive=True)
            with self.storage_filesystem.open_output_stream(probe) as stream:
                stream.write(b"syncline")
            self.storage_filesystem.delete_file(probe)
        except (OSError, ValueError, NotImplementedError) as error:
            raise ValueError(
                f"The run directory {self.experiment_fs_path!r} on the {self.storage_filesystem.type_name} filesystem cannot be written "
                f"({_first_line(error)}), so the run could keep neither checkpoints nor its record: "
                "set `RunConfig(storage_path=…)` to a directory that this user may write, or correct its permissions."
            ) from error
        if self.local:
            free = shutil.disk_usage(self.experiment_fs_path).free
            if free < MINIMUM_FREE_BYTES:
                raise ValueError(
                    f"The disk of {self.experiment_fs_path!r} has {free} bytes left, but a run needs {MINIMUM_FREE_BYTES} to start: "
                    "free some room, or set `RunConfig(storage_path=…)` to another disk."
                )

    def stage(self, source: Checkpoint, checkpoint_dir_name: str, *, rank: int, token: str) -> str | None:
        """Bring one rank's files to the storage, not yet visible as a checkpoint. The source stays.

        Args:
            source: The rank's files, on any filesystem.
            checkpoint_dir_name: The name that the checkpoint is to get.
            rank: World rank.
            token: The same for all ranks of one report, and another one for every report and attempt.

        Returns:
            What `commit` needs: the staged directory, relative to the run directory, or None if the files are in the final place.

        Raises:
            FileNotFoundError: There is no such source.
            OSError: The copy failed; what there is of it goes with the next `discard_staged`.
        """
        if not self.local:
            directories.write_bytes(self.storage_filesystem, self._marker(checkpoint_dir_name), token.encode())
            target = self.build_checkpoint_path_from_name(checkpoint_dir_name)
            directories.copy_directory(source.filesystem, source.path, self.storage_filesystem, target)
            return None
        staged = f"{directories.TEMPORARY_PREFIX}{token}-{rank:05d}"
        directories.copy_directory(source.filesystem, source.path, self.storage_filesystem, self.build_checkpoint_path_from_name(staged))
        return staged

    def commit(self, checkpoint_dir_name: str, staged: Sequence[str | None]) -> Checkpoint:
        """Make one checkpoint of what the ranks have staged.

        Args:
            checkpoint_dir_name: Its name. A checkpoint that has that name already is replaced.
            staged: What `stage` returned on each rank, lower ranks first. Other directories below the run directory may be among
                them and are moved, too.

        Raises:
            OSError: It could not be moved.
        """
        sources = [name for name in staged if name is not None and name != checkpoint_dir_name]
        target = self.build_checkpoint_path_from_name(checkpoint_dir_name)
        if not self.local:
            for path in map(self.build_checkpoint_path_from_name, sources):
                directories.copy_directory(self.storage_filesystem, path, self.storage_filesystem, target)
                directories.delete_directory(self.storage_filesystem, path)
            self._remove_marker(checkpoint_dir_name)
            return self.checkpoint(checkpoint_dir_name)
        if sources:
            first, *others = map(self.build_checkpoint_path_from_name, sources)
            for other in others:
                _move_missing(other, first)
                shutil.rmtree(other)
            if len(sources) < len(staged) and os.path.isdir(target):
                _move_missing(target, first)
            _put_in_place(first, target)
        return self.checkpoint(checkpoint_dir_name)

    def discard_staged(self, keep: Collection[str] = ()) -> None:
        """Delete what attempts that ended early have left unfinished. Call it while no worker of this run is writing.

        Args:
            keep: Names of registered checkpoints, which stay even if an unfinished report meant to replace them.
        """
        selector = pyarrow_fs.FileSelector(self.experiment_fs_path, allow_not_found=True)
        for info in self.storage_filesystem.get_file_info(selector):
            if not info.base_name.startswith(directories.TEMPORARY_PREFIX):
                continue
            if info.type == pyarrow_fs.FileType.Directory:
                self.storage_filesystem.delete_dir(info.path)
                continue
            name = info.base_name.removeprefix(directories.TEMPORARY_PREFIX).replace("%2F", "/")
            if not self.local and name not in keep:
                directories.delete_directory(self.storage_filesystem, self.build_checkpoint_path_from_name(name))
            self.storage_filesystem.delete_file(info.path)

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
        return self.experiment_fs_path == other.experiment_fs_path and bool(self.storage_filesystem == other.storage_filesystem)

    def __hash__(self) -> int:
        return hash((self.storage_filesystem.type_name, self.experiment_fs_path))

    def __repr__(self) -> str:
        return f"StorageContext(filesystem={self.storage_filesystem.type_name}, path={self.experiment_fs_path})"

    def _marker(self, checkpoint_dir_name: str) -> str:
        return self.build_checkpoint_path_from_name(directories.TEMPORARY_PREFIX + checkpoint_dir_name.replace("/", "%2F"))

    def _remove_marker(self, checkpoint_dir_name: str) -> None:
        try:
            self.storage_filesystem.delete_file(self._marker(checkpoint_dir_name))
        except FileNotFoundError:
            return  # every part was in place already, as with NO_UPLOAD


class ArrowFiles:
    """The files of a directory on any pyarrow filesystem: what `syncline.runs` reads and writes a record through."""

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


def checkpoint_dir_name(index: int) -> str:
    """Name of the checkpoint of the report with that number, unless `report` gives one."""
    return f"checkpoint_{index:06d}"


def _put_in_place(source: str, target: str) -> None:
    """Rename the directory `source` to `target`; if there was one, it makes room and is then deleted."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        os.rename(source, target)
    except OSError:
        if not os.path.isdir(target):
            raise
        former = f"{source}-former"
        os.rename(target, former)
        os.rename(source, target)
        shutil.rmtree(former)


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
