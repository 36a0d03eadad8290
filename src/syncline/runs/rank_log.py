"""Log of a rank: the output of its training function in the run directory.

Each rank has up to two files, of which the later one grows. Covered: Python's `sys.stdout` and
`sys.stderr`, also of processes forked from the worker, such as those of data loaders. Not covered:
output of C libraries that bypasses them; the engine displays that.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TextIO

from syncline.runs.log_times import LogTimesWriter

PART_BYTES = 16_000_000
"""File size at which a new part begins; the old one replaces the earlier part."""
_CHECKS_PER_PART = 64
_UNFINISHED_TEXTS = 1_000
"""Texts without a newline that are held back."""


class RankLog:
    """Log file of one rank for both streams: `rank-0.log`, and before that `rank-0.1.log`.

    Created with the first line. An unfinished line waits for its end, so that lines of several
    streams and processes stay whole. An error of the filesystem loses log lines and never fails the
    training. Forked processes write to the same file; only the worker begins a new part.
    """

    def __init__(self, path: str, part_bytes: int = PART_BYTES, *, timed: bool = True) -> None:
        self._lock = threading.Lock()
        self._path = path
        self._part_bytes = part_bytes
        self._owner = os.getpid()
        self._fd = -1
        self._closed = False
        self._unfinished: dict[str, list[str]] = {}  # by stream
        self._times = LogTimesWriter(path) if timed else None
        self._unchecked_bytes = part_bytes  # written since the size of the file was looked up
        _open_logs.add(self)

    def write(self, text: str, stream: str = "stdout") -> str:
        """Append output of a stream; return the written part: nothing until the line ends."""
        with self._lock:
            unfinished = self._unfinished.setdefault(stream, [])
            unfinished.append(text)
            if "\n" in text or len(unfinished) > _UNFINISHED_TEXTS:
                return self._append(unfinished)
            return ""

    def flush(self, stream: str) -> str:
        """Write the unfinished line of a stream, and return it."""
        with self._lock:
            return self._append(self._unfinished.get(stream, []))

    def _append(self, texts: list[str]) -> str:
        text = "".join(texts)
        texts.clear()
        if not self._closed and text:
            self._append_data(text.encode(errors="backslashreplace"))
        return text

    def _append_data(self, data: bytes) -> None:
        try:
            if self._fd < 0:
                self._fd = self._open()
            # Each lookup costs as much as the write.
            self._unchecked_bytes += len(data)
            if self._unchecked_bytes > self._part_bytes // _CHECKS_PER_PART:
                self._unchecked_bytes = 0
                is_full = os.fstat(self._fd).st_size + len(data) > self._part_bytes
                if is_full and not self._begin_part(len(data)):
                    self._unchecked_bytes = self._part_bytes
                    return
            if self._times is not None:
                self._times.note(lambda: os.fstat(self._fd).st_size)
            os.write(self._fd, data)
        except OSError:
            self._end()

    def close(self) -> None:
        """Write unfinished lines and stop."""
        with self._lock:
            for unfinished in self._unfinished.values():
                self._append(unfinished)
            self._end()

    def forked(self) -> None:
        """Replace the lock in a forked process, where its owner thread does not exist, and leave
        unfinished lines to the worker.
        """
        self._lock = threading.Lock()
        self._unfinished.clear()

    def _begin_part(self, more_bytes: int) -> bool:
        """Begin a new part if the current one is full; return False to drop the output."""
        is_owner = os.getpid() == self._owner
        if is_owner and os.fstat(self._fd).st_size:
            stem, extension = os.path.splitext(self._path)
            os.replace(self._path, f"{stem}.1{extension}")
            if self._times is not None:
                self._times.begin_part()
        before, self._fd = self._fd, self._open()
        os.close(before)
        # If the worker prints nothing, it begins no new part; its children must not fill the disk.
        return is_owner or os.fstat(self._fd).st_size + more_bytes <= 2 * self._part_bytes

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)

    def _end(self) -> None:
        self._closed = True
        if self._times is not None:
            self._times.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Tee:
    """Text stream that also writes to a log; all other attributes are those of the stream."""

    def __init__(self, stream: TextIO, log: RankLog, name: str = "stdout") -> None:
        self._stream = stream
        self._log = log
        self._name = name
        self._is_in_line = False

    def write(self, text: str) -> int:
        """Write to both as soon as the line ends; return the number of characters."""
        written = self._log.write(text, self._name)
        self._show(written)
        return len(text)

    def flush(self) -> None:
        """Write the unfinished line to both."""
        self._show(self._log.flush(self._name))
        self._stream.flush()

    def end_line(self) -> None:
        """End an unfinished line of the stream; what follows belongs to something else."""
        if self._is_in_line:
            self._show("\n")
            self._stream.flush()

    def _show(self, text: str) -> None:
        if text:
            self._stream.write(text)
            self._is_in_line = not text.endswith("\n")

    def writelines(self, lines: Iterable[str]) -> None:
        """Write all lines to both."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def capture_output(
    path: str, names: Sequence[str] = ("stdout", "stderr"), *, timed: bool = True
) -> Callable[[], None]:
    """Copy the output of this process to the file at `path`; return a function that ends it.

    With `timed`, the times of the lines are in a file next to it.
    """
    log = RankLog(path, timed=timed)
    before = {name: getattr(sys, name) for name in names}
    tees = {name: Tee(stream, log, name) for name, stream in before.items()}
    for name, tee in tees.items():
        setattr(sys, name, tee)

    def end() -> None:
        for name, stream in before.items():
            with suppress(Exception):  # the program may have replaced the stream
                getattr(sys, name).flush()
            with suppress(Exception):
                tees[name].end_line()
            setattr(sys, name, stream)
        log.close()

    return end


def flush_output() -> None:
    """Flush standard output and standard error; never fails, even for a program's own streams."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


_open_logs: weakref.WeakSet[RankLog] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for log in _open_logs:
        log.forked()


os.register_at_fork(after_in_child=_after_fork_in_child)
