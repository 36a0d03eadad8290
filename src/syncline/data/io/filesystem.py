"""Paths and filesystems: what programs may pass as `path` and `filesystem`, brought to a pyarrow
filesystem and paths on it.

Covered: plain paths (`~` too), URIs that pyarrow knows (file, s3, gs, abfs, hdfs), others through
fsspec where it is installed (http, memory, hf, ...), pyarrow and fsspec filesystems; trying
transient errors again. Not covered: which files are read (`sources/files.py`) and how results
become visible (`sinks/commit.py`).
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from pyarrow import fs as pyarrow_fs

from syncline import settings
from syncline.data.context import DataContext
from syncline.optional import load

logger = logging.getLogger(__name__)

Path = str | os.PathLike[str]
T = TypeVar("T")

_OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})

MAX_ATTEMPTS = 10
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 32.0


def resolve(
    paths: Path | Sequence[Path], filesystem: Any = None
) -> tuple[pyarrow_fs.FileSystem, list[str]]:
    """The filesystem of `paths`, which must all lie on one, and the paths on it, absolute where it
    is this machine's.

    Args:
        paths: One path or URI, or several.
        filesystem: A pyarrow or fsspec filesystem; found from the first path if None.

    Raises:
        ValueError: No path, a URI that no library knows, paths on different filesystems.
        TypeError: Something that is no path or no filesystem.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given:
        raise ValueError("no path was given: pass a path or a list with at least one")
    texts = [_text(path) for path in given]
    found = _from_uri(texts[0]) if filesystem is None else as_pyarrow(filesystem)
    others = {_scheme(text) for text in texts[1:]} - {_scheme(texts[0])}
    if others:
        raise ValueError(
            f"paths of one dataset lie on one filesystem, but {texts[0]!r} and others begin differently: read them apart"
        )
    return found, [_on_filesystem(found, text) for text in texts]


def as_pyarrow(filesystem: Any) -> pyarrow_fs.FileSystem:
    """`filesystem` itself, or an fsspec filesystem wrapped for pyarrow. TypeError for anything
    else.
    """
    if isinstance(filesystem, pyarrow_fs.FileSystem):
        return filesystem
    # Asked by its methods, so that fsspec need not be imported to say no.
    if all(callable(getattr(filesystem, name, None)) for name in ("info", "find", "mv", "open")):
        return pyarrow_fs.PyFileSystem(pyarrow_fs.FSSpecHandler(filesystem))
    raise TypeError(
        f"filesystem is a pyarrow.fs.FileSystem or an fsspec filesystem, not {type(filesystem).__name__}"
    )


def make_directory(filesystem: pyarrow_fs.FileSystem, path: str) -> None:
    """Make a directory with its parents. Object stores need none, and making one there asks for
    rights that are often missing.
    """
    if filesystem.type_name not in _OBJECT_STORES or DataContext.get_current().s3_try_create_dir:
        filesystem.create_dir(path, recursive=True)


def sync(filesystem: pyarrow_fs.FileSystem, path: str) -> None:
    """Return when a file or directory of this machine has reached its disk; those of other machines
    are left to them.
    """
    if not is_local(filesystem):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_local(filesystem: pyarrow_fs.FileSystem) -> bool:
    """Whether paths of `filesystem` are paths of this machine."""
    return isinstance(filesystem, pyarrow_fs.LocalFileSystem)


def exchange(one: str, other: str) -> bool:
    """Let two directories change places in one step. False where the system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EXDEV, errno.EPERM):
        return False
    raise OSError(code, os.strerror(code), one, None, other)


def call_with_retry(
    call: Callable[[], T],
    description: str,
    patterns: Sequence[str],
    *,
    max_attempts: int = MAX_ATTEMPTS,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """What `call` returns, called again after a transient error, with pauses that double up to 32
    s.

    Args:
        call: The call; its last error is raised as it is.
        description: What it does, for the log.
        patterns: As `DataContext.retried_io_errors`.
        max_attempts: How often it is called at most.
        sleep: Waits; seconds.
    """
    for attempt in range(1, max_attempts + 1):
        try:
            return call()
        except Exception as error:
            if attempt == max_attempts or not is_transient(error, patterns):
                raise
            # Spread, so that many readers do not come back at the same moment.
            pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (attempt - 1)) * random.uniform(
                0.5, 1.0
            )
            logger.info(
                "%s failed (%s), attempt %d of %d; again in %.1f s",
                description,
                error,
                attempt,
                max_attempts,
                pause,
            )
            sleep(pause)
    raise AssertionError("not reached: the last attempt returns or raises")


def iterate_with_retry(
    make: Callable[[], Iterator[T]], description: str, patterns: Sequence[str]
) -> Iterator[T]:
    """What `make()` yields; after a transient error a new iterator is made, and what came before
    the error is skipped.

    Arguments as those of `call_with_retry`. `make` must yield the same each time.
    """
    yielded = 0
    while True:

        def start(skip: int = yielded) -> list[tuple[T, Iterator[T]]]:
            iterator = make()
            for _ in range(skip):
                next(iterator, None)
            return [(first, iterator) for first in islice(iterator, 1)]

        # The first new value counts as part of the attempt, so that an error that never goes away
        # ends the attempts.
        for first, rest in call_with_retry(start, description, patterns):
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


def is_transient(error: BaseException, patterns: Sequence[str]) -> bool:
    """Whether trying again may help: a lost connection, a timeout, or a text that one of `patterns`
    (text or regex) is found in.
    """
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    text = str(error)
    return any(pattern in text or re.search(pattern, text) is not None for pattern in patterns)


def _text(path: Path) -> str:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            f"a path is a string or a pathlib.Path, not {type(path).__name__} ({path!r})"
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
        # pyarrow knows few schemes; fsspec knows the rest, and says what to install for them.
        fsspec = load("fsspec", purpose=f"paths like {text!r}", install="fsspec")
        try:
            return as_pyarrow(fsspec.core.url_to_fs(text)[0])
        except (ValueError, ImportError) as other:
            raise ValueError(
                f"no filesystem for {text!r}: pyarrow says {error}; fsspec says {other}"
            ) from other


def _on_filesystem(filesystem: pyarrow_fs.FileSystem, text: str) -> str:
    scheme = _scheme(text)
    if scheme in ("http", "https"):
        return text
    path = text.partition("://")[2] if scheme else text
    if is_local(filesystem):
        path = settings.local_path(path)
    return path if path in ("", "/") else path.rstrip("/")


def join(*parts: str) -> str:
    """Parts of a path with one slash between them; empty ones are left out."""
    return "/".join(part.rstrip("/") if part != "/" else "" for part in parts if part)
