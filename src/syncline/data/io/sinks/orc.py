"""Write ORC files."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
from pyarrow import orc

from syncline.data.columnar.block import BlockAccessor
from syncline.data.io.sinks.file_datasink import BlockBasedFileDatasink

WRITER_ARGS = inspect.signature(orc.write_table).parameters.keys() - {"table", "where"}
"""Arguments of `pyarrow.orc.write_table`."""


class ORCDatasink(BlockBasedFileDatasink):
    """Writes ORC files; `writer_args` are those of `pyarrow.orc.write_table`. Arguments: see
    `BlockBasedFileDatasink`.
    """

    _FILE_FORMAT = "orc"

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(path, **options)
        if "compression" in self.open_stream_args:
            raise ValueError(
                "ORC compresses its stripes itself: pass compression=… to write_orc, not in "
                "arrow_open_stream_args"
            )

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
        orc.write_table(table, file, **self._resolved_writer_args())
