"""Which files a dataset reads: from the paths that a program gives to a list of files with sizes,
in a stable order.

Covered: files and directories (read recursively, sorted; names that begin with "." or "_" are left
out), results that a write job has committed but not finished moving (see `sinks/commit.py`),
extensions, filters by partition, shuffling by a seed. Globs are not expanded. Not covered: reading
(`file_based.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from pyarrow import fs as pyarrow_fs

from syncline.data.io.sinks.staging import visible_files


@dataclass(frozen=True, kw_only=True)
class FileInfo:
    """One file to read."""

    path: str
    """Path on its filesystem."""
    size: int | None
    """Bytes, None where the filesystem does not say."""
    mtime_ns: int | None = None
    """When it was last changed, in nanoseconds since the epoch; None where the filesystem does not
    say.
    """


@dataclass
class FileShuffleConfig:
    """Shuffles the order in which files are read."""

    seed: int | None = None
    """The same seed gives the same order; None draws one for the dataset."""
    reseed_after_execution: bool = True
    """Every execution (epoch) has another order, which follows from `seed` and its number."""

    def __post_init__(self) -> None:
        if self.seed is not None and not isinstance(self.seed, int):
            raise ValueError(f"FileShuffleConfig(seed={self.seed!r}): the seed is an int or None")

    def get_seed(self, execution_idx: int = 0) -> int | None:
        """The seed of one execution."""
        if self.seed is None or not self.reseed_after_execution:
            return self.seed
        return int(np.random.SeedSequence([self.seed % 2**64, execution_idx]).generate_state(1)[0])


def list_files(
    filesystem: pyarrow_fs.FileSystem,
    paths: Sequence[str],
    *,
    extensions: Sequence[str] | None = None,
    partition_filter: Callable[[list[str]], list[str]] | None = None,
    ignore_missing_paths: bool = False,
) -> list[FileInfo]:
    """The files at and below `paths`.

    Args:
        filesystem: Where they lie.
        paths: Files and directories, as `filesystem.resolve` gives them.
        extensions: Endings to read, with or without their dot, in any case; None for all.
        partition_filter: Keeps some of a list of paths.
        ignore_missing_paths: Leave out what does not exist.

    Raises:
        FileNotFoundError: A path does not exist.
        ValueError: No file is left.
    """
    found: list[FileInfo] = []
    for path, info in zip(paths, filesystem.get_file_info(list(paths)), strict=True):
        if info.type == pyarrow_fs.FileType.Directory:
            found += _below(filesystem, info.path)
        elif info.type != pyarrow_fs.FileType.NotFound:
            found.append(_file(info))
        elif not ignore_missing_paths:
            raise FileNotFoundError(_missing(path))
    if not found:
        skipped = ", or do not exist" if ignore_missing_paths else ""
        raise ValueError(
            f"there is no file to read below {_some(paths)}: the directories are empty, hold only names with '.' or '_'{skipped}"
        )
    if partition_filter is not None:
        kept = set(partition_filter([file.path for file in found]))
        found = _left(
            [file for file in found if file.path in kept],
            found,
            "partition_filter accepts none of them",
        )
    if extensions is not None:
        matching = [file for file in found if has_extension(file.path, extensions)]
        found = _left(
            matching, found, f"none ends with one of {list(extensions)} (file_extensions)"
        )
    return found


def has_extension(path: str, extensions: Sequence[str]) -> bool:
    """Whether the path ends with one of the extensions; a query (`?versionId=…`) does not count."""
    name = path.partition("?")[0].lower()
    return any(name.endswith(f".{extension.lower().removeprefix('.')}") for extension in extensions)


def shuffled(files: Sequence[FileInfo], seed: int) -> list[FileInfo]:
    """The files in the order that the seed gives."""
    order = np.random.default_rng(seed).permutation(len(files))
    return [files[index] for index in order]


def runs(files: Sequence[FileInfo], count: int) -> list[list[FileInfo]]:
    """At most `count` runs of neighbouring files, about equal in bytes (in number where a size is
    unknown), none empty.
    """
    count = max(1, min(count, len(files)))
    # Every file weighs something, so that empty ones are spread as well.
    weights = np.array(
        [(file.size or 0) + 1 for file in files]
        if all(file.size is not None for file in files)
        else [1] * len(files)
    )
    middles = np.cumsum(weights) - weights / 2
    places = np.minimum((middles * count / weights.sum()).astype(int), count - 1)
    cuts = np.flatnonzero(np.diff(places)) + 1
    return [
        list(files[start:end]) for start, end in zip([0, *cuts], [*cuts, len(files)], strict=True)
    ]


def _below(filesystem: pyarrow_fs.FileSystem, directory: str) -> list[FileInfo]:
    entries = filesystem.get_file_info(pyarrow_fs.FileSelector(directory, recursive=True))
    entries = visible_files(filesystem, directory, entries)
    return sorted(map(_file, entries), key=lambda file: file.path)


def _file(info: pyarrow_fs.FileInfo) -> FileInfo:
    return FileInfo(path=info.path, size=info.size, mtime_ns=info.mtime_ns)


def _left(kept: list[FileInfo], found: list[FileInfo], reason: str) -> list[FileInfo]:
    if not kept:
        raise ValueError(
            f"no file is left to read of {_some([file.path for file in found])}: {reason}"
        )
    return kept


def _missing(path: str) -> str:
    hint = (
        "; globs are not expanded: pass the directory with file_extensions=[…], or the list of files"
        if any(c in path for c in "*?[")
        else ""
    )
    return f"there is no file or directory {path!r}{hint}"


def _some(paths: Sequence[str]) -> str:
    shown = ", ".join(map(repr, paths[:3]))
    return shown if len(paths) <= 3 else f"{shown} and {len(paths) - 3} more"
