"""Run directories on any pyarrow filesystem. Loaded only for a storage path that is a URI: pyarrow takes a while to import."""

from __future__ import annotations

from pyarrow import fs as pyarrow_fs

from syncline.cli.records import Place
from syncline.train import filesystem as directories
from syncline.train.storage import ArrowFiles


class ArrowPlace(Place):
    """A directory on a filesystem that pyarrow finds by its URI. ValueError where it finds none."""

    def __init__(self, uri: str) -> None:
        self.path = uri.rstrip("/")
        self._filesystem, self._directory = directories.resolve(uri)
        self.files = ArrowFiles(self._filesystem, self._directory)

    def below(self, name: str) -> ArrowPlace:
        """The directory of that name in this one."""
        return ArrowPlace(f"{self.path}/{name}")

    def _entries(self, name: str, kind: pyarrow_fs.FileType) -> list[str]:
        selector = pyarrow_fs.FileSelector(directories.join(self._directory, name) if name else self._directory, allow_not_found=True)
        return sorted(info.base_name for info in self._filesystem.get_file_info(selector) if info.type == kind)

    def directory_names(self) -> list[str]:
        """Names of the directories in this one; none where there is no such directory."""
        return self._entries("", pyarrow_fs.FileType.Directory)

    def file_names(self, name: str) -> list[str]:
        """Names of the files in the directory `name` of this one."""
        return self._entries(name, pyarrow_fs.FileType.File)

    def modified(self, name: str) -> float | None:
        """When the file was last written, in seconds since the epoch; None if there is none or it cannot be told."""
        info = self._filesystem.get_file_info(directories.join(self._directory, name))
        return info.mtime.timestamp() if info.mtime is not None else None

    def size(self, name: str) -> int:
        """Bytes of the file; 0 if there is none."""
        info = self._filesystem.get_file_info(directories.join(self._directory, name))
        return info.size or 0

    def read_from(self, name: str, offset: int) -> bytes:
        """What the file holds from a byte on; nothing if there is no file."""
        try:
            with self._filesystem.open_input_file(directories.join(self._directory, name)) as file:
                if offset >= file.size():
                    return b""
                file.seek(offset)
                return bytes(file.read())
        except FileNotFoundError:
            return b""

    def remove(self, name: str) -> None:
        """Remove the file."""
        self._filesystem.delete_file(directories.join(self._directory, name))

    def missing(self) -> list[Place]:
        """This directory, if it does not exist: those above it are the filesystem's matter."""
        kind = self._filesystem.get_file_info(self._directory).type
        return [self] if kind == pyarrow_fs.FileType.NotFound else []

    def remove_if_empty(self) -> None:
        """Remove the directory, unless something lies in it."""
        if not self._filesystem.get_file_info(pyarrow_fs.FileSelector(self._directory, allow_not_found=True)):
            self._filesystem.delete_dir(self._directory)
