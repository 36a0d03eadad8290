"""List the files that a dataset reads, with sizes and in a stable order.

Covered: files and directories (read recursively and sorted, without names that begin with "." or
"_"), results that a write job has committed but not fully published (`sinks/staging.py`),
extensions, partition filters, seeded shuffling. Globs are not expanded. Not covered: reading the
files (`file_based_datasource.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from pyarrow import fs as pyarrow_fs

from syncline.data.io.sinks.staging import visible_files
from syncline.records import dataclass


@dataclass(frozen=True, kw_only=True)
class FileInfo:
    """One file to read."""

    path: str
    """Path on its filesystem."""
    size: int | None
    """Size in bytes; None if the filesystem does not know it."""
    mtime_ns: int | None = None
    """Modification time in nanoseconds since the epoch; None if the filesystem does not know it."""


@dataclass
class FileShuffleConfig:
    """Shuffles the order in which files are read."""

    seed: int | None = None
    """Seed of the order; None draws one for the dataset."""
    reseed_after_execution: bool = True
    """True to use a different order in each execution (epoch), derived from `seed` and its
    index.
    """

    def __post_init__(self) -> None:
        if self.seed is not None and not isinstance(self.seed, int):
            raise ValueError(f"FileShuffleConfig(seed={self.seed!r}): pass an int or None")

    def get_seed(self, execution_idx: int = 0) -> int | None:
        """Return the seed of one execution."""
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
    """Return the files in `paths` and below.

    Args:
        filesystem: Filesystem of the paths.
        paths: Files and directories, as returned by `filesystem.resolve`.
        extensions: Extensions to read, with or without the dot, case-insensitive; None for all.
        partition_filter: Selects from a list of paths.
        ignore_missing_paths: Skip paths that do not exist.

    Raises:
        FileNotFoundError: A path does not exist.
        ValueError: No file remains.
    """
    found: list[FileInfo] = []
    for path, info in zip(paths, filesystem.get_file_info(list(paths)), strict=True):
        if info.type == pyarrow_fs.FileType.Directory:
            entries = filesystem.get_file_info(pyarrow_fs.FileSelector(info.path, recursive=True))
            below = map(_file_info, visible_files(filesystem, info.path, entries))
            found += sorted(below, key=lambda file: file.path)
        elif info.type != pyarrow_fs.FileType.NotFound:
            found.append(_file_info(info))
        elif not ignore_missing_paths:
            raise FileNotFoundError(_missing(path))
    if not found:
        missing = ", or the paths do not exist" if ignore_missing_paths else ""
        raise ValueError(
            f"found no file to read in {_shortened(paths)}: the directories are empty or hold only "
            f"names that begin with '.' or '_'{missing}"
        )
    if partition_filter is not None:
        kept = set(partition_filter([file.path for file in found]))
        found = _not_empty(
            [file for file in found if file.path in kept], found, "partition_filter rejects all"
        )
    if extensions is not None:
        matching = [file for file in found if has_extension(file.path, extensions)]
        found = _not_empty(
            matching, found, f"none has one of the file_extensions {list(extensions)}"
        )
    return found


def has_extension(path: str, extensions: Sequence[str]) -> bool:
    """Return True if the path has one of the extensions; a query (`?versionId=…`) is ignored."""
    name = path.partition("?")[0].lower()
    return any(name.endswith(f".{extension.lower().removeprefix('.')}") for extension in extensions)


def shuffled(files: Sequence[FileInfo], seed: int) -> list[FileInfo]:
    """Return the files in a random order that depends on the seed."""
    order = np.random.default_rng(seed).permutation(len(files))
    return [files[index] for index in order]


def contiguous_groups(files: Sequence[FileInfo], count: int) -> list[list[FileInfo]]:
    """Split the files into groups as `group_bounds` does."""
    return [list(files[start:end]) for start, end in group_bounds([f.size for f in files], count)]


def group_bounds(sizes: Sequence[int | None], count: int) -> list[tuple[int, int]]:
    """Split files into at most `count` groups (start, end) of adjacent files of nearly equal size
    in bytes (in number if a size is unknown), none empty.
    """
    if not sizes:
        return []
    count = max(1, min(count, len(sizes)))
    # Every file counts at least one byte, so that empty files are distributed as well.
    weights = np.array([1] * len(sizes) if None in sizes else [(size or 0) + 1 for size in sizes])
    middles = np.cumsum(weights) - weights / 2
    groups = np.minimum((middles * count / weights.sum()).astype(int), count - 1)
    cuts = (np.flatnonzero(np.diff(groups)) + 1).tolist()
    return list(zip([0, *cuts], [*cuts, len(sizes)], strict=True))


def _file_info(info: pyarrow_fs.FileInfo) -> FileInfo:
    return FileInfo(path=info.path, size=info.size, mtime_ns=info.mtime_ns)


def _not_empty(kept: list[FileInfo], found: list[FileInfo], reason: str) -> list[FileInfo]:
    if not kept:
        paths = _shortened([file.path for file in found])
        raise ValueError(f"no file remains to read of {paths}: {reason}")
    return kept


def _missing(path: str) -> str:
    hint = (
        ". Globs are not expanded: pass the directory with file_extensions=[…], or a list of files"
        if any(character in path for character in "*?[")
        else ""
    )
    return f"there is no file or directory {path!r}{hint}"


def _shortened(paths: Sequence[str]) -> str:
    shown = ", ".join(map(repr, paths[:3]))
    return shown if len(paths) <= 3 else f"{shown} and {len(paths) - 3} more"
