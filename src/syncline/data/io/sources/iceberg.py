"""Read Iceberg tables: the manifests name the files that may hold matching rows, and the library
`pyiceberg` reads them, deleted rows and renamed columns included.

A source reads one snapshot of the table, even if newer ones are written meanwhile.
"""

from __future__ import annotations

import functools
import itertools
import operator
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from syncline.data.columnar import schemas
from syncline.data.columnar.expressions import (
    BinaryExpr,
    ColumnExpr,
    Expr,
    LiteralExpr,
    Operation,
    UnaryExpr,
)
from syncline.data.context import DataContext
from syncline.data.io import argument_types
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources import file_listing
from syncline.data.io.sources.datasource import BlockMetadata, Datasource, ReadTask, digest
from syncline.optional import load

INSTALL = "syncline[iceberg]"

_COMPARISONS = {
    Operation.EQ: "EqualTo",
    Operation.NE: "NotEqualTo",
    Operation.LT: "LessThan",
    Operation.LE: "LessThanOrEqual",
    Operation.GT: "GreaterThan",
    Operation.GE: "GreaterThanOrEqual",
}
# `3 < col("x")` is `col("x") > 3`.
_MIRRORED = {
    Operation.LT: Operation.GT,
    Operation.LE: Operation.GE,
    Operation.GT: Operation.LT,
    Operation.GE: Operation.LE,
    Operation.EQ: Operation.EQ,
    Operation.NE: Operation.NE,
}


