"""Output of the workers: from their standard streams to the console, to files and to rank logs.

A worker's stream is a pipe, or a terminal where the console is one, so that a script sees the same
kind of file as without the launcher. If standard output and standard error of the launcher are the
same file, a worker has one pipe for both, so that the order of its output is kept.
"""

from __future__ import annotations

import fcntl
import os
import pty
import selectors
import termios
from collections import deque
from collections.abc import Callable

READ_BYTES = 1 << 16
TAIL_BYTES = 65_536
"""Bytes of each rank's latest output that are kept for messages."""
Sink = Callable[[bytes], None]


class RankOutput:
    """Streams of one worker process."""

    def __init__(self, rank: int, selector: selectors.BaseSelector, log: Sink | None) -> None:
        self.rank = rank
        self._selector = selector
        self._log = log
        self._sinks: dict[int, list[Sink]] = {}  # by the launcher's descriptor
        self._files: list[int] = []
        self._tail: deque[bytes] = deque()
        self._read_bytes = 0

    def open(self, stdout: str, stderr: str) -> tuple[int, int]:
        """Return the worker's descriptors for both streams; the caller closes them.

        Args:
            stdout: File for standard output; empty for the console.
            stderr: File for standard error.
        """
        if not stdout and not stderr and same_file(1, 2):
            fd = self._open_stream(1, "")
            return fd, os.dup(fd)
        return self._open_stream(1, stdout), self._open_stream(2, stderr)

    def _open_stream(self, console: int, path: str) -> int:
        is_terminal = not path and os.isatty(console)
        reader, writer = terminal_like(console) if is_terminal else os.pipe()
        os.set_blocking(reader, False)
        if path:
            target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
            self._files.append(target)
        else:
            target = console
        self._sinks[reader] = [lambda data: write_all(target, data), self._keep]
        if self._log is not None:
            self._sinks[reader].append(self._log)
        self._selector.register(reader, selectors.EVENT_READ, self)
        return writer

    def read(self, fd: int) -> None:
        """Forward the available output."""
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:  # the last process has closed the terminal
            data = b""
        if not data:
            self._close_stream(fd)
            return
        for sink in self._sinks[fd]:
            sink(data)

    def drain(self) -> None:
        """Forward the remaining output of an ended worker; its child processes may continue."""
        for fd in list(self._sinks):
            while fd in self._sinks:
                before = self._read_bytes
                self.read(fd)
                if self._read_bytes == before:
                    break

    def close(self) -> None:
        """Close the streams and files."""
        for fd in list(self._sinks):
            self._close_stream(fd)
        while self._files:
            os.close(self._files.pop())

    def tail(self) -> str:
        """Return the latest output."""
        return b"".join(self._tail).decode(errors="replace")[-TAIL_BYTES:]

    def _keep(self, data: bytes) -> None:
        self._tail.append(data)
        self._read_bytes += len(data)
        while len(self._tail) > 1 and sum(map(len, self._tail)) - len(self._tail[0]) > TAIL_BYTES:
            self._tail.popleft()

    def _close_stream(self, fd: int) -> None:
        if self._sinks.pop(fd, None) is not None:
            self._selector.unregister(fd)
            os.close(fd)


def same_file(one: int, other: int) -> bool:
    """Return True if two descriptors lead to the same file, pipe or terminal."""
    try:
        first, second = os.fstat(one), os.fstat(other)
    except OSError:
        return False
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)


def write_all(fd: int, data: bytes) -> None:
    """Write to a descriptor; drop the rest if it has no reader."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:  # another program has made the console non-blocking
            os.set_blocking(fd, True)
        except OSError:
            return


def terminal_like(console: int) -> tuple[int, int]:
    """Return both ends of a new terminal with the size of another one, which changes no bytes."""
    master, slave = pty.openpty()
    try:
        attributes = termios.tcgetattr(slave)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        size = fcntl.ioctl(console, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
    except (OSError, termios.error):
        pass  # without a size
    return master, slave
