"""Incremental readers of growing files: lines of JSON and rotated logs.

Each reader remembers its position. Damaged lines are skipped and counted.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

from syncline.records import dataclass
from syncline.runs import json_values
from syncline.runs.json_values import JsonObject
from syncline.runs.record_files import sealed_name
from syncline.runs.run_directory import LOGS_DIRECTORY
from syncline.runs.run_storage import StorageDirectory

MAX_FILE_BYTES = 64 * 1024**2
"""Maximum bytes read of a file of lines; records that syncline writes are smaller."""
BATCH_BYTES = 1024**2
"""Bytes of a file of lines that are in memory at a time."""
MAX_LINE_LENGTH = 16 * 1024**2
"""Maximum bytes of a line; reading stops at a longer one."""
MAX_VALUES = 2_000_000
"""Maximum JSON values read of a file of lines; each takes about a hundred bytes of memory."""
MAX_LINES = 250_000
"""Maximum lines read of a file; syncline thins its files long before."""
MAX_BEGUN_LENGTH = 1_000_000
"""Maximum bytes of an incomplete log line that are kept until its end arrives."""
MAX_LOGS = 20_000
"""Maximum number of logs listed of a run."""
_KNOWN_BYTES = 64
"""Bytes before the current position that are compared to recognize a rotated log."""
LOG_FILE = re.compile(r"(?P<member>.+?)(?:\.(?P<age>[0-9]+))?\.log")
"""Names of a log and its rotated parts: `rank-0.log`, `rank-0.1.log`."""


class LineReader:
    """Reader of a file of lines and its sealed pieces that continues where it stopped. For one
    thread.

    An incomplete last line is not consumed: it may grow, or a resumed run may cut it off.
    """

    def __init__(self, run: StorageDirectory, name: str) -> None:
        self._run = run
        self._name = name
        self._piece = 0  # sealed pieces read to their end
        self._offset = 0  # position after the last complete line
        self._room = MAX_FILE_BYTES
        self._lines = 0
        self.values = 0
        """Upper bound of the number of JSON values read."""
        self.unreadable = 0
        """Number of skipped lines."""

    @property
    def is_full(self) -> bool:
        """True if a limit was reached; the rest of the file is ignored."""
        return self._room <= 0

    def read(self) -> list[JsonObject]:
        """Return the new records. OSError if the file cannot be read."""
        return [record for batch in self.batches() for record in batch]

    def batches(self) -> Iterator[list[JsonObject]]:
        """Yield the new records in batches of about a megabyte, to bound the memory."""
        while True:
            sealed = sealed_name(self._name, self._piece + 1)
            if self._run.file_info(sealed) is not None:
                # This piece was the current file before, so a part of it may be consumed already.
                while lines := self._next_lines(sealed):
                    yield self._parsed(lines)
                self._piece, self._offset = self._piece + 1, 0
                continue
            if self._piece and self._is_sealed_already():
                return
            before = self._offset
            lines = self._next_lines(self._name)
            if lines and self._run.local_path is None and self._run.file_info(sealed) is not None:
                # The file was sealed meanwhile: these may be lines of the next piece.
                self._offset = before
                continue
            if not lines:
                return
            yield self._parsed(lines)

    def _next_lines(self, name: str) -> list[bytes]:
        """Return the next complete lines."""
        limit = min(BATCH_BYTES, self._room)
        while limit > 0:
            data = self._run.read_range(name, self._offset, limit)
            end = data.rfind(b"\n") + 1
            if end:
                self._offset += end
                self._room -= end
                return data[: end - 1].split(b"\n")
            if len(data) < limit:
                return []
            if limit >= min(MAX_LINE_LENGTH, self._room):
                self._room = 0
                return []
            limit = min(4 * limit, MAX_LINE_LENGTH, self._room)  # the line is longer than the limit
        return []

    def _is_sealed_already(self) -> bool:
        """Return True if a kill left the lines of the last sealed piece in the current file."""
        if self._offset:
            return False
        head = self._run.read_range(self._name, 0, 256)
        return bool(head) and head == self._run.read_range(
            sealed_name(self._name, self._piece), 0, len(head)
        )

    def _parsed(self, lines: list[bytes]) -> list[JsonObject]:
        text = b",".join(lines)
        values = json_values.count_values(text)
        self.values += values
        self._lines += len(lines)
        if self.values > MAX_VALUES or self._lines > MAX_LINES:
            self._room = 0
        records: list[Any] = []
        if values <= json_values.MAX_VALUES and json_values.needs_no_repair(text):
            try:
                records = json.loads(b"[" + text + b"]")  # faster than line by line
            except (ValueError, RecursionError):
                pass
        if len(records) != len(lines):
            records = [self._parse(line) for line in lines]
        found = [record for record in records if isinstance(record, dict)]
        self.unreadable += len(lines) - len(found)
        return found

    @staticmethod
    def _parse(line: bytes) -> Any:
        try:
            return json_values.parse_json(line)
        except ValueError:
            return None


@dataclass(frozen=True, kw_only=True)
class LogFile:
    """Log of one worker."""

    member: str
    """Name of the worker: "rank-0"."""
    size_bytes: int
    """Size of all parts."""
    parts: tuple[str, ...]
    """File names in `logs/`, the oldest first."""


def log_files(run: StorageDirectory) -> list[LogFile]:
    """Return the logs of a run, sorted by the numbers in their names."""
    parts: dict[str, list[tuple[int, str]]] = {}
    sizes = {
        name: facts.size
        for name, facts in itertools.islice(run.file_infos(LOGS_DIRECTORY).items(), MAX_LOGS)
    }
    for name in sizes:
        found = LOG_FILE.fullmatch(name)
        if found is not None:
            parts.setdefault(found["member"], []).append((-int(found["age"] or 0), name))
    files = []
    for member, ordered in parts.items():
        names = tuple(name for _, name in sorted(ordered))
        files.append(
            LogFile(member=member, size_bytes=sum(sizes[name] for name in names), parts=names)
        )
    return sorted(
        files,
        key=lambda file: (
            [int(number) for number in re.findall(r"[0-9]+", file.member)],
            file.member,
        ),
    )


class LogReader:
    """Reader of one worker's log that continues where it stopped and follows log rotation. For one
    thread.
    """

    def __init__(
        self, run: StorageDirectory, member: str, *, tail_bytes: int | None = None
    ) -> None:
        """`tail_bytes`: bytes before the end at which to begin; by default at the oldest part."""
        self._run = run
        self._current = f"{LOGS_DIRECTORY}/{member}.log"
        self._before = f"{LOGS_DIRECTORY}/{member}.1.log"
        self._tail_bytes = tail_bytes
        self._has_begun = False
        self._offset = 0
        self._file = 0  # identity of the current part
        # Last bytes read; needed to recognize the part because inode numbers are reused.
        self._last = b""
        self._begun = b""
        self._cut = False

    def lines(self, *, ending: bool = False) -> list[str]:
        """Return the new lines; with `ending`, include an incomplete last line. OSError if the file
        cannot be read.
        """
        *whole, self._begun = (self._begun + self._read_added()).split(b"\n")
        if self._cut and whole:
            self._cut = False
            del whole[0]
        if len(self._begun) > MAX_BEGUN_LENGTH:  # keep the last state of a progress bar
            self._begun = self._begun.rpartition(b"\r")[2]
        if (ending or len(self._begun) > MAX_BEGUN_LENGTH) and self._begun:
            whole.append(self._begun)
            self._begun = b""
        return [terminal_text(line.decode(errors="replace")) for line in whole]

    def _read_added(self) -> bytes:
        before = b"" if self._has_begun else self._read_beginning()
        facts = self._run.file_info(self._current)
        file = facts.identity if facts is not None else 0
        added = self._read_after(self._current) if self._file in (file, 0) else None
        self._file = file
        if added is None:  # rotated: the part read so far is now `_before`, unless replaced too
            rest = self._read_after(self._before)
            before = self._run.read_range(self._before, 0) if rest is None else rest
            self._offset, self._last = 0, b""
            added = self._run.read_range(self._current, 0)
        self._has_begun = self._has_begun or bool(before or added)
        self._offset += len(added)
        self._last = (self._last + added[-_KNOWN_BYTES:])[-_KNOWN_BYTES:]
        return before + added

    def _read_after(self, name: str) -> bytes | None:
        """Return the bytes that follow the current position; None if this is not the part that was
        read before.
        """
        data = self._run.read_range(name, self._offset - len(self._last))
        return data[len(self._last) :] if data.startswith(self._last) else None

    def _read_beginning(self) -> bytes:
        """Return the bytes to show of the previous part; set the position in the current one."""
        if self._tail_bytes is None:
            return self._run.read_range(self._before, 0)
        size = self._run.size(self._current)
        if size >= self._tail_bytes:
            self._offset = size - self._tail_bytes
            self._cut = self._offset > 0
            return b""
        skipped = max(0, self._run.size(self._before) - (self._tail_bytes - size))
        self._cut = skipped > 0
        return self._run.read_range(self._before, skipped)


def terminal_text(line: str) -> str:
    """Return a line as a terminal shows it: the last state of a progress bar."""
    return line.rstrip("\r").rpartition("\r")[2]
