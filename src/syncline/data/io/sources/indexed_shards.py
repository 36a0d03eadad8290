"""`IndexedShardDatasource`: folders of shards with an `index.json` that lists them, in formats
whose rows are sequences of values in bytes.

Covered: the index, numbers of rows, decompression, decoding of columns. Not covered: the formats
(`mds.py`, `litdata.py`), caches and downloads of the libraries that have them: shards are read from
any filesystem directly.
"""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import fs as pyarrow_fs

from syncline.data.columnar import block as blocks
from syncline.data.context import DataContext
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources import file_listing
from syncline.data.io.sources.datasource import BlockMetadata, ReadTask
from syncline.data.io.sources.file_based_datasource import FileBasedDatasource
from syncline.data.io.sources.file_listing import FileInfo
from syncline.data.io.sources.images import ImageDecoder
from syncline.optional import load
from syncline.storage import filesystem as storage

INDEX = "index.json"
ROWS_PER_BLOCK = 1024

Json = Mapping[str, Any]
"""A parsed object of JSON."""
Decode = Callable[[bytes], Any]


class IndexedShardDatasource(FileBasedDatasource):
    """Base class of sources that read folders with an index. Subclasses implement `_shards` and
    `_columns`.

    Args:
        paths: Folders, on one filesystem.
        columns: Names of the columns to read; None for all.
        allow_pickle: Read columns of pickles.
        options: Options of `FileBasedDatasource`.

    Raises:
        FileNotFoundError: A folder has no index.
        ValueError: A column cannot be read, or does not exist; or an index is of another library.
    """

    _WRITER = ""
    """What writes such a folder, for errors."""

    def __init__(
        self,
        paths: filesystems.Paths,
        *,
        columns: Sequence[str] | None = None,
        allow_pickle: bool = False,
        filesystem: object = None,
        **options: Any,
    ) -> None:
        self._projection = None if columns is None else tuple(columns)
        self._allows_pickle = allow_pickle
        found, folders = filesystems.resolve(paths, filesystem)
        self._rows: dict[str, int] = {}
        for folder in folders:
            for name, rows in self._listed_shards(found, folder):
                self._rows[storage.join(folder, name)] = rows
        if not self._rows:
            raise ValueError(
                f"the indexes of {folders} list no shards, so there is nothing to read"
            )
        super().__init__(list(self._rows), filesystem=found, **options)

    def _shards(self, index: Json, folder: str) -> list[tuple[str, int]]:
        """Return the names of the shards in a folder, and their numbers of rows."""
        raise NotImplementedError

    def _columns(self, data: bytes, path: str) -> Iterator[blocks.Batch]:
        """Yield the rows of a shard. May raise ValueError and IndexError if it is damaged."""
        raise NotImplementedError

    def _check_columns(self, encodings: Mapping[str, Sequence[str]], folder: str) -> None:
        """Raise ValueError if a wanted column does not exist or cannot be read.

        Args:
            encodings: Encodings of the values in each column.
            folder: Folder of the shards, for errors.
        """
        unknown = [name for name in self._projection or () if name not in encodings]
        if unknown:
            raise ValueError(f"{folder} has no columns {unknown}, but {list(encodings)}")
        for name in self._projection or encodings:
            for encoding in encodings[name]:
                if self._is_pickle(encoding) and not self._allows_pickle:
                    raise ValueError(
                        f"the column {name!r} in {folder} holds pickles, which run code when they "
                        "are read: if you trust the files, pass allow_pickle=True; otherwise leave "
                        "the column out with `columns=`"
                    )
                if self._decoder(encoding) is None:
                    raise ValueError(
                        f"the column {name!r} in {folder} has values of the kind {encoding!r}, "
                        "which cannot be read: leave the column out with `columns=`"
                    )

    def _decoder(self, encoding: str) -> object:
        """Return the function that decodes values; None if the encoding is unknown."""
        raise NotImplementedError

    def _is_pickle(self, encoding: str) -> bool:
        raise NotImplementedError

    def _listed_shards(
        self, filesystem: pyarrow_fs.FileSystem, folder: str
    ) -> list[tuple[str, int]]:
        try:
            return self._shards(self._read_index(filesystem, folder), folder)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(
                f"{storage.join(folder, INDEX)} is not an index that {self._WRITER} has written "
                f"({type(error).__name__}: {error}): pass one of its folders. `read_mds` reads "
                "those of MDSWriter, `read_litdata` those of litdata.optimize"
            ) from error

    def _read_index(self, filesystem: pyarrow_fs.FileSystem, folder: str) -> Json:
        path = storage.join(folder, INDEX)
        data = storage.read_bytes(filesystem, path)
        if data is None:
            raise FileNotFoundError(
                f"{folder} has no {INDEX}: pass the folder that {self._WRITER} has written, the "
                "parent of the shards"
            )
        try:
            index: Json = json.loads(data)
            return index
        except ValueError as error:
            raise ValueError(f"{path} is no JSON: {error}") from error

    def num_rows(self) -> int | None:
        return sum(self._rows[file.path] for file in self._files)

    def supports_projection_pushdown(self) -> bool:
        return True

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """Return a task for each group of adjacent shards; groups have nearly equal sizes."""
        reader = self._reader()
        groups = file_listing.contiguous_groups(self.ordered_files(data_context), parallelism)
        return [
            ReadTask(
                functools.partial(reader._read_group, group),
                BlockMetadata(
                    num_rows=sum(self._rows[file.path] for file in group),
                    size_bytes=self._decoded_bytes(group),
                ),
                None,
                per_task_row_limit,
            )
            for group in groups
        ]

    def _reader(self: IndexedShardDatasource) -> IndexedShardDatasource:
        reader = super()._reader()
        reader._rows = {}
        return reader

    def _read_files(self, files: Sequence[FileInfo]) -> Iterator[pa.Table]:
        for file in files:
            data = filesystems.call_with_retry(
                functools.partial(self._content, file.path), f"reading {file.path}", self._patterns
            )
            with self._named_errors(file.path):
                for batch in _named_damage(self._columns(data, file.path), file.path):
                    yield self._with_path_columns(blocks.from_batch(batch), file.path)

    def _content(self, path: str) -> bytes:
        with self._filesystem.open_input_stream(path, compression=None) as file:
            content: bytes = file.read()
            return content

    def _wanted(self, names: Sequence[str]) -> list[int]:
        """Return the positions of the columns to read, in the order of the projection."""
        if self._projection is None:
            return list(range(len(names)))
        return [names.index(name) for name in self._projection if name in names]


