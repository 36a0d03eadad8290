"""Read chunks of LitData, the format of `litdata.optimize`, without that library.

Format (source: `litdata/streaming/writer.py` and `serializers.py` of litdata 0.2.76),
little-endian:

    chunk    rows: uint32, offsets: uint32[rows + 1], rows
    row      uint32 size of each value, then the values: the leaves of the row's tree

Chunks whose rows are dicts of texts, numbers and nested values end with the same rows as a file of
Arrow, its size (uint32) and a mark; the rows before it may be empty.

The index has the serializer of each leaf and the tree. Rows that are dicts become columns, with
lists and tuples in them as structs; rows that are tuples or lists get the columns "0", "1", …; any
other row is the column `item`. Images become arrays `(height, width, channels)`; video, audio and
other files stay bytes. Chunks of tokens (`TokensLoader`) have one row for each block of tokens.

Compression with zstd is covered: whole chunks, frames in chunks, and single rows. Not covered:
encrypted chunks, graphs, temporal arrays, custom serializers, and chunks of Parquet, which
`read_parquet` reads. Pickles are read only on request.
"""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate, islice
from typing import Any

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.io import filesystem as filesystems
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
from syncline.data.io.sources.litdata_nested import nested

_FRAMES = b"LDFZ01\0\0"
_ARROW_MARK = b"LDARW01\0"
_FRAME_HEADER = struct.Struct("<8sHHIII")
_FRAME = struct.Struct("<IIQII")
_TORCH_TYPES = {
    **dict.fromkeys((0, 1), "float32"),
    **dict.fromkeys((2, 3), "float64"),
    **dict.fromkeys((4, 5), "complex64"),
    **dict.fromkeys((6, 7), "complex128"),
    **dict.fromkeys((8, 9), "float16"),
    11: "uint8",
    12: "int8",
    **dict.fromkeys((13, 14), "int16"),
    **dict.fromkeys((15, 16), "int32"),
    **dict.fromkeys((17, 18), "int64"),
    19: "bool",
    20: "uint16",
}
_NUMPY_TYPES = {
    **{number: f"int{8 << number}" for number in range(4)},
    **{4 + number: f"uint{8 << number}" for number in range(4)},
    **{8 + number: f"float{16 << number}" for number in range(3)},
    11: "complex64",
    12: "complex128",
    13: "bool",
}


