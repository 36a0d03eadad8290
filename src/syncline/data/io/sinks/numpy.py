"""Writing one column as `.npy` files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from syncline.data.columnar.accessor import BlockAccessor
from syncline.data.io.sinks.file_datasink import BlockBasedFileDatasink


class NumpyDatasink(BlockBasedFileDatasink):
    """Writes a column as arrays `(rows, ...)`.

    Args:
        path: The directory.
        column: The column.
        file_format: Extension of the names.
        file_datasink_kwargs: As `BlockBasedFileDatasink` takes them.
    """

    def __init__(
        self, path: str, column: str, *, file_format: str = "npy", **file_datasink_kwargs: Any
    ) -> None:
        super().__init__(path, file_format=file_format, **file_datasink_kwargs)
        self.column = column

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        """One array."""
        if self.column not in block.column_names():
            raise ValueError(
                f"the rows have no column {self.column!r}, only {block.column_names()}"
            )
        np.save(file, np.asarray(block.to_numpy(self.column)))
