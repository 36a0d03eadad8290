"""Write Delta Lake tables: write tasks write Parquet files, and one commit to the transaction log
makes all of them visible. Needs the library `deltalake`.

A failed write leaves its files behind, invisible to readers, until the table is vacuumed. Not
covered: tables with writer features such as generated columns or column mapping.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs as pyarrow_fs

from syncline.data.columnar import block as block_functions
from syncline.data.columnar import schemas, tensors
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sinks import table_columns
from syncline.data.io.sinks.datasink import Datasink, SaveMode, TaskContext, WriteResult
from syncline.data.io.sources import delta
from syncline.data.io.sources.delta import INSTALL
from syncline.optional import load

SchemaMode: TypeAlias = Literal["merge", "error"]
Written: TypeAlias = tuple[list[Any], pa.Schema]
"""The `AddAction` of each file, and the schema of the rows with their partition columns."""

# Longest text in the statistics: long minima and maxima would make the log large.
_STATISTICS_TEXT = 32
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


class DeltaDatasink(Datasink[Written]):
    """Writes to a Delta table; arguments as in `Dataset.write_delta`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        mode: SaveMode | str = SaveMode.APPEND,
        partition_by: Sequence[str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        schema_mode: SchemaMode = "merge",
        filesystem: object = None,
        name: str | None = None,
        description: str | None = None,
    ) -> None:
        load("deltalake", purpose="write_delta", install=INSTALL)
        self.path = os.fspath(path)
        self.mode = SaveMode(mode)
        if self.mode is SaveMode.UPSERT:
            raise ValueError(
                "write_delta does not support the mode 'upsert': merge with "
                "deltalake.DeltaTable(path).merge(...) on the rows that to_arrow_refs returns"
            )
        if schema_mode not in ("merge", "error"):
            raise ValueError(f"schema_mode={schema_mode!r}: choose 'merge' or 'error'")
        self.partition_by = list(partition_by or [])
        self.schema_mode = schema_mode
        self.name = name
        self.description = description
        self._storage_options = dict(storage_options or {})
        self._filesystem = filesystem
        self._present: pa.Schema | None = None
        self._skip = False
        self._write_id, self._time_ms = "", 0

    @property
    def skips_write(self) -> bool:
        return self._skip

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Compare with the table, if there is one.

        Raises ValueError if it exists and the mode is create, if it is partitioned by other
        columns, or if the rows do not fit its schema.
        """
        self._write_id = uuid.uuid4().hex  # new for each write, also if the program runs again
        self._time_ms = int(time.time() * 1000)  # of all files, so that readers keep their order
        table = self._table()
        if table is None:
            if "://" not in self.path or self.path.startswith("file://"):
                filesystem, (directory,) = filesystems.resolve(self.path)
                filesystems.make_directory(filesystem, directory)
            if schema is not None:
                schemas.require_columns(self.partition_by, schema.names)
            return
        if self.mode in (SaveMode.CREATE, SaveMode.ERROR):
            raise ValueError(
                f"there is already a Delta table at {self.path!r}: pass mode='append' or "
                "mode='overwrite'"
            )
        self._skip = self.mode is SaveMode.IGNORE
        present = list(table.metadata().partition_columns)
        if self.partition_by and self.partition_by != present:
            raise ValueError(
                f"partition_by={self.partition_by}, but the Delta table {self.path!r} is "
                f"partitioned by {present}: leave partition_by out, or write a new table"
            )
        self.partition_by = present
        if self.mode is SaveMode.APPEND:
            self._present = pa.schema(table.schema())
            if schema is not None:
                self._check_fits(schema)

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> Written:
        """Write a Parquet file for each partition; return what the log must record of them."""
        table = block_functions.concat(list(blocks))
        if self._present is not None:
            self._check_fits(table.schema)
        table = _plain(table, self._present)
        schemas.require_columns(self.partition_by, table.column_names)
        filesystem = self._open_filesystem()
        prefix = f"part-{ctx.task_idx:05d}-{self._write_id}"
        actions = [
            self._write_file(filesystem, f"{prefix}-{number:05d}.parquet", values, part)
            for number, (values, part) in enumerate(_partitions(table, self.partition_by))
        ]
        return actions, table.schema

    def on_write_complete(self, write_result: WriteResult[Written]) -> None:
        """Commit all files as one version."""
        deltalake = load("deltalake", purpose="write_delta", install=INSTALL)
        transaction = load("deltalake.transaction", purpose="write_delta", install=INSTALL)
        actions = [action for written, _ in write_result.write_returns for action in written]
        schema = schemas.unify(schema for _, schema in write_result.write_returns)
        table = self._table()
        mode = "overwrite" if self.mode is SaveMode.OVERWRITE else "append"
        if table is None:
            if schema.names:
                transaction.create_table_with_add_actions(
                    self.path,
                    deltalake.Schema.from_arrow(schema),
                    actions,
                    mode="error",
                    partition_by=self.partition_by or None,
                    name=self.name,
                    description=self.description,
                    storage_options=self._storage_options,
                )
            return
        if not actions and mode == "append":
            return
        if mode == "append":
            schema = self._merged(table, schema)
        table.create_write_transaction(
            actions,
            mode=mode,
            schema=deltalake.Schema.from_arrow(schema),
            partition_by=self.partition_by or None,
        )

    def _table(self) -> Any:
        deltalake = load("deltalake", purpose="write_delta", install=INSTALL)
        if not deltalake.DeltaTable.is_deltatable(self.path, self._storage_options):
            return None
        return delta.open_table(self.path, None, self._storage_options)

    def _open_filesystem(self) -> pyarrow_fs.FileSystem:
        if self._filesystem is not None:
            root = filesystems.as_pyarrow(self._filesystem)
            return pyarrow_fs.SubTreeFileSystem(filesystems.resolve(self.path, root)[1][0], root)
        handlers = load("deltalake.fs", purpose="write_delta", install=INSTALL)
        handler = handlers.DeltaStorageHandler(self.path, self._storage_options)
        return pyarrow_fs.PyFileSystem(handler)

    def _check_fits(self, schema: pa.Schema) -> None:
        assert self._present is not None
        added = [name for name in schema.names if name not in self._present.names]
        if added and self.schema_mode == "error":
            raise ValueError(
                f"the rows have the columns {added}, which the Delta table {self.path!r} lacks: "
                "drop them, or pass schema_mode='merge' to add them to the table"
            )
        missing = [name for name in self.partition_by if name not in schema.names]
        if missing:
            raise ValueError(
                f"the rows lack {missing}, by which the Delta table {self.path!r} is partitioned: "
                "add these columns"
            )
        table_columns.require_fitting(
            schema,
            self._present,
            _storable,
            table=f"Delta table {self.path!r}",
            otherwise=", or pass mode='overwrite'",
        )

    def _merged(self, table: Any, schema: pa.Schema) -> pa.Schema:
        """Add the columns that the table lacks; return its schema."""
        present = pa.schema(table.schema())
        added = [field for field in schema if field.name not in present.names]
        if added:
            deltalake = load("deltalake", purpose="write_delta", install=INSTALL)
            table.alter.add_columns(deltalake.Schema.from_arrow(pa.schema(added)).fields)
        return pa.schema([*present, *added])

    def _write_file(
        self,
        filesystem: pyarrow_fs.FileSystem,
        name: str,
        values: Mapping[str, str | None],
        table: pa.Table,
    ) -> Any:
        transaction = load("deltalake.transaction", purpose="write_delta", install=INSTALL)
        folders = [
            f"{quote(key, safe='')}={_NULL_PARTITION if value is None else quote(value, safe='')}"
            for key, value in values.items()
        ]
        path = "/".join([*folders, name])
        filesystem.create_dir("/".join(folders), recursive=True)
        with filesystem.open_output_stream(path) as file:
            import_module("pyarrow.parquet").write_table(table, file)
        return transaction.AddAction(
            path,
            filesystem.get_file_info(path).size,
            dict(values),
            self._time_ms,
            True,
            json.dumps(_statistics(table)),
        )


def _storable(type_: pa.DataType) -> pa.DataType:
    """Return the type of a column in a Delta table: tensors become lists."""
    if isinstance(type_, pa.FixedShapeTensorType):
        return pa.list_(type_.value_type)
    return type_


def _plain(table: pa.Table, present: pa.Schema | None) -> pa.Table:
    """Return the rows in types that Delta tables have; those of the table where it has the
    column.
    """
    table_columns.require_storable(table.schema, "Delta")
    columns = {}
    for field in table.schema:
        column = table.column(field.name)
        if isinstance(field.type, pa.FixedShapeTensorType):
            column = tensors.storage_of(column).cast(_storable(field.type))
        if present is not None and field.name in present.names:
            column = column.cast(present.field(field.name).type)
        columns[field.name] = column
    return pa.table(columns)


def _partitions(
    table: pa.Table, keys: Sequence[str]
) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """Yield the rows of each combination of key values, without the keys, in the order of first
    appearance.
    """
    if table.num_rows == 0:
        return
    if not keys:
        yield {}, table
        return
    numbered = table.select(list(keys)).append_column("row", pa.array(range(table.num_rows)))
    groups = numbered.group_by(list(keys), use_threads=False).aggregate([("row", "list")])
    rest = table.drop_columns(list(keys))
    for group in groups.to_pylist():
        rows = pa.array(group["row_list"])
        yield {key: _partition_text(group[key]) for key in keys}, rest.take(rows)


def _partition_text(value: object) -> str | None:
    """Return a partition value as the protocol writes it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    if isinstance(value, bytes):
        raise ValueError("a column of bytes cannot be in partition_by: convert it to text")
    return str(value)


def _statistics(table: pa.Table) -> dict[str, Any]:
    """Return the number of rows and, by column, nulls and extremes, for readers that skip files."""
    least, most, nulls = {}, {}, {}
    for name in table.column_names:
        column = table.column(name)
        if not _has_extremes(column.type):
            continue
        nulls[name] = column.null_count
        extremes = pc.min_max(column).as_py()
        texts = [_statistic(extremes["min"]), _statistic(extremes["max"])]
        if None not in texts:
            least[name], most[name] = texts
    return {"numRecords": table.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _has_extremes(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(type_)
        or pa.types.is_floating(type_)
        or pa.types.is_date(type_)
        or pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
    )


def _statistic(value: object) -> int | float | str | None:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, str):
        return value if len(value) <= _STATISTICS_TEXT else None
    return value if isinstance(value, int) else None
