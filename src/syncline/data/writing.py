"""Writing datasets: a method of `Dataset` for each format. All of them execute the plan and return
when the result is visible.

Results appear whole or not at all, also when a mode replaces something. A program that was killed
while it wrote goes on where it was when it is started again and writes the same dataset to the same
target. Every writer of files takes the keywords of `FileWriteOptions` besides its own, and those
that put several rows into a file the keywords of `BlockFileWriteOptions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from syncline.data.io import write_job
from syncline.data.io.sinks.csv import CSVDatasink
from syncline.data.io.sinks.datasink import Datasink, SaveMode
from syncline.data.io.sinks.images import ImageDatasink
from syncline.data.io.sinks.json import JSONDatasink
from syncline.data.io.sinks.lance import LanceDatasink
from syncline.data.io.sinks.numpy import NumpyDatasink
from syncline.data.io.sinks.orc import ORCDatasink
from syncline.data.io.sinks.parquet import ParquetDatasink
from syncline.data.io.sinks.sql import SQLDatasink
from syncline.data.io.sinks.tfrecords import TFRecordDatasink
from syncline.data.io.sinks.webdataset import WebDatasetDatasink
from syncline.data.io.sources.sql import Connection
from syncline.data.io.sources.webdataset import Codec
from syncline.data.keywords import keywords
from syncline.data.methods.handle import Handle
from syncline.data.options import (
    BLOCK_FILES_WRITE,
    FILES_WRITE,
    WRITE,
    BlockFileWriteOptions,
    FileWriteOptions,
    WriteOptions,
    at_least_one,
    resources_of,
    rest_of,
    sink_arguments,
)
from syncline.data.plan.nodes import Write

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Unpack

ArgumentsFunction = Callable[[], dict[str, Any]] | None
"""Makes arguments of a library's writer, on the worker: for what cannot be pickled."""


