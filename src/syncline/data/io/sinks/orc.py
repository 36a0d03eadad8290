"""Write ORC files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import orc

from syncline.data.columnar.block import BlockAccessor
from syncline.data.io.sinks.file_datasink import (
    BlockBasedFileDatasink,
    BlockFileDatasinkOptions,
    resolved_arguments,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ORCDatasink(BlockBasedFileDatasink):
    """Writes ORC files.

    Args:
        path: The directory.
        arrow_orc_args_fn: Returns more `arrow_orc_args`; called for each file.
        arrow_orc_args: Arguments of `pyarrow.orc.write_table`.
        file_format: Extension of the file names.
        options: See `BlockBasedFileDatasink`.
    """

    def __init__(
        self,
        path: str,
        *,
        arrow_orc_args_fn: Callable[[], Mapping[str, object]] | None = None,
        arrow_orc_args: Mapping[str, object] | None = None,
        file_format: str = "orc",
        **options: Unpack[BlockFileDatasinkOptions],
    ) -> None:
        super().__init__(path, file_format=file_format, **options)
        if "compression" in self.open_stream_args:
            raise ValueError(
                "ORC compresses its stripes itself: pass compression=… to write_orc, not in "
                "arrow_open_stream_args"
            )
        self._arguments_fn = arrow_orc_args_fn
        self._arguments = dict(arrow_orc_args or {})

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        """Write an ORC file. Raises ValueError for columns that ORC cannot hold."""
        table = block.to_arrow()
        unfit = [
            field
            for field in table.schema
            if pa.types.is_null(field.type) or isinstance(field.type, pa.BaseExtensionType)
        ]
        if unfit:
            types = ", ".join(f"{field.name!r} ({field.type})" for field in unfit)
            raise ValueError(
                f"ORC has no type for these columns: {types}: cast or drop them, or write Parquet"
            )
        orc.write_table(table, file, **resolved_arguments(self._arguments, self._arguments_fn))
