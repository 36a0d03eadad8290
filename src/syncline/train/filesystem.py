"""Directories on any pyarrow filesystem: resolve, copy, read, write, delete.

A local filesystem is served by the operating system's own calls, which for a checkpoint of some
kilobytes are many times quicker than the general way, copy inside the kernel, and share the blocks
where the disk's format can (XFS, Btrfs); every other one goes through pyarrow. What is written
reaches the disk before a call returns, where it says so. Whatever fails for a reason that passes is
tried again (`retries.py`). Not covered: who may read or write when (`checkpoint.py`, `storage.py`).
"""

from __future__ import annotations

import errno
import os
import posixpath
import shutil
import stat
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from pyarrow import fs as pyarrow_fs

from syncline import faults, settings
from syncline.train.retries import keep_trying

TEMPORARY_PREFIX = ".tmp-"
"""Names that begin so are unfinished: readers skip them, and the next start may delete them."""
PARALLEL_TRANSFERS = 8
"""So many files travel to or from another machine at a time."""
CHUNK_BYTES = 8 * 1024**2
"""So much of each file that travels is in memory."""
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


def resolve(
    path: str | os.PathLike[str], filesystem: pyarrow_fs.FileSystem | None = None
) -> tuple[pyarrow_fs.FileSystem, str]:
    """The filesystem of `path` and the path on it, absolute and without a slash at its end.

    Raises:
        ValueError: A URI that pyarrow does not know.
    """
    text = os.fspath(path)
    if filesystem is not None:
        text = text.partition("://")[2] if "://" in text else text
        if is_local(filesystem):
            text = settings.local_path(text)
        return filesystem, text if text == "/" else text.rstrip("/")
    if "://" not in text:
        return pyarrow_fs.LocalFileSystem(), settings.local_path(text)
    try:
        filesystem, resolved = pyarrow_fs.FileSystem.from_uri(text)
    except (ValueError, OSError, NotImplementedError) as error:
        raise ValueError(
            f"pyarrow finds no filesystem for {text!r} ({error}): correct the URI, or give a filesystem yourself "
            "(`storage_filesystem=…` of RunConfig and Result.from_path, `filesystem=…` of Checkpoint), "
            "for fsspec's `pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs))`."
        ) from error
    return filesystem, resolved if resolved == "/" else resolved.rstrip("/")


def is_local(filesystem: pyarrow_fs.FileSystem) -> bool:
    """Whether paths of `filesystem` are paths of this machine."""
    return isinstance(filesystem, pyarrow_fs.LocalFileSystem)


def join(directory: str, *names: str) -> str:
    """Path below `directory`, which may be empty (the root of an object store)."""
    return posixpath.join(directory, *names)


def is_directory(filesystem: pyarrow_fs.FileSystem, path: str) -> bool:
    """Whether there is a directory (on object stores: anything below that prefix)."""
    if is_local(filesystem):
        return os.path.isdir(path)
    info = keep_trying(lambda: filesystem.get_file_info(path), f"looking for {path}")
    return bool(info.type == pyarrow_fs.FileType.Directory)


def read_bytes(filesystem: pyarrow_fs.FileSystem, path: str) -> bytes | None:
    """The file's content, or None if there is no such file."""

    def read() -> bytes:
        with filesystem.open_input_file(path) as file:
            return bytes(file.read())

    try:
        return keep_trying(read, f"reading {path}")
    except FileNotFoundError:
        return None


def write_bytes(
    filesystem: pyarrow_fs.FileSystem, path: str, data: bytes, *, durable: bool = True
) -> None:
    """Write a file, its directory made if need be. Locally a reader sees the old content or the
    new, never a part; if `durable`, also after a power failure, because the content has reached the
    disk before it gets the name.
    """

    def write() -> None:
        if is_local(filesystem):
            _write_local(path, data, durable=durable)
        else:
            _write(filesystem, path, data)

    keep_trying(write, f"writing {path}")


