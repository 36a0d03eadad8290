"""Reading Parquet: only the files, row groups and columns that are needed, with exact numbers of
rows from the footers.

A read task is a run of row groups, of about `target_max_block_size` decoded bytes at most, or a
single larger row group, which is streamed. Partition columns and the column `path` are constants of
a file to the scan, so that filters on them leave out whole files. Not covered: other table formats
on top of Parquet.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncline.data.columnar import schemas, tensors
from syncline.data.columnar.schemas import SchemaMismatchError, UnknownColumnError
from syncline.data.context import DataContext
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources.datasource import BlockMetadata, ReadTask
from syncline.data.io.sources.file_based_datasource import FileBasedDatasource, joined
from syncline.data.io.sources.file_listing import FileInfo
from syncline.data.io.sources.partitioning import HIVE, Partitioning
from syncline.optional import arrow_dataset

if TYPE_CHECKING:
    import pyarrow.dataset as pyarrow_dataset

    from syncline.data.columnar.expressions import Expr

TensorColumnSchema = Mapping[str, tuple[Any, tuple[int, ...]]]
"""Column of bytes -> (dtype, shape) of the array that each value holds in C order."""

# As many footers are read when the dataset is made, which finds files that do not fit; the others
# wait until they are needed.
_FOOTERS_AT_ONCE = 256
_THREADS = 16
# Bytes of one value of Parquet's physical types; None where the values say themselves.
_WIDTHS = {"BOOLEAN": 0.125, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
# Short text that is written once for many rows takes more room when it is read; of long values
# (images) there is a dictionary page only until the writer gives it up.
_DICTIONARY_RATIO = 3
_LONG_VALUE_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Row groups of one file that are read together."""

    path: str
    """The file."""
    row_groups: tuple[int, ...]
    """Numbers of the row groups within it."""
    num_rows: int
    """Rows in them, before any filter."""
    decoded_bytes: int
    """About how many bytes they take in memory."""


