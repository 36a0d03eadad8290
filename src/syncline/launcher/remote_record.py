"""Files of a run record on remote storage."""

from __future__ import annotations

from syncline.runs.record_files import Files
from syncline.storage.filesystem import join, make_directory, resolve
from syncline.train.storage.context import ArrowFiles


def remote_files(parent: str, name: str) -> tuple[Files, str]:
    """Create a directory below a URI; return its files, and its path on the filesystem.

    Raises:
        ValueError: pyarrow does not know the URI.
        OSError: The directory cannot be created.
    """
    filesystem, directory = resolve(parent)
    path = join(directory, name)
    make_directory(filesystem, path)
    return ArrowFiles(filesystem, path), path
