"""Base classes of sinks that write files below one directory.

A format implements how to write one block or one row to an open file. File names come from a
`FilenameProvider`. Transient filesystem errors are retried. Not covered: publishing the files and
resuming a killed job (`commit.py`).
"""

from __future__ import annotations

import errno
import functools
import logging
import posixpath
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import pyarrow as pa
from pyarrow import fs as pyarrow_fs

from syncline.data.columnar import block as block_functions
from syncline.data.columnar.block import BlockAccessor
from syncline.data.context import DataContext
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sinks.commit import JournalEntry, StagedWrite
from syncline.data.io.sinks.datasink import (
    WRITE_UUID,
    Datasink,
    JobState,
    SaveMode,
    TaskContext,
    WriteResult,
)

logger = logging.getLogger(__name__)

# Attributes that differ between runs but do not affect the written files.
_RUN_STATE = frozenset({"_resumable", "_skip", "_earlier", "_state", "_job", "_patterns"})


class FileDatasink(Datasink[JournalEntry]):
    """Base class of sinks that write files. Subclasses implement `write_table`.

    Args:
        path: The directory, a path or URI.
        filesystem: A pyarrow or fsspec filesystem; found from the path if None.
        try_create_dir: Create the directory if it does not exist.
        open_stream_args: Arguments of `filesystem.open_output_stream`, for example
            `{"compression": "gzip"}`.
        filename_provider: Names the files.
        dataset_uuid: Prefix of the default names.
        file_format: Extension of the default names.
        mode: Behavior if the target exists; a `SaveMode` or its value.
        writer_args: Arguments of the library that writes the format.
        writer_args_fn: Returns more `writer_args`; called on the worker for each file.

    Raises:
        ValueError: A mode that files do not support.
    """

    _FILE_FORMAT: ClassVar[str | None] = None
    """Default of `file_format`."""

    def __init__(
        self,
        path: str,
        *,
        filesystem: object = None,
        try_create_dir: bool = True,
        open_stream_args: Mapping[str, object] | None = None,
        filename_provider: FilenameProvider | None = None,
        dataset_uuid: str | None = None,
        file_format: str | None = None,
        mode: SaveMode | str = SaveMode.APPEND,
        writer_args: Mapping[str, object] | None = None,
        writer_args_fn: Callable[[], Mapping[str, object]] | None = None,
    ) -> None:
        self.unresolved_path = path
        self.filesystem, (self.path,) = filesystems.resolve(path, filesystem)
        self.try_create_dir = try_create_dir
        self.open_stream_args = dict(open_stream_args or {})
        self.file_format = file_format or self._FILE_FORMAT
        self.filename_provider = filename_provider or FilenameProvider(
            dataset_uuid=dataset_uuid, file_format=self.file_format
        )
        self._writer_args: dict[str, Any] = dict(writer_args or {})
        self._writer_args_fn = writer_args_fn
        self.mode = SaveMode(mode)
        if self.mode is SaveMode.UPSERT:
            raise ValueError(
                "mode='upsert' needs a table format with keys, which files do not have: use "
                "'append' or 'overwrite'"
            )
        self._patterns = tuple(DataContext.get_current().retried_io_errors)
        self._resumable = False
        self._skip = False
        self._earlier: dict[int, JournalEntry] = {}
        self._state: JobState = {}
        self._job = self._staged_write(uuid.uuid4().hex)

    def identity(self) -> Mapping[str, object]:
        """Return the directory, the mode, and all values that affect the files."""
        return {name: value for name, value in vars(self).items() if name not in _RUN_STATE}

    def set_job(self, job_id: str) -> None:
        """Set the id of the job. After a failure its staged files are kept, so that the next run
        with this id resumes.
        """
        self._job = self._staged_write(job_id)
        self._resumable = True

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Check the target, finish interrupted commits and open the staging directory.

        Raises:
            ValueError: The target exists and the mode is create or error.
            FileNotFoundError: It does not exist and `try_create_dir` is False.
            NotADirectoryError: It is a file.
        """
        if self.filesystem.get_file_info(self.path).type == pyarrow_fs.FileType.File:
            raise NotADirectoryError(
                f"{self.path!r} is a file, but results are directories: write to another path, or "
                "remove the file"
            )
        if self._job.recover():
            logger.info("Finished the interrupted commit of an earlier write to %s", self.path)
            self._skip = True
            return
        if self._job.exists():
            self._check_existing()
        elif (
            not self.try_create_dir
            and self.filesystem.get_file_info(self.path).type == pyarrow_fs.FileType.NotFound
        ):
            raise FileNotFoundError(
                f"there is no directory {self.path!r} and try_create_dir=False: create it, or pass "
                "try_create_dir=True"
            )
        if self._skip:
            return
        with self._explain_full_disk():
            self._earlier = self._job.start()
            self._state = self._job.read_state()
            if not self._state:
                self._choose_write_uuid()
        if self._earlier:
            logger.info(
                "Resuming the write to %s: %d positions are done", self.path, len(self._earlier)
            )

    def positions_done(self) -> frozenset[int]:
        """Return the positions whose files are already staged."""
        return frozenset(self._earlier)

    def earlier_result(self) -> WriteResult[JournalEntry]:
        """Return the journal entries of the staged files."""
        entries = [self._earlier[position] for position in sorted(self._earlier)]
        return WriteResult(
            sum(entry.num_rows for entry in entries),
            sum(entry.size_bytes for entry in entries),
            entries,
        )

    def load_state(self) -> JobState:
        return self._state

    def save_state(self, state: JobState) -> None:
        self._state = {**self._state, **state}
        with self._explain_full_disk():
            self._job.write_state(self._state)

    @property
    def skips_write(self) -> bool:
        """True if the target exists and the mode is ignore, or if the job was already complete."""
        return self._skip

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> JournalEntry:
        """Stage the rows as files and add the position to the journal."""
        table = block_functions.concat(list(blocks))
        with self._explain_full_disk():
            files = list(self.write_table(table, ctx)) if table.num_rows else []
            entry = JournalEntry(
                position=ctx.task_idx,
                files=tuple(files),
                num_rows=table.num_rows,
                size_bytes=block_functions.size_bytes(table),
            )
            self._job.mark_done(entry)
        return entry

    def write_table(self, table: pa.Table, ctx: TaskContext) -> Iterator[str]:
        """Stage the rows (at least one) of a position; yield the file paths below the target."""
        raise NotImplementedError(f"{type(self).__name__} must implement write_table(table, ctx)")

    def on_write_complete(self, write_result: WriteResult[JournalEntry]) -> None:
        written = {entry.position: entry for entry in write_result.write_returns}
        with self._explain_full_disk():
            self._job.commit({**self._earlier, **written}.values())

    def on_write_failed(self, error: Exception) -> None:
        """Leave the target unchanged. Staged files are kept if the job can be resumed."""
        if self._skip:
            return
        if self._resumable and self._job.has_progress():
            logger.info(
                "Rerun the same write to %s to resume from %s", self.path, self._job.staging
            )
        else:
            self._job.discard()
        self._job.release()

    @property
    def supports_distributed_writes(self) -> bool:
        """False for `local://` paths."""
        return not str(self.unresolved_path).startswith("local://")

    def open_output_stream(self, path: str) -> pa.NativeFile:
        """Open a file of the sink's filesystem for writing."""
        return self.filesystem.open_output_stream(path, **self.open_stream_args)

    def stage(self, relative: str, write: Callable[[pa.NativeFile], None]) -> None:
        """Write one staged file.

        Args:
            relative: Path of the file below the target.
            write: Function that writes to the open file.
        """

        def attempt() -> None:
            path = self._job.staged(relative)
            filesystems.make_directory(self.filesystem, posixpath.dirname(path))
            with self.open_output_stream(path) as stream:
                write(stream)

        filesystems.call_with_retry(attempt, f"writing {relative} to {self.path}", self._patterns)

    def write_uuid(self, ctx: TaskContext) -> str:
        """Return the id that file names contain."""
        return str(ctx.kwargs.get(WRITE_UUID) or self._state.get(WRITE_UUID, self._job.job_id))

    def _choose_write_uuid(self) -> None:
        # Names must differ from those of every other job, including a second run of a completed
        # one.
        try:
            self.save_state({WRITE_UUID: uuid.uuid4().hex})
        except OSError:
            self._job.discard()
            raise

    def _resolved_writer_args(self) -> dict[str, Any]:
        more = {} if self._writer_args_fn is None else self._writer_args_fn()
        return {**self._writer_args, **more}

    @contextmanager
    def _explain_full_disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise OSError(
                error.errno,
                f"the disk of {self.path} is full, so the write failed and its result is not "
                "visible. Free some space and write again, which resumes from the completed tasks; "
                f"or delete the staged files in {self._job.staging}",
            ) from None

    def _staged_write(self, job_id: str) -> StagedWrite:
        return StagedWrite(
            self.filesystem, self.path, job_id, overwrite=self.mode is SaveMode.OVERWRITE
        )

    def _check_existing(self) -> None:
        if self.mode in (SaveMode.CREATE, SaveMode.ERROR):
            raise ValueError(
                f"{self.path} already exists and mode={self.mode.value!r}: pass mode='overwrite' "
                "to replace it, 'append' to add to it, or 'ignore' to keep it"
            )
        self._skip = self.mode is SaveMode.IGNORE


