"""Operations on directories and files of any pyarrow filesystem.

Local filesystems use system calls, which for a checkpoint of some kilobytes are many times faster
than pyarrow, copy inside the kernel, and share blocks where the filesystem supports it (XFS,
Btrfs). All others use pyarrow, which is loaded on first use. Transient errors are retried
(`retries.py`). Durable writes return after the data has reached the disk. Not covered: ordering of
concurrent readers and writers.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import posixpath
import shutil
import stat
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

from syncline import faults, settings
from syncline.storage.retries import call_with_retries

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

TEMPORARY_PREFIX = ".tmp-"
"""Prefix of unfinished files and directories: readers skip them, the next start may delete them."""
PARALLEL_TRANSFERS = 8
"""Concurrent transfers to or from a remote filesystem."""
CHUNK_BYTES = 8 * 1024**2
"""Bytes of a transferred file that are in memory at a time."""
_OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})
_CANNOT_SHARE = frozenset(
    {
        errno.EXDEV,
        errno.EINVAL,
        errno.ENOSYS,
        errno.EOPNOTSUPP,
        errno.EPERM,
        errno.EBADF,
        errno.ETXTBSY,
    }
)


def arrow() -> ModuleType:
    """Return the module `pyarrow.fs`, loaded on first use: it takes a third of a second."""
    return importlib.import_module("pyarrow.fs")


def resolve(
    path: str | os.PathLike[str], filesystem: FileSystem | None = None
) -> tuple[FileSystem, str]:
    """Return the filesystem of `path`, and the absolute path on it without a trailing slash.

    Raises:
        ValueError: pyarrow does not support the URI.
    """
    text = os.fspath(path)
    if filesystem is not None:
        return filesystem, path_on(filesystem, text)
    if "://" not in text:
        return arrow().LocalFileSystem(), settings.local_path(text)
    try:
        filesystem, resolved = arrow().FileSystem.from_uri(text)
    except (ValueError, OSError, NotImplementedError) as error:
        raise ValueError(
            f"pyarrow finds no filesystem for {text!r} ({error}): correct the URI, or pass a "
            "filesystem (`storage_filesystem=…` of RunConfig and Result.from_path, `filesystem=…` "
            "of Checkpoint); for fsspec "
            "`pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs))`."
        ) from error
    return filesystem, resolved if resolved == "/" else resolved.rstrip("/")


def path_on(filesystem: FileSystem, text: str) -> str:
    """Return the path of a path or URI on its filesystem; HTTP URLs are paths themselves."""
    scheme, separator, rest = text.partition("://")
    if scheme in ("http", "https") and separator:
        return text
    path = rest if separator else text
    if is_local(filesystem):
        path = settings.local_path(path)
    return path if path in ("", "/") else path.rstrip("/")


def is_local(filesystem: FileSystem) -> bool:
    """Return True if paths of `filesystem` are local paths."""
    return bool(filesystem.type_name == "local")


def join(*parts: str) -> str:
    """Join the parts of a path with one slash between them; skip empty parts."""
    return "/".join(part.rstrip("/") if part != "/" else "" for part in parts if part)


def is_directory(filesystem: FileSystem, path: str) -> bool:
    """Return True if the directory exists; on object stores, if anything has this prefix."""
    if is_local(filesystem):
        return os.path.isdir(path)
    info = call_with_retries(lambda: filesystem.get_file_info(path), f"looking for {path}")
    return bool(info.type == arrow().FileType.Directory)


def read_bytes(filesystem: FileSystem, path: str) -> bytes | None:
    """Return the content of a file, or None if it does not exist."""

    def read() -> bytes:
        with filesystem.open_input_file(path) as file:
            return bytes(file.read())

    try:
        return call_with_retries(read, f"reading {path}")
    except FileNotFoundError:
        return None


def write_bytes(filesystem: FileSystem, path: str, data: bytes, *, durable: bool = True) -> None:
    """Write a file and create its directory. Local writes are atomic; `durable` ones also survive a
    power failure, because the content reaches the disk before the file is renamed.
    """

    def write() -> None:
        if is_local(filesystem):
            write_local(path, data, durable=durable)
        else:
            write_remote(filesystem, path, data)

    call_with_retries(write, f"writing {path}")


def write_local(path: str, data: bytes, *, durable: bool = True) -> None:
    """Write a local file atomically and create its directory. See `write_bytes`."""
    parent = os.path.dirname(path)
    os.makedirs(parent, exist_ok=True)
    temporary = join(parent, f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:  # on a full disk a partial file would use up the remaining space
        with suppress(OSError):
            os.unlink(temporary)
        raise


def write_remote(filesystem: FileSystem, path: str, data: bytes) -> None:
    """Write a file through pyarrow and create its directory, without retries."""
    parent = posixpath.dirname(path)
    if parent:
        make_directory(filesystem, parent)
    with filesystem.open_output_stream(path) as stream:
        stream.write(data)


def make_directory(filesystem: FileSystem, path: str, *, on_object_stores: bool = False) -> None:
    """Create a directory and its parents. Object stores need none, and creating one requires
    permissions that are often missing, so they are skipped unless `on_object_stores` is set.
    """
    if on_object_stores or filesystem.type_name not in _OBJECT_STORES:
        filesystem.create_dir(path, recursive=True)


def delete_file(filesystem: FileSystem, path: str) -> None:
    """Delete a file if it exists."""
    try:
        call_with_retries(
            lambda: os.unlink(path) if is_local(filesystem) else filesystem.delete_file(path),
            f"deleting {path}",
        )
    except FileNotFoundError:
        return


def delete_directory(filesystem: FileSystem, path: str) -> None:
    """Delete a directory and its content if it exists. A local one is renamed first, so that no
    reader sees a partially deleted directory.
    """
    try:
        if not is_local(filesystem):
            call_with_retries(lambda: filesystem.delete_dir(path), f"deleting {path}")
            return
        doomed = join(posixpath.dirname(path), f"{TEMPORARY_PREFIX}deleted-{uuid.uuid4().hex}")
        os.rename(path, doomed)
        faults.reach("train.delete.hidden")
        shutil.rmtree(doomed)
    except FileNotFoundError:
        return


def exchange(one: str, other: str) -> bool:
    """Swap two local directories atomically; return False if the system does not support it."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    at_fdcwd, rename_exchange = -100, 2
    if rename(at_fdcwd, os.fsencode(one), at_fdcwd, os.fsencode(other), rename_exchange) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EXDEV, errno.EPERM):
        return False
    raise OSError(code, os.strerror(code), one, None, other)


