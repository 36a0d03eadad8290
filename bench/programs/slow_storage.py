"""Storage that is as slow as one far away, for both libraries: this machine's disk behind fsspec, each request late, all writes paced.

`filesystem()` is what a run takes as `storage_filesystem`. It can be pickled, because workers can import this module. Files may be put
there beforehand past it, as its paths are those of the disk. Not slowed down: how fast reads go once they have begun.
"""

import threading
import time
from typing import Any

from fsspec.implementations.local import LocalFileOpener, LocalFileSystem
from pyarrow import fs

REQUEST_S = 0.02
"""How late the answer to every request is."""
WRITE_BYTES_PER_S = 50_000_000
"""What all files that a process writes get together."""


class Link:
    """What carries so many bytes per second; who sends while others do waits for his turn."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._lock = threading.Lock()
        self._free_at = 0.0

    def send(self, size_bytes: int) -> None:
        """Returns when they have gone through."""
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic()) + size_bytes / self._bytes_per_s
            pause_s = self._free_at - time.monotonic()
        time.sleep(max(0.0, pause_s))


LINK = Link(WRITE_BYTES_PER_S)


class SlowFile(LocalFileOpener):
    """A file whose bytes go through the link."""

    def write(self, data: Any) -> int:
        LINK.send(memoryview(data).nbytes)
        written: int = super().write(data)
        return written


class SlowFileSystem(LocalFileSystem):
    """The disk, late. What a listing says of its files is part of that request."""

    protocol = "slow"

    def info(self, path: Any, **options: Any) -> Any:
        if isinstance(path, str):  # else an entry of a listing
            _answer_late()
        return super().info(path, **options)

    def isfile(self, path: str) -> bool:
        _answer_late()
        return bool(super().isfile(path))

    def isdir(self, path: str) -> bool:
        _answer_late()
        return bool(super().isdir(path))

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        _answer_late()
        super().makedirs(path, exist_ok=exist_ok)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        _answer_late()
        super().rm(path, recursive=recursive, maxdepth=maxdepth)

    def mv(self, path1: str, path2: str, recursive: bool = True, **options: Any) -> None:
        _answer_late()
        super().mv(path1, path2, recursive=recursive, **options)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        _answer_late()
        super().cp_file(path1, path2, **options)

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **options: Any) -> LocalFileOpener:
        _answer_late()
        kind = LocalFileOpener if mode == "rb" else SlowFile
        return kind(self._strip_protocol(path), mode, fs=self, **options)


def filesystem() -> fs.FileSystem:
    """The slow storage, whose paths are those of this machine's disk."""
    return fs.PyFileSystem(fs.FSSpecHandler(SlowFileSystem()))


def _answer_late() -> None:
    time.sleep(REQUEST_S)
