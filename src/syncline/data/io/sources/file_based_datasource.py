"""`FileBasedDatasource`: base class of sources that read files. A format implements how to read one
open file.

Covered: listing (at construction, so that a missing path fails there), groups of files as read
tasks, compression, retries, partition columns, the column `path`, errors that name the file. Not
covered: reading parts of files (`parquet.py`).
"""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import pyarrow as pa
from pyarrow import fs as pyarrow_fs

from syncline.data.columnar import block as blocks
from syncline.data.columnar.schemas import SchemaMismatchError
from syncline.data.context import DataContext
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources import file_listing
from syncline.data.io.sources.datasource import BlockMetadata, Datasource, ReadTask, digest
from syncline.data.io.sources.file_listing import FileInfo, FileShuffleConfig
from syncline.data.io.sources.partitioning import (
    Partitioning,
    PathPartitionFilter,
    PathPartitionParser,
    append_columns,
)
from syncline.storage import filesystem as storage

Shuffle = Literal["files"] | FileShuffleConfig | None
Source = TypeVar("Source", bound="FileBasedDatasource")

# Extensions for which pyarrow decompresses.
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".br")
# Small tables are merged up to this size, since every block has a fixed cost.
_MERGE_BELOW_BYTES = 4 * 1024**2


class FileBasedDatasource(Datasource):
    """Base class of sources that read files. Subclasses implement `_read_stream`.

    Args:
        paths: Files and directories: paths or URIs on one filesystem. Globs are not expanded.
        filesystem: A pyarrow or fsspec filesystem; found from the first path if None.
        schema: Result of `schema()`; for subclasses.
        open_stream_args: Arguments of `filesystem.open_input_stream`, for example
            `{"compression": "gzip"}`.
        partition_filter: Selects the files to read.
        partitioning: Columns to parse from the paths; added after the columns of the file.
        ignore_missing_paths: Skip paths that do not exist.
        shuffle: "files" or a `FileShuffleConfig` to read the files in random order, by default a
            new one in each epoch.
        include_paths: Add the column `path`, last.
        file_extensions: Read only files with these extensions.

    Raises:
        FileNotFoundError: A path does not exist.
        ValueError: No file remains to read, or an argument is invalid.
    """

    _FILE_EXTENSIONS: list[str] | None = None
    """Extensions of the format; the `read_*` functions pass them as `file_extensions`."""

    _COLUMN_NAME: str | None = None
    """Name of the only column, for formats with one column."""

    def __init__(
        self,
        paths: filesystems.Paths,
        *,
        filesystem: object = None,
        schema: pa.Schema | None = None,
        open_stream_args: dict[str, object] | None = None,
        partition_filter: PathPartitionFilter | None = None,
        partitioning: Partitioning | None = None,
        ignore_missing_paths: bool = False,
        shuffle: Shuffle = None,
        include_paths: bool = False,
        file_extensions: Sequence[str] | None = None,
    ) -> None:
        self._filesystem, resolved = filesystems.resolve(paths, filesystem)
        self._local_only = str(
            paths if isinstance(paths, str | os.PathLike) else next(iter(paths))
        ).startswith("local://")
        self._schema = schema
        self._open_stream_args = dict(open_stream_args or {})
        self._parser = None if partitioning is None else PathPartitionParser(partitioning)
        self._include_paths = include_paths
        self._shuffle = _shuffle_config(shuffle)
        self._patterns = tuple(DataContext.get_current().retried_io_errors)
        self._files = self._find_files(
            resolved,
            extensions=file_extensions,
            partition_filter=partition_filter,
            ignore_missing_paths=ignore_missing_paths,
        )

    def _find_files(self, paths: Sequence[str], **options: Any) -> list[FileInfo]:
        """Return the files to read. Formats that list their own files override this.

        Args:
            paths: Resolved files and directories.
            options: Arguments of `file_listing.list_files`.
        """
        return filesystems.call_with_retry(
            lambda: file_listing.list_files(self._filesystem, paths, **options),
            f"listing {paths[0]}",
            self._patterns,
        )

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[blocks.Batch]:
        """Yield the rows of one file: tables, DataFrames or mappings of columns.

        Args:
            f: The open file, decompressed.
            path: Its path, for errors.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement _read_stream(f, path)")

    @property
    def waits_for_storage(self) -> bool:
        return not storage.is_local(self._filesystem)

    def _open_input_source(
        self, filesystem: pyarrow_fs.FileSystem, path: str, **open_args: object
    ) -> pa.NativeFile:
        """Open a file for `_read_stream`, as a stream that is decompressed by its extension.
        Formats that need to seek override this.
        """
        open_args.setdefault("compression", "detect")
        if not storage.is_local(filesystem):
            open_args.setdefault(
                "buffer_size", DataContext.get_current().streaming_read_buffer_size
            )
        return filesystem.open_input_stream(path, **open_args)

    def _rows_per_file(self) -> int | None:
        """Return the number of rows in every file if it is known without reading."""
        return None

    def _read_files(self, files: Sequence[FileInfo]) -> Iterator[pa.Table]:
        """Yield the tables of several files in order, with partition columns and paths. Formats
        with many small files override this.
        """
        for file in files:
            batches = filesystems.iterate_with_retry(
                functools.partial(self._batches, file.path), f"reading {file.path}", self._patterns
            )
            with self._named_errors(file.path):
                for batch in batches:
                    yield self._with_path_columns(blocks.from_batch(batch), file.path)

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """Return a task for each group of adjacent files; groups have nearly equal sizes."""
        rows_per_file = self._rows_per_file()
        reader = self._reader()
        schema = self.schema()
        tasks = []
        for group in file_listing.contiguous_groups(self.ordered_files(data_context), parallelism):
            needed = group
            if per_task_row_limit is not None and rows_per_file:
                needed = group[: -(-per_task_row_limit // rows_per_file)]
            metadata = BlockMetadata(
                num_rows=rows_per_file * len(group) if rows_per_file is not None else None,
                size_bytes=self._decoded_bytes(group),
            )
            read = functools.partial(reader._read_group, needed)
            tasks.append(ReadTask(read, metadata, schema, per_task_row_limit))
        return tasks

    def ordered_files(self, data_context: DataContext | None = None) -> list[FileInfo]:
        """Return the files in the order of one execution."""
        if self._shuffle is None:
            return list(self._files)
        context = data_context or DataContext.get_current()
        config = self._shuffle
        if config.seed is None:
            # Without a seed, use that of the execution, which a resumed execution knows.
            config = FileShuffleConfig(
                seed=context._execution_seed or 0, reseed_after_execution=True
            )
        seed = config.get_seed(context._execution_idx)
        assert seed is not None
        return file_listing.shuffled(self._files, seed)

    def estimate_inmemory_data_size(self) -> int | None:
        """Return the total size of the files if known."""
        return self._decoded_bytes(self._files)

    def schema(self) -> pa.Schema | None:
        """Return the schema given to the constructor, after the projection."""
        return None if self._schema is None else self._projected(self._schema)

    def num_rows(self) -> int | None:
        """Return the exact number of rows if every file has the same number."""
        rows_per_file = self._rows_per_file()
        return None if rows_per_file is None else rows_per_file * len(self._files)

    def input_files(self) -> list[str]:
        """Return the paths of the files, in listing order."""
        return [file.path for file in self._files]

    def identity(self) -> str:
        """Return a digest of the files' paths, sizes and times and of the read options."""
        files = [(file.path, file.size, file.mtime_ns) for file in self._files]
        return digest(
            type(self).__qualname__,
            files,
            self._shuffle,
            self._projection,
            self._predicate_expr,
            self._include_paths,
            self._options(),
        )

    @property
    def supports_distributed_reads(self) -> bool:
        """False for `local://` paths."""
        return not self._local_only

    def _options(self) -> object:
        """Return further options that affect the result, for `identity`."""
        return self._open_stream_args

    # Methods that subclasses written for Ray call.

    def _paths(self) -> list[str]:
        return self.input_files()

    def _file_sizes(self) -> list[int | None]:
        return [file.size for file in self._files]

    def _decoded_bytes(self, files: Sequence[FileInfo]) -> int | None:
        """Return the approximate size in memory of the rows of some files."""
        sizes = [file.size for file in files if file.size is not None]
        return sum(sizes) if len(sizes) == len(files) else None

    def _reader(self: Source) -> Source:
        """Return a copy for the read tasks, without the list of all files, which would be pickled
        with each task.
        """
        reader = copy.copy(self)
        reader._files = []
        return reader

    def _read_group(self, files: Sequence[FileInfo]) -> Iterator[pa.Table]:
        return merge_small_tables(self._read_files(files))

    def _batches(self, path: str) -> Iterator[blocks.Batch]:
        with self._open_input_source(self._filesystem, path, **self._open_stream_args) as file:
            yield from self._read_stream(file, path)

    def _with_path_columns(self, table: pa.Table, path: str) -> pa.Table:
        """Add the partition columns and the column `path` to a table of one file."""
        if self._parser is not None:
            values = self._parser(path)
            table = append_columns(table, values, self._parser.types(list(values)), path)
        if self._include_paths:
            table = append_columns(table, {"path": path}, {"path": pa.string()}, path)
        return table

    def _with_path_columns_by_row(self, table: pa.Table, files: Sequence[FileInfo]) -> pa.Table:
        """Add the partition columns and the column `path` to a table with one row per file."""
        if self._parser is not None:
            values = [self._parser(file.path) for file in files]
            for name, type_ in self._parser.types(
                list(dict.fromkeys(name for row in values for name in row))
            ).items():
                table = table.append_column(
                    name, pa.array([row.get(name) for row in values], type_)
                )
        if self._include_paths:
            table = table.append_column(
                "path", pa.array([file.path for file in files], pa.string())
            )
        return table

    @contextmanager
    def _named_errors(self, path: str) -> Iterator[None]:
        """Add the path to errors of Arrow and of the filesystem."""
        try:
            yield
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, SchemaMismatchError) as error:
            raise ValueError(f"{path} cannot be read as {self.get_name()}: {error}") from error
        except OSError as error:
            specific = isinstance(error, FileNotFoundError | PermissionError)
            kind = type(error) if specific else OSError
            raise kind(f"{path} cannot be read as {self.get_name()}: {error}") from error

    def _file_bytes(self, file: FileInfo) -> bytes:
        """Return the content of a file, decompressed by its extension or as `open_stream_args`
        says.
        """
        if (
            storage.is_local(self._filesystem)
            and not self._open_stream_args
            and not file.path.endswith(_COMPRESSED)
        ):
            return _local_bytes(file)

        def read() -> bytes:
            with FileBasedDatasource._open_input_source(
                self, self._filesystem, file.path, **self._open_stream_args
            ) as stream:
                content: bytes = stream.read()
                return content

        return filesystems.call_with_retry(read, f"reading {file.path}", self._patterns)


