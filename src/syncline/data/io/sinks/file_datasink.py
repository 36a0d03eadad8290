"""Sinks that write files below one directory: the formats say how to write a block or a row, and
everything else is here.

Names come from a `FilenameProvider`; how files become visible, and how a killed job goes on, is
`commit.py`'s. Transient errors of the filesystem are tried again.
"""

from __future__ import annotations

import errno
import logging
import posixpath
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow import fs as pyarrow_fs

from syncline.data.columnar import block as block_functions
from syncline.data.columnar.accessor import BlockAccessor
from syncline.data.context import DataContext
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sinks.commit import Done, WriteJob
from syncline.data.io.sinks.datasink import WRITE_UUID, Datasink, SaveMode, TaskContext, WriteResult

logger = logging.getLogger(__name__)

# Attributes that change from run to run without changing what is written.
_OF_THE_RUN = frozenset({"_resumable", "_skip", "_earlier", "_state", "_job", "_patterns"})


class FileDatasink(Datasink[Done]):
    """Base of sinks that write files. Subclasses implement `write_table`.

    Args:
        path: The directory, a path or URI. filesystem: A pyarrow or fsspec filesystem; found from
        the path if None. try_create_dir: Make the directory if it does not exist. open_stream_args:
        For `filesystem.open_output_stream`, for instance `{"compression": "gzip"}`.
        filename_provider: Names the files. dataset_uuid: Put before the names that are not given.
        file_format: Their extension. mode: What to do if there is something already; a `SaveMode`
        or its value.

    Raises:
        ValueError: A mode that files do not have.
    """

    def __init__(
        self,
        path: str,
        *,
        filesystem: Any = None,
        try_create_dir: bool = True,
        open_stream_args: Mapping[str, Any] | None = None,
        filename_provider: FilenameProvider | None = None,
        dataset_uuid: str | None = None,
        file_format: str | None = None,
        mode: SaveMode | str = SaveMode.APPEND,
    ) -> None:
        self.unresolved_path = path
        self.filesystem, (self.path,) = filesystems.resolve(path, filesystem)
        self.try_create_dir = try_create_dir
        self.open_stream_args = dict(open_stream_args or {})
        self.filename_provider = filename_provider or FilenameProvider(
            dataset_uuid=dataset_uuid, file_format=file_format
        )
        self.file_format = file_format
        self.mode = SaveMode(mode)
        if self.mode is SaveMode.UPSERT:
            raise ValueError(
                "mode='upsert' needs a table format with keys, and files have none: use 'append' or 'overwrite'"
            )
        self._patterns = tuple(DataContext.get_current().retried_io_errors)
        self._resumable = False
        self._skip = False
        self._earlier: dict[int, Done] = {}
        self._state: dict[str, Any] = {}
        self._job = self._new_job(uuid.uuid4().hex)

    def identity(self) -> Mapping[str, Any]:
        """The directory, the mode, and everything that decides what files look like."""
        return {name: value for name, value in vars(self).items() if name not in _OF_THE_RUN}

    def set_job(self, job_id: str) -> None:
        """The job is `job_id`; what it stages stays after a failure, so that the next run under
        this id goes on.
        """
        self._job = self._new_job(job_id)
        self._resumable = True

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """See to what is there already.

        Raises:
            ValueError: The target exists and the mode is create or error.
            FileNotFoundError: It does not exist and `try_create_dir` is False.
            NotADirectoryError: It is a file.
        """
        if self.filesystem.get_file_info(self.path).type == pyarrow_fs.FileType.File:
            raise NotADirectoryError(
                f"{self.path!r} is a file, and results are directories: write to another path, or remove the file"
            )
        if self._job.recover():
            logger.info(
                "The write to %s was decided before the program ended; it is complete now",
                self.path,
            )
            self._skip = True
            return
        if self._job.exists():
            self._meet_existing()
        elif (
            not self.try_create_dir
            and self.filesystem.get_file_info(self.path).type == pyarrow_fs.FileType.NotFound
        ):
            raise FileNotFoundError(
                f"there is no directory {self.path!r}, and try_create_dir=False: create it, or let the write do so"
            )
        if self._skip:
            return
        with self._room_is_missed():
            self._earlier = self._job.start()
            self._state = self._job.read_state()
            if not self._state:
                self._name_files()
        if self._earlier:
            logger.info(
                "The write to %s goes on: %d positions are done", self.path, len(self._earlier)
            )

    def positions_done(self) -> frozenset[int]:
        """Positions whose files are staged already."""
        return frozenset(self._earlier)

    def earlier_result(self) -> WriteResult[Done]:
        """What is staged already."""
        done = [self._earlier[position] for position in sorted(self._earlier)]
        return WriteResult(
            sum(one.num_rows for one in done), sum(one.size_bytes for one in done), done
        )

    def kept_state(self) -> Mapping[str, Any]:
        """Of the staging directory."""
        return self._state

    def keep_state(self, state: Mapping[str, Any]) -> None:
        """Into the staging directory."""
        self._state = {**self._state, **state}
        self._job.write_state(self._state)

    @property
    def skips_write(self) -> bool:
        """Whether the target exists and is to be ignored, or the job was complete already."""
        return self._skip

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> Done:
        """Stage the rows as files and enter the position into the journal."""
        table = block_functions.concat(list(blocks))
        with self._room_is_missed():
            files = list(self.write_table(table, ctx)) if table.num_rows else []
            size_bytes = block_functions.size_bytes(table)
            done = Done(
                position=ctx.task_idx,
                files=tuple(files),
                num_rows=table.num_rows,
                size_bytes=size_bytes,
            )
            self._job.mark_done(done)
        return done

    def write_table(self, table: pa.Table, ctx: TaskContext) -> Iterator[str]:
        """Stage the rows (at least one) of a position; the paths of the files below the target."""
        raise NotImplementedError(f"{type(self).__name__} must implement write_table(table, ctx)")

    def on_write_complete(self, write_result: WriteResult[Done]) -> None:
        """Publish everything."""
        with self._room_is_missed():
            self._job.commit(
                {
                    **self._earlier,
                    **{done.position: done for done in write_result.write_returns},
                }.values()
            )

    def on_write_failed(self, error: Exception) -> None:
        """Leave the target as it was. What was staged stays if the job has an id under which it can
        go on, and a position is done.
        """
        if self._skip:
            return
        if self._resumable and self._job.has_progress():
            logger.info(
                "The same write to %s would go on with what is in %s", self.path, self._job.staging
            )
        else:
            self._job.discard()
        self._job.release()

    @property
    def supports_distributed_writes(self) -> bool:
        """False for `local://` paths."""
        return not str(self.unresolved_path).startswith("local://")

    def open_output_stream(self, path: str) -> pa.NativeFile:
        """Open a file for writing; `path` is on the sink's filesystem."""
        return self.filesystem.open_output_stream(path, **self.open_stream_args)

    def stage(self, relative: str, write: Callable[[pa.NativeFile], None]) -> None:
        """Write one staged file.

        Args:
            relative: Its path below the target.
            write: Gets the open file.
        """

        def attempt() -> None:
            path = self._job.staged(relative)
            filesystems.make_directory(self.filesystem, posixpath.dirname(path))
            with self.open_output_stream(path) as stream:
                write(stream)

        filesystems.call_with_retry(attempt, f"writing {relative} to {self.path}", self._patterns)

    def write_uuid(self, ctx: TaskContext) -> str:
        """The id that stands in file names."""
        return str(ctx.kwargs.get(WRITE_UUID) or self._state.get(WRITE_UUID, self._job.job_id))

    def _name_files(self) -> None:
        # Names differ from those of any other job, also of the same one when it is done and runs
        # once more.
        try:
            self.keep_state({WRITE_UUID: uuid.uuid4().hex})
        except OSError:
            self._job.discard()
            raise

    @contextmanager
    def _room_is_missed(self) -> Iterator[None]:
        """Errors of a full disk say where, and what to do."""
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise OSError(
                error.errno,
                f"no room is left on the disk of {self.path}, so nothing of the result is visible there. Make room, and write again, which "
                f"goes on with what is done; or delete {self._job.staging}, where that is",
            ) from None

    def _new_job(self, job_id: str) -> WriteJob:
        return WriteJob(
            self.filesystem, self.path, job_id, overwrite=self.mode is SaveMode.OVERWRITE
        )

    def _meet_existing(self) -> None:
        if self.mode in (SaveMode.CREATE, SaveMode.ERROR):
            raise ValueError(
                f"{self.path} exists already and mode={self.mode.value!r}: pass mode='overwrite' to replace it, 'append' to add to it, or "
                "'ignore' to leave it"
            )
        self._skip = self.mode is SaveMode.IGNORE


