"""Reading CSV files, streamed; types are those of the first megabytes of each file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import csv

from syncline.data.io.sources.file_based_datasource import FileBasedDatasource

# Types are found in the first piece, so it is large.
_PIECE_BYTES = 8 * 1024**2


class CSVDatasource(FileBasedDatasource):
    """Reads CSV files.

    Args:
        paths: As `FileBasedDatasource` takes them.
        arrow_csv_args: `read_options`, `parse_options` and `convert_options` of `pyarrow.csv`.
        file_based_datasource_kwargs: As `FileBasedDatasource` takes them.
    """

    _FILE_EXTENSIONS = ["csv", "csv.gz", "csv.br", "csv.zst", "csv.lz4"]

    def __init__(
        self,
        paths: Any,
        arrow_csv_args: dict[str, Any] | None = None,
        **file_based_datasource_kwargs: Any,
    ) -> None:
        arguments = dict(arrow_csv_args or {})
        self.read_options = arguments.pop("read_options", None) or csv.ReadOptions(
            block_size=_PIECE_BYTES
        )
        self.parse_options = arguments.pop("parse_options", None) or csv.ParseOptions()
        self.convert_options = arguments.pop("convert_options", None) or csv.ConvertOptions()
        arguments.pop("memory_pool", None)
        if arguments:
            raise TypeError(
                f"read_csv got {sorted(arguments)}: it takes read_options, parse_options and convert_options of pyarrow.csv"
            )
        super().__init__(paths, **file_based_datasource_kwargs)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        try:
            reader = csv.open_csv(f, self.read_options, self.parse_options, self.convert_options)
            yield pa.Table.from_batches([], reader.schema)
            for batch in reader:
                yield pa.Table.from_batches([batch])
        except pa.ArrowInvalid as error:
            if "Empty CSV file" in str(error):
                return
            raise ValueError(
                f"{path} cannot be read as CSV: {error}. If a column's type changes after the first lines, name it in "
                "convert_options=pyarrow.csv.ConvertOptions(column_types={…}); if the file is no CSV, leave it out with file_extensions"
            ) from error

    def _options(self) -> object:
        parse = {
            name: getattr(self.parse_options, name)
            for name in ("delimiter", "quote_char", "escape_char", "newlines_in_values")
        }
        convert = {
            name: getattr(self.convert_options, name)
            for name in ("column_types", "null_values", "include_columns")
        }
        read = {
            name: getattr(self.read_options, name)
            for name in ("skip_rows", "column_names", "autogenerate_column_names", "encoding")
        }
        return (self._open_stream_args, parse, convert, read)
