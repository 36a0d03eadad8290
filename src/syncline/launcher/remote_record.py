"""Files of a run record on remote storage."""

from __future__ import annotations

from syncline.runs.record_files import Files
from syncline.storage.filesystem import make_directory, resolve
from syncline.train.storage.context import ArrowFiles


def remote_files(uri: str) -> Files:
    """Create the directory and return its files.

    Raises:
        ValueError: pyarrow does not know the URI.
        OSError: The directory cannot be created.
    """
    filesystem, path = resolve(uri)
    make_directory(filesystem, path)
    return ArrowFiles(filesystem, path)
