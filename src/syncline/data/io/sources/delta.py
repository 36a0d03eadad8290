"""Read Delta Lake tables: the transaction log names the files, their partition values and the
statistics that rule out files; Parquet's reader reads them. Needs the library `deltalake`.

A source reads one version of the table, even if newer ones are written meanwhile. Not covered:
tables with deletion vectors or column mapping, which raise an error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from syncline.data.columnar.expressions import Expr
from syncline.data.io.sources.file_listing import FileInfo
from syncline.data.io.sources.parquet import ParquetDatasource
from syncline.data.io.sources.partitioning import PartitionValues
from syncline.optional import arrow_dataset, load
from syncline.storage import filesystem as storage

INSTALL = "syncline[delta]"


class DeltaDatasource(ParquetDatasource):
    """Reads the version of a Delta table that `open_table` has opened; further arguments as in
    `read_delta`. The version has files.
    """

    def __init__(
        self,
        path: str,
        table: Any,
        *,
        filesystem: object = None,
        columns: Sequence[str] | None = None,
        include_paths: bool = False,
        shuffle: Any = None,
        arrow_parquet_args: Mapping[str, Any] | None = None,
    ) -> None:
        dataset = _dataset(table, path, filesystem)
        actions = pa.table(table.get_add_actions(flatten=True))
        self.version: int = table.version()
        self._uri = path
        self._table_schema: pa.Schema = dataset.schema
        self._partition_columns = tuple(table.metadata().partition_columns)
        self._log = {unquote(row["path"]): row for row in actions.to_pylist()}
        own = [name for name in self._table_schema.names if name not in self._partition_columns]
        super().__init__(
            list(self._log),
            filesystem=dataset.filesystem,
            partitioning=None,
            include_paths=include_paths,
            shuffle=shuffle,
            columns=list(columns) if columns is not None else None,
            arrow_parquet_args={
                **(arrow_parquet_args or {}),
                "schema": pa.schema([self._table_schema.field(name) for name in own]),
            },
        )
        if columns is None:
            self._projection = (
                *self._table_schema.names,
                *(["path"] if self._include_paths else []),
            )
        self._kept: frozenset[str] | None = None

    def num_rows(self) -> int | None:
        """Return the exact number from the log, without a filter."""
        counts = [row.get("num_records") for row in self._log.values()]
        if self._filter() is None and all(count is not None for count in counts):
            return sum(int(count) for count in counts)
        return super().num_rows()

    def apply_predicate(self, predicate_expr: Expr) -> DeltaDatasource:
        """Return a copy that reads only files whose statistics allow such rows."""
        clone = super().apply_predicate(predicate_expr)
        clone._kept = clone._matching_files()
        return clone

    def _find_files(self, paths: Sequence[str], **options: Any) -> list[FileInfo]:
        """Return the files of the version, oldest first, in the order of their names."""
        rows = [
            (row["modification_time"], path, row["size_bytes"]) for path, row in self._log.items()
        ]
        return [
            FileInfo(path=path, size=size, mtime_ns=time_ms * 1_000_000)
            for time_ms, path, size in sorted(rows)
        ]

    def _constants_of(self, path: str) -> tuple[PartitionValues, dict[str, pa.DataType]]:
        types = {name: self._table_schema.field(name).type for name in self._partition_columns}
        values: PartitionValues = {
            name: None if value is None else pa.scalar(value, types[name])
            for name in self._partition_columns
            for value in [self._log[path].get(f"partition.{name}")]
        }
        if self._include_paths:
            values, types = (
                {**values, "path": self._full_path(path)},
                {**types, "path": pa.string()},
            )
        return values, types

    def _may_match(self, path: str) -> bool:
        return (self._kept is None or path in self._kept) and super()._may_match(path)

    def _reader(self) -> DeltaDatasource:
        reader = super()._reader()
        assert isinstance(reader, DeltaDatasource)
        reader._kept = None
        partitions = [f"partition.{name}" for name in self._partition_columns]
        reader._log = {
            path: {name: row.get(name) for name in partitions} for path, row in self._log.items()
        }
        return reader

    def _matching_files(self) -> frozenset[str]:
        expression = self._filter()
        assert expression is not None
        file_format = arrow_dataset().ParquetFileFormat()
        fragments = [
            file_format.make_fragment(
                path,
                filesystem=self._filesystem,
                partition_expression=_guarantee(row, self._file_schema),
            )
            for path, row in self._log.items()
        ]
        found = arrow_dataset().FileSystemDataset(
            fragments, self._full_schema, file_format, self._filesystem
        )
        return frozenset(fragment.path for fragment in found.get_fragments(expression))

    def _full_path(self, path: str) -> str:
        return path if "://" in path else storage.join(self._uri.rstrip("/"), path)

    def _options(self) -> object:
        return (self._uri, self.version, super()._options())

    def input_files(self) -> list[str]:
        return [self._full_path(file.path) for file in self._files]


def one_path(path: object) -> str:
    """Return a path or URI as text. Raise ValueError for anything but one."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(
            f"read_delta takes the path or URI of one table, not {path!r}: "
            "read each table and combine them with union"
        )
    return os.fspath(path)


