"""Directories on any pyarrow filesystem: resolve, copy, read, write, delete.

A local filesystem is served by the operating system's own calls, which for a checkpoint of some kilobytes are many times quicker than the
general way; every other one goes through pyarrow. Not covered: who may read or write when (`checkpoint.py`, `storage.py`).
"""

from __future__ import annotations

import os
import posixpath
import shutil
import uuid

from pyarrow import fs as pyarrow_fs

from syncline import settings

TEMPORARY_PREFIX = ".tmp-"
"""Names that begin so are unfinished: readers skip them, and the next start may delete them."""


def resolve(path: str | os.PathLike[str], filesystem: pyarrow_fs.FileSystem | None = None) -> tuple[pyarrow_fs.FileSystem, str]:
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
    return bool(filesystem.get_file_info(path).type == pyarrow_fs.FileType.Directory)


def read_bytes(filesystem: pyarrow_fs.FileSystem, path: str) -> bytes | None:
    """The file's content, or None if there is no such file."""
    try:
        with filesystem.open_input_file(path) as file:
            return bytes(file.read())
    except FileNotFoundError:
        return None


def write_bytes(filesystem: pyarrow_fs.FileSystem, path: str, data: bytes) -> None:
    """Write a file, its directory made if need be. Locally a reader sees the old content or the new, never a part."""
    parent = posixpath.dirname(path)
    if not is_local(filesystem):
        if parent:
            filesystem.create_dir(parent, recursive=True)
        with filesystem.open_output_stream(path) as stream:
            stream.write(data)
        return
    os.makedirs(parent, exist_ok=True)
    temporary = join(parent, f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}")
    with open(temporary, "wb") as file:
        file.write(data)
    os.replace(temporary, path)


def copy_directory(from_filesystem: pyarrow_fs.FileSystem, source: str, to_filesystem: pyarrow_fs.FileSystem, target: str) -> None:
    """Copy what is in the directory `source` into the directory `target`, made if need be; files that both have are overwritten.

    Raises:
        FileNotFoundError: There is no directory `source`.
    """
    if not is_directory(from_filesystem, source):
        raise FileNotFoundError(f"There is no directory {source!r} on the {from_filesystem.type_name} filesystem, so nothing was copied.")
    if is_local(from_filesystem) and is_local(to_filesystem):
        # Content and permission of files only: times and owners would cost calls and help nobody.
        shutil.copytree(source, target, copy_function=shutil.copy, dirs_exist_ok=True)
        return
    to_filesystem.create_dir(target, recursive=True)
    listed = _as_listed(from_filesystem, source)
    pyarrow_fs.copy_files(listed, target, source_filesystem=from_filesystem, destination_filesystem=to_filesystem)


def delete_directory(filesystem: pyarrow_fs.FileSystem, path: str) -> None:
    """Delete a directory with all that is in it; nothing happens if there is none.

    Locally it is renamed first, so that no reader takes a half-deleted directory for a whole one.
    """
    try:
        if not is_local(filesystem):
            filesystem.delete_dir(path)
            return
        doomed = join(posixpath.dirname(path), f"{TEMPORARY_PREFIX}deleted-{uuid.uuid4().hex}")
        os.rename(path, doomed)
        shutil.rmtree(doomed)
    except FileNotFoundError:
        return


def _as_listed(filesystem: pyarrow_fs.FileSystem, directory: str) -> str:
    """`directory` as the filesystem spells it in listings: some of fsspec's put a slash before every path, which pyarrow's copy refuses."""
    if directory.startswith("/") or not isinstance(filesystem, pyarrow_fs.PyFileSystem):
        return directory
    entries = filesystem.get_file_info(pyarrow_fs.FileSelector(directory))
    return f"/{directory}" if entries and entries[0].path.startswith("/") else directory
