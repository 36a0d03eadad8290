"""What workers print, kept: log files that are capped, and the last lines of each worker for error
messages.

Covered: bytes as they come from the pipes, one file per stream of a worker. Not covered: what the
driver's terminal shows (`display`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

Stream = Literal["out", "err"]
"""A worker's standard output or its standard error."""

FILE_LIMIT_BYTES = 8_000_000
FILES_PER_STREAM = 3
TAIL_BYTES = 16_384
"""What a tail keeps of each worker, at least; twice as much at most."""


class LogFile:
    """One stream of one worker on disk: `path`, with `path.1`, `path.2` … holding what came before.
    Not thread-safe.

    The file is made by the first write. An error of the file system costs log lines, never the
    work: it is reported by the result.
    """

    def __init__(
        self, path: Path, *, limit_bytes: int = FILE_LIMIT_BYTES, files: int = FILES_PER_STREAM
    ) -> None:
        """`limit_bytes` is the size of one file; `files` of them are kept."""
        self._path = path
        self._limit_bytes = limit_bytes
        self._files = files
        self._fd = -1
        self._size = 0

    def write(self, data: bytes) -> bool:
        """Append, rotating first if the file would grow past its limit; False if the file system
        did not take it.
        """
        try:
            if self._fd < 0:
                self._open()
            if self._size and self._size + len(data) > self._limit_bytes:
                self._rotate()
            left = memoryview(data)
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError:
            self.close()
            return False
        self._size += len(data)
        return True

    def close(self) -> None:
        """Close the file; a later write opens it again."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._fd).st_size

    def _rotate(self) -> None:
        self.close()
        names = [self._path, *(Path(f"{self._path}.{age}") for age in range(1, self._files))]
        for older, newer in zip(reversed(names[1:]), reversed(names[:-1]), strict=True):
            if newer.exists():
                newer.replace(older)
        if self._files == 1:
            self._path.unlink()
        self._open()


class Tail:
    """The last that a worker wrote, both streams in the order of arrival. Not thread-safe."""

    def __init__(self) -> None:
        self._runs: list[tuple[Stream, bytearray]] = []
        self._nbytes = 0
        self._cut: set[Stream] = set()  # streams whose earliest kept line lacks its beginning

    def add(self, stream: Stream, data: bytes) -> None:
        """Take what the worker wrote."""
        if self._runs and self._runs[-1][0] == stream:
            self._runs[-1][1].extend(data)
        else:
            self._runs.append((stream, bytearray(data)))
        self._nbytes += len(data)
        if self._nbytes > 2 * TAIL_BYTES:
            self._shorten()

    def text(self, lines: int) -> str:
        """The last `lines` lines, joined by newlines; of a line that was drawn again and again,
        what a terminal would show last.
        """
        whole: list[bytes] = []
        unfinished: dict[Stream, bytes] = {"out": b"", "err": b""}
        cut = set(self._cut)
        for stream, run in self._runs:
            *ended, unfinished[stream] = (unfinished[stream] + run).split(b"\n")
            if ended and stream in cut:
                cut.discard(stream)
                del ended[0]
            whole += ended
        whole += [rest for rest in unfinished.values() if rest]
        chosen = whole[-lines:] if lines > 0 else []
        return "\n".join(
            line.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2] for line in chosen
        )

    def _shorten(self) -> None:
        while self._nbytes > TAIL_BYTES:
            stream, run = self._runs[0]
            self._cut.add(stream)
            excess = self._nbytes - TAIL_BYTES
            if len(run) <= excess:
                self._nbytes -= len(run)
                del self._runs[0]
            else:
                if run[excess - 1] == 0x0A:
                    self._cut.discard(stream)
                del run[:excess]
                self._nbytes -= excess
