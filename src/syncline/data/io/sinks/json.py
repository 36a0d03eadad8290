"""Write JSON files with pandas, one object per line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from syncline.data.columnar.block import BlockAccessor
from syncline.data.io.sinks.file_datasink import (
    BlockBasedFileDatasink,
    BlockFileDatasinkOptions,
    resolved_arguments,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


class JSONDatasink(BlockBasedFileDatasink):
    """Writes JSON Lines.

    Args:
        path: The directory.
        pandas_json_args_fn: Returns more `pandas_json_args`; called for each file.
        pandas_json_args: Arguments of `pandas.DataFrame.to_json`; `orient="records"` and
            `lines=True` by default.
        file_format: Extension of the file names.
        options: See `BlockBasedFileDatasink`.
    """

    def __init__(
        self,
        path: str,
        *,
        pandas_json_args_fn: Callable[[], Mapping[str, object]] | None = None,
        pandas_json_args: Mapping[str, object] | None = None,
        file_format: str = "json",
        **options: Unpack[BlockFileDatasinkOptions],
    ) -> None:
        super().__init__(path, file_format=file_format, **options)
        self._arguments_fn = pandas_json_args_fn
        self._arguments = dict(pandas_json_args or {})

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        """Write a file of JSON lines."""
        arguments = {
            "orient": "records",
            "lines": True,
            **resolved_arguments(self._arguments, self._arguments_fn),
        }
        text = block.to_pandas().to_json(None, **arguments)
        file.write(text.encode())
