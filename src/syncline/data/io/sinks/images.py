"""Write one column as image files, one per row."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa

from syncline.data.io.sinks.file_datasink import RowBasedFileDatasink
from syncline.optional import load

_PILLOW = {"purpose": "write_images", "install": "syncline[images]"}


class ImageDatasink(RowBasedFileDatasink):
    """Writes arrays `(height, width)` or `(height, width, channels)` as images; arguments as in
    `Dataset.write_images`.
    """

    _FILE_FORMAT = "png"

    def __init__(self, path: str, column: str, **options: Any) -> None:
        super().__init__(path, **options)
        pillow = load("PIL.Image", **_PILLOW)
        self.column = column
        file_format = self.file_format or ""
        self._format = "jpeg" if file_format.lower() == "jpg" else file_format
        pillow.init()
        if self._format.upper() not in pillow.SAVE:
            formats = ", ".join(sorted(pillow.SAVE)).lower()
            raise ValueError(f"file_format={file_format!r}: pillow writes {formats}")

    def write_row_to_file(self, row: dict[str, object], file: pa.NativeFile) -> None:
        if self.column not in row:
            raise ValueError(f"the rows have no column {self.column!r}, only {list(row)}")
        array = np.asarray(row[self.column])
        try:
            image = load("PIL.Image", **_PILLOW).fromarray(array)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"column {self.column!r} holds {array.dtype} arrays of shape {array.shape}, which "
                "pillow cannot write: convert them to uint8 arrays of shape (height, width) or "
                "(height, width, 3 or 4)"
            ) from error
        buffer = io.BytesIO()  # some formats seek while they write, which streams cannot do
        image.save(buffer, format=self._format)
        file.write(buffer.getvalue())
