"""What a training function prints, kept in the run directory too: two files per rank, of which the later one grows.

Covered: Python's `sys.stdout` and `sys.stderr`. Not covered: what libraries written in C print past them; the engine shows that.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, TextIO

PART_BYTES = 16_000_000
"""When a file has become so large, it becomes the earlier part, in place of the one that was that, and a new one begins."""


class RankLog:
    """The file of one rank, written to by both streams: `rank-0.log`, and what came before that in `rank-0.1.log`.

    An error of the filesystem costs log lines, never the work.
    """

    def __init__(self, path: str, part_bytes: int = PART_BYTES) -> None:
        self._lock = threading.Lock()
        self._path = path
        self._part_bytes = part_bytes
        self._fd = self._open()
        self._size = os.fstat(self._fd).st_size

    def write(self, text: str) -> None:
        """Append."""
        data = text.encode(errors="backslashreplace")
        with self._lock:
            if self._fd < 0:
                return
            try:
                if self._size + len(data) > self._part_bytes and self._size:
                    self._begin_part()
                os.write(self._fd, data)
                self._size += len(data)
            except OSError:
                self._end()

    def close(self) -> None:
        """Nothing more is written."""
        with self._lock:
            self._end()

    def _begin_part(self) -> None:
        stem, extension = os.path.splitext(self._path)
        os.replace(self._path, f"{stem}.1{extension}")
        before, self._fd = self._fd, self._open()
        os.close(before)
        self._size = 0

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)

    def _end(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Tee:
    """A text stream whose writes go to a log, too; everything else is the stream's own."""

    def __init__(self, stream: TextIO, log: RankLog) -> None:
        self._stream = stream
        self._log = log

    def write(self, text: str) -> int:
        """Write to both; how many characters the stream took."""
        self._log.write(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def keep_output(path: str, names: Sequence[str] = ("stdout", "stderr")) -> Callable[[], None]:
    """From here on, what this process prints on the streams of these names is also in the file at `path`, if that can be opened; until
    what is returned is called."""
    try:
        log = RankLog(path)
    except OSError:
        return lambda: None
    before = {name: getattr(sys, name) for name in names}
    for name, stream in before.items():
        setattr(sys, name, Tee(stream, log))

    def end() -> None:
        for name, stream in before.items():
            setattr(sys, name, stream)
        log.close()

    return end