def sync(path: str) -> None:
    """Flush a local file, or the names in a local directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # filesystems without a disk
            raise
    finally:
        os.close(descriptor)


def sync_directory(directory: str) -> None:
    """Flush a local directory with all its content to the disk.

    Unfinished files are left out: another process may rename them meanwhile, and it flushes them.
    """
    for path, _, names in os.walk(directory, topdown=False):
        for name in names:
            if not name.startswith(TEMPORARY_PREFIX):
                sync(join(path, name))
        sync(path)


@dataclass(kw_only=True)
class Listing:
    """Recursive content of a directory. Paths are relative to it, parents before children."""

    directories: list[str] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)
    """Relative path -> size in bytes."""
    linked: bool = False
    """True if a file has further hard links or is a symbolic link (local directories only)."""

    @property
    def size_bytes(self) -> int:
        """Total size of the files."""
        return sum(self.files.values())

    def without(self, name: str) -> Listing:
        """Return the listing without a top-level directory."""
        kept = {path: size for path, size in self.files.items() if not path.startswith(f"{name}/")}
        return replace(
            self,
            directories=[path for path in self.directories if path.partition("/")[0] != name],
            files=kept,
        )


def list_directory(filesystem: FileSystem, directory: str) -> Listing:
    """List a directory recursively. FileNotFoundError if it does not exist."""
    if not is_directory(filesystem, directory):
        raise FileNotFoundError(
            errno.ENOENT,
            f"The directory does not exist on the {filesystem.type_name} filesystem",
            directory,
        )
    listing = Listing()
    if is_local(filesystem):
        _list_local(directory, "", listing)
        return listing
    selector = arrow().FileSelector(directory, recursive=True)
    # Some fsspec filesystems list paths with a leading slash.
    skipped = len(directory.strip("/")) + 1
    for info in sorted(
        call_with_retries(lambda: filesystem.get_file_info(selector), f"listing {directory}"),
        key=lambda info: info.path,
    ):
        relative = info.path.strip("/")[skipped:]
        if info.is_file:
            listing.files[relative] = info.size or 0
        elif relative:
            listing.directories.append(relative)
    return listing


def copy_directory(
    from_filesystem: FileSystem,
    source: str,
    to_filesystem: FileSystem,
    target: str,
    *,
    listing: Listing | None = None,
) -> None:
    """Copy the content of a directory into another one; create it if needed, overwrite files.

    Args:
        from_filesystem: Filesystem of `source`.
        source: Directory to copy; links are followed, permissions are kept.
        to_filesystem: Filesystem of `target`.
        target: Directory to fill.
        listing: Content of `source`; listed if None.

    Raises:
        FileNotFoundError: `source` does not exist.
        OSError: A file cannot be read or written, also after retries of transient errors.
    """
    listing = listing or list_directory(from_filesystem, source)
    local = is_local(from_filesystem) and is_local(to_filesystem)
    _make_directories(to_filesystem, target, listing)

    def copy(relative: str) -> None:
        here, there = join(source, relative), join(target, relative)
        if local:
            call_with_retries(lambda: _copy_local(here, there), f"copying {here} to {there}")
        else:
            call_with_retries(
                lambda: _copy_streams(from_filesystem, here, to_filesystem, there),
                f"copying {here} to {there}",
            )
        faults.reach("train.stage.file")

    _each(copy, list(listing.files), parallel=1 if local else PARALLEL_TRANSFERS)


def move_directory(source: str, target: str, listing: Listing) -> bool:
    """Move the content of a local directory into another one without copying.

    Return False, with nothing changed, if that is impossible: across filesystems, or with linked
    files, which could be changed later through their other names.
    """
    os.makedirs(target, exist_ok=True)
    if listing.linked or os.stat(source).st_dev != os.stat(target).st_dev or os.listdir(target):
        return False
    moved: list[str] = []
    try:
        for name in dict.fromkeys(
            path.partition("/")[0] for path in (*listing.directories, *listing.files)
        ):
            os.rename(join(source, name), join(target, name))
            moved.append(name)
            faults.reach("train.stage.file")
    except OSError as error:
        for name in moved:
            os.rename(join(target, name), join(source, name))
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EBUSY):
            return False
        raise
    return True


def _make_directories(filesystem: FileSystem, target: str, listing: Listing) -> None:
    """Create `target` and its subdirectories."""
    paths = [join(target, relative) for relative in ("", *listing.directories)]
    if filesystem.type_name in _OBJECT_STORES:
        paths = [] if listing.files else [target]
    for path in paths:
        if is_local(filesystem):
            os.makedirs(path, exist_ok=True)
        else:
            make = partial(filesystem.create_dir, path, recursive=True)
            call_with_retries(make, f"creating the directory {path}")


def _each(do: Callable[[str], None], names: list[str], *, parallel: int) -> None:
    if parallel == 1 or len(names) <= 1:
        for name in names:
            do(name)
        return
    with ThreadPoolExecutor(
        max_workers=min(parallel, len(names)), thread_name_prefix="syncline-copy"
    ) as pool:
        try:
            for _ in pool.map(do, names):
                pass
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _list_local(directory: str, below: str, listing: Listing) -> None:
    with os.scandir(join(directory, below)) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        relative = join(below, entry.name)
        status = entry.stat()  # follows links; a broken link is an error
        listing.linked |= entry.is_symlink()
        if stat.S_ISDIR(status.st_mode):
            listing.directories.append(relative)
            _list_local(directory, relative, listing)
        elif not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "Only files and directories can be copied", entry.path)
        else:
            listing.files[relative] = status.st_size
            listing.linked |= status.st_nlink > 1


def _copy_local(source: str, target: str) -> None:
    try:
        with open(source, "rb") as reader, open(target, "wb") as writer:
            if not _copied_in_kernel(reader.fileno(), writer.fileno()):
                shutil.copyfile(source, target)
    except OSError as error:
        if error.filename is None:
            raise OSError(error.errno, error.strerror, source, None, target) from error
        raise
    shutil.copymode(source, target)


def _copy_streams(
    from_filesystem: FileSystem, source: str, to_filesystem: FileSystem, target: str
) -> None:
    # `pyarrow.fs.copy_files` ignores errors of closing a file, which is when an object store
    # reports that it rejected the object.
    with (
        from_filesystem.open_input_stream(source) as reader,
        to_filesystem.open_output_stream(target) as writer,
    ):
        while chunk := reader.read(CHUNK_BYTES):
            writer.write(chunk)


def _copied_in_kernel(source: int, target: int) -> bool:
    """Copy in the kernel, sharing blocks if possible; return False, with nothing copied, if the
    kernel does not support it.
    """
    if not hasattr(os, "copy_file_range"):
        return False
    left = os.fstat(source).st_size
    if left == 0:  # files of /proc also report no size
        return False
    try:
        while left > 0:
            count = os.copy_file_range(source, target, min(left, 1 << 30))
            if count == 0:
                return True  # the source was truncated meanwhile
            left -= count
    except OSError as error:
        if error.errno in _CANNOT_SHARE and os.lseek(target, 0, os.SEEK_CUR) == 0:
            return False
        raise
    return True
