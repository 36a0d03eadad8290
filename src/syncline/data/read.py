"""`read_*` and `range`: lazy datasets over files, numbers, queries, Lance and custom sources.

A call lists the files and checks the arguments, so that a missing path raises at the call;
executions read the rows. Paths are files and directories; directories are read recursively, in the
order of their names; globs are not expanded. Readers of files take the keywords of `FileOptions`
except those that their signature leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

from syncline.data.dataset import Dataset
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources.audio import AudioDatasource
from syncline.data.io.sources.avro import AvroDatasource
from syncline.data.io.sources.binary import BinaryDatasource
from syncline.data.io.sources.csv import CSVDatasource
from syncline.data.io.sources.datasource import Datasource
from syncline.data.io.sources.images import ImageDatasource
from syncline.data.io.sources.json import JSONDatasource
from syncline.data.io.sources.lance import LanceDatasource
from syncline.data.io.sources.numpy import NumpyDatasource
from syncline.data.io.sources.orc import ORCDatasource
from syncline.data.io.sources.parquet import ParquetDatasource, TensorColumnSchema
from syncline.data.io.sources.partitioning import HIVE
from syncline.data.io.sources.range import RangeDatasource
from syncline.data.io.sources.sql import Connection, SQLDatasource
from syncline.data.io.sources.text import TextDatasource
from syncline.data.io.sources.tfrecords import TFRecordDatasource
from syncline.data.io.sources.videos import VideoDatasource
from syncline.data.io.sources.webdataset import Codec, Selection, WebDatasetDatasource
from syncline.data.options import (
    FILES,
    READ,
    FileOptions,
    ReadOptions,
    further,
    keywords,
    num_blocks_of,
    read_resources,
    refuse_catalog,
    source_arguments,
)
from syncline.data.plan import checks
from syncline.data.plan.compute import ActorPoolStrategy, ComputeStrategy, TaskPoolStrategy
from syncline.data.plan.function_options import Arguments, Options
from syncline.data.plan.nodes import Read

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv, json
    from typing_extensions import Unpack

Paths: TypeAlias = str | PathLike[str] | Sequence[str | PathLike[str]]
"""Files and directories, paths or URIs, on one filesystem."""


class CSVOptions(FileOptions, total=False):
    """Options of `read_csv`."""

    read_options: csv.ReadOptions
    """Names of the columns, rows to skip, encoding, …"""
    parse_options: csv.ParseOptions
    """Delimiter, quotes, …"""
    convert_options: csv.ConvertOptions
    """Types of columns, null values, columns to read, …"""


class JSONOptions(FileOptions, total=False):
    """Options of `read_json`."""

    read_options: json.ReadOptions
    """Accepted without effect: files are parsed in pieces of whole lines."""
    parse_options: json.ParseOptions
    """Types of columns, …"""


class NumpyOptions(FileOptions, total=False):
    """Options of `read_numpy`: those of `numpy.load`."""

    fix_imports: bool
    encoding: str
    max_header_size: int


class ParquetOptions(FileOptions, total=False):
    """Options of `read_parquet`; those without a description are options of
    `pyarrow.dataset.ParquetFragmentScanOptions`.
    """

    filter: pc.Expression
    """Rows to read; `Dataset.filter(expr=)` is pushed down as well."""
    schema: pa.Schema
    """Schema of the files."""
    batch_size: int
    """Rows to decode together."""
    use_threads: bool
    """Decode the columns of one read task on several threads."""
    use_buffered_stream: bool
    buffer_size: int
    pre_buffer: bool
    cache_options: object
    thrift_string_size_limit: int
    thrift_container_size_limit: int
    decryption_config: object
    page_checksum_verification: bool
    arrow_extensions_enabled: bool


# -- any source


def read(source: Datasource, options: Options) -> Dataset:
    """Return the dataset of a source with `ReadOptions`; other options are ignored."""
    concurrency = options.get("concurrency")
    node = Read(
        source=source,
        parallelism=num_blocks_of(options.get("override_num_blocks"), options.get("parallelism")),
        concurrency=None
        if concurrency is None
        else checks.count("concurrency", concurrency, least=1),
        resources=read_resources(options),
    )
    return Dataset(node)


_RANGE: ReadOptions = {"parallelism": -1, "concurrency": None, "override_num_blocks": None}
"""Options of `range` and `range_tensor`."""


@keywords(READ, rest="read_args")
def read_datasource(
    datasource: Datasource,
    *,
    compute: ComputeStrategy | None = None,
    **options: Unpack[ReadOptions],
) -> Dataset:
    """Read a custom source.

    Args:
        datasource: The source.
        compute: Limit of concurrent tasks: a `TaskPoolStrategy`, or the maximum size of an
            `ActorPoolStrategy`; `concurrency` takes precedence.
        options: `ReadOptions`; further ones are arguments of `datasource.create_reader`, if the
            source has this method.

    Raises:
        TypeError: The object is not a `Datasource`, or a keyword is unknown.
    """
    others = further(options, READ)
    create_reader = getattr(datasource, "create_reader", None)
    if callable(create_reader):
        datasource = create_reader(**others)
    elif others:
        raise TypeError(
            f"read_datasource got {sorted(others)}, but {type(datasource).__name__} has no "
            "create_reader that would take them: "
            "give them to its constructor"
        )
    if not isinstance(datasource, Datasource):
        raise TypeError(
            f"read_datasource takes a Datasource, not {type(datasource).__name__}: subclass "
            "syncline.data.Datasource"
        )
    chosen: Arguments = dict(options)
    if compute is not None and chosen.get("concurrency") is None:
        chosen["concurrency"] = _most_at_once(compute)
    return read(datasource, chosen)


def _most_at_once(compute: ComputeStrategy) -> int | None:
    if isinstance(compute, TaskPoolStrategy):
        return compute.size
    if isinstance(compute, ActorPoolStrategy):
        return compute.max_size
    raise TypeError(
        f"compute={compute!r} is not a compute strategy: "
        "pass a TaskPoolStrategy or an ActorPoolStrategy"
    )


@keywords(_RANGE)
def range(n: int, **options: Unpack[ReadOptions]) -> Dataset:
    """Create a dataset of the numbers 0 to n-1, in the column `id`.

    Args:
        n: Number of rows.
        options: `override_num_blocks`, its older name `parallelism` and `concurrency` of
            `ReadOptions`.
    """
    return read(RangeDatasource(n, column_name="id"), options)


@keywords(_RANGE)
def range_tensor(n: int, *, shape: Sequence[int] = (1,), **options: Unpack[ReadOptions]) -> Dataset:
    """Create a dataset of tensors filled with 0 to n-1, in the column `data`. Other arguments as in
    `range`.

    Args:
        shape: Shape of each tensor.
    """
    return read(RangeDatasource(n, "tensor", shape, "data"), options)


@keywords(READ)
def read_sql(
    sql: str,
    connection_factory: Callable[[], Connection],
    *,
    sql_params: Sequence[object] | Options | None = None,
    shard_keys: list[str] | None = None,
    shard_hash_fn: str = "MD5",
    **options: Unpack[ReadOptions],
) -> Dataset:
    """Read the rows of a query through a PEP 249 connection.

    Args:
        sql: The query.
        connection_factory: Opens a connection; called by each task.
        sql_params: Parameters of the query, as the database's `execute` takes them.
        shard_keys: Columns that assign a row to a task: a column of integers by its ranges, others
            by their hash; None for one task.
        shard_hash_fn: Function of the database that converts the key to a number.
        options: `ReadOptions`.
    """
    return read(
        SQLDatasource(sql, connection_factory, shard_hash_fn, shard_keys, sql_params), options
    )


@keywords(READ, without=("parallelism",))
def read_lance(
    uri: str | list[str],
    *,
    version: int | str | None = None,
    columns: list[str] | None = None,
    filter: str | None = None,
    storage_options: dict[str, str] | None = None,
    scanner_options: Arguments | None = None,
    **options: Unpack[ReadOptions],
) -> Dataset:
    """Read Lance datasets.

    Args:
        uri: Path or URI, or several.
        version: Number or tag of the version; None for the newest.
        columns: Names of the columns to read; None for all.
        filter: A condition in SQL.
        storage_options: Options of the object store.
        scanner_options: Options of Lance's scanner.
        options: `ReadOptions`.

    Raises:
        ImportError: Lance is not installed.
        ValueError: The dataset or version does not exist.
    """
    return read(
        LanceDatasource(uri, version, columns, filter, storage_options, scanner_options), options
    )


# -- files

_STREAM = ("arrow_open_stream_args",)


def _own(options: type, base: type = FileOptions) -> list[str]:
    """Names that a TypedDict has besides those of its base."""
    return [name for name in options.__annotations__ if name not in base.__annotations__]


def _read_files(
    source: Callable[..., Datasource], paths: Paths, options: Options, **arguments: Any
) -> Dataset:
    """Return the dataset of a file source with `FileOptions` and source-specific arguments."""
    return read(source(paths, **arguments, **source_arguments(options)), options)


@keywords(
    FILES,
    changed={"partitioning": HIVE, "file_extensions": ParquetDatasource._FILE_EXTENSIONS},
    without=_STREAM,
    rest="arrow_parquet_args",
    known=_own(ParquetOptions),
)
def read_parquet(
    paths: Paths,
    *,
    columns: Sequence[str] | None = None,
    tensor_column_schema: TensorColumnSchema | None = None,
    skip_paths: str | Sequence[str] | None = None,
    include_row_hash: bool = False,
    catalog: None = None,
    **options: Unpack[ParquetOptions],
) -> Dataset:
    """Read Parquet files; only the columns, row groups and files that the plan needs are read.

    Args:
        paths: Files and directories.
        columns: Names of the columns to read, in this order; None for all.
        tensor_column_schema: Columns of bytes that become tensors: name -> (dtype, shape).
        skip_paths: Files to leave out; they need not exist.
        include_row_hash: Not supported.
        catalog: Not supported.
        options: `ParquetOptions`. Hive partitions (`name=value` directories) become columns.

    Raises:
        FileNotFoundError: A path does not exist.
        ValueError: A file is not in Parquet format, or an option is not supported.
        UnknownColumnError: The files lack a column; the text has the nearest name.
        SchemaMismatchError: The schemas of the files cannot be promoted to one.
    """
    if include_row_hash:
        raise ValueError(
            "include_row_hash=True is not offered: number the rows with with_column('id', "
            "monotonically_increasing_id()), "
            "and add their files with include_paths=True"
        )
    refuse_catalog(catalog, "the paths of the table's files")
    files = source_arguments(options)
    if skip_paths:
        files["partition_filter"] = _skipping(skip_paths, files)
    source = ParquetDatasource(
        paths,
        columns=columns,
        tensor_column_schema=tensor_column_schema,
        arrow_parquet_args=further(options, FILES),
        **files,
    )
    return read(source, options)


def _skipping(skip_paths: str | Sequence[str], files: Options) -> Callable[[list[str]], list[str]]:
    skipped = set(filesystems.resolve(skip_paths, files.get("filesystem"))[1])
    accepts = files.get("partition_filter") or list
    return lambda paths: [path for path in accepts(paths) if path not in skipped]


@keywords(FILES, changed={"partitioning": HIVE}, rest="arrow_csv_args", known=_own(CSVOptions))
def read_csv(paths: Paths, **options: Unpack[CSVOptions]) -> Dataset:
    """Read CSV files. Types are inferred from the first megabytes of each file, unless
    `convert_options` names them.

    Args:
        paths: Files and directories; files ending in .gz, .bz2, .zst, .lz4 and .br are
            decompressed.
        options: `CSVOptions`. Hive partitions (`name=value` directories) become columns.

    Raises:
        FileNotFoundError: A path does not exist.
    """
    return _read_files(CSVDatasource, paths, options, **further(options, FILES))


@keywords(
    FILES,
    changed={"partitioning": HIVE, "file_extensions": JSONDatasource._FILE_EXTENSIONS},
    rest="arrow_json_args",
    known=_own(JSONOptions),
)
def read_json(paths: Paths, *, lines: bool = False, **options: Unpack[JSONOptions]) -> Dataset:
    """Read JSON files with one object per line, or documents that hold a list of objects.

    Args:
        paths: Files and directories.
        lines: The files hold one object per line; False detects it.
        options: `JSONOptions`. Hive partitions (`name=value` directories) become columns.

    Raises:
        FileNotFoundError: A path does not exist.
    """
    return _read_files(JSONDatasource, paths, options, lines=lines, **further(options, FILES))


@keywords(FILES)
def read_text(
    paths: Paths,
    *,
    encoding: str = "utf-8",
    drop_empty_lines: bool = True,
    **options: Unpack[FileOptions],
) -> Dataset:
    """Read the lines of text files, in the column `text`.

    Args:
        paths: Files and directories.
        encoding: Encoding of the files.
        drop_empty_lines: Leave out lines with whitespace only.
        options: `FileOptions`.

    Raises:
        FileNotFoundError: A path does not exist.
    """
    return _read_files(
        TextDatasource, paths, options, encoding=encoding, drop_empty_lines=drop_empty_lines
    )


@keywords(FILES)
def read_binary_files(paths: Paths, **options: Unpack[FileOptions]) -> Dataset:
    """Read each file as one row with its content, in the column `bytes`.

    Args:
        paths: Files and directories.
        options: `FileOptions`.

    Raises:
        FileNotFoundError: A path does not exist.
    """
    return _read_files(BinaryDatasource, paths, options)


@keywords(
    FILES,
    changed={"file_extensions": NumpyDatasource._FILE_EXTENSIONS},
    rest="numpy_load_args",
    known=_own(NumpyOptions),
)
def read_numpy(
    paths: Paths, *, allow_pickle: bool = False, **options: Unpack[NumpyOptions]
) -> Dataset:
    """Read the rows of arrays `(rows, …)` in `.npy` files, in the column `data`.

    Args:
        paths: Files and directories.
        allow_pickle: Read arrays of objects too, which unpickles (and runs) code in the file.
        options: `NumpyOptions`.

    Raises:
        FileNotFoundError: A path does not exist.
    """
    arguments = further(options, FILES)
    return _read_files(
        NumpyDatasource, paths, options, numpy_load_args=arguments, allow_pickle=allow_pickle
    )


@keywords(FILES, changed={"file_extensions": ImageDatasource._FILE_EXTENSIONS}, without=_STREAM)
def read_images(
    paths: Paths,
    *,
    size: tuple[int, int] | None = None,
    mode: str | None = None,
    arrow_open_file_args: Arguments | None = None,
    **options: Unpack[FileOptions],
) -> Dataset:
    """Read each image file as one row: an array `(height, width)` or `(height, width, channels)`,
    in the column `image`.

    Args:
        paths: Files and directories.
        size: Height and width to resize every image to; None keeps the sizes, so the column may be
            ragged.
        mode: Pillow mode to convert every image to ("RGB", "L", …); None keeps the modes.
        arrow_open_file_args: Arguments of `filesystem.open_input_stream`.
        options: `FileOptions`.

    Raises:
        FileNotFoundError: A path does not exist.
        ImportError: pillow is not installed.
    """
    return _read_files(
        ImageDatasource, paths, options, size=size, mode=mode, open_stream_args=arrow_open_file_args
    )


@keywords(
    FILES, changed={"file_extensions": VideoDatasource._FILE_EXTENSIONS}, without=("parallelism",)
)
def read_videos(
    paths: Paths,
    *,
    include_timestamps: bool = False,
    fps: int | None = None,
    resize: tuple[int, int] | None = None,
    **options: Unpack[FileOptions],
) -> Dataset:
    """Read each frame of video files as one row: an array `(height, width, 3)` in the column
    `frame`, and its number in `frame_index`.

    Args:
        paths: Files and directories.
        include_timestamps: Add the column `frame_timestamp`: start and end of the frame in seconds.
        fps: Frames of a second to keep, about; None for all.
        resize: Height and width to resize every frame to.
        options: `FileOptions`.

    Raises:
        FileNotFoundError: A path does not exist.
        ImportError: PyAV is not installed.
    """
    return _read_files(
        VideoDatasource,
        paths,
        options,
        include_timestamps=include_timestamps,
        fps=fps,
        resize=resize,
    )


@keywords(
    FILES, changed={"file_extensions": AudioDatasource._FILE_EXTENSIONS}, without=("parallelism",)
)
def read_audio(paths: Paths, **options: Unpack[FileOptions]) -> Dataset:
    """Read each audio file as one row: an array `(channels, samples)` of 32-bit floats from -1 to
    1 in the column `amplitude`, and the samples per second in `sample_rate`.

    Args:
        paths: Files and directories.
        options: `FileOptions`.

    Raises:
        FileNotFoundError: A path does not exist.
        ImportError: soundfile is not installed.
    """
    return _read_files(AudioDatasource, paths, options)


@keywords(FILES)
def read_avro(paths: Paths, **options: Unpack[FileOptions]) -> Dataset:
    """Read each record of Avro files as one row.

    Args:
        paths: Files and directories.
        options: `FileOptions`.

    Raises:
        FileNotFoundError: A path does not exist.
        ImportError: fastavro is not installed.
    """
    return _read_files(AvroDatasource, paths, options)


@keywords(FILES, changed={"file_extensions": ORCDatasource._FILE_EXTENSIONS}, without=_STREAM)
def read_orc(paths: Paths, **options: Unpack[FileOptions]) -> Dataset:
    """Read ORC files; only the columns that the plan needs are read.

    Args:
        paths: Files and directories.
        options: `FileOptions`.

    Raises:
        FileNotFoundError: A path does not exist.
        ValueError: The first file is not in ORC format.
    """
    return _read_files(ORCDatasource, paths, options)


@keywords(FILES, without=("partitioning",))
def read_tfrecords(
    paths: Paths, *, tf_schema: object = None, **options: Unpack[FileOptions]
) -> Dataset:
    """Read each `tf.train.Example` in TFRecord files as one row, with a column for each feature;
    needs no TensorFlow.

    Args:
        paths: Files and directories.
        tf_schema: A `tensorflow_metadata` Schema: its features become columns of lists of their
            kind; other features are left out.
        options: `FileOptions`.

    Raises:
        FileNotFoundError: A path does not exist.
        ImportError: protobuf is not installed.
    """
    return _read_files(TFRecordDatasource, paths, options, tf_schema=tf_schema)


@keywords(FILES, without=("partitioning",))
def read_webdataset(
    paths: Paths,
    *,
    decoder: Codec = True,
    fileselect: Selection = None,
    filerename: Callable[[str], str] | list[Callable[[str], str]] | None = None,
    suffixes: Selection = None,
    verbose_open: bool = False,
    expand_json: bool = False,
    **options: Unpack[FileOptions],
) -> Dataset:
    """Read WebDataset shards: tar files in which neighbouring files with the same name before the
    first "." are one row.

    Args:
        paths: Files and directories.
        decoder: How bytes become values: True for the rules of the extensions, a function on the
            row, a list of these, or None for bytes.
        fileselect: Names of files to read: patterns, extensions or a function on the name.
        filerename: A function, or a list of functions, from names to names.
        suffixes: Extensions to keep: patterns, extensions or a function on the extension.
        verbose_open: Print when a shard is opened and closed.
        expand_json: Turn the fields of the column `json` into columns.
        options: `FileOptions`.

    Raises:
        FileNotFoundError: A path does not exist.
    """
    return _read_files(
        WebDatasetDatasource,
        paths,
        options,
        decoder=decoder,
        fileselect=fileselect,
        filerename=filerename,
        suffixes=suffixes,
        verbose_open=verbose_open,
        expand_json=expand_json,
    )
