"""Write CSV files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import csv

from syncline.data.columnar.block import BlockAccessor
from syncline.data.io.sinks.file_datasink import (
    BlockBasedFileDatasink,
    BlockFileDatasinkOptions,
    resolved_arguments,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

_WRITE_OPTIONS = ("include_header", "batch_size", "delimiter", "quoting_style")


class CSVDatasink(BlockBasedFileDatasink):
    """Writes CSV files with a header.

    Args:
        path: The directory.
        arrow_csv_args_fn: Returns more `arrow_csv_args`; called for each file.
        arrow_csv_args: Arguments of `pyarrow.csv.write_csv`.
        file_format: Extension of the file names.
        options: See `BlockBasedFileDatasink`.
    """

    def __init__(
        self,
        path: str,
        *,
        arrow_csv_args_fn: Callable[[], Mapping[str, object]] | None = None,
        arrow_csv_args: Mapping[str, object] | None = None,
        file_format: str = "csv",
        **options: Unpack[BlockFileDatasinkOptions],
    ) -> None:
        super().__init__(path, file_format=file_format, **options)
        self._arguments_fn = arrow_csv_args_fn
        self._arguments = dict(arrow_csv_args or {})
        # Arrow's options cannot be pickled, so keep their values.
        write_options = self._arguments.pop("write_options", None)
        self._options = (
            None
            if write_options is None
            else {name: getattr(write_options, name) for name in _WRITE_OPTIONS}
        )

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
        arguments = resolved_arguments(self._arguments, self._arguments_fn)
        options = None if self._options is None else csv.WriteOptions(**self._options)
        csv.write_csv(table, file, arguments.pop("write_options", options), **arguments)


def _is_unfit(type_: pa.DataType) -> bool:
    return bool(pa.types.is_nested(type_)) or isinstance(type_, pa.BaseExtensionType)
