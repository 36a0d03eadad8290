"""`StorageDirectory`: read access to a directory, local or remote, for displaying records.
`open_directory(path)` opens a path or URI.

Records are untrusted. In local directories no symbolic link is followed below the directory that
the user named, only regular files are read (a pipe would block), no name leads out, and sizes of
reads and listings are limited. Directories are opened relative to one another, starting at the
named one: with plain paths, an attacker could replace a directory by a link between check and use.
"""

from __future__ import annotations

import copy
import errno
import itertools
import os
import posixpath
import shutil
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from syncline import settings
from syncline.records import dataclass
from syncline.runs.secrets import masked_text
from syncline.storage import filesystem as storage

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo as ArrowFileInfo

MAX_READ_BYTES = 64 * 1024**2
"""Maximum bytes of one read. Files of records are smaller, except logs."""
MAX_ENTRIES = 100_000
"""Maximum entries listed of a directory, in the order of the system."""
_OPEN_DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC
_TRAVERSE_ONLY = getattr(os, "O_PATH", os.O_RDONLY)


@dataclass(frozen=True)
class FileInfo:
    """Metadata of a file."""

    size: int
    """Size in bytes."""
    modified: float
    """Modification time in seconds since the epoch."""
    identity: int = 0
    """Inode number, which changes if the file is replaced; 0 if unknown."""


def checked_file_name(name: str) -> str:
    """Return `name` if it is a plain file name; ValueError if it could lead elsewhere."""
    if not name or name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise ValueError(f"{name!r} is not a file name: pass a single name without slashes")
    return name


def checked_parts(name: str, directory: str) -> list[str]:
    """Return the parts of a relative path; ValueError if it leads out of the directory."""
    parts = name.split("/")
    if "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{name!r} leads out of {directory}: pass a name below it, without '..'")
    return parts


class SymbolicLinkError(ValueError):
    """A path contains a symbolic link."""


class StorageDirectory(ABC):
    """A directory that can be listed and read. Methods raise OSError if something cannot be read,
    written or removed. Names may contain `/`; names that lead out of the directory raise
    ValueError.
    """

    path: str
    """Path or URI for display."""

    @property
    def name(self) -> str:
        """Last part of the path."""
        return os.path.basename(
            self.path.partition("?")[0] if self.local_path is None else self.path
        )

    @property
    @abstractmethod
    def local_path(self) -> str | None:
        """Local path; None for a remote directory."""

    @abstractmethod
    def subdirectory(self, name: str) -> StorageDirectory:
        """Return a subdirectory, which need not exist."""

    @abstractmethod
    def directory_names(self) -> list[str]:
        """Return the names of the subdirectories; empty if the directory does not exist."""

    @abstractmethod
    def file_names(self, name: str) -> list[str]:
        """Return the names of the files in subdirectory `name`; empty if it does not exist."""

    @abstractmethod
    def file_info(self, name: str) -> FileInfo | None:
        """Return the metadata of a file; None if it does not exist."""

    @abstractmethod
    def read_range(self, name: str, offset: int, limit_bytes: int = MAX_READ_BYTES) -> bytes:
        """Return up to `limit_bytes` of a file from `offset`; b"" if it does not exist."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Replace a file."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file."""

    @abstractmethod
    def remove_tree(self) -> None:
        """Remove the directory with everything in it, without following links."""

    @abstractmethod
    def missing_directories(self) -> list[StorageDirectory]:
        """Return this directory and its parents as far as they do not exist, innermost first."""

    @abstractmethod
    def remove_if_empty(self) -> None:
        """Remove the directory if it is empty."""

    def file_infos(self, name: str) -> dict[str, FileInfo]:
        """Return the metadata of all files in subdirectory `name`; empty if it does not exist."""
        below = f"{name}/" if name else ""
        found = {file: self.file_info(f"{below}{file}") for file in self.file_names(name)}
        return {file: facts for file, facts in found.items() if facts is not None}

    def read(self, name: str) -> bytes | None:
        """Return the content of a file up to `MAX_READ_BYTES`; None if it does not exist."""
        return None if self.file_info(name) is None else self.read_range(name, 0)

    def size(self, name: str) -> int:
        """Return the size of a file; 0 if it does not exist."""
        facts = self.file_info(name)
        return 0 if facts is None else facts.size

    def modified(self, name: str) -> float | None:
        """Return the modification time in seconds since the epoch; None if there is no file."""
        facts = self.file_info(name)
        return None if facts is None else facts.modified


