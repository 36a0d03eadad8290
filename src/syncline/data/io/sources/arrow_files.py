"""Blocks in Arrow's IPC file format, one a file, with a manifest that names them: what
`Dataset.cache(path)` keeps.

`<directory>/manifest.json` is written last, by a rename: without it there is nothing, whatever else
lies there. The files of each writer lie in a directory of its own, `data-<token>`, so that writers
never meet. Files of this machine are mapped, not read. Not covered: which directory belongs to
which plan (`data.cache`).
"""

from __future__ import annotations

import base64
import functools
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs as pyarrow_fs

from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources.datasource import BlockMetadata, Datasource, ReadTask, digest

if TYPE_CHECKING:
    from syncline.data.context import DataContext

DATA_PREFIX = "data-"
_MANIFEST = "manifest.json"
_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class ArrowFile:
    """One block."""

    name: str
    """Relative to the directory."""
    num_rows: int
    size_bytes: int
    """Bytes of the rows in memory."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a directory holds."""

    files: tuple[ArrowFile, ...]
    """In the order of their rows."""
    schema: pa.Schema | None
    """Of the first block; None if there is none."""
    origin: Any
    """What the writer wants to be kept beside, JSON."""


class ArrowFilesDatasource(Datasource):
    """Reads the files of a manifest, one a task, each as one block.

    Args:
        filesystem: Where they lie.
        directory: The directory.
        manifest: What `read_manifest` found in it.
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
        """A task for each file, whatever `parallelism` is."""
        tasks = []
        for file in self._manifest.files:
            path = filesystems.join(self._directory, file.name)
            metadata = BlockMetadata(file.num_rows, file.size_bytes, input_files=(path,))
            read = functools.partial(_read, self._filesystem, path)
            tasks.append(
                ReadTask(
                    read, metadata, self._manifest.schema, per_task_row_limit, fragment=file.name
                )
            )
        return tasks

    def estimate_inmemory_data_size(self) -> int:
        """Exact."""
        return sum(file.size_bytes for file in self._manifest.files)

    def schema(self) -> pa.Schema | None:
        """That of the first block."""
        return self._manifest.schema

    def num_rows(self) -> int:
        """Exact."""
        return sum(file.num_rows for file in self._manifest.files)

    def lies_in(self, directory: str) -> bool:
        """Whether the files are those of a writer's own directory."""
        return any(
            file.name.startswith(f"{os.path.basename(directory)}/") for file in self._manifest.files
        )

    def identity(self) -> str:
        """Of the files' names: no two writers use the same."""
        return digest("ArrowFiles", self._directory, *(file.name for file in self._manifest.files))


def file_name(data: str, number: int) -> str:
    """Name of a block within the directory; `data` is that of its writer's own."""
    return f"{data}/{number:06d}.arrow"


def write_block(filesystem: pyarrow_fs.FileSystem, path: str, table: pa.Table) -> None:
    """One block into a file, which has reached the disk of this machine when this returns."""
    filesystems.make_directory(filesystem, os.path.dirname(path))
    with (
        filesystem.open_output_stream(path, compression=None) as stream,
        pa.ipc.new_file(stream, table.schema) as writer,
    ):
        writer.write_table(table.combine_chunks())
    filesystems.sync(filesystem, path)


def read_manifest(filesystem: pyarrow_fs.FileSystem, directory: str) -> Manifest | None:
    """What the directory holds; None if there is nothing (yet), or something that another version
    has written.
    """
    try:
        with filesystem.open_input_stream(
            filesystems.join(directory, _MANIFEST), compression=None
        ) as stream:
            content = json.loads(stream.read())
    except FileNotFoundError:
        return None
    if content.get("version") != _VERSION:
        return None
    schema = content["schema"]
    return Manifest(
        files=tuple(ArrowFile(**file) for file in content["files"]),
        schema=None
        if schema is None
        else pa.ipc.read_schema(pa.BufferReader(base64.b64decode(schema))),
        origin=content["origin"],
    )


def publish(
    filesystem: pyarrow_fs.FileSystem, directory: str, data: str, manifest: Manifest
) -> bool:
    """Make the files visible, all at once. False if another writer was first; on other machines'
    filesystems the last one counts then.
    """
    content = {
        "version": _VERSION,
        "origin": manifest.origin,
        "schema": None
        if manifest.schema is None
        else base64.b64encode(manifest.schema.serialize()).decode(),
        "files": [asdict(file) for file in manifest.files],
    }
    staged = filesystems.join(directory, data, _MANIFEST)
    filesystems.make_directory(
        filesystem, os.path.dirname(staged)
    )  # nobody else has made it where there are no blocks
    with filesystem.open_output_stream(staged, compression=None) as stream:
        stream.write(json.dumps(content).encode())
    filesystems.sync(filesystem, staged)
    published = filesystems.join(directory, _MANIFEST)
    if filesystems.is_local(filesystem) and not _linked(staged, published):
        return False
    if not filesystems.is_local(filesystem):
        filesystem.move(staged, published)
    filesystems.sync(filesystem, directory)
    return True


def _linked(staged: str, published: str) -> bool:
    """The file under another name, unless there is one; a move would replace that."""
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
        pa.memory_map(path)
        if filesystems.is_local(filesystem)
        else filesystem.open_input_file(path)
    )
    with pa.ipc.open_file(source) as reader:
        yield reader.read_all()


def leftovers(filesystem: pyarrow_fs.FileSystem, directory: str) -> Sequence[str]:
    """Directories of writers below `directory`, finished or not."""
    selector = pyarrow_fs.FileSelector(directory, allow_not_found=True)
    return [
        info.path
        for info in filesystem.get_file_info(selector)
        if info.base_name.startswith(DATA_PREFIX)
    ]
