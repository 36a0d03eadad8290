"""A directory as the zip file that a job's workers unpack: the same files give the same bytes, so
that nothing is uploaded twice.

Left out: what `excludes` names (patterns as in a .gitignore line, without negation), version
control, caches and virtual environments.
"""

from __future__ import annotations

import fnmatch
import hashlib
import io
import os
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from syncline.cli.output import CommandError, size

LIMIT_BYTES = 500 * 1024**2
"""Larger directories are refused: every node would hold them. Data belongs on storage that the
nodes see.
"""
NEVER = (
    ".git",
    ".hg",
    ".svn",
    "__pycache__",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".venv",
    "node_modules",
)
_EPOCH = (1980, 1, 1, 0, 0, 0)
_LARGEST_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class Package:
    """A zip file under the name by which the cluster knows it."""

    name: str
    data: bytes

    @property
    def uri(self) -> str:
        """What stands in the runtime environment."""
        return f"gcs://{self.name}"


def pack(
    directory: str,
    *,
    excludes: Sequence[str] = (),
    keep_name: bool = False,
    limit_bytes: int = LIMIT_BYTES,
) -> Package:
    """The directory as a package; with `keep_name` its own name is the first part of every path, as
    a module's must be.

    Raises:
        CommandError: There is no such directory, a file cannot be read, or it holds more than
        `limit_bytes`; the largest files are named.
    """
    root = os.path.abspath(os.path.expanduser(directory))
    if not os.path.isdir(root):
        raise CommandError(
            f"{directory!r} is no directory of this machine, so it cannot be sent to the cluster: correct its path"
        )
    files = sorted(_files(root, excludes))
    try:
        sizes = {path: os.stat(os.path.join(root, path)).st_size for path in files}
        if sum(sizes.values()) > limit_bytes:
            largest = sorted(files, key=lambda path: -sizes[path])[:_LARGEST_NAMED]
            raise CommandError(
                f"{root} holds {size(sum(sizes.values()))}, and {size(limit_bytes)} may be sent; the largest files are "
                + ", ".join(f"{path} ({size(sizes[path])})" for path in largest)
                + ': leave some out with --runtime-env-json=\'{"excludes": ["…"]}\', or put data on storage that all nodes see'
            )
        data = _zip(root, files, os.path.basename(root) if keep_name else "")
    except OSError as error:
        raise CommandError(
            f"{root} cannot be packed ({error}): correct its permissions, or exclude the file"
        ) from error
    return Package(name=f"_ray_pkg_{hashlib.sha256(data).hexdigest()[:32]}.zip", data=data)


def _files(root: str, excludes: Sequence[str]) -> Iterator[str]:
    for folder, directories, names in os.walk(root):
        below = os.path.relpath(folder, root)
        prefix = "" if below == "." else below + "/"
        directories[:] = [
            name
            for name in directories
            if name not in NEVER and not excluded(prefix + name, excludes)
        ]
        yield from (
            prefix + name
            for name in names
            if not excluded(prefix + name, excludes) and os.path.isfile(os.path.join(folder, name))
        )


def excluded(path: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern names the path: with a slash inside it is one of the whole path, without
    one of the last part.
    """
    for pattern in patterns:
        wanted = pattern.rstrip("/")
        if fnmatch.fnmatch(
            path if "/" in wanted.lstrip("/") or wanted.startswith("/") else os.path.basename(path),
            wanted.lstrip("/"),
        ):
            return True
    return False


def _zip(root: str, files: Sequence[str], prefix: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            entry = zipfile.ZipInfo(f"{prefix}/{path}" if prefix else path, date_time=_EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (os.stat(os.path.join(root, path)).st_mode & 0xFFFF) << 16
            with open(os.path.join(root, path), "rb") as file:
                archive.writestr(entry, file.read())
    return buffer.getvalue()
