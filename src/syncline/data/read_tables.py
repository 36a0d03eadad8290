"""`read_*` of tables, databases and stores that other libraries manage: Delta Lake, Iceberg,
MongoDB, Kafka and Zarr.

A call checks that the table exists and fixes what later executions read where the store can: a
version, a snapshot, offsets. Not covered: files and SQL (`read.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from syncline.data.columnar import schemas
from syncline.data.dataset import Dataset
from syncline.data.from_memory import from_arrow
from syncline.data.io.sources import delta
from syncline.data.io.sources.delta import DeltaDatasource
from syncline.data.io.sources.file_listing import FileShuffleConfig
from syncline.data.io.sources.iceberg import IcebergDatasource
from syncline.data.io.sources.kafka import KafkaDatasource, Offsets
from syncline.data.io.sources.mongo import MongoDatasource, Pipeline
from syncline.data.io.sources.zarr import ChunkShapes, ZarrDatasource
from syncline.data.options import READ, FileSystem, ReadOptions, further, keywords, refuse_catalog
from syncline.data.plan.function_options import Arguments
from syncline.data.read import read

if TYPE_CHECKING:
    from typing_extensions import Unpack


@keywords(READ, rest="arrow_parquet_args")
def read_delta(
    path: str | PathLike[str],
    version: int | None = None,
    *,
    storage_options: Arguments | None = None,
    filesystem: FileSystem | None = None,
    catalog: None = None,
    columns: list[str] | None = None,
    shuffle: Literal["files"] | FileShuffleConfig | None = None,
    include_paths: bool = False,
    **options: Unpack[ReadOptions],
) -> Dataset:
    """Read one version of a Delta Lake table, oldest files first. The log, the statistics in it and
    those in the files rule out files and row groups.

    Args:
        path: Path or URI of the table.
        version: Number of the version; None for the newest.
        storage_options: Options of the object store, as `deltalake` takes them.
        filesystem: A pyarrow filesystem whose root is the table; None for that of `deltalake`.
        catalog: Not supported.
        columns: Names of the columns to read, in this order; None for all.
        shuffle: Read the files in random order, a new one in each epoch.
        include_paths: Add the column `path`.
        options: `ReadOptions`; further keywords are those of `read_parquet` (`batch_size`,
            `use_threads`, …).

    Raises:
        FileNotFoundError: There is no Delta table.
        ImportError: deltalake is not installed.
        UnknownColumnError: The table lacks a column; the text has the nearest name.
        ValueError: The version does not exist, or the table uses deletion vectors or column
            mapping.
    """
    refuse_catalog(catalog, "the path or URI of the table")
    path = delta.one_path(path)
    table = delta.open_table(path, version, storage_options)
    empty = delta.schema_without_files(path, table)
    if empty is not None:
        schemas.require_columns(columns or (), empty.names)
        return from_arrow(empty.empty_table().select(columns or empty.names))
    source = DeltaDatasource(
        path,
        table,
        filesystem=filesystem,
        columns=columns,
        shuffle=shuffle,
        include_paths=include_paths,
        arrow_parquet_args=further(options, READ),
    )
    return read(source, options)


@keywords(READ)
def read_iceberg(
    *,
    table_identifier: str,
    row_filter: Any = None,
    selected_fields: tuple[str, ...] = ("*",),
    snapshot_id: int | None = None,
    scan_kwargs: Arguments | None = None,
    catalog_kwargs: Arguments | None = None,
    catalog: None = None,
    **options: Unpack[ReadOptions],
) -> Dataset:
    """Read one snapshot of an Iceberg table. `filter(expr=...)` and `select_columns` are applied to
    the manifests and files.

    Args:
        table_identifier: Name with its namespace, such as `db.table`.
        row_filter: A condition of `pyiceberg.expressions`, or its text.
        selected_fields: Names of the columns to read.
        snapshot_id: The snapshot; None for the current one.
        scan_kwargs: Further arguments of `pyiceberg.table.Table.scan`.
        catalog_kwargs: Arguments of `pyiceberg.catalog.load_catalog`: name, type, uri, ….
        catalog: Not supported.
        options: `ReadOptions`.

    Raises:
        ImportError: pyiceberg is not installed.
        UnknownColumnError: The table lacks a column; the text has the nearest name.
        ValueError: The table or snapshot does not exist; the text lists those that do.
    """
    refuse_catalog(catalog, "catalog_kwargs")
    source = IcebergDatasource(
        table_identifier,
        row_filter=row_filter,
        selected_fields=selected_fields,
        snapshot_id=snapshot_id,
        scan_kwargs=scan_kwargs,
        catalog_kwargs=catalog_kwargs,
    )
    return read(source, options)


@keywords(READ, rest="mongo_args")
def read_mongo(
    uri: str,
    database: str,
    collection: str,
    *,
    pipeline: Pipeline | None = None,
    schema: pa.Schema | Mapping[str, pa.DataType] | None = None,
    **options: Unpack[ReadOptions],
) -> Dataset:
    """Read the documents of a MongoDB collection in the order of `_id`, or the result of an
    aggregation. Ids become text.

    Args:
        uri: Connection string: `mongodb://user:password@host:27017`.
        database: Name of the database.
        collection: Name of the collection.
        pipeline: Stages of the aggregation. Stages that need all documents, such as `$group`, are
            computed in one task, others for each range of `_id`.
        schema: Fields to read, with their types; None infers the types of each block.
        options: `ReadOptions`; further keywords are those of pymongo's `Collection.aggregate`.

    Raises:
        ConnectionError: No server answers.
        ImportError: pymongo is not installed.
        ValueError: The database or the collection does not exist; the text lists those that do.
    """
    source = MongoDatasource(uri, database, collection, pipeline, schema, **further(options, READ))
    return read(source, options)


@keywords(READ, without=("parallelism",))
def read_kafka(
    topics: str | list[str],
    *,
    bootstrap_servers: str | list[str],
    trigger: Literal["once"] = "once",
    start_offset: Offsets = "earliest",
    end_offset: Offsets = "latest",
    kafka_auth_config: Any = None,
    consumer_config: Arguments | None = None,
    timeout_ms: int | None = None,
    **options: Unpack[ReadOptions],
) -> Dataset:
    """Read the messages of Kafka topics between two offsets: columns `offset`, `key`, `value`,
    `topic`, `partition`, `timestamp` (milliseconds), `timestamp_type` and `headers`.

    The offsets are fixed by the call, so that every epoch and every resumed run reads the same
    messages.

    Args:
        topics: One topic, or several.
        bootstrap_servers: Addresses `host:port`.
        trigger: Only "once".
        start_offset: First message: a number, a datetime (UTC without a zone), "earliest", or
            these by topic and partition.
        end_offset: Message after the last one: a number, a datetime, "latest", or these by topic
            and partition.
        kafka_auth_config: Deprecated: an object with the option names of kafka-python.
        consumer_config: Options of `confluent_kafka.Consumer`.
        timeout_ms: Longest duration of a read task in milliseconds, after which it ends with the
            messages that it has; None for no limit.
        options: `ReadOptions`.

    Raises:
        ConnectionError: No broker answers.
        ImportError: confluent-kafka is not installed.
        ValueError: A topic does not exist (the text lists those that do), or the offsets are in
            the wrong order.
    """
    if trigger != "once":
        raise ValueError(
            f"trigger={trigger!r}: only 'once' is offered, which reads up to end_offset. Call "
            "read_kafka again for later messages"
        )
    source = KafkaDatasource(
        topics,
        bootstrap_servers,
        start_offset,
        end_offset,
        kafka_auth_config,
        consumer_config,
        timeout_ms,
    )
    return read(source, options)


@keywords(READ, without=("parallelism",))
def read_zarr(
    path: str,
    *,
    filesystem: FileSystem | None = None,
    chunk_shapes: ChunkShapes = None,
    array_paths: Sequence[str] | None = None,
    allow_full_metadata_scan: bool = False,
    align_axis_0: bool = False,
    overlap: int = 0,
    **options: Unpack[ReadOptions],
) -> Dataset:
    """Read the chunks of the arrays of a Zarr store, version 2 or 3, as rows with the columns
    `array` (its path), `chunk_index`, `chunk_slices` (start and end along each axis) and `chunk`.

    With `align_axis_0`, a row is a range of the first axis: `t_start`, `t_stop` and a column for
    each array.

    Args:
        path: Path or URI of the store: a directory, or a local .zip file.
        filesystem: A pyarrow or fsspec filesystem; None finds it from the path.
        chunk_shapes: Lengths of the pieces along the leading axes, for all arrays or by path; None
            for the store's chunks.
        array_paths: Arrays to read; None for all.
        allow_full_metadata_scan: List all directories if the store has no consolidated metadata.
        align_axis_0: Read all arrays together, range by range of their first axis.
        overlap: With `align_axis_0`: further elements of the first axis that each row repeats from
            the next one.
        options: `ReadOptions`.

    Raises:
        FileNotFoundError: There is no store.
        ImportError: zarr is not installed.
        ValueError: An array does not exist, or the arrays do not fit together.
    """
    source = ZarrDatasource(
        path,
        filesystem=filesystem,
        chunk_shapes=chunk_shapes,
        array_paths=array_paths,
        allow_full_metadata_scan=allow_full_metadata_scan,
        align_axis_0=align_axis_0,
        overlap=overlap,
    )
    return read(source, options)