def _named_damage(batches: Iterator[blocks.Batch], path: str) -> Iterator[blocks.Batch]:
    try:
        yield from batches
    except (IndexError, ValueError, KeyError, struct.error, OSError) as error:
        raise ValueError(
            f"{path} cannot be read, as it is damaged or cut off: {error or type(error).__name__}"
        ) from error


def decompress(data: bytes, codec: str, size: int | None = None) -> bytes:
    """Return decompressed bytes.

    Args:
        data: Compressed bytes.
        codec: One of pyarrow.
        size: Size of the result, if known; snappy needs it.
    """
    if size is not None and codec not in ("gzip", "bz2"):
        decompressed: bytes = pa.Codec(codec).decompress(data, size, asbytes=True)
        return decompressed
    with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
        content: bytes = stream.read()
        return content


def offsets_of(data: bytes, path: str, *, at: int = 0) -> np.ndarray:
    """Return the offsets of the rows of a shard, `(rows + 1,)`, which begin with their number.

    Raises:
        ValueError: The shard is shorter than they say.
    """
    rows = int.from_bytes(data[at : at + 4], "little")
    end = at + 4 + 4 * (rows + 1)
    if end > len(data):
        raise ValueError(f"{len(data)} bytes are too few for {rows} rows")
    offsets: np.ndarray = np.frombuffer(data, "<u4", count=rows + 1, offset=at + 4)
    if rows and int(offsets[-1]) > len(data):
        raise ValueError(f"its rows end at byte {offsets[-1]}, but it has {len(data)} bytes")
    return offsets


@functools.cache
def _image_decoder() -> ImageDecoder:
    return ImageDecoder()


def image(content: bytes) -> np.ndarray:
    """Decode a JPEG, PNG or other image to an array."""
    return _image_decoder().decode(content, "the image")


def raw_image(content: bytes) -> np.ndarray:
    """Decode an image of pillow without compression: width, height, length of the mode, mode,
    pixels.
    """
    pillow = load("PIL.Image", purpose="decoding images", install="syncline[images]")
    width, height, size = np.frombuffer(content, "<u4", count=3).tolist()
    mode = content[12 : 12 + size].decode()
    return np.asarray(pillow.frombytes(mode, (width, height), content[12 + size :]))
