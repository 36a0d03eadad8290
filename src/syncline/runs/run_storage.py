"""`StorageDirectory`: a directory somewhere, as those who look at runs see it. `place(path)` gives the one of
a path or URI.

Everything that shows records reads through this. A record may come from anybody, so on this machine
no symbolic link is followed below the directory that the user named, only regular files are read (a
pipe would never end), no name leads out of it, and what is read or listed at once has a limit.
Directories are opened one in the other, from the one that was named: a path would be looked up anew
at each use, and whoever may write there could put a link into it between the check and the use.
"""

from __future__ import annotations

import errno
import importlib
import itertools
import os
import stat
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from syncline import settings

MAX_READ_BYTES = 64 * 1024**2
"""Bytes that one call reads at most: no file of a record that syncline writes is larger, but logs
may be.
"""
MAX_ENTRIES = 100_000
"""Of larger directories only so many are listed, whichever the system names first."""
_OPEN_DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC
_ONLY_PASSING = getattr(os, "O_PATH", os.O_RDONLY)


@dataclass(frozen=True)
class FileInfo:
    """What is known of a file without reading it."""

    size: int
    """Bytes."""
    modified: float
    """Seconds since the epoch."""
    identity: int = 0
    """Tells a file from one that has taken its name; 0 where that is not known."""


def checked_file_name(name: str) -> str:
    """`name`, if it is one name below a directory and no more. ValueError for anything that could
    lead elsewhere.
    """
    if not name or name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise ValueError(
            f"{name!r} is no name of something in a directory: give one name, without slashes"
        )
    return name


class SymbolicLinkError(ValueError):
    """A name leads through a symbolic link."""


class StorageDirectory(ABC):
    """A directory somewhere that can be listed and read. Implementations raise OSError for what
    cannot be read, written or removed; names may contain `/`, and ValueError says of one that it
    leads out of the directory.
    """

    path: str
    """As the user would name it."""

    @property
    def name(self) -> str:
        """The last part of its path."""
        return os.path.basename(
            self.path.partition("?")[0] if self.local_path is None else self.path
        )

    @property
    @abstractmethod
    def local_path(self) -> str | None:
        """The directory, where it is one of this machine."""

    @abstractmethod
    def subdirectory(self, name: str) -> StorageDirectory:
        """The directory of that name in this one, whether or not there is one."""

    @abstractmethod
    def directory_names(self) -> list[str]:
        """Names of the directories in this one; none where there is no such directory."""

    @abstractmethod
    def file_names(self, name: str) -> list[str]:
        """Names of the files in the directory `name` of this one; none where there is no such
        directory.
        """

    @abstractmethod
    def file_info(self, name: str) -> FileInfo | None:
        """Of a file; None if there is none."""

    @abstractmethod
    def read_range(self, name: str, offset: int, limit_bytes: int = MAX_READ_BYTES) -> bytes:
        """What the file holds from a byte on, at most so much; nothing if there is no file."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Write the whole file in place of what was there."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove the file."""

    @abstractmethod
    def missing_directories(self) -> list[StorageDirectory]:
        """The directories that writing here would make: this one and those above it that do not
        exist, the innermost first.
        """

    @abstractmethod
    def remove_if_empty(self) -> None:
        """Remove the directory, unless something lies in it."""

    def file_infos(self, name: str) -> dict[str, FileInfo]:
        """Of every file in the directory `name` of this one; none where there is no such
        directory.
        """
        below = f"{name}/" if name else ""
        found = {file: self.file_info(f"{below}{file}") for file in self.file_names(name)}
        return {file: facts for file, facts in found.items() if facts is not None}

    def read(self, name: str) -> bytes | None:
        """Content of the file, as far as the limit goes; None if there is none."""
        return None if self.file_info(name) is None else self.read_range(name, 0)

    def size(self, name: str) -> int:
        """Bytes of the file; 0 if there is none."""
        facts = self.file_info(name)
        return 0 if facts is None else facts.size

    def modified(self, name: str) -> float | None:
        """When the file was last written, in seconds since the epoch; None if there is none."""
        facts = self.file_info(name)
        return None if facts is None else facts.modified


