"""Reading `.npy` files: rows of the arrays, in the column `data`."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources.file_based_datasource import FileBasedDatasource

_BLOCK_BYTES = 64 * 1024**2


class NumpyDatasource(FileBasedDatasource):
    """Reads arrays `(rows, ...)`.

    Args:
        paths: As `FileBasedDatasource` takes them.
        numpy_load_args: For `numpy.load`.
        allow_pickle: Read arrays of objects too, which runs code of whoever wrote the file.
        file_based_datasource_kwargs: As `FileBasedDatasource` takes them.
    """

    _COLUMN_NAME = "data"
    _FILE_EXTENSIONS = ["npy"]

    def __init__(
        self,
        paths: Any,
        numpy_load_args: dict[str, Any] | None = None,
        allow_pickle: bool = False,
        **file_based_datasource_kwargs: Any,
    ) -> None:
        super().__init__(paths, **file_based_datasource_kwargs)
        self.numpy_load_args = {
            name: value for name, value in (numpy_load_args or {}).items() if name != "allow_pickle"
        }
        self.allow_pickle = allow_pickle

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[dict[str, np.ndarray]]:
        array = self._load(f, path)
        if not isinstance(array, np.ndarray) or array.ndim == 0:
            raise ValueError(
                f"{path} holds {'one number' if isinstance(array, np.ndarray) else 'no array'}, and rows need an array (rows, …)"
            )
        # Pieces of a mapped file are copied when they are needed, so that a file may be larger than
        # memory, and may change afterwards.
        row_bytes = max(1, array.dtype.itemsize * math.prod(array.shape[1:]))
        rows = max(1, _BLOCK_BYTES // row_bytes)
        for start in range(0, max(1, len(array)), rows):
            yield {"data": np.array(array[start : start + rows])}

    def _load(self, f: pa.NativeFile, path: str) -> Any:
        arguments = {**self.numpy_load_args, "allow_pickle": self.allow_pickle}
        try:
            if (
                filesystems.is_local(self._filesystem)
                and not self._open_stream_args
                and not self.allow_pickle
            ):
                return np.load(path, mmap_mode="r", **arguments)
            return np.load(io.BytesIO(f.read()), **arguments)
        except (ValueError, EOFError) as error:
            if "object" in str(error).lower() and not self.allow_pickle:
                hint = "pass allow_pickle=True if you trust the file"
                raise ValueError(
                    f"{path} cannot be read as an array: it holds Python objects ({hint}), or is no .npy file"
                ) from error
            raise ValueError(f"{path} cannot be read as an array: {error}") from error

    def _options(self) -> object:
        return (self._open_stream_args, self.numpy_load_args, self.allow_pickle)