class LocalDirectory(StorageDirectory):
    """A local directory.

    Args:
        path: Path given by the user, in which links are followed.
        below: Names of subdirectories below it, in which they are not.
    """

    def __init__(self, path: str | os.PathLike[str], below: Sequence[str] = ()) -> None:
        self._named = settings.local_path(path)
        self._below = tuple(below)
        self.path = os.path.join(self._named, *below)

    @property
    def local_path(self) -> str:
        """Path of the directory."""
        return self.path

    def subdirectory(self, name: str) -> LocalDirectory:
        """Return a subdirectory."""
        return LocalDirectory(self._named, (*self._below, *self._parts(name)))

    def directory_names(self) -> list[str]:
        """Return the names of the subdirectories, without links."""
        with self._entries("") as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def file_names(self, name: str) -> list[str]:
        """Return the names of the regular files in subdirectory `name`, without links and names
        that are not valid text.
        """
        with self._entries(name) as entries:
            return sorted(
                entry.name
                for entry in entries
                if entry.is_file(follow_symlinks=False) and _is_text(entry.name)
            )

    def file_infos(self, name: str) -> dict[str, FileInfo]:
        """Return the metadata of all files in subdirectory `name`."""
        found = {}
        with self._entries(name) as entries:
            for entry in entries:
                try:
                    if entry.is_file(follow_symlinks=False) and _is_text(entry.name):
                        found[entry.name] = _file_info(entry.stat(follow_symlinks=False))
                except FileNotFoundError:  # removed since
                    continue
        return dict(sorted(found.items()))

    def file_info(self, name: str) -> FileInfo | None:
        """Return the metadata of a regular file."""
        *above, last = self._parts(name)
        try:
            with self._opened(above) as directory:
                found = os.stat(last, dir_fd=directory, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _file_info(found) if stat.S_ISREG(found.st_mode) else None

    def read_range(self, name: str, offset: int, limit_bytes: int = MAX_READ_BYTES) -> bytes:
        """Return part of a regular file."""
        *above, last = self._parts(name)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            with self._opened(above) as directory:
                descriptor = os.open(last, flags, dir_fd=directory)
        except (FileNotFoundError, NotADirectoryError):
            return b""
        except OSError as error:
            if error.errno == errno.ELOOP:
                return b""
            raise
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return b""
            file.seek(offset)
            return file.read(limit_bytes)

    def write(self, name: str, data: bytes) -> None:
        """Replace a file atomically."""
        storage.write_local(os.path.join(self.path, *self._parts(name)), data, durable=False)

    def remove(self, name: str) -> None:
        """Remove a file."""
        os.remove(os.path.join(self.path, *self._parts(name)))

    def remove_tree(self) -> None:
        """Remove the directory; OSError if it is a link."""
        shutil.rmtree(self.path)

    def missing_directories(self) -> list[StorageDirectory]:
        """Return the directories that writing here would create."""
        above = [Path(self.path), *Path(self.path).parents]
        return [
            LocalDirectory(path)
            for path in itertools.takewhile(lambda path: not path.exists(), above)
        ]

    def remove_if_empty(self) -> None:
        """Remove the directory if it is empty."""
        try:
            os.rmdir(self.path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR):
                raise

    def _parts(self, name: str) -> list[str]:
        return checked_parts(name, self.path)

    @contextmanager
    def _opened(self, parts: Sequence[str], mode: int = _TRAVERSE_ONLY) -> Iterator[int]:
        """Open a subdirectory; SymbolicLinkError if its path contains a link."""
        names = (*self._below, *parts)
        descriptor = os.open(self._named, (_TRAVERSE_ONLY if names else mode) | _OPEN_DIRECTORY)
        try:
            for number, name in enumerate(names, start=1):
                inner = self._open_in(
                    descriptor, name, mode if number == len(names) else _TRAVERSE_ONLY
                )
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)

    def _open_in(self, directory: int, name: str, mode: int) -> int:
        try:
            return os.open(name, mode | os.O_NOFOLLOW | _OPEN_DIRECTORY, dir_fd=directory)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP) and stat.S_ISLNK(
                os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
            ):
                raise SymbolicLinkError(
                    f"{name!r} in {self.path} is a symbolic link. Links may lead anywhere, so "
                    f"they are "
                    "not followed."
                ) from error
            raise

    @contextmanager
    def _entries(self, name: str) -> Iterator[Iterable[os.DirEntry[str]]]:
        """Iterate over the entries of a directory; empty if it does not exist."""
        with ExitStack() as stack:
            try:
                descriptor = stack.enter_context(
                    self._opened(self._parts(name) if name else (), os.O_RDONLY)
                )
                entries = stack.enter_context(os.scandir(descriptor))
            except (FileNotFoundError, NotADirectoryError, SymbolicLinkError):
                yield ()
                return
            yield itertools.islice(entries, MAX_ENTRIES)


