"""`FileBasedDatasource`: sources that read files. A format says how to read one open file;
everything else is here.

Covered: listing at construction (a missing path fails there), runs of files as read tasks,
compression, retries, partition columns, the column `path`, errors that name the file. Not covered:
pieces of files (`parquet.py`).
"""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pyarrow as pa
from pyarrow import fs as pyarrow_fs

from syncline.data.columnar import block as blocks
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

if TYPE_CHECKING:
    Shuffle = Literal["files"] | FileShuffleConfig | None

Source = TypeVar("Source", bound="FileBasedDatasource")

# Endings by which pyarrow decompresses.
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".br")
# Small tables are put together up to this size, since every block has its price; large ones pass as
# they are.
_JOIN_BELOW_BYTES = 4 * 1024**2


class FileBasedDatasource(Datasource):
    """Base of sources that read files. Subclasses implement `_read_stream`.

    Args:
        paths: Files and directories: paths or URIs on one filesystem. Globs are not expanded.
        filesystem: A pyarrow or fsspec filesystem; found from the first path if None. schema: Kept
        for subclasses; what `schema()` answers. open_stream_args: For
        `filesystem.open_input_stream`, for instance `{"compression": "gzip"}`. partition_filter:
        Keeps the files that it accepts. partitioning: Columns that stand in the paths; they come
        after the file's own. ignore_missing_paths: Leave out paths that do not exist. shuffle:
        "files" or a `FileShuffleConfig` reads the files in another order, in each epoch a new one.
        include_paths: Add the column `path`, last. file_extensions: Read only files with these
        endings.

    Raises:
        FileNotFoundError: A path does not exist.
        ValueError: No file is left to read, or an argument is none of those above.
    """

    _FILE_EXTENSIONS: list[str] | None = None
    """Endings that the format's files have; `read_*` functions pass them on."""

    _COLUMN_NAME: str | None = None
    """Name of the only column, for formats that have one."""

    def __init__(
        self,
        paths: filesystems.Path | Sequence[filesystems.Path],
        *,
        filesystem: Any = None,
        schema: pa.Schema | None = None,
        open_stream_args: dict[str, Any] | None = None,
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
        self._files = filesystems.call_with_retry(
            lambda: file_listing.list_files(
                self._filesystem,
                resolved,
                extensions=file_extensions,
                partition_filter=partition_filter,
                ignore_missing_paths=ignore_missing_paths,
            ),
            f"listing {resolved[0]}",
            self._patterns,
        )

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[Any]:
        """Yield the rows of one file: tables, DataFrames or mappings of columns.

        Args:
            f: The open file, decompressed.
            path: Its path, for errors.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement _read_stream(f, path)")

    def _open_input_source(
        self, filesystem: pyarrow_fs.FileSystem, path: str, **open_args: Any
    ) -> pa.NativeFile:
        """Open one file for `_read_stream`: a stream, decompressed by the ending of its name.
        Formats that seek override this.
        """
        open_args.setdefault("compression", "detect")
        if not filesystems.is_local(filesystem):
            open_args.setdefault(
                "buffer_size", DataContext.get_current().streaming_read_buffer_size
            )
        return filesystem.open_input_stream(path, **open_args)

    def _rows_per_file(self) -> int | None:
        """Rows of every file, where that is known without reading."""
        return None

    def _read_files(self, files: Sequence[FileInfo]) -> Iterator[pa.Table]:
        """Tables of several files in their order, with partition columns and paths. Formats that
        read many small files override this.
        """
        for file in files:
            tables = (
                self._decorated(blocks.from_batch(batch), file.path)
                for batch in self._replayed(file.path)
            )
            yield from self._named(tables, file.path)

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """A task for each run of files that are about equal in bytes together."""
        rows_per_file = self._rows_per_file()
        reader = self._reader()
        tasks = []
        for run in file_listing.runs(self.ordered_files(data_context), parallelism):
            read = (
                run
                if per_task_row_limit is None or not rows_per_file
                else run[: -(-per_task_row_limit // rows_per_file)]
            )
            metadata = BlockMetadata(
                num_rows=rows_per_file * len(run) if rows_per_file is not None else None,
                size_bytes=self._decoded_bytes(run),
                input_files=tuple(file.path for file in run),
            )
            name = f"{run[0].path}+{len(run) - 1}"
            tasks.append(
                ReadTask(
                    functools.partial(reader._read_run, read),
                    metadata,
                    self.schema(),
                    per_task_row_limit,
                    fragment=name,
                )
            )
        return tasks

    def ordered_files(self, data_context: DataContext | None = None) -> list[FileInfo]:
        """The files in the order of one execution."""
        if self._shuffle is None:
            return list(self._files)
        context = data_context or DataContext.get_current()
        config = self._shuffle
        if config.seed is None:
            # Nobody chose a seed: that of the execution is known to whoever goes on with it.
            config = FileShuffleConfig(
                seed=context._execution_seed or 0, reseed_after_execution=True
            )
        seed = config.get_seed(context._execution_idx)
        assert seed is not None
        return file_listing.shuffled(self._files, seed)

    def estimate_inmemory_data_size(self) -> int | None:
        """The size of the files, where it is known."""
        return self._decoded_bytes(self._files)

    def schema(self) -> pa.Schema | None:
        """The schema that was given, after the projection."""
        if self._schema is None or self._projection is None:
            return self._schema
        return pa.schema([self._schema.field(name) for name in self._projection])

    def num_rows(self) -> int | None:
        """Exact where every file has the same number of rows."""
        rows_per_file = self._rows_per_file()
        return None if rows_per_file is None else rows_per_file * len(self._files)

    def input_files(self) -> list[str]:
        """The files, in the order of their paths."""
        return [file.path for file in self._files]

    def identity(self) -> str:
        """Changes with the files' paths, sizes and times, and with what is read of them."""
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
        """What else decides what is read, for `identity`."""
        return self._open_stream_args

    def _paths(self) -> list[str]:
        return self.input_files()

    def _file_sizes(self) -> list[int | None]:
        return [file.size for file in self._files]

    def _decoded_bytes(self, files: Sequence[FileInfo]) -> int | None:
        """About how many bytes the rows of files take in memory."""
        sizes = [file.size for file in files if file.size is not None]
        return sum(sizes) if len(sizes) == len(files) else None

    def _reader(self: Source) -> Source:
        """What read tasks hold: without the list of all files, which would travel with each of
        them.
        """
        reader = copy.copy(self)
        reader._files = []
        return reader

    def _read_run(self, files: Sequence[FileInfo]) -> Iterator[pa.Table]:
        return joined(self._read_files(files))

    def _replayed(self, path: str) -> Iterator[Any]:
        """What `_read_stream` yields; after a transient error the file is opened again and what
        came before is skipped.
        """
        return filesystems.iterate_with_retry(
            lambda: self._batches(path), f"reading {path}", self._patterns
        )

    def _batches(self, path: str) -> Iterator[Any]:
        with self._open_input_source(self._filesystem, path, **self._open_stream_args) as file:
            yield from self._read_stream(file, path)

    def _decorated(self, table: pa.Table, path: str) -> pa.Table:
        """The table with partition columns and path."""
        if self._parser is not None:
            values = self._parser(path)
            table = append_columns(table, values, self._parser.types(list(values)), path)
        if self._include_paths:
            table = append_columns(table, {"path": path}, {"path": pa.string()}, path)
        return table

    def _decorated_rows(self, table: pa.Table, files: Sequence[FileInfo]) -> pa.Table:
        """The same for a table that has one row for each of `files`."""
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

    def _named(self, tables: Iterable[pa.Table], path: str) -> Iterator[pa.Table]:
        """The tables; an error of Arrow or the filesystem says which file it is about."""
        try:
            yield from tables
        except pa.ArrowInvalid as error:
            raise ValueError(f"{path} cannot be read as {self.get_name()}: {error}") from error
        except OSError as error:
            if path in str(error):
                raise
            raise OSError(f"{path} cannot be read: {error}") from error

    def _file_bytes(self, file: FileInfo) -> bytes:
        """Content of one file, decompressed by the ending of its name or as `open_stream_args`
        says.
        """
        if (
            filesystems.is_local(self._filesystem)
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
    """Content of a file of this machine, by the system's own calls: for small files, Python's file
    objects cost twice as much.
    """
    descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = os.read(descriptor, (file.size or 0) + 1)
        while more := os.read(descriptor, 1024**2) if len(content) > (file.size or 0) else b"":
            content += more
        return content
    finally:
        os.close(descriptor)


def joined(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows with small neighbours put together."""
    waiting: list[pa.Table] = []
    size = 0
    for table in tables:
        table_size = blocks.size_bytes(table)
        if waiting and size + table_size > _JOIN_BELOW_BYTES:
            yield _one(waiting)
            waiting, size = [], 0
        waiting.append(table)
        size += table_size
    if waiting:
        yield _one(waiting)


def _one(tables: list[pa.Table]) -> pa.Table:
    return tables[0] if len(tables) == 1 else blocks.compact(blocks.concat(tables).combine_chunks())


def _shuffle_config(shuffle: Shuffle) -> FileShuffleConfig | None:
    if shuffle == "files":
        return FileShuffleConfig()
    if shuffle is not None and not isinstance(shuffle, FileShuffleConfig):
        raise ValueError(f"shuffle={shuffle!r}: choose None, 'files' or a FileShuffleConfig")
    if shuffle is None or shuffle.seed is not None or shuffle.reseed_after_execution:
        return shuffle
    # One order for all executions of this dataset.
    return FileShuffleConfig(
        seed=int.from_bytes(os.urandom(4), "little"), reseed_after_execution=False
    )