class IcebergDatasource(Datasource):
    """Reads one snapshot of an Iceberg table; arguments as in `read_iceberg`."""

    def __init__(
        self,
        table_identifier: str,
        *,
        row_filter: Any = None,
        selected_fields: Sequence[str] = ("*",),
        snapshot_id: int | None = None,
        scan_kwargs: Mapping[str, Any] | None = None,
        catalog_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        wanted = "the name of a table with its namespace, 'db.table'"
        argument_types.require("table_identifier", table_identifier, str, wanted)
        table = open_table(table_identifier, catalog_kwargs)
        self._table_identifier = table_identifier
        self._snapshot_id = _snapshot(table, table_identifier, snapshot_id)
        arguments = {**(scan_kwargs or {}), "snapshot_id": self._snapshot_id}
        if row_filter is not None:
            arguments["row_filter"] = row_filter
        scan = table.scan(**arguments)
        # A catalog may hold connections, which cannot be pickled to the tasks.
        self._scan = scan.update(catalog=None) if hasattr(scan, "catalog") else scan
        self._case_sensitive = bool(arguments.get("case_sensitive", True))
        self._scan_limit: int | None = arguments.get("limit")
        self._schema: pa.Schema = _arrow_schema(self._scan.projection())
        self._patterns = tuple(DataContext.get_current().retried_io_errors)
        self._planned: list[Any] | None = None
        if tuple(selected_fields) != ("*",):
            schemas.require_columns(selected_fields, self._schema.names)
            self._projection = tuple(selected_fields)

    def schema(self) -> pa.Schema:
        """Return the schema of the snapshot, after the projection."""
        return self._projected(self._schema)

    def num_rows(self) -> int | None:
        """Return the exact number from the manifests, if no row is filtered or deleted."""
        counts = [self._exact_rows(task) for task in self._files()]
        if any(count is None for count in counts) or self._scan_limit is not None:
            return None
        return sum(count for count in counts if count is not None)

    def estimate_inmemory_data_size(self) -> int | None:
        """Return the size of the files."""
        return sum(int(task.file.file_size_in_bytes) for task in self._files())

    def input_files(self) -> list[str]:
        return [task.file.file_path for task in self._files()]

    def identity(self) -> str:
        """Return a digest of the table, the snapshot, which is immutable, and the read options."""
        return digest(
            "Iceberg",
            self._scan.table_metadata.table_uuid,
            self._snapshot_id,
            self._scan.row_filter,
            self._scan_limit,
            self._projection,
            self._predicate_expr,
        )

    def supports_projection_pushdown(self) -> bool:
        return True

    def supports_predicate_pushdown(self) -> bool:
        """True: the manifests skip files, and Parquet's statistics skip row groups."""
        return True

    def apply_predicate(self, predicate_expr: Expr) -> IcebergDatasource:
        """Return a copy that reads only files that may hold such rows."""
        clone = super().apply_predicate(predicate_expr)
        clone._planned = None
        return clone

    def __getstate__(self) -> dict[str, Any]:
        # The plan stays on the driver: a task has its own files.
        return {**self.__dict__, "_planned": None}

    def __copy__(self) -> IcebergDatasource:
        # Keeps the plan, so that a projection does not read the manifests again.
        clone = object.__new__(type(self))
        vars(clone).update(vars(self))
        return clone

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """Return tasks of adjacent files, with nearly equal sizes."""
        files = self._files()
        if self._scan_limit is not None:
            parallelism = 1  # the limit holds for all files together
        tasks = []
        sizes = [task.file.file_size_in_bytes for task in files]
        for start, end in file_listing.group_bounds(sizes, parallelism):
            group = files[start:end]
            counts = [self._exact_rows(task) for task in group]
            exact = self._scan_limit is None and None not in counts
            metadata = BlockMetadata(
                sum(count for count in counts if count is not None) if exact else None,
                sum(sizes[start:end]),
                input_files=[task.file.file_path for task in group],
            )
            read = functools.partial(self._read, group)
            tasks.append(ReadTask(read, metadata, self.schema(), per_task_row_limit))
        return tasks

    def _files(self) -> list[Any]:
        """Return the files to read: those of older snapshots first."""
        if self._planned is None:
            self._planned = self._plan()
        return self._planned

    def _plan(self) -> list[Any]:
        scan = self._scan
        if self._predicate_expr is not None:
            condition = as_iceberg(self._predicate_expr)
            scan = scan if condition is None else scan.filter(condition)
        # The newest snapshot comes first; the files that one write has written are in order.
        writes = [list(files) for _, files in itertools.groupby(scan.plan_files(), _write_of)]
        return list(itertools.chain.from_iterable(reversed(writes)))

    def _exact_rows(self, task: Any) -> int | None:
        unfiltered = self._predicate_expr is None and type(task.residual).__name__ == "AlwaysTrue"
        return int(task.file.record_count) if unfiltered and not task.delete_files else None

    def _read(self, group: Sequence[Any]) -> Iterator[pa.Table]:
        left = self._scan_limit
        for task in group:
            if left is not None and left <= 0:
                return
            batches = filesystems.iterate_with_retry(
                functools.partial(self._batches, task, left),
                f"reading {task.file.file_path}",
                self._patterns,
            )
            for batch in batches:
                left = None if left is None else left - batch.num_rows
                yield self._finished(pa.Table.from_batches([batch]))

    def _batches(self, task: Any, limit: int | None) -> Iterator[pa.RecordBatch]:
        reader = load("pyiceberg.io.pyarrow", purpose="read_iceberg", install=INSTALL)
        needed = set(self.schema().names)
        if self._predicate_expr is not None:
            needed |= self._predicate_expr.columns()
        scan = self._scan
        names = [name for name in self._schema.names if name in needed]
        condition = None if self._predicate_expr is None else as_iceberg(self._predicate_expr)
        return iter(
            reader.ArrowScan(
                table_metadata=scan.table_metadata,
                io=scan.io,
                projected_schema=scan.projection().select(*names),
                row_filter=scan.row_filter if condition is None else scan.row_filter & condition,
                case_sensitive=self._case_sensitive,
                limit=limit,
            ).to_record_batches([task])
        )

    def _finished(self, table: pa.Table) -> pa.Table:
        """Apply the predicate exactly, since only a part of it may be known to the library."""
        if self._predicate_expr is not None:
            table = table.filter(self._predicate_expr.to_pyarrow())
        return schemas.conform(table, self.schema())


def open_table(table_identifier: str, catalog_kwargs: Mapping[str, Any] | None) -> Any:
    """Return a `pyiceberg.table.Table`. Raise ValueError if the catalog has no such table."""
    catalogs = load("pyiceberg.catalog", purpose="Iceberg", install=INSTALL)
    exceptions = load("pyiceberg.exceptions", purpose="Iceberg", install=INSTALL)
    catalog = catalogs.load_catalog(**(catalog_kwargs or {}))
    try:
        return catalog.load_table(table_identifier)
    except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError) as error:
        namespace = table_identifier.rpartition(".")[0]
        try:
            known = sorted(".".join(name) for name in catalog.list_tables(namespace or "default"))
        except exceptions.NoSuchNamespaceError:
            raise ValueError(
                f"there is no Iceberg table {table_identifier!r}: the catalog has no namespace "
                f"{namespace!r}, only {sorted('.'.join(n) for n in catalog.list_namespaces())}"
            ) from error
        raise ValueError(
            f"there is no Iceberg table {table_identifier!r}; its namespace has {known or 'none'}. "
            "Create it with catalog.create_table(identifier, schema)"
        ) from error


