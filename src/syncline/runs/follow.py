"""Reading files that grow: lines of JSON, and logs that rotate. Each reader remembers how far it has come.

Lines that cannot be read are passed over and counted: who shows a run shows what is there.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from syncline.runs.directory import LOGS_DIRECTORY
from syncline.runs.lines import sealed_name
from syncline.runs.places import Place

LARGEST_FILE = 64 * 1024**2
"""Of a file of lines so much is read; records that syncline writes are smaller."""
LOG_FILE = re.compile(r"(?P<member>.+?)(?:\.(?P<age>\d+))?\.log")
"""A log and its earlier parts: `rank-0.log`, `rank-0.1.log`."""


class LineReader:
    """Reads a file of lines on from where it stopped, over the pieces in which it lies. For one thread."""

    def __init__(self, run: Place, name: str) -> None:
        self._run = run
        self._name = name
        self._piece = 0  # so many sealed pieces are read to their ends
        self._offset = 0
        self._read_bytes = 0
        self._begun = b""
        self.unreadable = 0
        """Lines that were passed over."""

    def read(self) -> list[dict[str, Any]]:
        """The records that were added. OSError if the file cannot be read."""
        parts = []
        while self._run.facts(sealed := sealed_name(self._name, self._piece + 1)) is not None:
            # What is sealed now was the current piece before, and a part of it may have been read.
            parts.append(self._take(sealed))
            self._piece, self._offset = self._piece + 1, 0
        if not (self._piece and self._is_sealed_already()):
            parts.append(self._take(self._name))
        *whole, self._begun = (self._begun + b"".join(parts)).split(b"\n")
        return self._parsed(whole)

    def _take(self, name: str) -> bytes:
        room = LARGEST_FILE - self._read_bytes
        data = self._run.read_from(name, self._offset, room) if room > 0 else b""
        self._offset += len(data)
        self._read_bytes += len(data)
        return data

    def _is_sealed_already(self) -> bool:
        """Whether a kill has left in the current piece what the last sealed one has."""
        if self._offset:
            return False
        head = self._run.read_from(self._name, 0, 256)
        return bool(head) and head == self._run.read_from(sealed_name(self._name, self._piece), 0, len(head))

    def _parsed(self, lines: list[bytes]) -> list[dict[str, Any]]:
        if not lines:
            return []
        try:
            records = json.loads(b"[" + b",".join(lines) + b"]")  # in one go, which is quicker than each
        except (ValueError, RecursionError):
            records = [self._parse(line) for line in lines]
        found = [record for record in records if isinstance(record, dict)]
        self.unreadable += len(lines) - len(found)
        return found

    @staticmethod
    def _parse(line: bytes) -> Any:
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            return None


@dataclass(frozen=True, kw_only=True)
class LogFile:
    """What one worker printed."""

    member: str
    """Whose it is: "rank-0"."""
    size_bytes: int
    """Of all parts."""
    parts: tuple[str, ...]
    """File names in `logs/`, the oldest first."""


def log_files(run: Place) -> list[LogFile]:
    """The logs of a run, by number where there are numbers."""
    parts: dict[str, list[tuple[int, str]]] = {}
    for name in run.file_names(LOGS_DIRECTORY):
        found = LOG_FILE.fullmatch(name)
        if found is not None:
            parts.setdefault(found["member"], []).append((-int(found["age"] or 0), name))
    files = []
    for member, ordered in parts.items():
        names = tuple(name for _, name in sorted(ordered))
        files.append(LogFile(member=member, size_bytes=sum(run.size(f"{LOGS_DIRECTORY}/{name}") for name in names), parts=names))
    return sorted(files, key=lambda file: [int(part) if part.isdigit() else 0 for part in re.split(r"(\d+)", file.member)] or [0])


class LogReader:
    """Reads one worker's log on from where it stopped, also where a new part is begun meanwhile. For one thread."""

    def __init__(self, run: Place, member: str, *, tail_bytes: int | None = None) -> None:
        """`tail_bytes`: begin so much before the end of the newest part; None begins with the oldest part that there is."""
        self._run = run
        self._current = f"{LOGS_DIRECTORY}/{member}.log"
        self._before = f"{LOGS_DIRECTORY}/{member}.1.log"
        self._offset = 0
        self._begun = b""
        self._cut = False
        self._has_begun = tail_bytes is not None
        if tail_bytes is not None:
            self._offset = max(0, run.size(self._current) - tail_bytes)
            self._cut = self._offset > 0

    def lines(self, *, ending: bool = False) -> list[str]:
        """The lines that have been added; with `ending`, also one that has no end. OSError if the file cannot be read."""
        data = b""
        if not self._has_begun:
            self._has_begun = True
            data = self._run.read_from(self._before, 0)
        elif self._run.size(self._current) < self._offset:  # a new part was begun: what was read is the one before now
            data = self._run.read_from(self._before, self._offset)
            self._offset = 0
        added = self._run.read_from(self._current, self._offset)
        self._offset += len(added)
        *whole, self._begun = (self._begun + data + added).split(b"\n")
        if self._cut and whole:
            self._cut = False
            del whole[0]
        if ending and self._begun:
            whole.append(self._begun)
            self._begun = b""
        return [shown(line.decode(errors="replace")) for line in whole]


def shown(line: str) -> str:
    """A line as a terminal leaves it: of a progress bar that was drawn again and again, the last state."""
    return line.rstrip("\r").rpartition("\r")[2]
