"""Read `.npy` files: rows of the arrays, in the column `data`."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources.file_based_datasource import FileBasedDatasource
from syncline.storage import filesystem as storage

_BLOCK_BYTES = 64 * 1024**2


class NumpyDatasource(FileBasedDatasource):
    """Reads arrays `(rows, ...)`; arguments as in `read_numpy`, options as in
    `FileBasedDatasource`.
    """

    _COLUMN_NAME = "data"
    _FILE_EXTENSIONS = ["npy"]

    def __init__(
        self,
        paths: filesystems.Paths,
        numpy_load_args: dict[str, Any] | None = None,
        allow_pickle: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(paths, **options)
        self.numpy_load_args = {
            name: value for name, value in (numpy_load_args or {}).items() if name != "allow_pickle"
        }
        self.allow_pickle = allow_pickle

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[dict[str, np.ndarray]]:
        array = self._load(f, path)
        if not isinstance(array, np.ndarray) or array.ndim == 0:
            found = "a scalar" if isinstance(array, np.ndarray) else "no array"
            raise ValueError(f"{path} holds {found}, but rows need an array (rows, …)")
        # Copied slice by slice from the memory map, so that a file may be larger than memory and
        # may change afterwards.
        row_bytes = max(1, array.dtype.itemsize * math.prod(array.shape[1:]))
        rows = max(1, _BLOCK_BYTES // row_bytes)
        for start in range(0, max(1, len(array)), rows):
            yield {"data": np.array(array[start : start + rows])}

    def _load(self, f: pa.NativeFile, path: str) -> object:
        arguments = {**self.numpy_load_args, "allow_pickle": self.allow_pickle}
        try:
            if (
                storage.is_local(self._filesystem)
                and not self._open_stream_args
                and not self.allow_pickle
            ):
                return np.load(path, mmap_mode="r", **arguments)
            return np.load(io.BytesIO(f.read()), **arguments)
        except (ValueError, EOFError) as error:
            if "object" in str(error).lower() and not self.allow_pickle:
                raise ValueError(
                    f"{path} cannot be read as an array: it holds Python objects (pass "
                    "allow_pickle=True if you trust the file), or is no .npy file"
                ) from error
            raise ValueError(f"{path} cannot be read as an array: {error}") from error

    def _options(self) -> object:
        return (self._open_stream_args, self.numpy_load_args, self.allow_pickle)
