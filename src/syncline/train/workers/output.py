"""What a training function prints, kept in the run directory too: one file per rank, capped.

Covered: Python's `sys.stdout` and `sys.stderr`. Not covered: what libraries written in C print past them; the engine shows that.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, TextIO

LIMIT_BYTES = 32_000_000
"""After so much, the file says that it is full, and the rest is only shown."""


class RankLog:
    """The file of one rank, written to by both streams. An error of the filesystem costs log lines, never the work."""

    def __init__(self, path: str, limit_bytes: int = LIMIT_BYTES) -> None:
        self._lock = threading.Lock()
        self._left = limit_bytes
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)

    def write(self, text: str) -> None:
        """Append."""
        data = text.encode(errors="backslashreplace")
        with self._lock:
            if self._left < 0:
                return
            try:
                os.write(self._fd, data[: self._left])
                self._left -= len(data)
                if self._left < 0:
                    os.write(self._fd, b"\n(the log is full)\n")
            except OSError:
                self._left = -1

    def close(self) -> None:
        """Nothing more is written."""
        with self._lock:
            self._left = -1
            os.close(self._fd)


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
