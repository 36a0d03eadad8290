"""Read Zarr stores of both versions with the library `zarr`: a row for each chunk of each array, or
for each range of the first axis that all arrays share.

Chunks can be merged or divided along the leading axes (`chunk_shapes`). Not covered: attributes.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.context import DataContext
from syncline.data.io import argument_types
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources.datasource import (
    BlockMetadata,
    Datasource,
    ReadTask,
    digest,
    slice_bounds,
)
from syncline.optional import load
from syncline.records import dataclass
from syncline.storage import filesystem as storage
from syncline.suggestions import did_you_mean

ChunkShapes: TypeAlias = Mapping[str, Sequence[int]] | Sequence[int] | None
"""Lengths along the leading axes, for all arrays or by path; None for the chunks of the store."""

_ZARR = {"purpose": "read_zarr", "install": "syncline[zarr]"}


@dataclass(frozen=True, kw_only=True)
class ArrayLayout:
    """Shape of one array and of the pieces in which it is read."""

    path: str
    """Path of the array in the store."""
    shape: tuple[int, ...]
    """Shape of the array."""
    chunks: tuple[int, ...]
    """Shape of a piece; pieces at the end may be smaller."""
    dtype: np.dtype
    """Type of the elements."""

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of pieces along each axis."""
        return tuple(-(-size // chunk) for size, chunk in zip(self.shape, self.chunks, strict=True))

    @property
    def num_pieces(self) -> int:
        """Number of pieces."""
        return math.prod(self.grid)

    def bounds(self, index: Sequence[int]) -> list[tuple[int, int]]:
        """Return start and end of a piece along each axis."""
        return [
            (number * chunk, min((number + 1) * chunk, size))
            for number, chunk, size in zip(index, self.chunks, self.shape, strict=True)
        ]


class ZarrDatasource(Datasource):
    """Reads arrays of a Zarr store; arguments as in `read_zarr`."""

    def __init__(
        self,
        path: str,
        *,
        filesystem: object = None,
        chunk_shapes: ChunkShapes = None,
        array_paths: Sequence[str] | None = None,
        allow_full_metadata_scan: bool = False,
        align_axis_0: bool = False,
        overlap: int = 0,
    ) -> None:
        argument_types.require("path", path, (str, os.PathLike), "the path or URI of one store")
        load("zarr", **_ZARR)
        if overlap < 0 or overlap and not align_axis_0:
            raise ValueError(
                f"overlap={overlap}: pass a number of at least 0, with align_axis_0=True"
            )
        if isinstance(array_paths, str):
            raise TypeError(f"array_paths={array_paths!r}: pass a list, [{array_paths!r}]")
        self._path = os.fspath(path)
        self._given_filesystem = filesystem
        self._aligned = align_axis_0
        self._overlap = overlap
        self._patterns = tuple(DataContext.get_current().retried_io_errors)
        root = self._open()
        arrays = _arrays(root, self._path, array_paths, full_scan=allow_full_metadata_scan)
        if not arrays:
            raise ValueError(f"the Zarr store {self._path!r} holds no array")
        _check_paths("chunk_shapes", chunk_shapes, arrays)
        self._layouts = [_layout(name, array, chunk_shapes) for name, array in arrays.items()]
        if align_axis_0:
            _check_aligned(self._layouts)

    def schema(self) -> pa.Schema | None:
        return None

    def num_rows(self) -> int:
        """Return the number of pieces."""
        if self._aligned:
            return self._layouts[0].grid[0]
        return sum(layout.num_pieces for layout in self._layouts)

    def estimate_inmemory_data_size(self) -> int:
        return sum(math.prod(each.shape) * each.dtype.itemsize for each in self._layouts)

    def input_files(self) -> list[str]:
        return [storage.join(self._path, layout.path) for layout in self._layouts]

    def identity(self) -> str:
        """Return a digest of the store's path, the arrays' shapes and the read options. Changes of
        the values are not detected.
        """
        return digest("Zarr", self._path, self._layouts, self._aligned, self._overlap)

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """Return tasks of adjacent pieces of one array, or of adjacent ranges of all arrays."""
        if self._aligned:
            parts = [(tuple(self._layouts), self._layouts[0].grid[0], parallelism)]
        else:
            total = max(1, self.num_rows())
            parts = [
                ((layout,), layout.num_pieces, -(-parallelism * layout.num_pieces // total))
                for layout in self._layouts
            ]
        return [
            ReadTask(
                functools.partial(self._read, layouts, start, end),
                BlockMetadata(end - start, self._bytes_of(layouts, end - start)),
                None,
                per_task_row_limit,
            )
            for layouts, pieces, count in parts
            for start, end in slice_bounds(pieces, count)
        ]

    def _bytes_of(self, layouts: Sequence[ArrayLayout], rows: int) -> int:
        per_row = 0
        for layout in layouts:
            shape = layout.chunks[:1] + layout.shape[1:] if self._aligned else layout.chunks
            per_row += math.prod(shape) * layout.dtype.itemsize
        return rows * per_row

    def _open(self) -> Any:
        zarr = load("zarr", **_ZARR)
        try:
            return zarr.open(self._store(), mode="r")
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"there is no Zarr store at {self._path!r}: the directory has no zarr.json, "
                ".zgroup or .zarray"
            ) from error

    def _store(self) -> Any:
        stores = load("zarr.storage", **_ZARR)
        filesystem, (path,) = filesystems.resolve(self._path, self._given_filesystem)
        if storage.is_local(filesystem):
            return stores.ZipStore(path) if path.endswith(".zip") else stores.LocalStore(path)
        arrow = load("fsspec.implementations.arrow", library="fsspec", **_ZARR)
        wrapper = load("fsspec.implementations.asyn_wrapper", library="fsspec", **_ZARR)
        # The wrapper reads the property `fsid`, which fails for filesystems other than HDFS.
        sync = type("ArrowFilesystem", (arrow.ArrowFSWrapper,), {"fsid": "arrow"})(filesystem)
        wrapped = wrapper.AsyncFileSystemWrapper(sync, asynchronous=True)
        return stores.FsspecStore(wrapped, read_only=True, path=path)

    def _read(self, layouts: Sequence[ArrayLayout], start: int, end: int) -> Iterator[pa.Table]:
        root = self._open()
        for number in range(start, end):
            row = filesystems.call_with_retry(
                functools.partial(self._row, root, layouts, number),
                f"reading {self._path}",
                self._patterns,
            )
            yield blocks.from_rows([row], first_row=number - start)

    def _row(self, root: Any, layouts: Sequence[ArrayLayout], number: int) -> dict[str, object]:
        if not self._aligned:
            return _piece(root, layouts[0], number)
        ((first, last),) = layouts[0].bounds([number, *(0 for _ in layouts[0].shape[1:])])[:1]
        row: dict[str, object] = {"t_start": first, "t_stop": last}
        for layout in layouts:
            row[layout.path] = np.asarray(_array(root, layout.path)[first : last + self._overlap])
        return row


def _piece(root: Any, layout: ArrayLayout, number: int) -> dict[str, object]:
    index = [int(each) for each in np.unravel_index(number, layout.grid)] if layout.shape else []
    bounds = layout.bounds(index)
    values = _array(root, layout.path)[tuple(slice(*each) for each in bounds)]
    return {
        "array": layout.path,
        "chunk_index": index,
        "chunk_slices": [list(each) for each in bounds],
        "chunk": np.asarray(values),
    }


def _array(root: Any, path: str) -> Any:
    return root[path] if path else root


def _arrays(
    root: Any, path: str, array_paths: Sequence[str] | None, *, full_scan: bool
) -> dict[str, Any]:
    """Return the arrays to read, by their paths."""
    if not hasattr(root, "members"):  # the store is one array
        return {"": root}
    if array_paths is not None:
        found = {}
        for name in array_paths:
            try:
                found[name.strip("/")] = root[name.strip("/")]
            except KeyError:
                names = sorted(name for name, _ in root.members())
                raise ValueError(
                    f"the Zarr store {path!r} has no array {name!r}, only {names}"
                    f"{did_you_mean(name, names)}"
                ) from None
        groups = [name for name, each in found.items() if hasattr(each, "members")]
        if groups:
            raise ValueError(f"array_paths names {groups}, which are groups: name their arrays")
        return found
    if root.metadata.consolidated_metadata is None and not full_scan:
        raise ValueError(
            f"the Zarr store {path!r} has no consolidated metadata, so finding its arrays takes a "
            "request for each directory: pass array_paths=[...], call zarr.consolidate_metadata "
            "once, or pass allow_full_metadata_scan=True"
        )
    members = root.members(max_depth=None)
    return {name: each for name, each in sorted(members) if not hasattr(each, "members")}


def _layout(path: str, array: Any, chunk_shapes: ChunkShapes) -> ArrayLayout:
    shapes = chunk_shapes.get(path) if isinstance(chunk_shapes, Mapping) else chunk_shapes
    if isinstance(shapes, int):
        raise TypeError(
            f"chunk_shapes={shapes}: pass the lengths along the leading axes, [{shapes}]"
        )
    leading = tuple(shapes or ())
    shape, chunks = tuple(map(int, array.shape)), tuple(map(int, array.chunks))
    if len(leading) > len(shape):
        raise ValueError(
            f"chunk_shapes={list(leading)} has {len(leading)} axes, but the array {path!r} has the "
            f"shape {shape}"
        )
    if any(isinstance(each, bool) or not isinstance(each, int) or each < 1 for each in leading):
        raise ValueError(f"chunk_shapes={list(leading)}: pass lengths of at least 1")
    merged = (*leading, *chunks[len(leading) :])
    return ArrayLayout(path=path, shape=shape, chunks=merged, dtype=np.dtype(array.dtype))


def _check_paths(name: str, chunk_shapes: ChunkShapes, known: Mapping[str, Any]) -> None:
    unknown = (
        [path for path in chunk_shapes if path not in known]
        if isinstance(chunk_shapes, Mapping)
        else []
    )
    if unknown:
        raise ValueError(f"{name} names {unknown}, which are not read: {sorted(known)}")


def _check_aligned(layouts: Sequence[ArrayLayout]) -> None:
    firsts = {
        layout.path: (layout.shape[0], layout.chunks[0]) if layout.shape else None
        for layout in layouts
    }
    if len(set(firsts.values())) > 1 or None in firsts.values():
        raise ValueError(
            "align_axis_0=True needs arrays of the same length and chunk length along their first "
            f"axis, but these are {firsts}: choose arrays with array_paths, or set one length with "
            "chunk_shapes=[…]"
        )