class BlockBasedFileDatasink(FileDatasink):
    """A file for each write task. Subclasses implement `write_block_to_file`.

    Args:
        path: The directory. min_rows_per_file: Rows of every file but the last at least; None for
        as many as there are in a block. file_datasink_kwargs: As `FileDatasink` takes them.
    """

    def __init__(
        self, path: str, *, min_rows_per_file: int | None = None, **file_datasink_kwargs: Any
    ) -> None:
        super().__init__(path, **file_datasink_kwargs)
        if min_rows_per_file is not None and min_rows_per_file <= 0:
            raise ValueError(f"min_rows_per_file={min_rows_per_file}: a file has at least one row")
        self._min_rows_per_file = min_rows_per_file

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        """Write the rows (at least one; `block.to_arrow()`) to an open file. May be called again
        after an error that is transient.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must implement write_block_to_file(block, file)"
        )

    def write_table(self, table: pa.Table, ctx: TaskContext) -> Iterator[str]:
        """One file."""
        name = self.filename_provider.get_filename_for_block(
            table, self.write_uuid(ctx), ctx.task_idx, 0
        )
        self.stage(name, lambda file: self.write_block_to_file(BlockAccessor(table), file))
        yield name

    @property
    def min_rows_per_write(self) -> int | None:
        """`min_rows_per_file`."""
        return self._min_rows_per_file


class RowBasedFileDatasink(FileDatasink):
    """A file for each row. Subclasses implement `write_row_to_file`."""

    def write_row_to_file(self, row: dict[str, Any], file: pa.NativeFile) -> None:
        """Write one row to an open file. May be called again after an error that is transient."""
        raise NotImplementedError(
            f"{type(self).__name__} must implement write_row_to_file(row, file)"
        )

    def write_table(self, table: pa.Table, ctx: TaskContext) -> Iterator[str]:
        """A file for each row."""
        for index, row in enumerate(block_functions.rows(table)):
            name = self.filename_provider.get_filename_for_row(
                row, self.write_uuid(ctx), ctx.task_idx, 0, index
            )
            self._write_row(name, row)
            yield name

    def _write_row(self, name: str, row: dict[str, Any]) -> None:
        self.stage(name, lambda file: self.write_row_to_file(row, file))


def resolved_arguments(
    fixed: Mapping[str, Any] | None, function: Callable[[], Mapping[str, Any]] | None
) -> dict[str, Any]:
    """Arguments of a writer: those given, and over them what the function returns on the worker."""
    return {**(fixed or {}), **(function() if function is not None else {})}


class FilenameProvider:
    """Names files; subclass it to choose the names.

    A name must follow from the arguments alone, and differ for different `task_index`: a task that
    runs again replaces its own file, and a job that goes on finds what it has written. For sinks
    that write a file for each row, `_{block_index:06}_{row_index:06}` is added before the
    extension, unless the subclass names rows itself.

    Args:
        dataset_uuid: Put before every name.
        file_format: Extension without its dot.
    """

    def __init__(self, dataset_uuid: str | None = None, file_format: str | None = None) -> None:
        self.dataset_uuid = dataset_uuid
        self.file_format = file_format

    def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
        """Name of the file of one write task.

        Args:
            write_uuid: The job; other jobs have others, so that a name with it never meets an older
            file. task_index: The position in the input.
        """
        prefix = "" if self.dataset_uuid is None else f"{self.dataset_uuid}_"
        suffix = "" if self.file_format is None else f".{self.file_format}"
        return f"{prefix}{write_uuid}_{task_index:06}{suffix}"

    def get_filename_for_block(
        self, block: pa.Table | None, write_uuid: str, task_index: int, block_index: int
    ) -> str:
        """Older form of `get_filename_for_task`; used where a subclass implements it."""
        return self.get_filename_for_task(write_uuid, task_index)

    def get_filename_for_row(
        self,
        row: dict[str, Any],
        write_uuid: str,
        task_index: int,
        block_index: int,
        row_index: int,
    ) -> str:
        """Name of the file of one row, from the name of its task; used where a subclass implements
        it.
        """
        stem, extension = split_extension(self.get_filename_for_task(write_uuid, task_index))
        return f"{stem}_{block_index:06}_{row_index:06}{extension}"


def split_extension(name: str) -> tuple[str, str]:
    """A name without and with its extension: ("part", ".csv"), or (name, "") if it has none."""
    stem, dot, extension = name.rpartition(".")
    return (stem, f".{extension}") if dot else (name, "")