def schema_without_files(path: str, table: Any) -> pa.Schema | None:
    """Return the schema of a version without files; None if it has some."""
    return None if table.file_uris() else _dataset(table, path, None).schema


def open_table(
    path: str, version: int | None = None, storage_options: Mapping[str, str] | None = None
) -> Any:
    """Return a `DeltaTable`. Raise FileNotFoundError if the table does not exist, ValueError if it
    lacks the version.
    """
    if version is not None and (not isinstance(version, int) or version < 0):
        raise ValueError(f"version={version!r}: pass the number of a version, or None")
    deltalake = load("deltalake", purpose="Delta Lake", install=INSTALL)
    try:
        return deltalake.DeltaTable(
            path, version=version, storage_options=dict(storage_options or {})
        )
    except deltalake.exceptions.TableNotFoundError as error:
        raise FileNotFoundError(
            f"there is no Delta table at {path!r}: the directory has no _delta_log. "
            "Check the path, or read Parquet files with read_parquet"
        ) from error
    except deltalake.exceptions.DeltaError as error:
        if version is None:
            raise
        latest = deltalake.DeltaTable(path, storage_options=dict(storage_options or {})).version()
        raise ValueError(
            f"version={version} of the Delta table {path!r} cannot be read: {error}. "
            f"The newest version is {latest}"
        ) from error


def _dataset(table: Any, path: str, filesystem: object) -> Any:
    deltalake = load("deltalake", purpose="Delta Lake", install=INSTALL)
    try:
        return table.to_pyarrow_dataset(filesystem=filesystem)
    except deltalake.exceptions.DeltaProtocolError as error:
        raise ValueError(
            f"the Delta table {path!r} uses features that Parquet's reader does not know: {error}. "
            "Read it with deltalake.QueryBuilder and pass the result to from_arrow"
        ) from error


def _guarantee(row: Mapping[str, Any], schema: pa.Schema) -> pc.Expression:
    """Return a condition that all rows of a file satisfy: its partition values and the ranges of
    its columns. A column without statistics is not part of it.
    """
    guarantee = pc.scalar(True)
    for field in schema:
        least, most = row.get(f"min.{field.name}"), row.get(f"max.{field.name}")
        if least is None or most is None:
            continue
        column = pc.field(field.name)
        try:
            bounds = [pa.scalar(bound, field.type) for bound in (least, most)]
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            continue
        within = (column >= pc.scalar(bounds[0])) & (column <= pc.scalar(bounds[1]))
        no_nulls = row.get(f"null_count.{field.name}") == 0
        guarantee = guarantee & (within if no_nulls else within | column.is_null())
    return guarantee
