"""Read MDS shards, the format of MosaicML Streaming, without that library.

Format (source: `streaming/base/format/mds` of mosaicml-streaming 0.13), little-endian:

    shard    rows: uint32, offsets: uint32[rows + 1], description as JSON, rows
    row      uint32 size of each column without a fixed size, then the values of all columns
    columns  in the order of their names

A shard may be compressed as a whole. The description in each shard repeats names, encodings and
sizes of the columns. Encodings are converted like this: ints and floats to their types, `str`,
`bytes`, `json` to their values, `str_int` and `str_float` to numbers, `str_decimal` to decimals,
`ndarray` to arrays, images to arrays `(height, width, channels)`. Pickles (`pkl`) are read only on
request, since unpickling runs code from the file. Hashes are not verified.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from syncline.data.columnar import block as blocks
from syncline.data.io.sources.indexed_shards import (
    ROWS_PER_BLOCK,
    Decode,
    IndexedShardDatasource,
    Json,
    decompress,
    image,
    offsets_of,
    raw_image,
)
from syncline.records import dataclass

DecodeColumn = Callable[[list[bytes]], Any]
"""Function from the values of a column in bytes to an array or a list."""

_VERSION = 2
_CODECS = {"zstd": "zstd", "gz": "gzip", "bz2": "bz2", "br": "brotli", "snappy": "snappy"}
_SCALARS = frozenset(
    f"{kind}{bits}" for kind, sizes in {"int": (8, 16, 32, 64), "float": (16, 32, 64)}.items()
    for bits in sizes
) | {"uint8", "uint16", "uint32", "uint64"}  # fmt: skip
_SHAPE_TYPES = ("<u1", "<u2", "<u4", "<u8")
_ARRAY_TYPES = {
    8: "uint8",
    9: "int8",
    16: "uint16",
    17: "int16",
    18: "float16",
    32: "uint32",
    33: "int32",
    34: "float32",
    64: "uint64",
    65: "int64",
    66: "float64",
}


class MDSDatasource(IndexedShardDatasource):
    """Reads folders of MDS shards; arguments as in `read_mds`, options as in
    `FileBasedDatasource`.
    """

    _WRITER = "MDSWriter"

    def get_name(self) -> str:
        return "MDS"

    def _shards(self, index: Json, folder: str) -> list[tuple[str, int]]:
        if index.get("version") != _VERSION:
            raise ValueError(
                f"{folder} has an index of version {index.get('version')!r}, but version "
                f"{_VERSION} can be read"
            )
        found = []
        for shard in index["shards"]:
            if shard["format"] != "mds":
                raise ValueError(
                    f"{folder} has shards in the format {shard['format']!r}, not MDS. Read them "
                    "with `read_json` or `read_csv`."
                )
            self._check_columns(
                {
                    name: [encoding]
                    for name, encoding in zip(
                        shard["column_names"], shard["column_encodings"], strict=True
                    )
                },
                folder,
            )
            found.append(((shard["zip_data"] or shard["raw_data"])["basename"], shard["samples"]))
        return found

    def _columns(self, data: bytes, path: str) -> Iterator[blocks.Batch]:
        ending = path.rpartition(".")[2]
        if ending in _CODECS:
            data = decompress(
                data, _CODECS[ending], _snappy_size(data) if ending == "snappy" else None
            )
        offsets = offsets_of(data, path)
        shard = _Shard.parse(data, 4 + offsets.nbytes, int(offsets[0]))
        wanted = self._wanted(shard.names)
        decoders = [self._decoder(shard.encodings[number]) for number in wanted]
        for start in range(0, len(offsets) - 1, ROWS_PER_BLOCK):
            bounds = offsets[start : start + ROWS_PER_BLOCK + 1].tolist()
            values = shard.values(data, bounds, wanted)
            yield {
                shard.names[number]: decode(each)
                for number, decode, each in zip(wanted, decoders, values, strict=True)
                if decode is not None
            }

    def _decoder(self, encoding: str) -> DecodeColumn | None:
        if encoding == "int" or encoding in _SCALARS:
            return partial(_scalars, dtype=np.dtype("int64" if encoding == "int" else encoding))
        decode = _decoder_of(encoding)
        return None if decode is None else partial(_each, decode=decode)

    def _is_pickle(self, encoding: str) -> bool:
        return encoding == "pkl"

    def _options(self) -> object:
        return (self._open_stream_args, self._allows_pickle)


@dataclass(frozen=True)
class _Shard:
    """Columns of a shard."""

    names: list[str]
    encodings: list[str]
    sizes: list[int | None]

    @classmethod
    def parse(cls, data: bytes, begin: int, end: int) -> _Shard:
        """Parse the description between the offsets and the rows."""
        text = json.loads(data[begin:end])
        return cls(text["column_names"], text["column_encodings"], text["column_sizes"])

    def values(
        self, data: bytes, bounds: Sequence[int], wanted: Sequence[int]
    ) -> list[list[bytes]]:
        """Return the bytes of the wanted columns of some rows, for each column."""
        found: list[list[bytes]] = [[] for _ in wanted]
        variable = [number for number, size in enumerate(self.sizes) if not size]
        sizes = [size or 0 for size in self.sizes]
        for begin, end in zip(bounds, bounds[1:], strict=False):
            first = begin + 4 * len(variable)
            for number, size in zip(
                variable,
                np.frombuffer(data, "<u4", count=len(variable), offset=begin).tolist(),
                strict=True,
            ):
                sizes[number] = size
            starts = list(accumulate(sizes, initial=first))
            if starts[-1] != end:
                raise ValueError(f"a row has {end - begin} bytes, but its columns {starts[-1]}")
            for values, number in zip(found, wanted, strict=True):
                values.append(data[starts[number] : starts[number + 1]])
        return found


def _scalars(values: list[bytes], dtype: np.dtype[Any]) -> np.ndarray:
    return np.frombuffer(b"".join(values), dtype.newbyteorder("<"))


def _each(values: list[bytes], decode: Decode) -> list[Any]:
    return [decode(value) for value in values]


def _decoder_of(encoding: str) -> Decode | None:
    """Return the function for the values of an encoding; None if it is unknown."""
    if encoding == "ndarray" or encoding.startswith("ndarray:"):
        _, *details = encoding.split(":")
        shape = tuple(map(int, details[1].split(","))) if len(details) > 1 else None
        return partial(_array, dtype=details[0] if details else None, shape=shape)
    if encoding.startswith("list[") and encoding.endswith("]"):
        inner = _decoder_of(encoding[5:-1])
        return None if inner is None else partial(_list, decode=inner)
    return _DECODERS.get(encoding)


def _array(data: bytes, dtype: str | None, shape: tuple[int, ...] | None) -> np.ndarray:
    at = 0
    if not dtype:
        dtype, at = _ARRAY_TYPES[data[0]], 1
    if shape is None:
        axes, kind = data[at] >> 2, np.dtype(_SHAPE_TYPES[data[at] & 3])
        shape = tuple(np.frombuffer(data, kind, count=axes, offset=at + 1).tolist())
        at += 1 + axes * kind.itemsize
    return np.frombuffer(data, np.dtype(dtype).newbyteorder("<"), offset=at).reshape(shape)


def _list(data: bytes, decode: Decode) -> list[Any]:
    """Decode a list: 4 unused bytes, its length, sizes and values of its elements."""
    return _sized(data, decode, at=4)


def _sized(data: bytes, decode: Decode, at: int = 0) -> list[Any]:
    count = int.from_bytes(data[at : at + 4], "little")
    sizes = np.frombuffer(data, "<u4", count=count, offset=at + 4).tolist()
    starts = list(accumulate(sizes, initial=at + 4 + 4 * count))
    return [decode(data[begin:end]) for begin, end in zip(starts, starts[1:], strict=False)]


def _snappy_size(data: bytes) -> int:
    """Return the size of the decompressed data, which snappy puts first in groups of 7 bits."""
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    return size


_DECODERS: dict[str, Decode] = {
    "bytes": bytes,
    "str": bytes.decode,
    "str_int": int,
    "str_float": float,
    "str_decimal": lambda data: Decimal(data.decode()),
    "json": json.loads,
    "png": image,
    "jpeg": image,
    "pil": raw_image,
    "jpeg_array": partial(_sized, decode=image),
    "jpegarray": partial(_sized, decode=image),
    "pkl": pickle.loads,
}
