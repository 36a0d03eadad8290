"""Simulated remote storage for both libraries: the local disk behind fsspec, with a delay per
request and a limit on the write throughput.

`filesystem()` is a `storage_filesystem` for runs. It can be pickled, because workers can import
this module. Its paths are those of the disk, so files can also be written directly. The throughput
of reads is not limited.
"""

import functools
import io
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem
from pyarrow import fs

from bench.programs.link import Link

REQUEST_S = 0.02
"""Delay of every request, in seconds."""
WRITE_BYTES_PER_S = 50_000_000
"""Throughput of all files that a process writes, together."""
REQUESTS = (
    *("get_file_info", "get_file_info_selector", "create_dir", "delete_dir"),
    *("delete_dir_contents", "delete_file", "move", "copy_file"),
    *("open_input_stream", "open_input_file", "open_output_stream"),
)


LINK = Link(WRITE_BYTES_PER_S)


class SlowFile(io.FileIO):
    """A file that is written through the link."""

    def write(self, data: Any) -> int:
        LINK.send(memoryview(data).nbytes)
        return super().write(data)


class SlowHandler(fs.FSSpecHandler):  # type: ignore[misc]
    """The local disk with a delay of `REQUESTS`."""

    def __init__(self) -> None:
        super().__init__(LocalFileSystem())

    def get_type_name(self) -> str:
        return "slow"

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        return pa.PythonFile(SlowFile(path, "wb"), mode="w")


def _delayed(request: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(request)
    def delayed(*arguments: Any, **options: Any) -> Any:
        time.sleep(REQUEST_S)
        return request(*arguments, **options)

    return delayed


for _name in REQUESTS:
    setattr(SlowHandler, _name, _delayed(getattr(SlowHandler, _name)))


def filesystem() -> fs.FileSystem:
    """Return the slow storage, with the paths of the local disk."""
    return fs.PyFileSystem(SlowHandler())
