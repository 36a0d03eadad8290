"""Blocks in Arrow's IPC file format, one per file, with a manifest: the files of
`Dataset.cache(path)`.

`<directory>/manifest.json` is published last, by a rename: a directory without it is empty,
whatever other files it has. Each writer uses its own directory, `data-<token>`, so that writers
never conflict. Local files are memory-mapped. Not covered: the mapping from plans to directories
(`execute/cache.py`).
"""

from __future__ import annotations

import base64
import functools
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs as pyarrow_fs

from syncline.data.columnar.tensors import restore_objects
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources.datasource import BlockMetadata, Datasource, ReadTask, digest
from syncline.records import dataclass
from syncline.storage import filesystem as storage

if TYPE_CHECKING:
    from syncline.data.context import DataContext

DATA_PREFIX = "data-"
_MANIFEST = "manifest.json"
_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class ArrowFile:
    """File of one block."""

    name: str
    """Path relative to the directory."""
    num_rows: int
    """Rows in the block."""
    size_bytes: int
    """Size of the rows in memory."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Content of a directory."""

    files: tuple[ArrowFile, ...]
    """Files in the order of their rows."""
    schema: pa.Schema | None
    """Schema of the first block; None if there are no blocks."""
    origin: Any
    """JSON value that the writer stores with the files."""


class ArrowFilesDatasource(Datasource):
    """Reads the files of a manifest, one per task, each as one block.

    Args:
        filesystem: Filesystem of the directory.
        directory: The directory.
        manifest: Its manifest, from `read_manifest`.
    """

    def __init__(
        self, filesystem: pyarrow_fs.FileSystem, directory: str, manifest: Manifest
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._manifest = manifest

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """Return a task for each file; `parallelism` is ignored."""
        return [
            ReadTask(
                functools.partial(
                    _read, self._filesystem, storage.join(self._directory, file.name)
                ),
                BlockMetadata(file.num_rows, file.size_bytes),
                self._manifest.schema,
                per_task_row_limit,
            )
            for file in self._manifest.files
        ]

    def estimate_inmemory_data_size(self) -> int:
        return sum(file.size_bytes for file in self._manifest.files)

    def schema(self) -> pa.Schema | None:
        return self._manifest.schema

    def num_rows(self) -> int:
        return sum(file.num_rows for file in self._manifest.files)

    def is_written_to(self, directory: str) -> bool:
        """Return True if the files are in this writer's directory."""
        prefix = f"{os.path.basename(directory)}/"
        return any(file.name.startswith(prefix) for file in self._manifest.files)

    def identity(self) -> str:
        """Return a digest of the file names, which are unique for each writer."""
        return digest("ArrowFiles", self._directory, *(file.name for file in self._manifest.files))


def file_name(data: str, number: int) -> str:
    """Return the name of a block's file; `data` is the writer's directory."""
    return f"{data}/{number:06d}.arrow"


def write_block(filesystem: pyarrow_fs.FileSystem, path: str, table: pa.Table) -> None:
    """Write one block to a file and flush it to disk."""
    filesystems.make_directory(filesystem, os.path.dirname(path))
    with (
        filesystem.open_output_stream(path, compression=None) as stream,
        pa.ipc.new_file(stream, table.schema) as writer,
    ):
        writer.write_table(table.combine_chunks())
    filesystems.sync(filesystem, path)


def read_manifest(filesystem: pyarrow_fs.FileSystem, directory: str) -> Manifest | None:
    """Return the manifest of a directory; None if there is none, or only one of another version."""
    found = storage.read_bytes(filesystem, storage.join(directory, _MANIFEST))
    content = {} if found is None else json.loads(found)
    if content.get("version") != _VERSION:
        return None
    schema = None
    if content["schema"] is not None:
        stored = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(content["schema"])))
        schema = restore_objects(stored.empty_table()).schema
    files = tuple(ArrowFile(**file) for file in content["files"])
    return Manifest(files=files, schema=schema, origin=content["origin"])


def publish(
    filesystem: pyarrow_fs.FileSystem, directory: str, data: str, manifest: Manifest
) -> bool:
    """Publish the files atomically. Return False if another writer was first; on filesystems of
    other machines the last writer wins.
    """
    content = {
        "version": _VERSION,
        "origin": manifest.origin,
        "schema": None
        if manifest.schema is None
        else base64.b64encode(manifest.schema.serialize()).decode(),
        "files": [asdict(file) for file in manifest.files],
    }
    staged = storage.join(directory, data, _MANIFEST)
    storage.write_bytes(filesystem, staged, json.dumps(content).encode())
    published = storage.join(directory, _MANIFEST)
    if storage.is_local(filesystem) and not _linked(staged, published):
        return False
    if not storage.is_local(filesystem):
        filesystem.move(staged, published)
    filesystems.sync(filesystem, directory)
    return True


def _linked(staged: str, published: str) -> bool:
    """Rename the file unless the target exists, which a plain rename would replace."""
    try:
        os.link(staged, published)
    except FileExistsError:
        return False
    except OSError:  # a filesystem without links
        os.replace(staged, published)
    else:
        os.unlink(staged)
    return True


def _read(filesystem: pyarrow_fs.FileSystem, path: str) -> Iterator[pa.Table]:
    source = (
        pa.memory_map(path) if storage.is_local(filesystem) else filesystem.open_input_file(path)
    )
    with pa.ipc.open_file(source) as reader:
        yield restore_objects(reader.read_all())


def writer_directories(filesystem: pyarrow_fs.FileSystem, directory: str) -> Sequence[str]:
    """Return the directories of all writers below `directory`, finished or not."""
    selector = pyarrow_fs.FileSelector(directory, allow_not_found=True)
    return [
        info.path
        for info in filesystem.get_file_info(selector)
        if info.base_name.startswith(DATA_PREFIX)
    ]
