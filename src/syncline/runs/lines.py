"""Files of lines that are only ever added to: written so that no line is ever torn in the middle,
and read in the pieces they lie in.

Where a place can only replace whole files, a file that grew for ever would be uploaded anew with
every line. So it is *sealed* when it has become large: its content is written as
`metrics-00001.jsonl`, once, and `metrics.jsonl` begins again empty. A kill between the two leaves
in `metrics.jsonl` what is sealed already; readers see that and skip it.
"""

from __future__ import annotations

import os

from syncline.runs.files import Files

SEALED_BYTES = 1024**2
"""A file of lines that is larger is sealed, where it has to be uploaded as a whole."""


class LineFile:
    """A local file to which lines are added, each written whole or not at all. A torn line at its
    end, left by a kill, is cut off.
    """

    def __init__(self, path: str) -> None:
        _cut_torn_line(path)
        self._descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666
        )
        self._size = os.fstat(self._descriptor).st_size

    @property
    def size_bytes(self) -> int:
        """How long it is."""
        return self._size

    def append(self, line: bytes) -> None:
        """Add a line, which ends with a newline. OSError, and the file is as it was, where there is
        no room for it.
        """
        written = 0
        try:
            while written < len(line):
                written += os.write(self._descriptor, line[written:] if written else line)
        except OSError:
            if written:  # from its end as it is now: another program may have added to it
                os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
            raise
        self._size += len(line)

    def close(self) -> None:
        """Close it; nothing is buffered."""
        os.close(self._descriptor)


def sealed_name(name: str, number: int) -> str:
    """Name of the sealed piece of that number, from 1, of the file of lines `name`."""
    stem, extension = os.path.splitext(name)
    return f"{stem}-{number:05d}{extension}"


def read_pieces(files: Files, name: str) -> list[bytes]:
    """All pieces of the file of lines `name` in order, the one that is still added to last (empty
    if there is none).
    """
    current = (
        files.read(name) or b""
    )  # first: what of it is sealed meanwhile is in one of the pieces then
    pieces: list[bytes] = []
    while (piece := files.read(sealed_name(name, len(pieces) + 1))) is not None:
        pieces.append(piece)
    first_line = current[: current.find(b"\n") + 1]
    is_sealed = bool(first_line) and any(piece.startswith(first_line) for piece in reversed(pieces))
    return [*pieces, b"" if is_sealed else current]


def _cut_torn_line(path: str, chunk_bytes: int = 65536) -> None:
    """Take away what follows the last newline: a line that a kill cut short, to which the next one
    must not be glued.
    """
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
