"""Writing WebDataset shards: tar files in which the files of one row lie together, named
`<key>.<column>`.
"""

from __future__ import annotations

import io
import tarfile
import uuid
from typing import Any

import pyarrow as pa

from syncline.data.columnar.accessor import BlockAccessor
from syncline.data.io.sinks.file_datasink import BlockBasedFileDatasink
from syncline.data.io.sources.webdataset import Codec, applied, default_encoder


class WebDatasetDatasink(BlockBasedFileDatasink):
    """Writes a tar file for each block.

    Args:
        path: The directory. encoder: How values become bytes: True for the rules of the columns'
        names (`webdataset_codecs`), a function on the row, a list of
            these, or None for rows that hold bytes and text already.
        file_datasink_kwargs: As `BlockBasedFileDatasink` takes them.
    """

    def __init__(self, path: str, encoder: Codec = True, **file_datasink_kwargs: Any) -> None:
        super().__init__(path, **{"file_format": "tar", **file_datasink_kwargs})
        self.encoder = encoder

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        """One tar file. Rows without a column `__key__` get a random key."""
        with tarfile.open(fileobj=file, mode="w|") as archive:
            for row in block.iter_rows():
                encoded = applied(self.encoder, row, default_encoder)
                key = encoded.get("__key__") or uuid.uuid4().hex
                for name, value in encoded.items():
                    if value is not None and not name.startswith("__"):
                        _add(archive, f"{key}.{name}", value)


def _add(archive: tarfile.TarFile, name: str, value: Any) -> None:
    content = value.encode() if isinstance(value, str) else value
    if not isinstance(content, bytes | bytearray):
        raise TypeError(
            f"{name} is {type(value).__name__}, which cannot be written as it is: give the column a name that says how (.json, .npy, "
            ".png, …) or pass an encoder"
        )
    # No time of writing: the same rows give the same bytes.
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))