class LitDataDatasource(IndexedShardDatasource):
    """Reads folders of LitData chunks; arguments as in `read_litdata`, options as in
    `FileBasedDatasource`.
    """

    _WRITER = "litdata.optimize"

    def __init__(
        self, paths: filesystems.Paths, *, block_size: int | None = None, **options: Any
    ) -> None:
        if block_size is not None and (not isinstance(block_size, int) or block_size < 1):
            raise ValueError(
                f"block_size={block_size!r}: pass the number of tokens in a row, at least 1"
            )
        self._block_size = block_size
        self._configs: dict[str, Json] = {}
        super().__init__(paths, **options)

    def get_name(self) -> str:
        return "LitData"

    def _shards(self, index: Json, folder: str) -> list[tuple[str, int]]:
        config = index["config"]
        loader = config.get("item_loader") or "PyTreeLoader"
        if config.get("encryption"):
            raise ValueError(f"{folder} has encrypted chunks, which only litdata reads")
        if loader == "ParquetLoader":
            raise ValueError(f"{folder} has chunks of Parquet: use `read_parquet`")
        if loader not in ("PyTreeLoader", "TokensLoader"):
            raise ValueError(f"{folder} has chunks of a {loader}, which only litdata reads")
        if loader == "TokensLoader" and not self._block_size:
            raise ValueError(
                f"{folder} has chunks of tokens: pass `block_size=`, the number of tokens in a "
                "row, as `TokensLoader(block_size)` has it"
            )
        tree, formats = _Tree.parse(config["data_spec"]), config["data_format"]
        self._check_columns(
            {
                name: [formats[leaf] for leaf in leaves]
                for name, leaves in zip(tree.names, tree.leaves, strict=True)
            },
            folder,
        )
        self._configs[folder] = config
        return [
            (
                each["filename"],
                each["chunk_size"]
                if loader == "PyTreeLoader"
                else each["dim"] // (self._block_size or 1),
            )
            for each in index["chunks"]
        ]

    def _columns(self, data: bytes, path: str) -> Iterator[blocks.Batch]:
        config = self._configs[path.rpartition("/")[0]]
        wraps = config.get("compression_level")
        if config.get("compression") and not wraps:
            data = decompress(data, "zstd")
        formats: list[str] = config["data_format"]
        if config.get("item_loader") == "TokensLoader":
            yield from self._token_rows(data, formats[0], path)
            return
        table = _arrow_table(data)
        if table is not None:
            yield table.select(self._wanted(table.column_names))
            return
        tree = _Tree.parse(config["data_spec"])
        wanted = self._wanted(tree.names)
        rows = _framed_rows(data) if data[:8] == _FRAMES else _plain_rows(data, path)
        if wraps == "sample":
            rows = (decompress(row, "zstd") for row in rows)
        leaves = sorted({leaf for number in wanted for leaf in tree.leaves[number]})
        decoders = {
            leaf: decode for leaf in leaves if (decode := self._decoder(formats[leaf])) is not None
        }
        while pending := [
            tree.row(_decoded(row, len(formats), decoders), wanted)
            for row in islice(rows, ROWS_PER_BLOCK)
        ]:
            yield _batch(pending, tree, wanted)

    def _token_rows(self, data: bytes, format_: str, path: str) -> Iterator[blocks.Batch]:
        """Yield the blocks of tokens of a chunk."""
        kind, _, code = format_.partition(":")
        types = _TORCH_TYPES if kind == "no_header_tensor" else _NUMPY_TYPES
        offsets = offsets_of(data, path)
        tokens = np.frombuffer(data[int(offsets[0]) : int(offsets[-1])], types[int(code)])
        size = self._block_size or 1
        rows = len(tokens) // size
        yield {"item": tokens[: rows * size].reshape(rows, size)}

    def _decoder(self, encoding: str) -> Decode | None:
        kind, _, code = encoding.partition(":")
        types = {"no_header_numpy": _NUMPY_TYPES, "no_header_tensor": _TORCH_TYPES}.get(kind)
        if types is not None:
            dtype = types.get(int(code))
            return None if dtype is None else partial(_vector, dtype=dtype)
        return _DECODERS.get(kind)

    def _is_pickle(self, encoding: str) -> bool:
        return encoding == "pickle"

    def _options(self) -> object:
        return (self._open_stream_args, self._allows_pickle, self._block_size)


class _Tree:
    """Tree of a row: for each column its leaves, and how its value is made of them."""

    def __init__(self, names: list[str], specs: list[Json]) -> None:
        self.names = names
        self._specs = specs
        counts = [_leaves(spec) for spec in specs]
        starts = list(accumulate(counts, initial=0))
        self.leaves = [range(begin, end) for begin, end in zip(starts, starts[1:], strict=False)]

    @classmethod
    def parse(cls, text: str) -> _Tree:
        """Parse torch's description of a tree."""
        version, spec = json.loads(text)
        if version != 1:
            raise ValueError(f"the tree of its rows is of version {version}, but 1 can be read")
        kind = spec["type"]
        if kind is None:
            return cls(["item"], [spec])
        return cls(
            [str(name) for name in _keys(spec)] if _is_dict(spec) else
            [str(number) for number in range(len(spec["children_spec"]))],
            spec["children_spec"],
        )  # fmt: skip

    def row(self, values: dict[int, Any], wanted: Sequence[int]) -> list[Any]:
        """Return the values of the wanted columns."""
        return [
            _built(self._specs[number], iter([values[leaf] for leaf in self.leaves[number]]))
            for number in wanted
        ]


def _is_dict(spec: Json) -> bool:
    return str(spec["type"]).rpartition(".")[2] in ("dict", "OrderedDict", "defaultdict")


def _keys(spec: Json) -> list[Any]:
    keys = json.loads(spec["context"])
    return list(keys) if isinstance(keys, list) else list(keys["keys"])


def _leaves(spec: Json) -> int:
    return 1 if spec["type"] is None else sum(map(_leaves, spec["children_spec"]))


def _built(spec: Json, leaves: Iterator[Any]) -> Any:
    if spec["type"] is None:
        return next(leaves)
    children = [_built(child, leaves) for child in spec["children_spec"]]
    if _is_dict(spec):
        return dict(zip(map(str, _keys(spec)), children, strict=True))
    # Their elements may be of different types.
    return {str(number): child for number, child in enumerate(children)}