class LocalDirectory(StorageDirectory):
    """A directory of this machine.

    Args:
        path: As the user named it: links in it are followed.
        below: Names of directories from there on, in which they are not.
    """

    def __init__(self, path: str | os.PathLike[str], below: Sequence[str] = ()) -> None:
        self._named = settings.local_path(path)
        self._below = tuple(below)
        self.path = os.path.join(self._named, *below)

    @property
    def local_path(self) -> str:
        """The directory."""
        return self.path

    def subdirectory(self, name: str) -> LocalDirectory:
        """The directory of that name in this one."""
        return LocalDirectory(self._named, (*self._below, *self._parts(name)))

    def directory_names(self) -> list[str]:
        """Names of the directories in this one; links are none."""
        with self._entries("") as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def file_names(self, name: str) -> list[str]:
        """Names of the files in the directory `name` of this one; links are none, and neither is
        what has a name that is no text.
        """
        with self._entries(name) as entries:
            return sorted(
                entry.name
                for entry in entries
                if entry.is_file(follow_symlinks=False) and _is_text(entry.name)
            )

    def file_infos(self, name: str) -> dict[str, FileInfo]:
        """Of every file in the directory `name` of this one."""
        found = {}
        with self._entries(name) as entries:
            for entry in entries:
                try:
                    if entry.is_file(follow_symlinks=False) and _is_text(entry.name):
                        found[entry.name] = _file_info(entry.stat(follow_symlinks=False))
                except FileNotFoundError:  # it was taken away just now
                    continue
        return dict(sorted(found.items()))

    def file_info(self, name: str) -> FileInfo | None:
        """Of a file."""
        *above, last = self._parts(name)
        try:
            with self._opened(above) as directory:
                found = os.stat(last, dir_fd=directory, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _file_info(found) if stat.S_ISREG(found.st_mode) else None

    def read_range(self, name: str, offset: int, limit_bytes: int = MAX_READ_BYTES) -> bytes:
        """What the file holds from a byte on."""
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
        """Write the whole file beside its place, and rename it there."""
        path = os.path.join(self.path, *self._parts(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = os.path.join(os.path.dirname(path), f".tmp-{uuid.uuid4().hex}")
        try:
            with open(temporary, "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def remove(self, name: str) -> None:
        """Remove the file."""
        os.remove(os.path.join(self.path, *self._parts(name)))

    def missing_directories(self) -> list[StorageDirectory]:
        """The directories that writing here would make."""
        above = [Path(self.path), *Path(self.path).parents]
        return [
            LocalDirectory(path)
            for path in itertools.takewhile(lambda path: not path.exists(), above)
        ]

    def remove_if_empty(self) -> None:
        """Remove the directory, unless something lies in it."""
        try:
            os.rmdir(self.path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR):
                raise

    def _parts(self, name: str) -> list[str]:
        """The names of directories on the way to what has that name below this directory, and its
        own.
        """
        parts = name.split("/")
        if "\0" in name or any(part in ("", ".", "..") for part in parts):
            raise ValueError(
                f"{name!r} leads out of {self.path}: give a name below it, without '..'"
            )
        return parts

    @contextmanager
    def _opened(self, parts: Sequence[str], mode: int = _ONLY_PASSING) -> Iterator[int]:
        """A directory below this one, open. FileNotFoundError and NotADirectoryError as it is;
        ValueError for a link on the way.
        """
        names = (*self._below, *parts)
        descriptor = os.open(self._named, (_ONLY_PASSING if names else mode) | _OPEN_DIRECTORY)
        try:
            for number, name in enumerate(names, start=1):
                inner = self._open_in(
                    descriptor, name, mode if number == len(names) else _ONLY_PASSING
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
                    f"{name!r} of {self.path} is a symbolic link, which may lead anywhere, so nothing below it is shown"
                ) from error
            raise

    @contextmanager
    def _entries(self, name: str) -> Iterator[Iterable[os.DirEntry[str]]]:
        """What is in a directory; nothing where there is none."""
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


def _file_info(found: os.stat_result) -> FileInfo:
    return FileInfo(found.st_size, found.st_mtime, found.st_ino)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def open_directory(path: str | os.PathLike[str] | None = None) -> StorageDirectory:
    """The directory at a path or URI; the storage path of this user without one.

    Raises:
        ValueError: A URI that pyarrow does not know.
    """
    text = os.fspath(path) if path is not None else settings.storage_path()
    text = text.removeprefix("file://")
    if "://" not in text:
        return LocalDirectory(text)
    # pyarrow takes a third of a second to import.
    remote: StorageDirectory = importlib.import_module("syncline.runs.remote").RemoteDirectory(text)
    return remote
