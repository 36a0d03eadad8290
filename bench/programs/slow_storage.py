"""Storage that is as slow as one far away, for both libraries: this machine's disk behind fsspec,
each request late, all writes paced.

`filesystem()` is what a run takes as `storage_filesystem`. It can be pickled, because workers can
import this module. Files may be put there beforehand past it, as its paths are those of the disk.
Not slowed down: how fast reads go once they have begun.
"""

import functools
import io
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem
from pyarrow import fs

REQUEST_S = 0.02
"""How late the answer to every request is."""
WRITE_BYTES_PER_S = 50_000_000
"""What all files that a process writes get together."""
REQUESTS = (
    "get_file_info", "get_file_info_selector", "create_dir", "delete_dir", "delete_dir_contents", "delete_file", "move", "copy_file",
    "open_input_stream", "open_input_file", "open_output_stream",
)  # fmt: skip


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


class SlowFile(io.FileIO):
    """A file whose bytes go through the link."""

    def write(self, data: Any) -> int:
        LINK.send(memoryview(data).nbytes)
        return super().write(data)


class SlowHandler(fs.FSSpecHandler):  # type: ignore[misc]
    """The disk; `REQUESTS` are late."""

    def __init__(self) -> None:
        super().__init__(LocalFileSystem())

    def get_type_name(self) -> str:
        return "slow"

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        return pa.PythonFile(SlowFile(path, "wb"), mode="w")


def _late(request: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(request)
    def late(*arguments: Any, **options: Any) -> Any:
        time.sleep(REQUEST_S)
        return request(*arguments, **options)

    return late


for _name in REQUESTS:
    setattr(SlowHandler, _name, _late(getattr(SlowHandler, _name)))


def filesystem() -> fs.FileSystem:
    """The slow storage, whose paths are those of this machine's disk."""
    return fs.PyFileSystem(SlowHandler())