def _arrow_table(data: bytes) -> pa.Table | None:
    """Return the table at the end of a chunk; None if it has none."""
    end = len(data) - 4 - len(_ARROW_MARK)
    if not data.endswith(_ARROW_MARK) or end < 0:
        return None
    size = int.from_bytes(data[end : end + 4], "little")
    content = pa.BufferReader(data[max(0, end - size) : end])
    is_file = data[max(0, end - size) :].startswith(b"ARROW1")
    reader = pa.ipc.open_file(content) if is_file else pa.ipc.open_stream(content)
    return reader.read_all()


def _plain_rows(data: bytes, path: str) -> Iterator[bytes]:
    bounds = offsets_of(data, path).tolist()
    return (data[begin:end] for begin, end in zip(bounds, bounds[1:], strict=False))


def _framed_rows(data: bytes) -> Iterator[bytes]:
    """Yield the rows of a chunk of compressed frames."""
    _, version, _, rows, _, frames = _FRAME_HEADER.unpack_from(data)
    if version != 1:
        raise ValueError(f"its frames are of version {version}, but 1 can be read")
    at = _FRAME_HEADER.size
    bounds = np.frombuffer(data, "<u4", count=rows + 1, offset=at).tolist()
    at += 4 * (rows + 1)
    for number in range(frames):
        first, count, start, size, whole = _FRAME.unpack_from(data, at + number * _FRAME.size)
        content = decompress(data[start : start + size], "zstd", whole)
        for row in range(first, first + count):
            yield content[bounds[row] - bounds[first] : bounds[row + 1] - bounds[first]]


def _decoded(row: bytes, count: int, decoders: dict[int, Decode]) -> dict[int, Any]:
    """Return the values of the leaves of a row that have a decoder."""
    sizes = np.frombuffer(row, "<u4", count=count).tolist()
    starts = list(accumulate(sizes, initial=4 * count))
    if starts[-1] != len(row):
        raise ValueError(f"a row has {len(row)} bytes, but its values {starts[-1]}")
    return {leaf: decode(row[starts[leaf] : starts[leaf + 1]]) for leaf, decode in decoders.items()}


def _batch(rows: list[list[Any]], tree: _Tree, wanted: Sequence[int]) -> blocks.Batch:
    return {
        tree.names[number]: list(values)
        for number, values in zip(wanted, zip(*rows, strict=True), strict=True)
    }


def _vector(data: bytes, dtype: str) -> np.ndarray:
    return np.frombuffer(data, dtype)


def _tensor(data: bytes) -> np.ndarray:
    """Decode a tensor of torch: type, number of axes and shape, big-endian, then the values."""
    kind, axes = struct.unpack_from(">II", data)
    if kind not in _TORCH_TYPES:
        raise ValueError("a tensor is of the type bfloat16, which NumPy does not have")
    shape = struct.unpack_from(f">{axes}I", data, 8)
    return np.frombuffer(data, _TORCH_TYPES[kind], offset=8 + 4 * axes).reshape(shape)


def _array(data: bytes) -> np.ndarray:
    """Decode an array of NumPy: type, number of axes and shape, then the values."""
    kind, axes = struct.unpack_from("<II", data)
    if kind not in _NUMPY_TYPES:
        raise ValueError("an array has elements that are objects or texts")
    shape = struct.unpack_from(f"<{axes}I", data, 8)
    return np.frombuffer(data, _NUMPY_TYPES[kind], offset=8 + 4 * axes).reshape(shape)


def _int(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def _float(data: bytes) -> float:
    (value,) = struct.unpack("<d", data)
    return float(value)


_DECODERS: dict[str, Decode] = {
    "str": bytes.decode,
    "text": bytes.decode,
    "bool": lambda data: data != b"\0",
    "int": _int,
    "float": _float,
    "json": nested,
    "numpy": _array,
    "tensor": _tensor,
    "pil": raw_image,
    "jpeg": image,
    "image": image,
    "tifffile": image,
    "pickle": pickle.loads,
    **dict.fromkeys(("bytes", "file", "video", "audio", "nifti", "mesh", "pdf"), bytes),
}