def _local_bytes(file: FileInfo) -> bytes:
    """Read a local file with system calls, which cost half as much as Python's file objects for
    small files.
    """
    descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = os.read(descriptor, (file.size or 0) + 1)
        while more := os.read(descriptor, 1024**2) if len(content) > (file.size or 0) else b"":
            content += more
        return content
    finally:
        os.close(descriptor)


def merge_small_tables(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the same rows with small adjacent tables merged."""
    pending: list[pa.Table] = []
    size = 0
    for table in tables:
        table_size = blocks.size_bytes(table)
        if pending and size + table_size > _MERGE_BELOW_BYTES:
            yield _merged(pending)
            pending, size = [], 0
        pending.append(table)
        size += table_size
    if pending:
        yield _merged(pending)


def _merged(tables: list[pa.Table]) -> pa.Table:
    return tables[0] if len(tables) == 1 else blocks.compact(blocks.concat(tables).combine_chunks())


def _shuffle_config(shuffle: Shuffle) -> FileShuffleConfig | None:
    if shuffle == "files":
        return FileShuffleConfig()
    if shuffle is not None and not isinstance(shuffle, FileShuffleConfig):
        raise ValueError(f"shuffle={shuffle!r}: choose None, 'files' or a FileShuffleConfig")
    if shuffle is None or shuffle.seed is not None or shuffle.reseed_after_execution:
        return shuffle
    # One order for all executions of the dataset.
    return FileShuffleConfig(
        seed=int.from_bytes(os.urandom(4), "little"), reseed_after_execution=False
    )
