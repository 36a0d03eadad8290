"""Writing one column as image files, one a row."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa

from syncline.data.io.sinks.file_datasink import RowBasedFileDatasink
from syncline.optional import load


class ImageDatasink(RowBasedFileDatasink):
    """Writes arrays `(height, width)` or `(height, width, channels)` as images.

    Args:
        path: The directory.
        column: The column.
        file_format: Format and extension: "png", "jpeg", ….
        file_datasink_kwargs: As `RowBasedFileDatasink` takes them.
    """

    def __init__(
        self, path: str, column: str, file_format: str = "png", **file_datasink_kwargs: Any
    ) -> None:
        super().__init__(path, file_format=file_format, **file_datasink_kwargs)
        pillow = load("PIL.Image", purpose="write_images", install="syncline[images]")
        self.column = column
        self._format = "jpeg" if file_format.lower() == "jpg" else file_format
        pillow.init()
        if self._format.upper() not in pillow.SAVE:
            raise ValueError(
                f"file_format={file_format!r}: pillow writes {', '.join(sorted(pillow.SAVE)).lower()}"
            )

    def write_row_to_file(self, row: dict[str, Any], file: pa.NativeFile) -> None:
        """One image."""
        if self.column not in row:
            raise ValueError(f"the rows have no column {self.column!r}, only {list(row)}")
        array = np.asarray(row[self.column])
        try:
            image = load("PIL.Image", purpose="write_images", install="syncline[images]").fromarray(
                array
            )
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"column {self.column!r} holds {array.dtype} {array.shape}, which pillow cannot make an image of: "
                "it takes uint8 arrays (height, width) or (height, width, 3 or 4)"
            ) from error
        buffer = io.BytesIO()  # formats go back in the file when they write, and streams cannot
        image.save(buffer, format=self._format)
        file.write(buffer.getvalue())
