"""Write JSON files with pandas, one object per line."""

from __future__ import annotations

import inspect

import pyarrow as pa

from syncline.data.columnar.block import BlockAccessor
from syncline.data.io.sinks.file_datasink import BlockBasedFileDatasink
from syncline.optional import load


def writer_args() -> list[str]:
    """Return the names that `writer_args` may have."""
    pandas = load("pandas", purpose="Writing JSON", install="pandas")
    return list(inspect.signature(pandas.DataFrame.to_json).parameters)


class JSONDatasink(BlockBasedFileDatasink):
    """Writes JSON Lines; `writer_args` are those of `pandas.DataFrame.to_json`, with the defaults
    `orient="records"` and `lines=True`. Arguments: see `BlockBasedFileDatasink`.
    """

    _FILE_FORMAT = "json"

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        arguments = {"orient": "records", "lines": True, **self._resolved_writer_args()}
        text = block.to_pandas().to_json(None, **arguments)
        file.write(text.encode())
