"""Resolve `path` and `filesystem` arguments to a pyarrow filesystem and the paths on it.

Covered: plain paths (also `~`), URIs that pyarrow supports (file, s3, gs, abfs, hdfs), other URIs
through fsspec if it is installed (http, memory, hf, ...), pyarrow and fsspec filesystems, retries
after transient errors. Not covered: listing (`sources/file_listing.py`) and publishing results
(`sinks/commit.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from pyarrow import fs as pyarrow_fs

from syncline.data.context import DataContext
from syncline.optional import load
from syncline.storage import filesystem as storage
from syncline.storage.retries import RetryPolicy, call_with_retries, is_transient

Path = str | os.PathLike[str]
Paths = Path | Sequence[Path]
T = TypeVar("T")

RETRIES = RetryPolicy(attempts=10, first_pause_s=0.2, longest_pause_s=32.0)


def resolve(paths: Paths, filesystem: object = None) -> tuple[pyarrow_fs.FileSystem, list[str]]:
    """Return the filesystem of `paths` and the paths on it; local paths become absolute.

    Args:
        paths: One path or URI, or several on the same filesystem.
        filesystem: A pyarrow or fsspec filesystem; found from the first path if None.

    Raises:
        ValueError: No path, a URI that no library supports, or paths on different filesystems.
        TypeError: A value that is no path or no filesystem.
    """
    if isinstance(paths, str | bytes | os.PathLike) or not isinstance(paths, Iterable):
        given = [paths]
    else:
        given = list(paths)
    if not given:
        raise ValueError("no path was given: pass a path or a list with at least one")
    texts = [_text(path) for path in given]
    found = _from_uri(texts[0]) if filesystem is None else as_pyarrow(filesystem)
    others = {_scheme(text) for text in texts[1:]} - {_scheme(texts[0])}
    if others:
        raise ValueError(
            f"the paths of a dataset must be on one filesystem, but {texts[0]!r} and {len(others)} "
            f"other schemes {sorted(others)} are mixed: read each filesystem separately"
        )
    return found, [storage.path_on(found, text) for text in texts]


def as_pyarrow(filesystem: object) -> pyarrow_fs.FileSystem:
    """Return `filesystem`, wrapped for pyarrow if it is an fsspec filesystem.

    Raises TypeError for any other type.
    """
    if isinstance(filesystem, pyarrow_fs.FileSystem):
        return filesystem
    # Checked by its methods, so that fsspec is not imported only to reject a value.
    if all(callable(getattr(filesystem, name, None)) for name in ("info", "find", "mv", "open")):
        return pyarrow_fs.PyFileSystem(pyarrow_fs.FSSpecHandler(filesystem))
    raise TypeError(
        "filesystem must be a pyarrow.fs.FileSystem or an fsspec filesystem, "
        f"not {type(filesystem).__name__}"
    )


def make_directory(filesystem: pyarrow_fs.FileSystem, path: str) -> None:
    """Create a directory and its parents; on object stores only if
    `DataContext.s3_try_create_dir` is set.
    """
    on_object_stores = DataContext.get_current().s3_try_create_dir
    storage.make_directory(filesystem, path, on_object_stores=on_object_stores)


def sync(filesystem: pyarrow_fs.FileSystem, path: str) -> None:
    """Flush a local file or directory to disk; do nothing on other filesystems."""
    if storage.is_local(filesystem):
        storage.sync(path)


def call_with_retry(
    call: Callable[[], T], description: str, patterns: Sequence[str], policy: RetryPolicy = RETRIES
) -> T:
    """Return the result of `call`; retry it after transient errors with exponential backoff.

    Args:
        call: The call. Its last error is raised unchanged.
        description: The operation, for the log.
        patterns: As `DataContext.retried_io_errors`.
        policy: Number of attempts and pauses.
    """
    return call_with_retries(call, description, policy=policy, patterns=patterns)


def iterate_with_retry(
    make: Callable[[], Iterator[T]],
    description: str,
    patterns: Sequence[str],
    policy: RetryPolicy = RETRIES,
) -> Iterator[T]:
    """Yield the values of `make()`; after a transient error, make a new iterator and skip the
    values that were already yielded.

    `make` must yield the same values each time. Other arguments: see `call_with_retry`.
    """
    yielded = 0
    while True:

        def start(skip: int = yielded) -> list[tuple[T, Iterator[T]]]:
            iterator = make()
            for _ in range(skip):
                next(iterator, None)
            return [(first, iterator) for first in islice(iterator, 1)]

        # The first new value is part of the attempt, so that a permanent error uses up the
        # attempts.
        for first, rest in call_with_retry(start, description, patterns, policy):
            yield first
            yielded += 1
            try:
                for value in rest:
                    yield value
                    yielded += 1
                return
            except Exception as error:
                if not is_transient(error, patterns):
                    raise
            break
        else:
            return


def _text(path: Path) -> str:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            f"a path must be a str or a pathlib.Path, not {type(path).__name__} ({path!r})"
        )
    return os.fspath(path)


def _scheme(text: str) -> str:
    scheme, separator, _ = text.partition("://")
    return scheme if separator else ""


def _from_uri(text: str) -> pyarrow_fs.FileSystem:
    scheme = _scheme(text)
    if scheme in ("", "file", "local"):
        return pyarrow_fs.LocalFileSystem()
    try:
        return pyarrow_fs.FileSystem.from_uri(text)[0]
    except (ValueError, NotImplementedError) as error:
        # fsspec supports more schemes, and its error names the package to install.
        fsspec = load("fsspec", purpose=f"paths like {text!r}", install="fsspec")
        try:
            return as_pyarrow(fsspec.core.url_to_fs(text)[0])
        except (ValueError, ImportError) as other:
            raise ValueError(
                f"no filesystem for {text!r}: pyarrow says {error}; fsspec says {other}"
            ) from other