class ParquetDatasource(FileBasedDatasource):
    """Reads Parquet files.

    Args:
        paths: As `FileBasedDatasource` takes them. columns: Names of the columns to read, in this
        order; None for all. tensor_column_schema: Columns of bytes that become tensors.
        arrow_parquet_args: `filter` (a pyarrow expression), `schema` (what the files are read as),
        `batch_size` (rows), `use_threads` (of
            Arrow within one read task) and the options of
            `pyarrow.dataset.ParquetFragmentScanOptions`.
        partitioning: Columns that stand in the paths; a column that the file has itself counts
        more. file_based_datasource_kwargs: As `FileBasedDatasource` takes them.

    Raises:
        FileNotFoundError: A path does not exist.
        ValueError: A file is no Parquet.
        UnknownColumnError: A column that the files do not have.
        SchemaMismatchError: Files whose schemas do not fit together; the text names them.
    """

    _FILE_EXTENSIONS = ["parquet"]

    def __init__(
        self,
        paths: Any,
        *,
        columns: Sequence[str] | None = None,
        tensor_column_schema: TensorColumnSchema | None = None,
        arrow_parquet_args: Mapping[str, Any] | None = None,
        partitioning: Partitioning | None = HIVE,
        **file_based_datasource_kwargs: Any,
    ) -> None:
        super().__init__(paths, partitioning=partitioning, **file_based_datasource_kwargs)
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
        self._file_schema = self._given_schema or self._unified(self._files[:_FOOTERS_AT_ONCE])
        self._constant_types = self._constants_of(self._files[0].path)[1]
        self._full_schema = self._with_constants(self._file_schema)
        self._check_known([*(columns or ()), *self._tensor_columns])
        if columns is not None:
            self._projection = (
                *columns,
                *(["path"] if self._include_paths and "path" not in columns else []),
            )

    def schema(self) -> pa.Schema:
        """Known from the footers: the files' columns, those of their paths, `path`; after the
        projection.
        """
        names = self._full_schema.names if self._projection is None else self._projection
        return pa.schema([self._tensor_field(self._full_schema.field(name)) for name in names])

    def num_rows(self) -> int | None:
        """Exact without a filter; reads the footers that have not been read yet."""
        if self._predicate_expr is not None or self._scan_filter is not None:
            return None
        self._load(self._files)
        return sum(int(self._fragments[file.path].metadata.num_rows) for file in self._files)

    def estimate_inmemory_data_size(self) -> int | None:
        """From the footers that were read; the rest by their files' sizes."""
        known = [file for file in self._files if file.path in self._fragments]
        if not known:
            return None
        ratio = self._ratio()
        decoded = sum(
            piece.decoded_bytes
            for file in known
            for piece in self._row_groups(file.path, None, ratio)
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
        """Other columns are not read."""
        return True

    def supports_predicate_pushdown(self) -> bool:
        """Row groups whose statistics rule the predicate out are not read, nor files whose paths
        do.
        """
        return True

    def apply_predicate(self, predicate_expr: Expr) -> ParquetDatasource:
        """A copy that reads only rows for which the predicate is true. ValueError for one that
        Arrow cannot evaluate, see `to_arrow`.
        """
        predicate_expr.to_pyarrow()
        return super().apply_predicate(predicate_expr)

    def supports_limit_pushdown(self) -> bool:
        """Footers behind the limit are not read."""
        return True

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """Runs of row groups, about equal in decoded bytes."""
        context = data_context or DataContext.get_current()
        pieces = self._pieces(context)
        total = sum(piece.decoded_bytes for piece in pieces)
        limit = context.target_max_block_size or math.inf
        target = min(limit, total / max(1, parallelism))
        reader = self._reader()
        batch_bytes = context.target_max_block_size
        return [
            self._task(run, functools.partial(reader._read, run, batch_bytes), per_task_row_limit)
            for run in _runs(pieces, target)
        ]

    def _task(
        self,
        run: Sequence[Piece],
        read: functools.partial[Iterator[pa.Table]],
        row_limit: int | None,
    ) -> ReadTask:
        exact = self._filter() is None
        metadata = BlockMetadata(
            num_rows=sum(piece.num_rows for piece in run) if exact else None,
            size_bytes=sum(piece.decoded_bytes for piece in run),
            input_files=tuple(dict.fromkeys(piece.path for piece in run)),
        )
        first, last = run[0], run[-1]
        name = f"{first.path}#{first.row_groups[0]}..{'' if last.path == first.path else last.path}#{last.row_groups[-1]}"
        return ReadTask(read, metadata, self.schema(), row_limit, fragment=name)

    # From files to row groups

    def _pieces(self, context: DataContext) -> list[Piece]:
        """The row groups to read, in order, one a piece."""
        files = [file for file in self.ordered_files(context) if self._may_match(file.path)]
        found: list[Piece] = []
        expression, ratio = self._filter(), self._ratio()
        left = math.inf if self._row_limit is None or expression is not None else self._row_limit
        for start in range(0, len(files), _FOOTERS_AT_ONCE):
            batch = files[start : start + _FOOTERS_AT_ONCE]
            self._load(batch)
            for file in batch:
                for piece in self._row_groups(file.path, expression, ratio):
                    if left <= 0:
                        return found
                    found.append(piece)
                    left -= piece.num_rows
        return found

    def _row_groups(self, path: str, expression: pc.Expression | None, ratio: float) -> list[Piece]:
        fragment = self._fragments[path]
        if expression is not None:
            schema = self._scan_schema(fragment.physical_schema)
            # With the constants of the path, which loading left out because they need the schema of
            # all files.
            fragment = self._fragment(path, tuple(range(fragment.metadata.num_row_groups)))
            fragment = self._explained(
                path, lambda: fragment.subset(filter=expression, schema=schema)
            )
        return [
            Piece(
                path=path,
                row_groups=(group.id,),
                num_rows=group.num_rows,
                decoded_bytes=int(group.total_byte_size * ratio) + 1,
            )
            for group in fragment.row_groups
            if group.num_rows
        ]

    def _may_match(self, path: str) -> bool:
        """False if the constants of a file rule out the predicate, so that its footer need not be
        read.
        """
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
        """Decoded bytes of the columns that are read for each encoded byte of all columns, found
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

    # Footers and schemas

    def _load(self, files: Sequence[FileInfo]) -> None:
        """Read the footers that have not been read yet. ValueError names a file that is no
        Parquet.
        """
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

        return self._explained(
            path, lambda: filesystems.call_with_retry(read, f"reading {path}", self._patterns)
        )

    def _unified(self, files: Sequence[FileInfo]) -> pa.Schema:
        unified = self._fragments[files[0].path].physical_schema.remove_metadata()
        for file in files[1:]:
            unified = self._joined_schema(unified, file.path)
        return unified

    def _joined_schema(self, known: pa.Schema, path: str) -> pa.Schema:
        own = self._fragments[path].physical_schema
        if own.equals(known):
            return known
        try:
            return schemas.unify([known, own])
        except SchemaMismatchError as error:
            raise SchemaMismatchError(
                f"{path} does not fit the files before it, such as {self._files[0].path}: {error}"
            ) from error

    def _constants_of(self, path: str) -> tuple[dict[str, Any], dict[str, pa.DataType]]:
        """Values and types of the columns that one file's path gives."""
        values: dict[str, Any] = {} if self._parser is None else self._parser(path)
        values = {
            name: value for name, value in values.items() if name not in self._file_schema.names
        }
        types = {} if self._parser is None else self._parser.types(list(values))
        if self._include_paths:
            values, types = {**values, "path": path}, {**types, "path": pa.string()}
        return values, types

    def _with_constants(self, schema: pa.Schema) -> pa.Schema:
        for name, type_ in self._constant_types.items():
            schema = schema.append(pa.field(name, type_))
        return schema

    def _scan_schema(self, physical: pa.Schema) -> pa.Schema:
        """The full schema in the types of one file: what differs is converted after the scan,
        tensors included.
        """
        if self._given_schema is not None:
            return self._full_schema
        return pa.schema(
            [
                physical.field(field.name) if field.name in physical.names else field
                for field in self._full_schema
            ]
        )

    def _check_known(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in self._full_schema.names:
                raise UnknownColumnError(name, self._full_schema.names)

    # Reading

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

    def _read(self, run: Sequence[Piece], batch_bytes: int | None) -> Iterator[pa.Table]:
        return joined(table for piece in run for table in self._read_piece(piece, batch_bytes))

    def _read_piece(self, piece: Piece, batch_bytes: int | None) -> Iterator[pa.Table]:
        schema = self.schema()
        batches = filesystems.iterate_with_retry(
            lambda: self._batches_of(piece, batch_bytes), f"reading {piece.path}", self._patterns
        )
        try:
            for batch in batches:
                table = pa.Table.from_batches([batch])
                for name, (dtype, shape) in self._tensor_columns.items():
                    if name in table.column_names:
                        table = _with_tensor(table, name, dtype, shape, piece.path)
                yield schemas.conform(table, schema)
        except (pa.ArrowInvalid, SchemaMismatchError) as error:
            raise _unreadable(piece.path, error) from error
        except IndexError as error:
            message = f"{piece.path} is not the file that it was when the dataset was made: {error}; make the dataset again"
            raise OSError(message) from error
        except OSError as error:
            kind = (
                type(error) if isinstance(error, FileNotFoundError | PermissionError) else OSError
            )
            raise kind(
                f"{piece.path} cannot be read as Parquet (row groups {list(piece.row_groups)}): {error}"
            ) from error

    def _batches_of(self, piece: Piece, batch_bytes: int | None) -> Iterator[pa.RecordBatch]:
        fragment = self._fragment(piece.path, piece.row_groups)
        # One batch for a whole run if it may be one block: fewer, larger columns are quicker
        # everywhere after this.
        rows = (
            piece.num_rows
            if batch_bytes is None
            else min(piece.num_rows, piece.num_rows * batch_bytes // max(1, piece.decoded_bytes))
        )
        scanner = fragment.scanner(
            schema=self._scan_schema(fragment.physical_schema),
            columns=self.schema().names,
            filter=self._filter(),
            batch_size=self._batch_size or max(1, rows),
            use_threads=self._use_threads,
        )
        return iter(scanner.to_batches())

    def _tensor_field(self, field: pa.Field) -> pa.Field:
        if field.name not in self._tensor_columns:
            return field
        dtype, shape = self._tensor_columns[field.name]
        return pa.field(field.name, pa.fixed_shape_tensor(pa.from_numpy_dtype(dtype), shape))

    def _explained(self, path: str, call: Any) -> Any:
        try:
            return call()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _unreadable(path, error) from error
        except FileNotFoundError:
            raise
        except OSError as error:
            raise OSError(f"{path} cannot be read as Parquet: {error}") from error

    def _options(self) -> object:
        return (str(self._scan_filter), str(self._given_schema), self._tensor_columns)

    def __copy__(self) -> ParquetDatasource:
        # With its footers, so that they are not read once more for a projection, say.
        clone = object.__new__(type(self))
        vars(clone).update(vars(self))
        return clone

    def __getstate__(self) -> dict[str, Any]:
        # Footers stay with the driver: a task reads those of its own files again.
        return {**self.__dict__, "_fragments": {}}


def _runs(pieces: Sequence[Piece], target: float) -> list[list[Piece]]:
    """Neighbouring row groups together, up to `target` bytes; neighbours in one file as one
    piece.
    """
    runs: list[list[Piece]] = []
    size = math.inf
    for piece in pieces:
        if size + piece.decoded_bytes > target:
            runs.append([piece])
            size = piece.decoded_bytes
            continue
        size += piece.decoded_bytes
        last = runs[-1][-1]
        if last.path == piece.path:
            runs[-1][-1] = Piece(
                path=piece.path,
                row_groups=last.row_groups + piece.row_groups,
                num_rows=last.num_rows + piece.num_rows,
                decoded_bytes=last.decoded_bytes + piece.decoded_bytes,
            )
        else:
            runs[-1].append(piece)
    return runs


def _decoded_bytes(chunk: Any) -> float:
    """About how many bytes a column chunk takes in memory."""
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
    """The table with a column of bytes as tensors of one shape."""
    values = table.column(name)
    row_bytes = dtype.itemsize * math.prod(shape)
    sizes = pc.unique(pc.binary_length(values)).to_pylist()
    if sizes not in ([row_bytes], []):
        raise ValueError(
            f"{path}: tensor_column_schema says that {name!r} holds arrays {shape} of {dtype}, {row_bytes} bytes each, "
            f"but there are values of {sorted(map(str, sizes))[:5]} bytes"
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
            f"read_parquet got {sorted(arguments)}: it takes filter, schema, batch_size, use_threads and the options of "
            f"pyarrow.dataset.ParquetFragmentScanOptions ({error})"
        ) from error


def _unreadable(path: str, error: BaseException) -> ValueError:
    return ValueError(f"{path} cannot be read as Parquet: {error}")
