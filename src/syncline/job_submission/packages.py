"""Packages: a directory as a zip file for the workers of a job.

Equal files give equal bytes, so that nothing is uploaded twice. Excluded: version control, caches,
virtual environments, and `excludes` (patterns as in a .gitignore line, without negation).
"""

from __future__ import annotations

import fnmatch
import hashlib
import io
import os
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from syncline.job_submission.errors import JobError

LIMIT_BYTES = 500 * 1024**2
"""Size limit of a directory, because every node stores it."""
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
    """A zip file and its name in the cluster."""

    name: str
    data: bytes

    @property
    def uri(self) -> str:
        """URI for the runtime environment."""
        return f"gcs://{self.name}"


def pack(
    directory: str,
    *,
    excludes: Sequence[str] = (),
    keep_name: bool = False,
    limit_bytes: int = LIMIT_BYTES,
) -> Package:
    """Pack a directory.

    Args:
        directory: Path of the directory.
        excludes: Patterns of files to leave out.
        keep_name: Start every path with the directory's own name, as modules need.
        limit_bytes: Largest total size of the files.

    Raises:
        JobError: The directory does not exist, a file cannot be read, or the files exceed
            `limit_bytes`; the message lists the largest files.
    """
    root = os.path.abspath(os.path.expanduser(directory))
    if not os.path.isdir(root):
        raise JobError(
            f"{directory!r} is not a directory on this machine, so it cannot be sent to the "
            "cluster: correct the path"
        )
    files = sorted(_files(root, excludes))
    try:
        sizes = {path: os.stat(os.path.join(root, path)).st_size for path in files}
        if sum(sizes.values()) > limit_bytes:
            largest = sorted(files, key=lambda path: -sizes[path])[:_LARGEST_NAMED]
            raise JobError(
                f"{root} holds {_mib(sum(sizes.values()))}, but the limit is {_mib(limit_bytes)}; "
                "the largest files are "
                + ", ".join(f"{path} ({_mib(sizes[path])})" for path in largest)
                + ': leave some out with "excludes" in the runtime environment, or put data '
                "on storage that all nodes can access"
            )
        data = _zip(root, files, os.path.basename(root) if keep_name else "")
    except OSError as error:
        raise JobError(
            f"{root} cannot be packed ({error}): correct its permissions, or exclude the file"
        ) from error
    return Package(name=f"_ray_pkg_{hashlib.sha256(data).hexdigest()[:32]}.zip", data=data)


def _mib(size_bytes: float) -> str:
    return f"{size_bytes / 1024**2:.3g} MiB"


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
    """Return True if a pattern matches the path.

    A pattern with a slash matches the whole path, one without a slash the last part.
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
