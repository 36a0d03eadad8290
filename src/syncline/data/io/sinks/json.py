"""Writing JSON files: one object a line, as pandas writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from syncline.data.columnar.accessor import BlockAccessor
from syncline.data.io.sinks.file_datasink import BlockBasedFileDatasink, resolved_arguments


class JSONDatasink(BlockBasedFileDatasink):
    """Writes JSON Lines.

    Args:
        path: The directory. pandas_json_args_fn: Returns more of `pandas_json_args`, called for
        each file. pandas_json_args: For `pandas.DataFrame.to_json`; `orient="records"` and
        `lines=True` unless they say otherwise. file_format: Extension of the names.
        file_datasink_kwargs: As `BlockBasedFileDatasink` takes them.
    """

    def __init__(
        self,
        path: str,
        *,
        pandas_json_args_fn: Callable[[], Mapping[str, Any]] | None = None,
        pandas_json_args: Mapping[str, Any] | None = None,
        file_format: str = "json",
        **file_datasink_kwargs: Any,
    ) -> None:
        super().__init__(path, file_format=file_format, **file_datasink_kwargs)
        self._arguments_fn = pandas_json_args_fn
        self._arguments = dict(pandas_json_args or {})

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        """One file of lines."""
        arguments = {
            "orient": "records",
            "lines": True,
            **resolved_arguments(self._arguments, self._arguments_fn),
        }
        text = block.to_pandas().to_json(None, **arguments)
        file.write(text.encode())
