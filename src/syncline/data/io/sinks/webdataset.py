"""Write WebDataset shards: tar files in which the files of one row are adjacent and have names of
the form `<key>.<column>`.
"""

from __future__ import annotations

import io
import tarfile
import uuid
from typing import Any

import pyarrow as pa

from syncline.data.columnar.block import BlockAccessor
from syncline.data.io.sinks.file_datasink import BlockBasedFileDatasink
from syncline.data.io.sources.webdataset import Codec, apply_codec, default_encoder


class WebDatasetDatasink(BlockBasedFileDatasink):
    """Writes a tar file for each block; arguments as in `Dataset.write_webdataset`."""

    _FILE_FORMAT = "tar"

    def __init__(self, path: str, encoder: Codec = True, **options: Any) -> None:
        super().__init__(path, **options)
        self.encoder = encoder

    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        """Write a tar file. Rows without a column `__key__` get a random key."""
        with tarfile.open(fileobj=file, mode="w|") as archive:
            for row in block.iter_rows():
                encoded = apply_codec(self.encoder, row, default_encoder)
                key = encoded.get("__key__") or uuid.uuid4().hex
                for name, value in encoded.items():
                    if value is not None and not name.startswith("__"):
                        _add(archive, f"{key}.{name}", value)


def _add(archive: tarfile.TarFile, name: str, value: object) -> None:
    content = value.encode() if isinstance(value, str) else value
    if not isinstance(content, bytes | bytearray):
        raise TypeError(
            f"{name} is of type {type(value).__name__}, which has no encoding: give the column a "
            "name that selects one (.json, .npy, .png, …) or pass an encoder"
        )
    # The time stamp stays 0, so that the same rows give the same bytes.
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))
