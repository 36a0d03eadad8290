"""What a training function prints, kept in the run directory too: two files per rank, of which the
later one grows.

Covered: Python's `sys.stdout` and `sys.stderr`, also of processes that are forked from the worker,
such as those of data loaders. Not covered: what libraries written in C print past them; the engine
shows that.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

PART_BYTES = 16_000_000
"""When a file has become so large, it becomes the earlier part, in place of the one that was that,
and a new one begins.
"""


class RankLog:
    """The file of one rank, written to by both streams: `rank-0.log`, and what came before that in
    `rank-0.1.log`.

    An error of the filesystem costs log lines, never the work. Forked processes write to the same
    file; only the worker begins a new part.
    """

    def __init__(self, path: str, part_bytes: int = PART_BYTES) -> None:
        self._lock = threading.Lock()
        self._path = path
        self._part_bytes = part_bytes
        self._owner = os.getpid()
        self._fd = self._open()
        _open_logs.add(self)

    def write(self, text: str) -> None:
        """Append."""
        data = text.encode(errors="backslashreplace")
        with self._lock:
            if self._fd < 0:
                return
            try:
                if os.fstat(self._fd).st_size + len(
                    data
                ) > self._part_bytes and not self._has_begun_part(len(data)):
                    return
                os.write(self._fd, data)
            except OSError:
                self._end()

    def close(self) -> None:
        """Nothing more is written."""
        with self._lock:
            self._end()

    def forked(self) -> None:
        """This is another process now, in which no thread holds the lock, whatever it was like in
        the worker.
        """
        self._lock = threading.Lock()

    def _has_begun_part(self, more_bytes: int) -> bool:
        """Go to a new part, where the current one is full; False where so much more should not be
        written at all.
        """
        is_owner = os.getpid() == self._owner
        if is_owner and os.fstat(self._fd).st_size:
            stem, extension = os.path.splitext(self._path)
            os.replace(self._path, f"{stem}.1{extension}")
        before, self._fd = self._fd, self._open()
        os.close(before)
        # Where the worker prints nothing more, it begins no new part: those of its children must
        # not fill the disk.
        return is_owner or os.fstat(self._fd).st_size + more_bytes <= 2 * self._part_bytes

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

    def writelines(self, lines: Iterable[str]) -> None:
        """Write all of them to both."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def capture_output(path: str, names: Sequence[str] = ("stdout", "stderr")) -> Callable[[], None]:
    """From here on, what this process prints on the streams of these names is also in the file at
    `path`, if that can be opened; until what is returned is called.
    """
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


_open_logs: weakref.WeakSet[RankLog] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for log in _open_logs:
        log.forked()


os.register_at_fork(after_in_child=_after_fork_in_child)
