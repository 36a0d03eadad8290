"""Write Iceberg tables: write tasks write data files, and one transaction makes them visible
together with the rows and columns that it changes. Needs the library `pyiceberg`.

The table must exist. A failed write leaves its files behind, invisible to readers, until orphan
files are removed.
"""

from __future__ import annotations

import functools
import itertools
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from syncline.data.columnar import block as block_functions
from syncline.data.columnar import schemas, tensors
from syncline.data.columnar.expressions import Expr
from syncline.data.io.sinks import table_columns
from syncline.data.io.sinks.datasink import Datasink, SaveMode, TaskContext, WriteResult
from syncline.data.io.sources import iceberg
from syncline.data.io.sources.iceberg import INSTALL
from syncline.optional import load

Written: TypeAlias = tuple[list[Any], pa.Table | None]
"""The `DataFile`s of a task, and the keys of its rows for an upsert."""

# Numbers in file names that each task may use.
_FILES_OF_A_TASK = 1_000_000
_MODES = (SaveMode.APPEND, SaveMode.OVERWRITE, SaveMode.UPSERT)


class IcebergDatasink(Datasink[Written]):
    """Writes to an Iceberg table; arguments as in `Dataset.write_iceberg`."""

    def __init__(
        self,
        table_identifier: str,
        *,
        catalog_kwargs: Mapping[str, Any] | None = None,
        snapshot_properties: Mapping[str, str] | None = None,
        mode: SaveMode | str = SaveMode.APPEND,
        overwrite_filter: Expr | None = None,
        upsert_kwargs: Mapping[str, Any] | None = None,
        overwrite_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        load("pyiceberg", purpose="write_iceberg", install=INSTALL)
        self.table_identifier = table_identifier
        self.mode = SaveMode(mode)
        if self.mode not in _MODES:
            raise ValueError(
                "write_iceberg supports the modes 'append', 'overwrite' and 'upsert', not "
                f"{self.mode.value!r}"
            )
        self.overwrite_filter = overwrite_filter
        self.snapshot_properties = dict(snapshot_properties or {})
        self._catalog_kwargs = dict(catalog_kwargs or {})
        self._upsert = dict(upsert_kwargs or {})
        self._overwrite = dict(overwrite_kwargs or {})
        for name, given, needed in (
            ("upsert_kwargs", bool(self._upsert), SaveMode.UPSERT),
            ("overwrite_kwargs", bool(self._overwrite), SaveMode.OVERWRITE),
            ("overwrite_filter", overwrite_filter is not None, SaveMode.OVERWRITE),
        ):
            if given and self.mode is not needed:
                raise ValueError(
                    f"{name} is for mode={needed.value!r}, but the mode is {self.mode.value!r}"
                )
        if overwrite_filter is not None:
            _require_exact(overwrite_filter)
        self._metadata: Any = None
        self._io: Any = None
        self._keys: list[str] = []
        self._write_id = uuid.UUID(int=0)

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Load the table, and add the columns that it lacks if the schema of the rows is known.

        Raises ValueError if the table does not exist, if the rows do not fit its columns, or if an
        upsert has no keys.
        """
        self._write_id = uuid.uuid4()  # new for each write, also if the program runs again
        table = self._table()
        if self.mode is SaveMode.UPSERT:
            self._keys = self._key_columns(table.schema())
        if schema is not None:
            schemas.require_columns(self._keys, schema.names)
            self._add_columns(table, schema)
        self._metadata, self._io = table.metadata, table.io

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> Written:
        """Write data files, which belong to no snapshot yet."""
        table = block_functions.concat(list(blocks))
        if table.num_rows == 0:
            return [], None
        writer = load("pyiceberg.io.pyarrow", purpose="write_iceberg", install=INSTALL)
        schema = writer.schema_to_pyarrow(self._metadata.schema(), include_field_ids=False)
        unknown = [name for name in table.column_names if name not in schema.names]
        if unknown:
            raise ValueError(
                f"the rows have the columns {unknown}, which the Iceberg table "
                f"{self.table_identifier!r} lacks, and the schema of the rows was not known before "
                "the write: call materialize() before it to add the columns, or drop them"
            )
        schemas.require_columns(self._keys, table.column_names)
        files = writer._dataframe_to_data_files(  # the only function for partitioned tables
            table_metadata=self._metadata,
            df=_in_types_of(table, schema),
            io=self._io,
            write_uuid=self._write_id,
            counter=itertools.count(ctx.task_idx * _FILES_OF_A_TASK),
        )
        return list(files), table.select(self._keys) if self._keys else None

    def on_write_complete(self, write_result: WriteResult[Written]) -> None:
        """Commit all files as one transaction."""
        files = [file for written, _ in write_result.write_returns for file in written]
        if not files and self.mode is not SaveMode.OVERWRITE:
            return
        transaction = self._table().transaction()
        branch = {**self._overwrite, **self._upsert}.get("branch", "main")
        condition = self._replaced(write_result)
        if condition is not None:
            options = {"branch": branch}
            options |= {
                name: value
                for name, value in {**self._overwrite, **self._upsert}.items()
                if name == "case_sensitive"
            }
            transaction.delete(condition, snapshot_properties=self.snapshot_properties, **options)
        update = transaction.update_snapshot(self.snapshot_properties, branch=branch)
        with update.fast_append() as append:
            for file in files:
                append.append_data_file(file)
        transaction.commit_transaction()

    def _table(self) -> Any:
        return iceberg.open_table(self.table_identifier, self._catalog_kwargs)

    def _key_columns(self, schema: Any) -> list[str]:
        keys = list(self._upsert.get("join_cols") or sorted(schema.identifier_field_names()))
        if not keys:
            raise ValueError(
                f"mode='upsert' needs the columns that identify a row, and the Iceberg table "
                f"{self.table_identifier!r} declares none: pass upsert_kwargs={{'join_cols': "
                "[...]}"
            )
        schemas.require_columns(keys, [field.name for field in schema.fields])
        return keys

    def _add_columns(self, table: Any, schema: pa.Schema) -> None:
        reader = load("pyiceberg.io.pyarrow", purpose="write_iceberg", install=INSTALL)
        present = reader.schema_to_pyarrow(table.schema(), include_field_ids=False)
        table_columns.require_storable(schema, "Iceberg")
        table_columns.require_fitting(
            schema, present, _storable, table=f"Iceberg table {self.table_identifier!r}"
        )
        added = [
            pa.field(field.name, _storable(field.type))
            for field in schema
            if field.name not in present.names
        ]
        if added:
            with table.update_schema() as update:
                update.union_by_name(pa.schema(added))
            table.refresh()

    def _replaced(self, write_result: WriteResult[Written]) -> Any:
        """Return the condition for the rows to delete, or None."""
        expressions = load("pyiceberg.expressions", purpose="write_iceberg", install=INSTALL)
        if self.mode is SaveMode.OVERWRITE:
            if self.overwrite_filter is None:
                return expressions.AlwaysTrue()
            return iceberg.as_iceberg(self.overwrite_filter)
        keys = [keys for _, keys in write_result.write_returns if keys is not None]
        if not keys:
            return None
        table = block_functions.concat(keys)
        valid = functools.reduce(pc.and_, (pc.is_valid(table.column(key)) for key in self._keys))
        table = table.filter(valid)  # a null key is equal to no other
        if table.num_rows == 0:
            return None
        upserts = load("pyiceberg.table.upsert_util", purpose="write_iceberg", install=INSTALL)
        return upserts.create_match_filter(table, self._keys)


def _require_exact(condition: Expr) -> None:
    """Raise ValueError for a condition that Iceberg cannot evaluate exactly: it deletes rows."""
    if any(iceberg.as_iceberg(part) is None for part in condition.conjuncts()):
        raise ValueError(
            f"overwrite_filter={condition!r} is not a condition that Iceberg knows: use "
            "comparisons of columns with constants, is_in, is_null and is_not_null, combined with "
            "& and |"
        )


def _storable(type_: pa.DataType) -> pa.DataType:
    """Return the type of a column in an Iceberg table, which has text and bytes of any length."""
    if pa.types.is_string(type_):
        return pa.large_string()
    if pa.types.is_binary(type_):
        return pa.large_binary()
    if isinstance(type_, pa.FixedShapeTensorType):
        return pa.large_list(type_.value_type)
    if pa.types.is_list(type_):
        return pa.large_list(_storable(type_.value_type))
    return type_


def _in_types_of(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the types of the table; tensors become lists."""
    table_columns.require_storable(table.schema, "Iceberg")
    columns = {}
    for name in table.column_names:
        column = table.column(name)
        if isinstance(column.type, pa.FixedShapeTensorType):
            column = tensors.storage_of(column)
        columns[name] = column.cast(schema.field(name).type)
    return pa.table(columns, schema=pa.schema([schema.field(name) for name in columns]))
