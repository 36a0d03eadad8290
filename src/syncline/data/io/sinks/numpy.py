"""Write one column as `.npy` files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from syncline.data.columnar.block import BlockAccessor
from syncline.data.io.sinks.file_datasink import BlockBasedFileDatasink


class NumpyDatasink(BlockBasedFileDatasink):
    """Writes a column as arrays `(rows, ...)`; arguments as in `Dataset.write_numpy`."""

    _FILE_FORMAT = "npy"

    def __init__(self, path: str, column: str, **options: Any) -> None:
        super().__init__(path, **options)
        self.column = column

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        if self.column not in block.column_names():
            raise ValueError(
                f"the rows have no column {self.column!r}, only {block.column_names()}"
            )
        np.save(file, np.asarray(block.to_numpy(self.column)))
