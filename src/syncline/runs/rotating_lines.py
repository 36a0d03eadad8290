"""Files of lines that keep only recent lines: `RotatingLines` writes them, `RotatingReader` reads.

A file that has reached its size is renamed to `NAME.1.jsonl` and a new one begins; the previous
one is dropped. A record that grows for months therefore stays small and loses its oldest lines.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from syncline.runs import json_values
from syncline.runs.json_values import JsonObject, Record, encode
from syncline.runs.record_files import LineFile
from syncline.runs.run_storage import StorageDirectory

READ_BYTES = 2_000_000
"""Bytes at the end of a file that a reader begins with; their values take ten times the memory."""
MAX_LINE_BYTES = 1_000_000
"""Maximum bytes of a line that is read."""


def previous_name(name: str) -> str:
    """Return the name of the file before: `seconds.1.jsonl` for `seconds.jsonl`."""
    stem, extension = os.path.splitext(name)
    return f"{stem}.1{extension}"


class RotatingLines:
    """Writer of one file. OSError if it cannot be written; then nothing of the lines is.

    Args:
        path: Local path.
        limit_bytes: Size from which the file is renamed.
    """

    def __init__(self, path: str, limit_bytes: int) -> None:
        self._path = path
        self._limit_bytes = limit_bytes
        self._file: LineFile | None = None

    def append(self, records: Sequence[Record]) -> None:
        """Append lines."""
        if not records:
            return
        if self._file is None:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            self._file = LineFile(self._path)
        elif self._file.size_bytes >= self._limit_bytes:
            self.close()
            os.replace(self._path, previous_name(self._path))
            self._file = LineFile(self._path)
        self._file.append(b"".join(map(encode, records)))

    def close(self) -> None:
        """Close the file; a later `append` opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None


class RotatingReader:
    """Reader of one file that continues where it stopped. For one thread.

    Damaged lines are skipped and counted.

    Args:
        run: Run directory.
        name: Name of the file in it.
        limit_bytes: Maximum bytes that are read at a time; of more, the last.
    """

    def __init__(self, run: StorageDirectory, name: str, limit_bytes: int = READ_BYTES) -> None:
        self._run = run
        self._name = name
        self._limit_bytes = limit_bytes
        self._identity = 0
        self._offset = 0
        self.unreadable = 0
        """Number of skipped lines."""

    def read(self) -> list[JsonObject]:
        """Return the new records. OSError if the file cannot be read."""
        facts = self._run.file_info(self._name)
        if facts is None:
            return []
        found: list[JsonObject] = []
        before = previous_name(self._name)
        is_other = facts.identity != self._identity or facts.size < self._offset
        if is_other:
            earlier = self._run.file_info(before)
            if earlier is not None and not self._identity:
                found += self._lines(before, 0, earlier.size)[0]
            elif earlier is not None and earlier.identity == self._identity:
                found += self._lines(before, self._offset, earlier.size)[0]
            self._identity, self._offset = facts.identity, 0
        records, self._offset = self._lines(self._name, self._offset, facts.size)
        return found + records

    def _lines(self, name: str, offset: int, size: int) -> tuple[list[JsonObject], int]:
        """Return the complete lines from a position on, and the position after them."""
        is_cut = size - offset > self._limit_bytes
        start = size - self._limit_bytes if is_cut else offset
        data = self._run.read_range(name, start, self._limit_bytes)
        end = data.rfind(b"\n") + 1
        lines = data[:end].split(b"\n")[1 if is_cut else 0 : -1]
        records = [record for line in lines if (record := self._parsed(line)) is not None]
        return records, start + end

    def _parsed(self, line: bytes) -> JsonObject | None:
        try:
            value = json_values.parse_json(line) if len(line) <= MAX_LINE_BYTES else None
        except ValueError:
            value = None
        if not isinstance(value, dict):
            self.unreadable += 1
            return None
        return value
