"""Filesystems of offline data, by their names in RLlib's configuration."""

from __future__ import annotations

from typing import Any

from syncline.rl.value_types import Options

_CLASSES = {"gcs": "GcsFileSystem", "s3": "S3FileSystem", "abs": "AzureFileSystem"}


def named_filesystem(given: object, arguments: Options) -> Any:
    """Return the filesystem with a name, such as "s3"; return filesystems and None unchanged.

    Raises:
        ValueError: The name is unknown.
    """
    if not isinstance(given, str):
        return given
    if given not in _CLASSES:
        raise ValueError(
            f"The filesystem {given!r} is unknown. Use one of {sorted(_CLASSES)}, or pass a "
            "pyarrow filesystem."
        )
    from pyarrow import fs

    return getattr(fs, _CLASSES[given])(**arguments)