def as_iceberg(expr: Expr) -> Any:
    """Return a condition that is true for all rows for which an expression is true; None if
    Iceberg has no counterpart of any part.

    It may be true for more rows: conjuncts that Iceberg has no counterpart for are left out.
    """
    known = [each for part in expr.conjuncts() if (each := _exact(part)) is not None]
    return functools.reduce(operator.and_, known) if known else None


def _exact(expr: Expr) -> Any:
    """Return the same condition for Iceberg, or None."""
    expressions = load("pyiceberg.expressions", purpose="Iceberg", install=INSTALL)
    match expr:
        case BinaryExpr(op=Operation.AND | Operation.OR):
            left, right = _exact(expr.left), _exact(expr.right)
            if left is None or right is None:
                return None
            return left & right if expr.op is Operation.AND else left | right
        case BinaryExpr(
            op=Operation.IN, left=ColumnExpr(column=name), right=LiteralExpr(value=values)
        ):
            if not isinstance(values, list | tuple) or any(value is None for value in values):
                return None
            return expressions.In(name, values)
        case BinaryExpr(op=op, left=ColumnExpr(column=name), right=LiteralExpr(value=value)):
            return _comparison(expressions, op, name, value)
        case BinaryExpr(op=op, left=LiteralExpr(value=value), right=ColumnExpr(column=name)):
            mirrored = _MIRRORED.get(op)
            return None if mirrored is None else _comparison(expressions, mirrored, name, value)
        case UnaryExpr(op=Operation.IS_NULL, operand=ColumnExpr(column=name)):
            return expressions.IsNull(name)
        case UnaryExpr(op=Operation.IS_NOT_NULL, operand=ColumnExpr(column=name)):
            return expressions.NotNull(name)
    return None


def _comparison(expressions: Any, operation: Operation, name: str, value: object) -> Any:
    make: Callable[..., Any] | None = getattr(expressions, _COMPARISONS.get(operation, ""), None)
    if make is None or value is None or isinstance(value, float) and value != value:
        return None
    return make(name, value)


def _write_of(task: Any) -> str:
    """Return the id of the write in the name of a file: `PARTITION-TASK-WRITE`."""
    name: str = posixpath.basename(task.file.file_path)
    return name.split("-", 2)[-1]


def _snapshot(table: Any, table_identifier: str, snapshot_id: int | None) -> int | None:
    """Return the id of the snapshot to read; None for a table without rows."""
    known = [snapshot.snapshot_id for snapshot in table.snapshots()]
    if snapshot_id is not None:
        if snapshot_id not in known:
            raise ValueError(
                f"the Iceberg table {table_identifier!r} has no snapshot {snapshot_id}: its "
                f"snapshots are {known}"
            )
        return snapshot_id
    current = table.current_snapshot()
    return None if current is None else int(current.snapshot_id)


def _arrow_schema(schema: Any) -> pa.Schema:
    reader = load("pyiceberg.io.pyarrow", purpose="read_iceberg", install=INSTALL)
    converted = reader.schema_to_pyarrow(schema, include_field_ids=False)
    return pa.schema([pa.field(field.name, _small(field.type)) for field in converted])


def _small(type_: pa.DataType) -> pa.DataType:
    """Return Arrow's usual type for text and bytes with 64-bit offsets."""
    if pa.types.is_large_string(type_):
        return pa.string()
    if pa.types.is_large_binary(type_):
        return pa.binary()
    return type_
