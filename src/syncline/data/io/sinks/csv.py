"""Writing CSV files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyarrow import csv

from syncline.data.columnar.accessor import BlockAccessor
from syncline.data.io.sinks.file_datasink import BlockBasedFileDatasink, resolved_arguments

_OPTIONS = ("include_header", "batch_size", "delimiter", "quoting_style")


class CSVDatasink(BlockBasedFileDatasink):
    """Writes CSV files with a header.

    Args:
        path: The directory.
        arrow_csv_args_fn: Returns more of `arrow_csv_args`, called for each file.
        arrow_csv_args: For `pyarrow.csv.write_csv`.
        file_format: Extension of the names.
        file_datasink_kwargs: As `BlockBasedFileDatasink` takes them.
    """

    def __init__(
        self,
        path: str,
        *,
        arrow_csv_args_fn: Callable[[], Mapping[str, Any]] | None = None,
        arrow_csv_args: Mapping[str, Any] | None = None,
        file_format: str = "csv",
        **file_datasink_kwargs: Any,
    ) -> None:
        super().__init__(path, file_format=file_format, **file_datasink_kwargs)
        self._arguments_fn = arrow_csv_args_fn
        self._arguments = dict(arrow_csv_args or {})
        # Arrow's options cannot be pickled, so their values travel.
        options = self._arguments.pop("write_options", None)
        self._options = (
            None if options is None else {name: getattr(options, name) for name in _OPTIONS}
        )

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        """One CSV file. ValueError names the columns that CSV cannot hold."""
        table = block.to_arrow()
        unfit = [field.name for field in table.schema if _is_unfit(field.type)]
        if unfit:
            types = ", ".join(f"{name!r} ({table.schema.field(name).type})" for name in unfit)
            raise ValueError(
                f"CSV holds plain values only, but these columns are none: {types}: drop or convert them, or write Parquet"
            )
        arguments = resolved_arguments(self._arguments, self._arguments_fn)
        options = None if self._options is None else csv.WriteOptions(**self._options)
        csv.write_csv(table, file, arguments.pop("write_options", options), **arguments)


def _is_unfit(type_: pa.DataType) -> bool:
    return bool(pa.types.is_nested(type_)) or isinstance(type_, pa.BaseExtensionType)