class WritingMixin(Handle):
    """The `write_*` methods of `Dataset`."""

    @keywords(BLOCK_FILES_WRITE, rest="arrow_parquet_args")
    def write_parquet(
        self,
        path: str,
        *,
        partition_cols: list[str] | None = None,
        catalog: None = None,
        arrow_parquet_args_fn: ArgumentsFunction = None,
        max_rows_per_file: int | None = None,
        min_bytes_per_file: int | None = None,
        **options: Any,
    ) -> None:
        """Write Parquet files.

        Args:
            path: The directory. partition_cols: Columns that become `name=value` directories.
            catalog: Not offered. arrow_parquet_args_fn: Returns more of the further keywords,
            called by each write task. max_rows_per_file: Rows of every file at most.
            min_bytes_per_file: Bytes in memory of the rows of every file but the last at least; not
            together with rows per file. options: See `BlockFileWriteOptions`; further ones are for
            `pyarrow.parquet.write_table` (compression, row_group_size, …).

        Raises:
            ValueError: The target exists and `mode` is create or error; limits that exclude each
            other.
        """
        if catalog is not None:
            raise ValueError("catalog=… is not offered: pass the directory of the table's files")
        sink = ParquetDatasink(
            path,
            partition_cols=partition_cols,
            arrow_parquet_args_fn=arrow_parquet_args_fn,
            arrow_parquet_args=rest_of(options, BLOCK_FILES_WRITE),
            max_rows_per_file=max_rows_per_file,
            min_bytes_per_file=min_bytes_per_file,
            **sink_arguments(options),
        )
        self._write(sink, options)

    @keywords(BLOCK_FILES_WRITE, rest="arrow_csv_args")
    def write_csv(
        self, path: str, *, arrow_csv_args_fn: ArgumentsFunction = None, **options: Any
    ) -> None:
        """Write CSV files with a header.

        Args:
            path: The directory.
            arrow_csv_args_fn: Returns more of the further keywords, called for each file.
            options: See `BlockFileWriteOptions`; further ones are for `pyarrow.csv.write_csv`.

        Raises:
            ValueError: A column that CSV cannot hold; the target exists and `mode` is create or
            error.
        """
        arguments = rest_of(options, BLOCK_FILES_WRITE)
        self._write(
            CSVDatasink(
                path,
                arrow_csv_args_fn=arrow_csv_args_fn,
                arrow_csv_args=arguments,
                **sink_arguments(options),
            ),
            options,
        )

    @keywords(BLOCK_FILES_WRITE, rest="pandas_json_args")
    def write_json(
        self, path: str, *, pandas_json_args_fn: ArgumentsFunction = None, **options: Any
    ) -> None:
        """Write JSON files, one object a line.

        Args:
            path: The directory.
            pandas_json_args_fn: Returns more of the further keywords, called for each file.
            options: See `BlockFileWriteOptions`; further ones are for `pandas.DataFrame.to_json`.

        Raises:
            ValueError: The target exists and `mode` is create or error.
        """
        arguments = rest_of(options, BLOCK_FILES_WRITE)
        sink = JSONDatasink(
            path,
            pandas_json_args_fn=pandas_json_args_fn,
            pandas_json_args=arguments,
            **sink_arguments(options),
        )
        self._write(sink, options)

    @keywords(BLOCK_FILES_WRITE, without=("num_rows_per_file",), rest="arrow_orc_args")
    def write_orc(
        self, path: str, *, arrow_orc_args_fn: ArgumentsFunction = None, **options: Any
    ) -> None:
        """Write ORC files.

        Args:
            path: The directory.
            arrow_orc_args_fn: Returns more of the further keywords, called for each file.
            options: See `BlockFileWriteOptions`; further ones are for `pyarrow.orc.write_table`.

        Raises:
            ValueError: A column that ORC cannot hold; the target exists and `mode` is create or
            error.
        """
        arguments = rest_of(options, BLOCK_FILES_WRITE)
        self._write(
            ORCDatasink(
                path,
                arrow_orc_args_fn=arrow_orc_args_fn,
                arrow_orc_args=arguments,
                **sink_arguments(options),
            ),
            options,
        )

    @keywords(BLOCK_FILES_WRITE)
    def write_numpy(
        self, path: str, *, column: str, **options: Unpack[BlockFileWriteOptions]
    ) -> None:
        """Write one column as arrays `(rows, …)` in `.npy` files.

        Args:
            path: The directory.
            column: The column.
            options: See `BlockFileWriteOptions`.

        Raises:
            ValueError: There is no such column; the target exists and `mode` is create or error.
        """
        self._write(NumpyDatasink(path, column, **sink_arguments(options)), options)

    @keywords(FILES_WRITE)
    def write_images(
        self, path: str, column: str, file_format: str = "png", **options: Unpack[FileWriteOptions]
    ) -> None:
        """Write one column of arrays `(height, width[, channels])` as image files, one a row.

        Args:
            path: The directory.
            column: The column.
            file_format: Format and extension: "png", "jpeg", ….
            options: See `FileWriteOptions`.

        Raises:
            ImportError: pillow is not installed.
            ValueError: There is no such column; the target exists and `mode` is create or error.
        """
        self._write(ImageDatasink(path, column, file_format, **sink_arguments(options)), options)

    @keywords(BLOCK_FILES_WRITE)
    def write_tfrecords(
        self, path: str, *, tf_schema: Any = None, **options: Unpack[BlockFileWriteOptions]
    ) -> None:
        """Write a `tf.train.Example` for each row, in TFRecord files; needs no TensorFlow.

        Args:
            path: The directory. tf_schema: A `tensorflow_metadata` Schema that says the kind of
            every column; found from the columns' types if None. options: See
            `BlockFileWriteOptions`.

        Raises:
            ImportError: protobuf is not installed.
            ValueError: The target exists and `mode` is create or error.
        """
        self._write(TFRecordDatasink(path, tf_schema=tf_schema, **sink_arguments(options)), options)

    @keywords(BLOCK_FILES_WRITE)
    def write_webdataset(
        self, path: str, *, encoder: Codec = True, **options: Unpack[BlockFileWriteOptions]
    ) -> None:
        """Write WebDataset shards: tar files in which the files of one row lie together.

        Args:
            path: The directory. encoder: How values become bytes: True for the rules of the
            columns' names, a function on the row, a list of these, or None
                for rows that hold bytes and text already.
            options: See `BlockFileWriteOptions`.

        Raises:
            ValueError: The target exists and `mode` is create or error.
        """
        self._write(WebDatasetDatasink(path, encoder, **sink_arguments(options)), options)

    def write_sql(
        self,
        sql: str,
        connection_factory: Callable[[], Connection],
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Run one statement for each row. Each write task is one transaction; a job that is started
        again writes its rows again.

        Args:
            sql: The statement, with a parameter for each column in their order: `INSERT INTO t
            VALUES (?, ?)`. connection_factory: Opens a connection as PEP 249 describes it; called
            by each write task. ray_remote_args: Options of `remote` for the write tasks.
            concurrency: The most write tasks at once; None for as many as there is room for.
        """
        self._write(
            SQLDatasink(sql, connection_factory),
            {"ray_remote_args": ray_remote_args, "concurrency": concurrency},
        )

    @keywords(WRITE)
    def write_lance(
        self,
        path: str,
        *,
        schema: pa.Schema | None = None,
        mode: SaveMode = SaveMode.CREATE,
        min_rows_per_file: int = 1024 * 1024,
        max_rows_per_file: int = 64 * 1024 * 1024,
        data_storage_version: str | None = None,
        storage_options: dict[str, Any] | None = None,
        table_id: list[str] | None = None,
        namespace_impl: str | None = None,
        namespace_properties: dict[str, str] | None = None,
        **options: Unpack[WriteOptions],
    ) -> None:
        """Write to a Lance dataset.

        Args:
            path: Its path or URI.
            schema: Schema to write; that of the first block if None.
            mode: create (it must not exist), append or overwrite.
            min_rows_per_file: Rows that a write task gets at least.
            max_rows_per_file: Rows of every file at most.
            data_storage_version: Version of Lance's file format; Lance's own choice if None.
            storage_options: For the object store.
            table_id: Not offered, nor are the other options of namespaces.
            namespace_impl: Not offered.
            namespace_properties: Not offered.
            options: See `WriteOptions`.

        Raises:
            ImportError: Lance is not installed.
            ValueError: The dataset exists and `mode` is create.
        """
        if table_id is not None or namespace_impl is not None or namespace_properties is not None:
            raise ValueError(
                "namespaces of Lance are not offered: pass the path or URI of the dataset"
            )
        sink = LanceDatasink(
            path,
            schema=schema,
            mode=mode,
            min_rows_per_file=min_rows_per_file,
            max_rows_per_file=max_rows_per_file,
            data_storage_version=data_storage_version,
            storage_options=storage_options,
        )
        self._write(sink, options)

    def write_datasink(
        self,
        datasink: Datasink[Any],
        *,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Write to a sink of the program's own.

        Args:
            datasink: The sink.
            ray_remote_args: Options of `remote` for the write tasks.
            concurrency: The most write tasks at once; None for as many as there is room for.

        Raises:
            TypeError: It is no `Datasink`.
        """
        if not isinstance(datasink, Datasink):
            raise TypeError(
                f"write_datasink takes a Datasink, not {type(datasink).__name__}: subclass syncline.data.Datasink"
            )
        self._write(datasink, {"ray_remote_args": ray_remote_args, "concurrency": concurrency})

    def _write(self, sink: Datasink[Any], options: Mapping[str, Any]) -> None:
        concurrency = options.get("concurrency")
        node = Write(
            input=self._node,
            sink=sink,
            concurrency=None if concurrency is None else at_least_one("concurrency", concurrency),
            resources=resources_of({"ray_remote_args": options.get("ray_remote_args")}),
        )
        stats = write_job.write(node, self._context, name=self._name or "")
        if stats is not None:
            self._learned.stats = stats.to_string
