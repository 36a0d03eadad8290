"""Run directories on any filesystem of pyarrow. Loaded only for a URI: pyarrow takes a while to
import.
"""

from __future__ import annotations

import copy
import posixpath

from pyarrow import fs as pyarrow_fs

from syncline.runs.run_storage import MAX_READ_BYTES, FileInfo, StorageDirectory
from syncline.runs.secrets import masked_text


class RemoteDirectory(StorageDirectory):
    """A directory on a filesystem that pyarrow finds by its URI.

    Args:
        uri: What follows a question mark in it are options of the filesystem, such as
        `endpoint_override`.

    Raises:
        ValueError: It finds none.
    """

    def __init__(self, uri: str) -> None:
        directory, mark, options = uri.partition("?")
        self.path = masked_text(
            directory.rstrip("/") + mark + options
        )  # keys may stand in it, and it is shown
        try:
            self._filesystem, path = pyarrow_fs.FileSystem.from_uri(uri)
        except (ValueError, OSError, NotImplementedError) as error:
            raise ValueError(
                f"pyarrow finds no filesystem for {uri!r} ({error}): correct the URI"
            ) from error
        self._directory = path if path == "/" else path.rstrip("/")

    @property
    def local_path(self) -> None:
        """None: its files are not opened here."""
        return

    def subdirectory(self, name: str) -> RemoteDirectory:
        """The directory of that name in this one."""
        found = copy.copy(self)  # with the same connections
        found._directory = self._inside(name)
        directory, mark, options = self.path.partition("?")
        found.path = f"{directory}/{name}{mark}{options}"
        return found

    def directory_names(self) -> list[str]:
        """Names of the directories in this one."""
        return self._entries("", pyarrow_fs.FileType.Directory)

    def file_names(self, name: str) -> list[str]:
        """Names of the files in the directory `name` of this one."""
        return self._entries(name, pyarrow_fs.FileType.File)

    def file_info(self, name: str) -> FileInfo | None:
        """Of a file; object stores that do not know when it was written say 0."""
        info = self._filesystem.get_file_info(self._inside(name))
        return _file_info(info) if info.type == pyarrow_fs.FileType.File else None

    def file_infos(self, name: str) -> dict[str, FileInfo]:
        """Of every file in the directory `name` of this one; one request, however many there
        are.
        """
        return {
            info.base_name: _file_info(info)
            for info in self._listed(name)
            if info.type == pyarrow_fs.FileType.File
        }

    def read_range(self, name: str, offset: int, limit_bytes: int = MAX_READ_BYTES) -> bytes:
        """What the file holds from a byte on."""
        try:
            with self._filesystem.open_input_file(self._inside(name)) as file:
                if offset >= file.size():
                    return b""
                file.seek(offset)
                return bytes(file.read(limit_bytes))
        except FileNotFoundError:
            return b""

    def write(self, name: str, data: bytes) -> None:
        """Write the whole file."""
        path = self._inside(name)
        self._filesystem.create_dir(posixpath.dirname(path), recursive=True)
        with self._filesystem.open_output_stream(path) as file:
            file.write(data)

    def remove(self, name: str) -> None:
        """Remove the file."""
        self._filesystem.delete_file(self._inside(name))

    def missing_directories(self) -> list[StorageDirectory]:
        """This directory, if it does not exist: those above it are the filesystem's matter."""
        kind = self._filesystem.get_file_info(self._directory).type
        return [self] if kind == pyarrow_fs.FileType.NotFound else []

    def remove_if_empty(self) -> None:
        """Remove the directory, unless something lies in it."""
        if not self._filesystem.get_file_info(
            pyarrow_fs.FileSelector(self._directory, allow_not_found=True)
        ):
            self._filesystem.delete_dir(self._directory)

    def _inside(self, name: str) -> str:
        if "\0" in name or (name and any(part in ("", ".", "..") for part in name.split("/"))):
            raise ValueError(
                f"{name!r} leads out of {self.path}: give a name below it, without '..'"
            )
        return posixpath.join(self._directory, name) if name else self._directory

    def _entries(self, name: str, kind: pyarrow_fs.FileType) -> list[str]:
        return sorted(info.base_name for info in self._listed(name) if info.type == kind)

    def _listed(self, name: str) -> list[pyarrow_fs.FileInfo]:
        found: list[pyarrow_fs.FileInfo] = self._filesystem.get_file_info(
            pyarrow_fs.FileSelector(self._inside(name), allow_not_found=True)
        )
        return found


def _file_info(info: pyarrow_fs.FileInfo) -> FileInfo:
    return FileInfo(info.size or 0, info.mtime.timestamp() if info.mtime is not None else 0.0)