def delete_file(filesystem: pyarrow_fs.FileSystem, path: str) -> None:
    """Delete a file; nothing happens if there is none."""
    try:
        keep_trying(
            lambda: os.unlink(path) if is_local(filesystem) else filesystem.delete_file(path),
            f"deleting {path}",
        )
    except FileNotFoundError:
        return


def delete_directory(filesystem: pyarrow_fs.FileSystem, path: str) -> None:
    """Delete a directory with all that is in it; nothing happens if there is none.

    Locally it is renamed first, so that no reader takes a half-deleted directory for a whole one.
    """
    try:
        if not is_local(filesystem):
            keep_trying(lambda: filesystem.delete_dir(path), f"deleting {path}")
            return
        doomed = join(posixpath.dirname(path), f"{TEMPORARY_PREFIX}deleted-{uuid.uuid4().hex}")
        os.rename(path, doomed)
        faults.reach("train.delete.hidden")
        shutil.rmtree(doomed)
    except FileNotFoundError:
        return


def sync(path: str) -> None:
    """Return when what was written to a file of this machine, or renamed in a directory, has
    reached the disk.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # filesystems that have no disk
            raise
    finally:
        os.close(descriptor)


def sync_directory(directory: str) -> None:
    """The same for a directory with all that is in it."""
    for path, _, names in os.walk(directory, topdown=False):
        for name in names:
            sync(join(path, name))
        sync(path)


@dataclass(kw_only=True)
class Listing:
    """What is in a directory, with everything below. Paths are relative to it, parents before
    children.
    """

    directories: list[str] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)
    """Relative path to size in bytes."""
    linked: bool = False
    """Whether a file in it has a name elsewhere too, or is a link to one. Known of local
    directories only.
    """

    @property
    def size_bytes(self) -> int:
        """All files together."""
        return sum(self.files.values())

    def without(self, name: str) -> Listing:
        """The same but for a directory of that name and all that is in it."""
        kept = {path: size for path, size in self.files.items() if not path.startswith(f"{name}/")}
        return replace(
            self,
            directories=[path for path in self.directories if path.partition("/")[0] != name],
            files=kept,
        )


def list_directory(filesystem: pyarrow_fs.FileSystem, directory: str) -> Listing:
    """What there is to copy. FileNotFoundError without such a directory."""
    if not is_directory(filesystem, directory):
        raise FileNotFoundError(
            errno.ENOENT,
            f"There is no such directory on the {filesystem.type_name} filesystem",
            directory,
        )
    listing = Listing()
    if is_local(filesystem):
        _list_local(directory, "", listing)
        return listing
    selector = pyarrow_fs.FileSelector(directory, recursive=True)
    # Some of fsspec's filesystems put a slash before every path that they list.
    skipped = len(directory.strip("/")) + 1
    for info in sorted(
        keep_trying(lambda: filesystem.get_file_info(selector), f"listing {directory}"),
        key=lambda info: info.path,
    ):
        relative = info.path.strip("/")[skipped:]
        if info.type == pyarrow_fs.FileType.File:
            listing.files[relative] = info.size or 0
        elif relative:
            listing.directories.append(relative)
    return listing


def copy_directory(
    from_filesystem: pyarrow_fs.FileSystem,
    source: str,
    to_filesystem: pyarrow_fs.FileSystem,
    target: str,
    *,
    listing: Listing | None = None,
) -> None:
    """Copy what is in the directory `source` into the directory `target`, made if need be; files
    that both have are overwritten.

    Args:
        from_filesystem: Where `source` lies.
        source: Content and permissions of its files are copied; links are followed.
        to_filesystem: Where `target` lies.
        target: The directory to fill.
        listing: What is in `source`, where that is known already.

    Raises:
        FileNotFoundError: There is no directory `source`.
        OSError: A file could not be read or written, after several attempts where that may help.
    """
    listing = listing or list_directory(from_filesystem, source)
    local = is_local(from_filesystem) and is_local(to_filesystem)
    _make_directories(to_filesystem, target, listing)

    def copy(relative: str) -> None:
        here, there = join(source, relative), join(target, relative)
        if local:
            keep_trying(lambda: _copy_local(here, there), f"copying {here} to {there}")
        else:
            keep_trying(
                lambda: _copy_streams(from_filesystem, here, to_filesystem, there),
                f"copying {here} to {there}",
            )
        faults.reach("train.stage.file")

    _each(copy, list(listing.files), parallel=1 if local else PARALLEL_TRANSFERS)


def take_directory(source: str, target: str, listing: Listing) -> bool:
    """Move what `listing` names from the local directory `source` into the local directory
    `target`, without copying.

    False, and nothing has changed, where that is impossible: on another filesystem, or with files
    that have another name elsewhere, under which they could be changed later.
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


