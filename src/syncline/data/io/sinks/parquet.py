"""Write Parquet: one file for each write task, or several if rows per file are limited or columns
become directories.
"""

from __future__ import annotations

import inspect
import posixpath
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import pyarrow as pa

from syncline.data.io import filesystem as filesystems
from syncline.data.io.sinks.datasink import TaskContext
from syncline.data.io.sinks.file_datasink import FileDatasink, split_extension
from syncline.data.io.sinks.staging import relative_to
from syncline.optional import arrow_dataset
from syncline.storage import filesystem as storage

# pyarrow's default row group size. A file with a larger minimum of rows gets larger groups.
_ROWS_PER_GROUP = 1024 * 1024
_LARGEST_OFFSET = 2**31 - 1
_FURTHER_ARGS = ("encryption_config", "partitioning_flavor", "schema", "sorting_columns")


def writer_args() -> list[str]:
    """Return the names that `writer_args` may have."""
    write_table = import_module("pyarrow.parquet").write_table
    return [*inspect.signature(write_table).parameters, *_FURTHER_ARGS]


class ParquetDatasink(FileDatasink):
    """Writes Parquet files; arguments as in `Dataset.write_parquet`. `writer_args` are those of
    `pyarrow.parquet.write_table` (compression, row_group_size, …), and `schema` and
    `partitioning_flavor`.
    """

    _FILE_FORMAT = "parquet"

    def __init__(
        self,
        path: str,
        *,
        partition_cols: Sequence[str] | None = None,
        min_rows_per_file: int | None = None,
        max_rows_per_file: int | None = None,
        min_bytes_per_file: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(path, **options)
        _check_limits(min_rows_per_file, max_rows_per_file, min_bytes_per_file)
        self._partition_cols = list(partition_cols or [])
        if "compression" in self.open_stream_args:
            # Parquet compresses its pages itself; readers cannot open a compressed stream.
            self._writer_args.setdefault("compression", self.open_stream_args.pop("compression"))
        self._min_rows = min_rows_per_file
        self._max_rows = max_rows_per_file
        self._min_bytes = min_bytes_per_file

    def write_table(self, table: pa.Table, ctx: TaskContext) -> Iterator[str]:
        """Stage a file for each partition, and more if `max_rows_per_file` requires it."""
        arguments = self._resolved_writer_args()
        schema = arguments.pop("schema", None)
        flavor = arguments.pop("partitioning_flavor", "hive")
        self._check_columns(table)
        table = (
            _with_long_offsets(table) if schema is None else table.select(schema.names).cast(schema)
        )
        stem, extension = split_extension(
            self.filename_provider.get_filename_for_block(
                table, self.write_uuid(ctx), ctx.task_idx, 0
            )
        )
        template = f"{stem}{extension}" if "{i}" in stem else f"{stem}-{{i}}{extension}"
        return iter(self._stage(table, template, flavor, arguments))

    @property
    def min_rows_per_write(self) -> int | None:
        return self._min_rows

    @property
    def min_bytes_per_write(self) -> int | None:
        return self._min_bytes

    def _stage(
        self, table: pa.Table, template: str, flavor: str | None, arguments: dict[str, Any]
    ) -> list[str]:
        group_rows = arguments.pop("row_group_size", None) or min(
            max(self._min_rows or 0, _ROWS_PER_GROUP), self._max_rows or 2**62
        )
        root = self._job.staged("")
        written: list[str] = []

        def attempt() -> None:
            written.clear()
            dataset = arrow_dataset()
            dataset.write_dataset(
                table,
                storage.join(root, posixpath.dirname(template)),
                basename_template=posixpath.basename(template),
                format="parquet",
                filesystem=self.filesystem,
                partitioning=self._partition_cols or None,
                partitioning_flavor=flavor if self._partition_cols else None,
                file_options=dataset.ParquetFileFormat().make_write_options(**arguments),
                file_visitor=lambda file: written.append(relative_to(root, file.path)),
                # A task that runs again replaces its own output.
                existing_data_behavior="overwrite_or_ignore",
                max_rows_per_file=self._max_rows or 0,
                max_rows_per_group=group_rows,
                min_rows_per_group=0,
                max_partitions=_LARGEST_OFFSET,
            )

        filesystems.call_with_retry(attempt, f"writing {template} to {self.path}", self._patterns)
        return sorted(written)

    def _check_columns(self, table: pa.Table) -> None:
        missing = [name for name in self._partition_cols if name not in table.column_names]
        if missing:
            raise ValueError(
                f"partition_cols={self._partition_cols}, but {missing} is not among the columns "
                f"{table.column_names}"
            )


def _check_limits(min_rows: int | None, max_rows: int | None, min_bytes: int | None) -> None:
    for name, value in (
        ("min_rows_per_file", min_rows),
        ("max_rows_per_file", max_rows),
        ("min_bytes_per_file", min_bytes),
    ):
        if value is not None and value <= 0:
            raise ValueError(f"{name}={value}: it must be at least 1")
    if min_rows is not None and max_rows is not None and min_rows > max_rows:
        raise ValueError(f"min_rows_per_file={min_rows} is more than max_rows_per_file={max_rows}")
    if min_bytes is not None and (min_rows is not None or max_rows is not None):
        raise ValueError(
            "min_bytes_per_file cannot be combined with min_rows_per_file or max_rows_per_file: "
            "pass only one kind of limit"
        )


def _with_long_offsets(table: pa.Table) -> pa.Table:
    """Use 64-bit offsets in text and bytes columns that need more than 32 bits in one row group."""
    longer = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    for index, field in enumerate(table.schema):
        if field.type in longer and table.column(index).nbytes > _LARGEST_OFFSET:
            table = table.set_column(
                index, field.name, table.column(index).cast(longer[field.type])
            )
    return table