class RemoteDirectory(StorageDirectory):
    """A directory on a filesystem that pyarrow finds by its URI. The query of the URI contains
    options of the filesystem, such as `endpoint_override`. ValueError if pyarrow finds none.
    """

    def __init__(self, uri: str) -> None:
        directory, mark, options = uri.partition("?")
        # The URI is displayed and may contain keys.
        self.path = masked_text(directory.rstrip("/") + mark + options)
        self._filesystem, self._directory = storage.resolve(uri)

    @property
    def local_path(self) -> None:
        """None: the files are remote."""
        return

    def subdirectory(self, name: str) -> RemoteDirectory:
        """Return a subdirectory."""
        found = copy.copy(self)  # shares the connections
        found._directory = self._inside(name)
        directory, mark, options = self.path.partition("?")
        found.path = f"{directory}/{name}{mark}{options}"
        return found

    def directory_names(self) -> list[str]:
        """Return the names of the subdirectories."""
        return self._entries("", is_file=False)

    def file_names(self, name: str) -> list[str]:
        """Return the names of the files in subdirectory `name`."""
        return self._entries(name, is_file=True)

    def file_info(self, name: str) -> FileInfo | None:
        """Return the metadata of a file; the time is 0 if the object store does not know it."""
        info = self._filesystem.get_file_info(self._inside(name))
        return _arrow_file_info(info) if info.is_file else None

    def file_infos(self, name: str) -> dict[str, FileInfo]:
        """Return the metadata of all files in subdirectory `name`, with a single request."""
        return {
            info.base_name: _arrow_file_info(info) for info in self._listed(name) if info.is_file
        }

    def read_range(self, name: str, offset: int, limit_bytes: int = MAX_READ_BYTES) -> bytes:
        """Return part of a file."""
        try:
            with self._filesystem.open_input_file(self._inside(name)) as file:
                if offset >= file.size():
                    return b""
                file.seek(offset)
                return bytes(file.read(limit_bytes))
        except FileNotFoundError:
            return b""

    def write(self, name: str, data: bytes) -> None:
        """Replace a file."""
        storage.write_remote(self._filesystem, self._inside(name), data)

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._filesystem.delete_file(self._inside(name))

    def remove_tree(self) -> None:
        """Remove the directory."""
        self._filesystem.delete_dir(self._directory)

    def missing_directories(self) -> list[StorageDirectory]:
        """Return this directory if it does not exist; parents are created implicitly."""
        kind = self._filesystem.get_file_info(self._directory).type
        return [self] if kind == storage.arrow().FileType.NotFound else []

    def remove_if_empty(self) -> None:
        """Remove the directory if it is empty."""
        if not self._filesystem.get_file_info(
            storage.arrow().FileSelector(self._directory, allow_not_found=True)
        ):
            self._filesystem.delete_dir(self._directory)

    def _inside(self, name: str) -> str:
        if name:
            checked_parts(name, self.path)
        return posixpath.join(self._directory, name) if name else self._directory

    def _entries(self, name: str, *, is_file: bool) -> list[str]:
        return sorted(info.base_name for info in self._listed(name) if info.is_file is is_file)

    def _listed(self, name: str) -> list[ArrowFileInfo]:
        found: list[ArrowFileInfo] = self._filesystem.get_file_info(
            storage.arrow().FileSelector(self._inside(name), allow_not_found=True)
        )
        return found


def _file_info(found: os.stat_result) -> FileInfo:
    return FileInfo(found.st_size, found.st_mtime, found.st_ino)


def _arrow_file_info(info: ArrowFileInfo) -> FileInfo:
    return FileInfo(info.size or 0, info.mtime.timestamp() if info.mtime is not None else 0.0)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def open_directory(path: str | os.PathLike[str] | None = None) -> StorageDirectory:
    """Return the directory at a path or URI; by default the user's storage path.

    Raises:
        ValueError: pyarrow does not support the URI.
    """
    text = os.fspath(path) if path is not None else settings.storage_path()
    text = text.removeprefix("file://")
    return RemoteDirectory(text) if "://" in text else LocalDirectory(text)