def _make_directories(filesystem: pyarrow_fs.FileSystem, target: str, listing: Listing) -> None:
    """Make `target` and the directories in it."""
    if is_local(filesystem):
        for relative in ("", *listing.directories):
            os.makedirs(join(target, relative), exist_ok=True)
        return

    def make(path: str) -> None:
        keep_trying(
            lambda: filesystem.create_dir(path, recursive=True), f"making the directory {path}"
        )

    # Object stores need no directories around files; the request for one costs time and asks for
    # rights that are often missing.
    if filesystem.type_name not in _OBJECT_STORES:
        for relative in ("", *listing.directories):
            make(join(target, relative).rstrip("/"))
    elif not listing.files:
        make(target)


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
        status = entry.stat()  # of what a link leads to; a link that leads nowhere is an error, as it cannot be part of a checkpoint
        listing.linked |= entry.is_symlink()
        if stat.S_ISDIR(status.st_mode):
            listing.directories.append(relative)
            _list_local(directory, relative, listing)
        elif not stat.S_ISREG(status.st_mode):
            raise OSError(
                errno.EINVAL,
                "Only files and directories can be copied, and this is neither",
                entry.path,
            )
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
    from_filesystem: pyarrow_fs.FileSystem,
    source: str,
    to_filesystem: pyarrow_fs.FileSystem,
    target: str,
) -> None:
    # pyarrow's own `copy_files` ignores errors of closing a file, which is where an object store
    # says that it did not take an object.
    with (
        from_filesystem.open_input_stream(source) as reader,
        to_filesystem.open_output_stream(target) as writer,
    ):
        while chunk := reader.read(CHUNK_BYTES):
            writer.write(chunk)


def _copied_in_kernel(source: int, target: int) -> bool:
    """Whether the kernel has copied everything, or let both files share their blocks. False, with
    nothing copied, where it cannot.
    """
    if not hasattr(os, "copy_file_range"):
        return False
    left = os.fstat(source).st_size
    if left == 0:  # or a file of /proc, which does not say how long it is
        return False
    try:
        while left > 0:
            count = os.copy_file_range(source, target, min(left, 1 << 30))
            if count == 0:
                return True  # the source has become shorter meanwhile
            left -= count
    except OSError as error:
        if error.errno in _CANNOT_SHARE and os.lseek(target, 0, os.SEEK_CUR) == 0:
            return False
        raise
    return True


def _write(filesystem: pyarrow_fs.FileSystem, path: str, data: bytes) -> None:
    parent = posixpath.dirname(path)
    if parent and filesystem.type_name not in _OBJECT_STORES:
        filesystem.create_dir(parent, recursive=True)
    with filesystem.open_output_stream(path) as stream:
        stream.write(data)


def _write_local(path: str, data: bytes, *, durable: bool) -> None:
    parent = posixpath.dirname(path)
    os.makedirs(parent, exist_ok=True)
    temporary = join(parent, f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        delete_file(pyarrow_fs.LocalFileSystem(), temporary)
        raise
