"""Filesystems of offline data, by the names that RLlib's configuration gives them."""

from __future__ import annotations

from typing import Any

_CLASSES = {"gcs": "GcsFileSystem", "s3": "S3FileSystem", "abs": "AzureFileSystem"}


def named_filesystem(given: Any, arguments: dict[str, Any]) -> Any:
    """Return the filesystem of a name, such as "s3"; filesystems and None come back as they are.

    Raises:
        ValueError: The name is unknown.
    """
    if not isinstance(given, str):
        return given
    if given not in _CLASSES:
        raise ValueError(
            f"The filesystem {given!r} is unknown. Use one of {sorted(_CLASSES)}, or pass a "
            "filesystem of pyarrow."
        )
    from pyarrow import fs

    return getattr(fs, _CLASSES[given])(**arguments)
