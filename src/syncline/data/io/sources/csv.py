"""Read CSV files as streams. Types are inferred from the first 8 MiB of each file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import csv

from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources.file_based_datasource import FileBasedDatasource

# Large, because types are inferred from the first block.
_BLOCK_BYTES = 8 * 1024**2
_PARSE_OPTIONS = ("delimiter", "quote_char", "escape_char", "newlines_in_values")
_CONVERT_OPTIONS = ("column_types", "null_values", "include_columns")
_READ_OPTIONS = ("skip_rows", "column_names", "autogenerate_column_names", "encoding")


class CSVDatasource(FileBasedDatasource):
    """Reads CSV files; arguments as in `read_csv`, options as in `FileBasedDatasource`."""

    _FILE_EXTENSIONS = ["csv", "csv.gz", "csv.br", "csv.zst", "csv.lz4"]

    def __init__(
        self,
        paths: filesystems.Paths,
        *,
        read_options: csv.ReadOptions | None = None,
        parse_options: csv.ParseOptions | None = None,
        convert_options: csv.ConvertOptions | None = None,
        **options: Any,
    ) -> None:
        self.read_options = read_options or csv.ReadOptions(block_size=_BLOCK_BYTES)
        self.parse_options = parse_options or csv.ParseOptions()
        self.convert_options = convert_options or csv.ConvertOptions()
        super().__init__(paths, **options)

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
                f"{path} cannot be read as CSV: {error}. If the type of a column changes after the "
                "first lines, pass convert_options=pyarrow.csv.ConvertOptions(column_types={…}); "
                "if the file is no CSV, exclude it with file_extensions"
            ) from error

    def _options(self) -> object:
        parse = {name: getattr(self.parse_options, name) for name in _PARSE_OPTIONS}
        convert = {name: getattr(self.convert_options, name) for name in _CONVERT_OPTIONS}
        read = {name: getattr(self.read_options, name) for name in _READ_OPTIONS}
        return (self._open_stream_args, parse, convert, read)