class BlockBasedFileDatasink(FileDatasink):
    """Base class of sinks that write one file for each write task. Subclasses implement
    `write_block_to_file`.

    Args:
        path: The directory.
        min_rows_per_file: Minimum number of rows in each file but the last; None for the rows of
            one block.
        options: See `FileDatasink`.
    """

    def __init__(self, path: str, *, min_rows_per_file: int | None = None, **options: Any) -> None:
        super().__init__(path, **options)
        if min_rows_per_file is not None and min_rows_per_file <= 0:
            raise ValueError(f"min_rows_per_file={min_rows_per_file}: it must be at least 1")
        self._min_rows_per_file = min_rows_per_file

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        """Write the rows (at least one; `block.to_arrow()`) to an open file. Called again after a
        transient error.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must implement write_block_to_file(block, file)"
        )

    def write_table(self, table: pa.Table, ctx: TaskContext) -> Iterator[str]:
        name = self.filename_provider.get_filename_for_block(
            table, self.write_uuid(ctx), ctx.task_idx, 0
        )
        self.stage(name, lambda file: self.write_block_to_file(BlockAccessor(table), file))
        yield name

    @property
    def min_rows_per_write(self) -> int | None:
        return self._min_rows_per_file


class RowBasedFileDatasink(FileDatasink):
    """Base class of sinks that write one file for each row. Subclasses implement
    `write_row_to_file`.
    """

    def write_row_to_file(self, row: dict[str, object], file: pa.NativeFile) -> None:
        """Write one row to an open file. Called again after a transient error."""
        raise NotImplementedError(
            f"{type(self).__name__} must implement write_row_to_file(row, file)"
        )

    def write_table(self, table: pa.Table, ctx: TaskContext) -> Iterator[str]:
        for index, row in enumerate(block_functions.rows(table)):
            name = self.filename_provider.get_filename_for_row(
                row, self.write_uuid(ctx), ctx.task_idx, 0, index
            )
            self.stage(name, functools.partial(self.write_row_to_file, row))
            yield name


class FilenameProvider:
    """Names the files of a write. Subclass it to choose other names.

    A name must depend on the arguments only and differ for different `task_index`: a task that runs
    again replaces its own file, and a resumed job finds its earlier files. Sinks that write a file
    for each row insert `_{block_index:06}_{row_index:06}` before the extension, unless the subclass
    implements `get_filename_for_row`.

    Args:
        dataset_uuid: Prefix of every name.
        file_format: Extension without the dot.
    """

    def __init__(self, dataset_uuid: str | None = None, file_format: str | None = None) -> None:
        self.dataset_uuid = dataset_uuid
        self.file_format = file_format

    def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
        """Return the name of the file of one write task.

        Args:
            write_uuid: Id of the job. Names that contain it never equal those of another job.
            task_index: Position in the input.
        """
        prefix = "" if self.dataset_uuid is None else f"{self.dataset_uuid}_"
        suffix = "" if self.file_format is None else f".{self.file_format}"
        return f"{prefix}{write_uuid}_{task_index:06}{suffix}"

    def get_filename_for_block(
        self, block: pa.Table | None, write_uuid: str, task_index: int, block_index: int
    ) -> str:
        """Return the name of a file; older form of `get_filename_for_task`."""
        return self.get_filename_for_task(write_uuid, task_index)

    def get_filename_for_row(
        self,
        row: dict[str, object],
        write_uuid: str,
        task_index: int,
        block_index: int,
        row_index: int,
    ) -> str:
        """Return the name of the file of one row; derived from the name of its task by default."""
        stem, extension = split_extension(self.get_filename_for_task(write_uuid, task_index))
        return f"{stem}_{block_index:06}_{row_index:06}{extension}"


def split_extension(name: str) -> tuple[str, str]:
    """Split a name into stem and extension: ("part", ".csv"), or (name, "") without extension."""
    stem, dot, extension = name.rpartition(".")
    return (stem, f".{extension}") if dot else (name, "")
