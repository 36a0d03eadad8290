"""Files of a record: storage, append-only files of lines, thinning, and periodic uploads.

`Files` is the interface that `RunDirectory` and `RunRecord` need; `LocalFiles` implements it for a
local directory, `syncline.train.storage.context.ArrowFiles` for every other filesystem.

A `LineFile` is append-only and never has a torn line except at its end. Remote filesystems can only
replace whole files, so a growing file would be uploaded again with every line. It is therefore
*sealed* when it is large: its content is written once as `metrics-00001.jsonl`, and `metrics.jsonl`
starts empty. A kill between the two steps leaves sealed lines in `metrics.jsonl`; readers detect
that and skip them.
"""

from __future__ import annotations

import logging
import os
import threading
import zlib
from collections.abc import Callable
from typing import Protocol

from syncline.records import dataclass
from syncline.storage.filesystem import write_local


class Files(Protocol):
    """A directory of named files; names may contain `/`. Implementations need not be
    thread-safe.
    """

    @property
    def local_path(self) -> str | None:
        """Local path of the directory, in which files are then opened and appended to; None for a
        remote directory.
        """

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if it does not exist. OSError if unreadable."""

    def write(self, name: str, data: bytes) -> None:
        """Replace a file atomically. OSError if it cannot be written."""


class LocalFiles:
    """A local directory."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = os.path.abspath(directory)

    @property
    def local_path(self) -> str:
        """Absolute path of the directory."""
        return self._directory

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if it does not exist."""
        try:
            with open(os.path.join(self._directory, name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Replace a file atomically and durably."""
        write_local(os.path.join(self._directory, name), data)


SEALED_BYTES = 1024**2
"""Size from which a file of lines is sealed on a remote filesystem."""


class LineFile:
    """Append-only local file of lines; each line is written completely or not at all. Opening the
    file removes a torn last line that a kill left.
    """

    def __init__(self, path: str) -> None:
        _cut_torn_line(path)
        self._descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666
        )
        self._size = os.fstat(self._descriptor).st_size

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return self._size

    def append(self, line: bytes) -> None:
        """Append a line, which ends with a newline. If there is no room, raise OSError and leave
        the file unchanged.
        """
        append_whole(self._descriptor, line)
        self._size += len(line)

    def close(self) -> None:
        """Close the file; nothing is buffered."""
        os.close(self._descriptor)


def append_whole(descriptor: int, data: bytes) -> None:
    """Append to an open file. If there is no room, raise OSError and leave the file unchanged."""
    written = 0
    try:
        while written < len(data):
            written += os.write(descriptor, data[written:] if written else data)
    except OSError:
        if written:  # relative to the current end: another program may have appended
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise


def sealed_name(name: str, number: int) -> str:
    """Return the name of a sealed piece of the file of lines `name`; numbers begin at 1."""
    stem, extension = os.path.splitext(name)
    return f"{stem}-{number:05d}{extension}"


def read_pieces(files: Files, name: str) -> list[bytes]:
    """Return all pieces of the file of lines `name` in order; the last item is the current file,
    empty if it does not exist.
    """
    # Read the current file first: lines sealed meanwhile are then found in a piece.
    current = files.read(name) or b""
    pieces: list[bytes] = []
    while (piece := files.read(sealed_name(name, len(pieces) + 1))) is not None:
        pieces.append(piece)
    first_line = current[: current.find(b"\n") + 1]
    is_sealed = bool(first_line) and any(piece.startswith(first_line) for piece in reversed(pieces))
    return [*pieces, b"" if is_sealed else current]


def _cut_torn_line(path: str, chunk_bytes: int = 65536) -> None:
    """Remove what follows the last newline, so that the next line does not join a torn one."""
    if not os.path.exists(path):
        return
    with open(path, "r+b") as file:
        end = file.seek(0, os.SEEK_END)
        position = end
        while position > 0:
            start = max(0, position - chunk_bytes)
            file.seek(start)
            newline = file.read(position - start).rfind(b"\n")
            if newline >= 0:
                position = start + newline + 1
                break
            position = start
        if position < end:
            file.truncate(position)


STRIDE_GROWTH = 4


@dataclass(frozen=True, kw_only=True)
class Thinning:
    """Rule which lines of a file are written, so that the file stays small. Pure.

    The first `first_bytes` are written completely. Then every fourth line is written for half as
    many bytes, every sixteenth for half of that, and so on. The file stays below twice
    `first_bytes`, written lines are never removed, and each part covers twice the reports of the
    part before. All ranks keep the same reports. Wanted lines are always kept until three quarters
    of the file are full.
    """

    first_bytes: int
    """Bytes written completely; the file stays below twice as many."""

    def keeps(
        self,
        member: int | str,
        iteration: int,
        *,
        line_bytes: int,
        size_bytes: int,
        wanted: bool = False,
    ) -> bool:
        """Return True if a line is to be written.

        Args:
            member: Rank or trial ID; ranks keep the same iterations, trials different ones.
            iteration: Number of the line.
            line_bytes: Length of the line.
            size_bytes: Bytes written before.
            wanted: Keep the line while there is room beyond that for other lines; used for reports
                with a checkpoint.
        """
        if size_bytes + line_bytes < self.first_bytes:
            return True
        if size_bytes + line_bytes > 2 * self.first_bytes:
            return False
        if wanted and size_bytes + line_bytes <= 3 * self.first_bytes // 2:
            return True
        shift = zlib.crc32(member.encode()) if isinstance(member, str) else 0
        return (iteration + shift) % self.stride(size_bytes) == 0

    def stride(self, size_bytes: int) -> int:
        """Return n if every n-th line is written at this size of the file."""
        level, left = 0, 2 * self.first_bytes - size_bytes
        while left <= self.first_bytes >> level and level < 24:
            level += 1
        return int(STRIDE_GROWTH**level)


UPLOAD_EVERY_S = 10.0
FIRST_UPLOAD_S = 2.0
"""Seconds before the first upload, so that a new run becomes visible soon."""

logger = logging.getLogger("syncline")


class RegularUploads:
    """Thread that uploads a remote record every few seconds, so that it can be read while it grows
    and a kill loses only a few seconds of it. Errors are logged; the next upload tries again.

    Args:
        upload: Uploads new data; called from the thread.
        every_s: Seconds between two calls; None for `UPLOAD_EVERY_S`.
    """

    def __init__(self, upload: Callable[[], None], every_s: float | None = None) -> None:
        self._upload = upload
        self._every_s = UPLOAD_EVERY_S if every_s is None else every_s
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread if it is not running."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="syncline-record", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop the thread; wait for an upload in progress."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        pause_s = min(FIRST_UPLOAD_S, self._every_s)
        while not self._end.wait(pause_s):
            pause_s = self._every_s
            try:
                self._upload()
            except Exception as error:  # filesystems raise errors of all types
                logger.debug("Cannot upload the record of the run; trying again: %r", error)
