"""Write CSV files."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import csv

from syncline.data.columnar.block import BlockAccessor
from syncline.data.io.sinks.file_datasink import BlockBasedFileDatasink

_WRITE_OPTIONS = ("include_header", "batch_size", "delimiter", "quoting_style")


WRITER_ARGS = frozenset({"memory_pool", "write_options"})
"""Arguments of `pyarrow.csv.write_csv`."""


class CSVDatasink(BlockBasedFileDatasink):
    """Writes CSV files with a header; `writer_args` are those of `pyarrow.csv.write_csv`.
    Arguments: see `BlockBasedFileDatasink`.
    """

    _FILE_FORMAT = "csv"

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(path, **options)
        # Arrow's options cannot be pickled, so keep their values.
        given = self._writer_args.pop("write_options", None)
        values = {name: getattr(given, name) for name in _WRITE_OPTIONS if given is not None}
        self._write_options = values

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        """Write a CSV file. Raises ValueError for columns that CSV cannot hold."""
        table = block.to_arrow()
        unfit = [field.name for field in table.schema if _is_unfit(field.type)]
        if unfit:
            types = ", ".join(f"{name!r} ({table.schema.field(name).type})" for name in unfit)
            raise ValueError(
                f"CSV holds plain values only, unlike these columns: {types}. Drop or convert "
                "them, or write Parquet"
            )
        arguments = self._resolved_writer_args()
        options = csv.WriteOptions(**self._write_options)
        csv.write_csv(table, file, arguments.pop("write_options", options), **arguments)


def _is_unfit(type_: pa.DataType) -> bool:
    return bool(pa.types.is_nested(type_)) or isinstance(type_, pa.BaseExtensionType)
