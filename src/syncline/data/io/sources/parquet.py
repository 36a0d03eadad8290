"""Read Parquet: only the files, row groups and columns that are needed, with exact row counts from
the footers.

A read task is a group of row groups with at most about `target_max_block_size` decoded bytes, or
one larger row group, which is streamed. Partition columns and the column `path` are constants of a
file in the scan, so filters on them skip whole files. Not covered: table formats on top of Parquet.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike

from syncline.data.columnar import schemas, tensors
from syncline.data.columnar.schemas import SchemaMismatchError, UnknownColumnError
from syncline.data.context import DataContext
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources import parquet_row_groups
from syncline.data.io.sources.datasource import BlockMetadata, ReadTask
from syncline.data.io.sources.file_based_datasource import FileBasedDatasource, merge_small_tables
from syncline.data.io.sources.file_listing import FileInfo
from syncline.data.io.sources.partitioning import HIVE, PartitionValues
from syncline.optional import arrow_dataset
from syncline.records import dataclass

if TYPE_CHECKING:
    import pyarrow.dataset as pyarrow_dataset

TensorColumnSchema = Mapping[str, tuple[DTypeLike, tuple[int, ...]]]
"""Column of bytes -> (dtype, shape) of the array that each value holds in C order."""

# Number of footers that are read when the dataset is created, to detect files that do not match.
# The other footers are read when they are needed.
_FOOTERS_AT_ONCE = 256
_THREADS = 16
# Bytes of a value of Parquet's physical types with fixed width.
_WIDTHS = {"BOOLEAN": 0.125, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
# Dictionary encoding stores repeated short text once, so it needs more room when it is decoded. For
# long values (images) writers give up the dictionary after its first page.
_DICTIONARY_RATIO = 3
_LONG_VALUE_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class FilePart:
    """Row groups of one file that are read together."""

    path: str
    """Path of the file."""
    row_groups: tuple[int, ...]
    """Indices of the row groups in the file."""
    num_rows: int
    """Rows before any filter."""
    decoded_bytes: int
    """Approximate size in memory."""


class ParquetDatasource(FileBasedDatasource):
    """Reads Parquet files; arguments as in `read_parquet`.

    `arrow_parquet_args` are `filter` (a pyarrow expression), `schema` (to read the files with),
    `batch_size` (rows), `use_threads` (of Arrow within a read task) and the options of
    `pyarrow.dataset.ParquetFragmentScanOptions`. Other options as in `FileBasedDatasource`;
    `partitioning` is `HIVE` by default, and a column in the file has priority over one in the path.
    """

    _FILE_EXTENSIONS = ["parquet"]

    def __init__(
        self,
        paths: filesystems.Paths,
        *,
        columns: Sequence[str] | None = None,
        tensor_column_schema: TensorColumnSchema | None = None,
        arrow_parquet_args: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        options.setdefault("partitioning", HIVE)
        super().__init__(paths, **options)
        arguments = dict(arrow_parquet_args or {})
        self._scan_filter: pc.Expression | None = arguments.pop("filter", None)
        self._batch_size: int | None = arguments.pop("batch_size", None)
        self._use_threads: bool = arguments.pop("use_threads", False)
        self._given_schema: pa.Schema | None = arguments.pop("schema", None)
        self._scan_options = _scan_options(arguments)
        self._tensor_columns = {
            name: (np.dtype(dtype), tuple(shape))
            for name, (dtype, shape) in (tensor_column_schema or {}).items()
        }
        self._fragments: dict[str, pyarrow_dataset.ParquetFileFragment] = {}
        self._load(self._files[:_FOOTERS_AT_ONCE])
        self._file_schema = self._given_schema or self._unified_schema(
            self._files[:_FOOTERS_AT_ONCE]
        )
        self._constant_types = self._constants_of(self._files[0].path)[1]
        self._full_schema = pa.schema(
            [*self._file_schema, *(pa.field(*each) for each in self._constant_types.items())]
        )
        for name in [*(columns or ()), *self._tensor_columns]:
            if name not in self._full_schema.names:
                raise UnknownColumnError(name, self._full_schema.names)
        if columns is not None:
            self._projection = (
                *columns,
                *(["path"] if self._include_paths and "path" not in columns else []),
            )

    def schema(self) -> pa.Schema:
        """Return the columns of the files, of their paths and `path`, after the projection."""
        return pa.schema(map(self._tensor_field, self._projected(self._full_schema)))

    def num_rows(self) -> int | None:
        """Return the exact number without a filter. Reads the footers that are still missing."""
        if self._predicate_expr is not None or self._scan_filter is not None:
            return None
        self._load(self._files)
        return sum(int(self._fragments[file.path].metadata.num_rows) for file in self._files)

    def estimate_inmemory_data_size(self) -> int | None:
        """Estimate from the footers read so far, and from the file sizes for the other files."""
        known = [file for file in self._files if file.path in self._fragments]
        if not known:
            return None
        ratio = self._ratio()
        decoded = sum(
            part.decoded_bytes
            for file in known
            for part in self._row_groups(file.path, None, ratio)
        )
        sizes = [file.size for file in self._files]
        if len(known) == len(self._files) or any(size is None for size in sizes):
            return int(decoded * len(self._files) / len(known))
        return int(
            decoded
            * sum(size or 0 for size in sizes)
            / max(1, sum(file.size or 0 for file in known))
        )

    def supports_projection_pushdown(self) -> bool:
        return True

    def supports_predicate_pushdown(self) -> bool:
        """True: row groups and files are skipped if statistics or paths rule out the predicate."""
        return True

    def supports_limit_pushdown(self) -> bool:
        """True: footers after the limit are not read."""
        return True

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """Return tasks of adjacent row groups, with nearly equal decoded sizes."""
        context = data_context or DataContext.get_current()
        parts = self._parts(context)
        total = sum(part.decoded_bytes for part in parts)
        limit = context.target_max_block_size or math.inf
        target = min(limit, total / max(1, parallelism))
        reader = self._reader()
        batch_bytes = context.target_max_block_size
        exact = self._filter() is None
        return [
            ReadTask(
                functools.partial(reader._read, group, batch_bytes),
                BlockMetadata(
                    num_rows=sum(part.num_rows for part in group) if exact else None,
                    size_bytes=sum(part.decoded_bytes for part in group),
                ),
                self.schema(),
                per_task_row_limit,
            )
            for group in _grouped(parts, target)
        ]

    def _parts(self, context: DataContext) -> list[FilePart]:
        """Return the row groups to read, in order, one per part."""
        files = [file for file in self.ordered_files(context) if self._may_match(file.path)]
        found: list[FilePart] = []
        expression, ratio = self._filter(), self._ratio()
        left = math.inf if self._row_limit is None or expression is not None else self._row_limit
        for start in range(0, len(files), _FOOTERS_AT_ONCE):
            batch = files[start : start + _FOOTERS_AT_ONCE]
            self._load(batch)
            for file in batch:
                for part in self._row_groups(file.path, expression, ratio):
                    if left <= 0:
                        return found
                    found.append(part)
                    left -= part.num_rows
        return found

    def _row_groups(
        self, path: str, expression: pc.Expression | None, ratio: float
    ) -> list[FilePart]:
        fragment = self._fragments[path]
        if expression is not None:
            schema = self._scan_schema(fragment.physical_schema)
            # Rebuilt with the constants of the path, which need the schema of all files.
            fragment = self._fragment(path, tuple(range(fragment.metadata.num_row_groups)))
            with self._named_errors(path):
                fragment = fragment.subset(filter=expression, schema=schema)
        return [
            FilePart(
                path=path,
                row_groups=(group.id,),
                num_rows=group.num_rows,
                decoded_bytes=int(group.total_byte_size * ratio) + 1,
            )
            for group in fragment.row_groups
            if group.num_rows
        ]

    def _may_match(self, path: str) -> bool:
        """Return False if the constants of a file rule out the predicate."""
        if self._predicate_expr is None or not self._constant_types:
            return True
        values, types = self._constants_of(path)
        row = pa.table(
            {
                name: pa.array([values.get(name)], type_)
                for name, type_ in {**self._constant_types, **types}.items()
            }
        )
        parts = [
            part
            for part in self._predicate_expr.conjuncts()
            if part.columns() and part.columns() <= set(row.column_names)
        ]
        return all(pc.all(part.evaluate(row)).as_py() for part in parts)

    def _ratio(self) -> float:
        """Return decoded bytes of the projected columns per encoded byte of all columns; estimated
        from the first row group.
        """
        self._load(self._files[:1])
        metadata = self._fragments[self._files[0].path].metadata
        if metadata.num_row_groups == 0:
            return 1.0
        group = metadata.row_group(0)
        names = None if self._projection is None else set(self._projection)
        chunks = [group.column(index) for index in range(group.num_columns)]
        wanted = [
            chunk
            for chunk in chunks
            if names is None or chunk.path_in_schema.split(".")[0] in names
        ]
        return sum(map(_decoded_bytes, wanted)) / max(1, int(group.total_byte_size))

    def _load(self, files: Sequence[FileInfo]) -> None:
        """Read the footers that are still missing."""
        missing = [file.path for file in files if file.path not in self._fragments]
        if not missing:
            return
        if len(missing) == 1:
            self._fragments[missing[0]] = self._footer(missing[0])
            return
        with ThreadPoolExecutor(min(_THREADS, len(missing))) as pool:
            self._fragments.update(zip(missing, pool.map(self._footer, missing), strict=True))

    def _footer(self, path: str) -> pyarrow_dataset.ParquetFileFragment:
        def read() -> pyarrow_dataset.ParquetFileFragment:
            fragment = (
                arrow_dataset().ParquetFileFormat().make_fragment(path, filesystem=self._filesystem)
            )
            fragment.ensure_complete_metadata()
            return fragment

        with self._named_errors(path):
            return filesystems.call_with_retry(read, f"reading {path}", self._patterns)

    def _unified_schema(self, files: Sequence[FileInfo]) -> pa.Schema:
        unified = self._fragments[files[0].path].physical_schema.remove_metadata()
        for file in files[1:]:
            own = self._fragments[file.path].physical_schema
            if own.equals(unified):
                continue
            try:
                unified = schemas.unify([unified, own])
            except SchemaMismatchError as error:
                raise SchemaMismatchError(
                    f"the schema of {file.path} does not match the files before it, such as "
                    f"{files[0].path}: {error}"
                ) from error
        return unified

    def _constants_of(self, path: str) -> tuple[PartitionValues, dict[str, pa.DataType]]:
        """Return values and types of the columns that the path of one file defines."""
        values: PartitionValues = {} if self._parser is None else self._parser(path)
        values = {
            name: value for name, value in values.items() if name not in self._file_schema.names
        }
        types = {} if self._parser is None else self._parser.types(list(values))
        if self._include_paths:
            values, types = {**values, "path": path}, {**types, "path": pa.string()}
        return values, types

    def _scan_schema(self, physical: pa.Schema) -> pa.Schema:
        """Return the full schema in the types of one file; types are converted after the scan."""
        if self._given_schema is not None:
            return self._full_schema
        return pa.schema(
            [
                physical.field(field.name) if field.name in physical.names else field
                for field in self._full_schema
            ]
        )

    def _filter(self) -> pc.Expression | None:
        predicate = None if self._predicate_expr is None else self._predicate_expr.to_pyarrow()
        if predicate is None or self._scan_filter is None:
            return self._scan_filter if predicate is None else predicate
        return predicate & self._scan_filter

    def _fragment(
        self, path: str, row_groups: tuple[int, ...]
    ) -> pyarrow_dataset.ParquetFileFragment:
        guarantee = pc.scalar(True)
        for name, value in self._constants_of(path)[0].items():
            guarantee = guarantee & (
                pc.field(name).is_null() if value is None else pc.field(name) == pc.scalar(value)
            )
        return (
            arrow_dataset()
            .ParquetFileFormat(default_fragment_scan_options=self._scan_options)
            .make_fragment(
                path,
                filesystem=self._filesystem,
                partition_expression=guarantee,
                row_groups=row_groups,
            )
        )

    def _reader(self) -> ParquetDatasource:
        reader = super()._reader()
        reader._fragments = {}
        return reader

    def _read(self, group: Sequence[FilePart], batch_bytes: int | None) -> Iterator[pa.Table]:
        return merge_small_tables(
            table for part in group for table in self._read_part(part, batch_bytes)
        )

    def _read_part(self, part: FilePart, batch_bytes: int | None) -> Iterator[pa.Table]:
        schema = self.schema()
        batches = filesystems.iterate_with_retry(
            lambda: self._batches_of(part, batch_bytes), f"reading {part.path}", self._patterns
        )
        try:
            with self._named_errors(part.path):
                for table in batches:
                    for name, (dtype, shape) in self._tensor_columns.items():
                        if name in table.column_names:
                            table = _with_tensor(table, name, dtype, shape, part.path)
                    yield schemas.conform(table, schema)
        except IndexError as error:
            raise OSError(
                f"{part.path} has changed since the dataset was created: {error}. Create the "
                "dataset again"
            ) from error

    def _batches_of(self, part: FilePart, batch_bytes: int | None) -> Iterator[pa.Table]:
        # Read everything in one batch if it fits into a block: fewer, larger columns are faster in
        # all later steps.
        rows = (
            part.num_rows
            if batch_bytes is None
            else min(part.num_rows, part.num_rows * batch_bytes // max(1, part.decoded_bytes))
        )
        batch_rows, columns = self._batch_size or max(1, rows), self.schema().names
        if not self._needs_scan(columns):
            file = parquet_row_groups.open_file(self._filesystem, part.path)
            if parquet_row_groups.can_read(file, columns, self._predicate_expr):
                return parquet_row_groups.read(
                    file,
                    part.row_groups,
                    columns,
                    self._predicate_expr,
                    batch_rows=batch_rows,
                    use_threads=self._use_threads,
                )
            file.close()
        fragment = self._fragment(part.path, part.row_groups)
        scanner = fragment.scanner(
            schema=self._scan_schema(fragment.physical_schema),
            columns=columns,
            filter=self._filter(),
            batch_size=batch_rows,
            use_threads=self._use_threads,
        )
        return (pa.Table.from_batches([batch]) for batch in scanner.to_batches())

    def _needs_scan(self, columns: Sequence[str]) -> bool:
        """Return True if the arguments, or columns of the paths, need Arrow's scanner for every
        file.
        """
        return (
            self._given_schema is not None
            or self._scan_filter is not None
            or self._scan_options is not None
            or not set(self._file_schema.names).issuperset(
                parquet_row_groups.needed(columns, self._predicate_expr)
            )
        )

    def _tensor_field(self, field: pa.Field) -> pa.Field:
        if field.name not in self._tensor_columns:
            return field
        dtype, shape = self._tensor_columns[field.name]
        return pa.field(field.name, pa.fixed_shape_tensor(pa.from_numpy_dtype(dtype), shape))

    def _options(self) -> object:
        return (str(self._scan_filter), str(self._given_schema), self._tensor_columns)

    def __copy__(self) -> ParquetDatasource:
        # Keeps the footers, so that a projection does not read them again.
        clone = object.__new__(type(self))
        vars(clone).update(vars(self))
        return clone

    def __getstate__(self) -> dict[str, Any]:
        # Footers stay on the driver: a task reads those of its own files.
        return {**self.__dict__, "_fragments": {}}


def _grouped(parts: Sequence[FilePart], target: float) -> list[list[FilePart]]:
    """Group adjacent row groups up to `target` bytes; merge those of one file into one part."""
    groups: list[list[FilePart]] = []
    size = math.inf
    for part in parts:
        if size + part.decoded_bytes > target:
            groups.append([part])
            size = part.decoded_bytes
            continue
        size += part.decoded_bytes
        last = groups[-1][-1]
        if last.path == part.path:
            groups[-1][-1] = FilePart(
                path=part.path,
                row_groups=last.row_groups + part.row_groups,
                num_rows=last.num_rows + part.num_rows,
                decoded_bytes=last.decoded_bytes + part.decoded_bytes,
            )
        else:
            groups[-1].append(part)
    return groups


def _decoded_bytes(chunk: Any) -> float:
    """Estimate the size of a column chunk in memory, in bytes."""
    width = _WIDTHS.get(chunk.physical_type)
    if width is not None:
        return float(chunk.num_values * width)
    repeated = (
        chunk.has_dictionary_page
        and chunk.total_uncompressed_size < _LONG_VALUE_BYTES * chunk.num_values
    )
    return float(
        chunk.total_uncompressed_size * (_DICTIONARY_RATIO if repeated else 1)
        + 4 * chunk.num_values
    )


def _with_tensor(
    table: pa.Table, name: str, dtype: np.dtype, shape: tuple[int, ...], path: str
) -> pa.Table:
    """Decode a column of bytes as tensors of one shape."""
    values = table.column(name)
    row_bytes = dtype.itemsize * math.prod(shape)
    sizes = pc.unique(pc.binary_length(values)).to_pylist()
    if sizes not in ([row_bytes], []):
        found = sorted(map(str, sizes))[:5]
        raise ValueError(
            f"{path}: tensor_column_schema declares {name!r} as {dtype} arrays of shape {shape}, "
            f"{row_bytes} bytes each, but there are values of {found} bytes"
        )
    content = b"".join(value for chunk in values.chunks for value in chunk.to_pylist())
    array = np.frombuffer(content, dtype).reshape(-1, *shape)
    return table.set_column(table.column_names.index(name), name, tensors.tensor_array(array))


def _scan_options(
    arguments: Mapping[str, Any],
) -> pyarrow_dataset.ParquetFragmentScanOptions | None:
    try:
        return arrow_dataset().ParquetFragmentScanOptions(**arguments) if arguments else None
    except TypeError as error:
        raise TypeError(
            f"read_parquet got {sorted(arguments)}: it accepts filter, schema, batch_size, "
            "use_threads and the options of pyarrow.dataset.ParquetFragmentScanOptions "
            f"({error})"
        ) from error
